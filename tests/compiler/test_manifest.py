"""The manifest of a request: included and omitted parts with reasons, token counts and costs of a change."""

import json
import logging
from typing import Unpack

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.draft import CompilerOptionArguments

CHAT = cc.provider("openai-chat:gpt-4o", window=10_000, output=1_000)
BINDING = cc.provider("anthropic:claude-opus-5-5")
TOOL = cc.Tool(
    name="read",
    description="Reads a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}},
)
FRAGMENTS = (cc.PromptFragment("identity", "You are a coder."), cc.PromptFragment("state", "busy", "dynamic"))
READ = cc.ToolCall(id="a", name="read", arguments={"path": "a.py"})


class Desk:
    def __init__(self, provider: cc.Provider = CHAT, **options: Unpack[CompilerOptionArguments]) -> None:
        self.store = cc.open_store("memory:")
        self.compiler = cc.MessageCompiler(self.store, provider, **options)

    def add(self, *log: cc.Message) -> None:
        self.store.extend("demo", log)

    def compile(self) -> cc.Compiled:
        return self.compiler.compile("demo", instructions=FRAGMENTS, tools=[TOOL])

    def step(self, reply: cc.Message, usage: cc.Usage | None = None) -> cc.Compiled:
        compiled = self.compile()
        self.compiler.commit(compiled, reply, usage=usage)
        return compiled


def busy_desk() -> Desk:
    """One request answered, with a bit of everything in the log; then a stray result."""
    desk = Desk()
    desk.add(
        cc.user("Find the bug.", author="ann"),
        cc.assistant("half", status="error", error="overloaded"),
        cc.assistant("All green.", author="tester"),
        cc.system("psst", audience="tester"),
    )
    desk.step(cc.assistant("Let me look.", tool_calls=[READ]), cc.Usage(input=150, output=20))
    desk.add(cc.tool_result("ghost", "read", "boo"), cc.user("And?", author="ann"))
    return desk


# ── the account ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_table() -> None:
    """Guarantee 13.1: every message of the log is in it, shown or not, and says why; so is what was repaired."""
    assert str(busy_desk().compile().manifest) == (
        "demo: request 2 for assistant on openai-chat:gpt-4o\n"
        "mode full, epoch 1\n"
        "input 217 tokens (estimated): system 14, tools 93, messages 110 of 8,637 available (1%); reserve 1,000\n"
        "shared with the request before: 138 tokens, 135 bytes\n"
        "! left out: a result for ghost that no call asked for\n"
        "! made up: a result for the call a, which had none\n"
        "! left out: that the result of read is an error\n"
        "\n"
        "   seq  role       tokens  what                                      why\n"
        "+       system          5  static fragment identity\n"
        "+    1  user            9  Find the bug.\n"
        "+    3  user           12  [@tester] All green.                      as [@tester]\n"
        "+       system         10  dynamic\n"
        '+    5  assistant      71  Let me look. calls read({"path":"a.py"})\n'
        "+    7  user            8  And?\n"
        "-    2  assistant          half                                      it ended as error\n"
        "-    4  system             psst                                      meant for tester\n"
        "-    6  tool               read: boo                                 no call asked for it"
    )


def test_every_message_of_the_log_is_accounted_for_in_every_request() -> None:
    """Guarantee 13.1: also what an earlier request left out; and a stored manifest says the same as the one before
    it.
    """
    desk = busy_desk()
    compiled = desk.compile()
    accounted = [line.seq for line in compiled.manifest.lines if line.seq]
    assert sorted(accounted) == [message.seq for message in desk.store.load("demo")]
    desk.compiler.commit(compiled, cc.assistant("Found it."))
    assert desk.compiler.explain("demo").lines == compiled.manifest.lines


def test_what_another_branch_left_out_is_not_in_the_account() -> None:
    """Guarantee 13.1: the account is of this line of the conversation."""
    desk = busy_desk()
    desk.store.edit("demo", 2, cc.assistant("whole"))
    lines = desk.compile().manifest.lines
    assert [(line.seq, line.text, line.shown) for line in lines if line.seq] == [
        (1, "Find the bug.", True),
        (2, "whole", True),
    ]


def test_each_fragment_is_named_with_its_hash_and_whether_it_went() -> None:
    """Guarantee 13.1."""
    desk = Desk()
    desk.add(cc.user("hi"))
    manifest = desk.step(cc.assistant(tool_calls=[READ])).manifest
    assert [(each.id, each.lifecycle, each.shown) for each in manifest.fragments] == [
        ("identity", "static", True),
        ("state", "dynamic", True),
    ]
    desk.add(cc.tool_result("a", "read", "print(1)"))
    later = desk.compile().manifest
    assert [(each.id, each.shown) for each in later.fragments] == [("identity", True), ("state", False)]
    assert [each.hash for each in later.fragments] == [each.hash for each in manifest.fragments]
    assert all(each.tokens for each in later.fragments)


def test_tokens_by_kind_and_how_they_were_found() -> None:
    """Guarantees 13.1, 6.1, 6.2: exact, estimated, or measured by the provider."""
    desk = Desk()
    desk.add(cc.user("hi"))
    first = desk.step(cc.assistant("hello"), cc.Usage(input=200, output=5)).budget
    assert (first.exact, first.measured) == (True, False)
    assert first.input == first.system + first.tools + first.used
    assert first.system > 0
    assert first.tools > 0
    desk.add(cc.user("more"))
    second = desk.compile().budget
    assert second.measured
    assert second.input > 200
    estimated = Desk(BINDING)
    estimated.add(cc.user("hi"))
    assert "(estimated)" in str(estimated.compile().manifest)


def test_mode_epoch_and_reason() -> None:
    """Guarantees 13.1, 9.3."""
    desk = Desk(cc.provider("openai-chat:gpt-4o", session_resumption=True))
    desk.add(cc.user("hi"))
    compiled = desk.compile()
    manifest = compiled.manifest
    assert (manifest.mode, manifest.epoch, manifest.why) == ("full", 1, "first request")
    desk.compiler.commit(compiled, cc.assistant("hello"), session_id="s1")
    desk.add(cc.user("more"))
    resumed = desk.compile().manifest
    assert (resumed.mode, resumed.epoch, resumed.why) == ("resume", 1, "")
    assert "mode resume, epoch 1, session s1" in str(resumed)
    cc.SessionManager(desk.store).invalidate(compiled.channel, "expired")
    lost = desk.compile().manifest
    assert (lost.mode, lost.epoch, lost.why) == ("full", 2, "expired")


def test_the_prefix_shared_with_the_request_before_is_that_of_the_bytes() -> None:
    """Guarantee 13.1: counted in tokens and in bytes; the bytes are those of the messages."""
    desk = Desk()
    desk.add(cc.user("hi"))
    first = desk.step(cc.assistant("hello"))
    desk.add(cc.user("more"))
    second = desk.compile()
    record = second.manifest.record
    assert record.shared == first.budget.input
    common = next(
        index for index, (one, other) in enumerate(zip(first.body, second.body, strict=False)) if one != other
    )
    before: list[JSONObject] = first.params["messages"]
    assert 0 < record.shared_bytes <= common
    assert second.params["messages"][: len(before)] == before


def test_how_a_message_differs_from_the_stored_message_is_noted() -> None:
    """Guarantee 13.1: decayed, shortened, without or with reasoning, broken off."""
    desk = Desk(failed="annotate", reasoning="inline")
    desk.add(
        cc.user("hi"),
        cc.assistant("so", reasoning="hm", tool_calls=[READ]),
        cc.tool_result("a", "read", "line\n" * 20_000),
        cc.assistant("and th", status="cancelled"),
    )
    notes = {line.seq: line.why for line in desk.compile().manifest.lines if line.why}
    assert notes == {2: "reasoning joined in", 3: "shortened", 4: "broke off"}


def test_it_is_json() -> None:
    """Guarantee 13.1: for the inspector, and for machines."""
    manifest = busy_desk().compile().manifest
    plain = manifest.as_json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["conversation"] == "demo"
    assert plain["mode"] == "full"
    assert plain["budget"]["available"] == manifest.budget.available
    assert [line["seq"] for line in plain["lines"] if not line["shown"]] == [2, 4, 6]
    assert plain["fragments"][0]["id"] == "identity"


# ── what a change would cost ──────────────────────────────────────────────────────────────────────────────────────────


def thinking_desk() -> Desk:
    """Four turns with signed reasoning, on a model that binds it to everything before it."""
    desk = Desk(BINDING)
    for number in range(1, 5):
        desk.add(cc.user(f"question {number}"))
        thought = cc.Reasoning(text="hm", signature=f"signature {number}", provider="anthropic")
        desk.step(cc.assistant(f"answer {number}", reasoning=thought))
    return desk


def test_continuing_costs_nothing() -> None:
    """Guarantee 13.2."""
    desk = thinking_desk()
    desk.add(cc.user("question 5"))
    cost = desk.compiler.compile("demo", instructions=FRAGMENTS, tools=[TOOL], dry_run=True).cost
    assert (cost.cached_tokens_lost, cost.signed_reasoning_lost, cost.dollars) == (0, 0, 0.0)
    assert cost.cached_tokens_kept > 0


def test_an_edit_costs_what_comes_after_it() -> None:
    """Guarantee 13.2: the later the edit, the less of the cache is lost; nothing is stored."""
    desk = thinking_desk()
    before = desk.store.conversation("demo")
    costs = [
        desk.compiler.compile(
            "demo", instructions=FRAGMENTS, tools=[TOOL], dry_run=True, edit=(seq, cc.user("another question"))
        ).cost
        for seq in (1, 3, 5, 7)
    ]
    lost = [cost.cached_tokens_lost for cost in costs]
    assert lost == sorted(lost, reverse=True)
    assert len(set(lost)) == 4
    assert len({cost.cached_tokens_lost + cost.cached_tokens_kept for cost in costs}) == 1
    assert all(cost.dollars for cost in costs)
    assert desk.store.conversation("demo") == before


def test_an_edit_costs_the_same_as_it_does_when_it_is_made() -> None:
    """Guarantee 13.2: the dry run reports the real cost."""
    desk = thinking_desk()
    edit = (5, cc.user("another question"))
    compiled = desk.compiler.compile("demo", instructions=FRAGMENTS, tools=[TOOL], dry_run=True, edit=edit)
    desk.store.edit("demo", *edit)
    made = desk.compile()
    assert compiled.cost == made.cost
    assert compiled.params == made.params
    assert compiled.manifest.why == made.manifest.why == "edited or branched away"


def test_a_rewind_costs_what_comes_after_it() -> None:
    """Guarantee 13.2."""
    desk = thinking_desk()
    compiled = desk.compiler.compile("demo", instructions=FRAGMENTS, tools=[TOOL], dry_run=True, rewind=5)
    assert compiled.cost.cached_tokens_lost > 0
    assert compiled.cost.signed_reasoning_lost == 0
    assert [line.seq for line in compiled.manifest.lines if line.seq] == [1, 2, 3, 4, 5]


def test_a_changed_system_prompt_costs_all_but_the_tools_and_the_reasoning_that_is_bound_to_it() -> None:
    """Guarantee 13.2: what was cached is the old prompt too, not the new one. The tools precede it in the cache."""
    desk = thinking_desk()
    same = desk.compile()
    kept, tools = same.cost.cached_tokens_kept, same.budget.tools
    longer = [cc.PromptFragment("identity", "You are a tester. " * 500)]
    cost = desk.compiler.compile("demo", instructions=longer, tools=[TOOL], dry_run=True).cost
    assert (cost.cached_tokens_lost, cost.cached_tokens_kept, cost.signed_reasoning_lost) == (kept - tools, tools, 4)
    assert tools > 0


def test_a_changed_system_prompt_leaves_reasoning_that_is_bound_to_nothing() -> None:
    """Guarantees 13.2, 9.3."""
    desk = Desk(cc.provider("anthropic:claude-sonnet-4-5"))
    desk.add(cc.user("hi"))
    desk.step(cc.assistant("hello", reasoning=cc.Reasoning(text="hm", signature="signature", provider="anthropic")))
    other = [cc.PromptFragment("identity", "You are a tester.")]
    assert desk.compiler.compile("demo", instructions=other, dry_run=True).cost.signed_reasoning_lost == 0


@pytest.mark.parametrize(
    ("other", "signed"), [("anthropic:claude-sonnet-4-5", 0), ("openai-chat:gpt-4o", 4)], ids=["model", "provider"]
)
def test_a_model_change_costs_what_the_old_one_has_cached(other: str, signed: int) -> None:
    """Guarantee 13.2: and the signed reasoning that the new one's provider cannot take."""
    desk = thinking_desk()
    held = desk.compile().cost.cached_tokens_kept
    elsewhere = cc.MessageCompiler(desk.store, other).compile(
        "demo", instructions=FRAGMENTS, tools=[TOOL], dry_run=True
    )
    assert (elsewhere.cost.cached_tokens_lost, elsewhere.cost.cached_tokens_kept) == (held, 0)
    assert elsewhere.cost.signed_reasoning_lost == signed


def test_a_first_request_of_all_costs_nothing_that_was_cached() -> None:
    """Guarantee 13.2."""
    desk = Desk()
    desk.add(cc.user("hi"))
    cost = desk.compiler.compile("demo", dry_run=True).cost
    assert (cost.cached_tokens_lost, cost.cached_tokens_kept, cost.signed_reasoning_lost) == (0, 0, 0)


def test_a_dry_run_is_not_to_be_sent() -> None:
    """Guarantee 13.2: neither begun, nor committed, nor aborted."""
    desk = Desk()
    desk.add(cc.user("hi"))
    compiled = desk.compiler.compile("demo", dry_run=True)
    with pytest.raises(cc.errors.InvalidInput, match="dry_run"):
        desk.compiler.begin(compiled)
    with pytest.raises(cc.errors.InvalidInput, match="dry_run"):
        desk.compiler.commit(compiled, cc.assistant("hello"))
    with pytest.raises(cc.errors.InvalidInput, match="dry_run"):
        desk.compiler.abort(compiled)
    assert [message.text for message in desk.store.load("demo")] == ["hi"]


@pytest.mark.parametrize("change", [{"edit": (1, cc.user("x"))}, {"rewind": 1}], ids=["edit", "rewind"])
def test_only_a_dry_run_can_pretend(change: dict[str, object]) -> None:
    """Guarantee 13.2: a request for a past that is not there would be a lie."""
    desk = Desk()
    desk.add(cc.user("hi"))
    with pytest.raises(cc.errors.InvalidInput, match="dry_run=True"):
        desk.compiler.compile("demo", **change)  # pyright: ignore[reportArgumentType] - one of two arguments


# ── logging ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_requests_are_logged_content_only_at_debug_and_keys_never(caplog: pytest.LogCaptureFixture) -> None:
    """Guarantee 13.3: an operator turns it on without giving anything away."""
    key = "sk-this-is-a-key"
    desk = Desk()

    def turn(level: int) -> str:
        caplog.clear()
        desk.add(cc.user("my question"))
        with caplog.at_level(level, "contextc"):
            with pytest.raises(cc.errors.InvalidInput, match="extra_headers belongs to the call"):
                desk.compiler.compile("demo", settings={"extra_headers": {"Authorization": f"Bearer {key}"}})
            compiled = desk.compiler.compile("demo")
            with pytest.raises(PermissionError), desk.compiler.attempt(compiled):
                raise PermissionError(f"{key} is not a key")
            stored = desk.store.read(lambda tx: tx.rows("SELECT attempt FROM main.channel"))
            assert b"PermissionError: [key] is not a key" in stored[0][0]
            with desk.compiler.attempt(compiled) as attempt:
                attempt.commit(cc.assistant("my answer"))
            str(compiled.manifest)
        return caplog.text

    quiet, verbose = turn(logging.INFO), turn(logging.DEBUG)
    assert "demo: began request 1 for assistant on openai-chat:gpt-4o" in quiet
    assert "aborted request 1" in quiet
    assert "my answer" not in quiet
    assert "my question" not in quiet
    assert "my answer" in verbose
    assert key not in quiet + verbose


def test_nothing_is_logged_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    """Guarantee 13.3: quiet."""
    desk = Desk()
    desk.add(cc.user("hi"))
    desk.step(cc.assistant("hello"))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_on_resume_the_account_reports_what_was_sent_and_what_the_session_held() -> None:
    """Of a long session only the news goes out: an account that marks all of it as sent misleads."""
    store = cc.open_store("memory:")
    facts = cc.provider("anthropic:claude-sonnet-4-5", session_resumption=True, reverts=True)
    compiler = cc.MessageCompiler(store, facts)
    fragments = [cc.PromptFragment("identity", "You are a coder."), cc.PromptFragment("state", "busy", "dynamic")]
    for text in ("one", "two"):
        store.append("demo", cc.user(text))
        compiled = compiler.compile("demo", instructions=fragments)
        compiler.commit(compiled, cc.assistant(f"answer {text}"), session_id="s1")
    assert compiled.mode == "resume"
    expected = [
        ("one", True, False),
        ("## State\nbusy", True, False),
        ("answer one", True, False),
        ("two", True, True),
        ("[System Context]: ## State\nbusy", True, True),
    ]
    for manifest in (compiled.manifest, compiler.explain("demo")):
        assert [(line.text, line.shown, line.sent) for line in manifest.lines] == expected
        marks = [line[0] for line in str(manifest).splitlines()[-6:]]
        assert marks == ["=", "=", "=", "=", "+", "+"]
    assert [line.sent for line in compiler.explain("demo", 1).lines] == [True, True]


def test_the_last_message_of_a_summary_is_left_out_like_the_others() -> None:
    """A summary is at its position. The message is not in the request, and must not be missing from the manifest."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider("anthropic:claude-sonnet-4-5", window=4_000, output=500))
    store.extend("demo", [cc.user("question " * 20), cc.assistant("answer " * 20)] * 40)
    done = compiler.compact("demo", lambda messages, previous: "what happened")
    store.append("demo", cc.user("and now?"))
    assert done is not None
    compiled = compiler.compile("demo")
    compiler.commit(compiled, cc.assistant("ok"))
    for manifest in (compiled.manifest, compiler.explain("demo")):
        left = [line.seq for line in manifest.lines if not line.shown]
        assert left == list(range(1, done.upto + 1))


def test_what_is_first_as_a_system_message_is_not_left_out() -> None:
    """It is in the system prompt."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider("anthropic:claude-sonnet-4-5"))
    store.extend("demo", [cc.system("Be brief."), cc.user("hi")])
    compiled = compiler.compile("demo")
    assert b"Be brief." in compiled.body
    compiler.commit(compiled, cc.assistant("ok"))
    for manifest in (compiled.manifest, compiler.explain("demo")):
        assert [line.seq for line in manifest.lines if not line.shown] == []
