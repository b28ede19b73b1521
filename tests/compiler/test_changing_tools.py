"""Tools and effort that change in the middle of an epoch: what can be appended is appended, the rest starts an epoch.

Every request goes to the strict fake of its vendor, which checks our rules, the types of the vendor's SDK, and that
signed reasoning still stands after the same history.
"""

import random

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler import Compiled
from contextc.compiler.ledger import get_channel_cache
from contextc.errors import InvalidSetting
from contextc.inspection.preview import load_last_head
from contextc.linting import convert, lint
from contextc.tools.definitions import NativeTool
from tests.compiler.changing_tools import BETAS, FLAGS, MODELS, STEPS, ChangingTools, available, tool
from tests.conftest import some

TOOL_CHANGES, INLINE_TOOLS = "mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15"


def names(compiled: Compiled) -> list[str]:
    return [name for name in available(compiled.provider.format, compiled.params) if name not in HISTORY]


HISTORY = ("fetch_result", "search_history")
EPOCHS = {  # (before, after, after if removed tools stay declared)
    "anthropic": (14, 1, 1),
    "openai_responses": (14, 4, 1),  # tools can be added, but not removed
    "bedrock": (14, 11, 11),  # tools can be removed, and only return
}


@pytest.mark.parametrize("format", MODELS)
def test_ten_tools_are_added_and_three_removed_in_thirty_steps(format: str) -> None:
    """Guarantee 9.3: the prefix and signed reasoning stay wherever the vendor has a way to append the change."""
    before = ChangingTools(format, appends=False).run()
    after = ChangingTools(format).run()
    kept = ChangingTools(format, removed_tools="keep").run()
    assert (before.epochs, after.epochs, kept.epochs) == EPOCHS[format]
    assert before.shared / before.sent < after.shared / after.sent <= kept.shared / kept.sent
    assert before.reasoning <= after.reasoning <= kept.reasoning
    assert before.dollars > after.dollars >= kept.dollars > 0
    if kept.epochs == 1:
        assert kept.reasoning == STEPS - 1, "signed reasoning was left out"


@pytest.mark.parametrize("format", MODELS)
def test_each_request_has_the_tools_of_its_caller(format: str) -> None:
    """`compile` sends no tool that its caller did not pass, except as one that was removed."""
    talk = ChangingTools(format)
    for step in range(12):
        talk.tools = [tool(f"source_{number}") for number in range(step // 3, step // 2 + 2)]
        assert names(talk.step()) == sorted(each.name for each in talk.tools)


def test_an_appended_tool_extends_the_prefix_and_says_so() -> None:
    talk = ChangingTools("anthropic")
    first = talk.step()
    talk.tools = [*talk.tools, tool("mails")]
    second = talk.step()
    assert second.params["tools"] == first.params["tools"]
    (added,) = [block for block in second.params["messages"][-1]["content"] if block["type"] == "tool_addition"]
    assert added["tool"]["definition"]["name"] == "mails"
    assert second.params["messages"][-1]["role"] == "system"
    assert (second.manifest.why, second.state.epoch) == ("", first.state.epoch)
    assert second.record.remarks == ("appended, so that the prefix stays: tools added: mails",)
    assert [line.text for line in second.manifest.lines if line.kind == "change"] == [
        "From here on: tools added: mails"
    ]
    assert second.features == {"inline_tools"}
    assert second.provider.flags_of(second.features) == (INLINE_TOOLS,)
    assert talk.compiler.explain("demo").record.remarks == second.record.remarks
    assert second.budget.tools == first.budget.tools
    (item,) = [entry.item for entry in second.draft.tail if entry.item.kind == "change"]
    assert 40 < item.tokens < 200, "its definition is counted with the messages"
    third = talk.step()
    assert third.features == {"inline_tools"}, "flags stay while the history needs them"
    assert third.record.remarks == ()


def test_without_leave_for_beta_features_an_epoch_starts_as_before() -> None:
    talk = ChangingTools("anthropic")
    talk.provider = cc.provider(MODELS["anthropic"])
    talk.compiler = talk.new_compiler()
    talk.step()
    talk.tools = [*talk.tools, tool("mails")]
    second = talk.step()
    assert (second.manifest.why, second.features) == ("tools changed", frozenset())
    assert names(second) == ["files", "mails", "notes"]


def test_a_changed_definition_replaces_the_tool_where_that_can_be_said() -> None:
    for format, why in (("anthropic", ""), ("openai_responses", "tools changed"), ("bedrock", "tools changed")):
        talk = ChangingTools(format)
        talk.step()
        talk.tools = [tool("files", "Now also in archives."), talk.tools[1]]
        second = talk.step()
        assert (second.manifest.why, names(second)) == (why, ["files", "notes"])
        assert b"Now also in archives." in second.body


@pytest.mark.parametrize("format", ["anthropic", "bedrock"])
def test_a_removed_tool_returns_by_its_name(format: str) -> None:
    talk = ChangingTools(format)
    talk.step()
    both = talk.tools
    talk.tools = both[1:]
    assert names(talk.step()) == ["notes"]
    talk.tools = both
    last = talk.step()
    assert (names(last), last.state.epoch, last.features) == (["files", "notes"], 1, {"tool_changes"})
    assert last.body.count(both[0].description.encode()) == 1, "its definition is not repeated"


def test_a_removed_tool_stays_declared_if_its_calls_are_answered_elsewhere() -> None:
    """An executor answers them with an error."""
    talk = ChangingTools("openai_responses", removed_tools="keep")
    first = talk.step()
    talk.tools = talk.tools[1:]
    second = talk.step()
    assert second.params["tools"] == first.params["tools"]
    assert second.record.remarks == ("no longer offered, but still declared, so that the prefix stays: files",)
    assert (second.manifest.why, second.state.epoch) == ("", 1)
    talk.step()  # its reply calls nothing
    talk.store.reset("demo")
    assert names(talk.step()) == ["notes"]


def test_a_tool_is_removed_from_the_stored_head_by_another_process() -> None:
    """The process that removes it has never seen its definition."""
    talk = ChangingTools("anthropic")
    first = talk.step()
    get_channel_cache(talk.store).clear()
    talk.compiler, talk.tools = talk.new_compiler(), talk.tools[1:]
    second = talk.step()
    assert second.params["tools"] == first.params["tools"]
    assert names(second) == ["notes"]


@pytest.mark.parametrize("format", ["anthropic", "openai_responses"])
def test_the_next_epoch_has_all_tools_in_its_head(format: str) -> None:
    talk = ChangingTools(format)
    talk.step()
    talk.tools = [*talk.tools, tool("mails")]
    talk.step()
    talk.step()  # its reply calls nothing
    talk.store.reset("demo")
    third = talk.step()
    assert (third.manifest.why, third.features) == ("cleared", frozenset())
    assert [each["name"] for each in third.params["tools"] if each["name"] not in HISTORY] == [
        "files",
        "notes",
        "mails",
    ]
    assert not any(line.kind == "change" for line in third.manifest.lines)


def test_a_cut_takes_the_changes_into_its_head() -> None:
    talk = ChangingTools("anthropic")
    talk.provider = cc.provider(MODELS["anthropic"], betas=BETAS, window=12_000, output=2_000)
    talk.compiler = talk.new_compiler()
    talk.step()
    talk.tools = [*talk.tools[1:], tool("mails")]
    talk.step()
    steps = [talk.step(text="so it goes " * 300) for _ in range(20)]
    assert all(names(each) == ["mails", "notes"] for each in steps)
    assert {each.manifest.why for each in steps} - {""} == {"over budget"}
    assert steps[-1].features == frozenset()


def test_a_fork_has_the_tools_of_the_point_it_begins_at() -> None:
    """Guarantee 9.5: the prefix of the parent stays valid, and so does its signed reasoning."""
    talk = ChangingTools("anthropic")
    for step in range(8):
        if step in (2, 5):
            talk.tools = [*talk.tools, tool(f"source_{step}")]
        talk.step()
    talk.store.fork("demo", "early", at=6)
    talk.store.fork("demo", "late")
    for name in ("early", "late"):
        get_channel_cache(talk.store).clear()
        talk.compiler = talk.new_compiler()
        parent = talk.requests[-1].params["tools"]
        compiled = talk.step(name)
        assert compiled.params["tools"] == parent, "the fork has another head"
        assert names(compiled) == ["files", "notes", "source_2", "source_5"]
        assert compiled.features == {"inline_tools"}
        assert compiled.record.signed_lost == 0


def test_an_edit_keeps_the_head_and_states_again_what_it_took_away() -> None:
    talk = ChangingTools("anthropic")
    for step in range(6):
        if step == 4:
            talk.tools = [*talk.tools, tool("mails")]
        talk.step()
    talk.store.rewind("demo", 3)
    compiled = talk.step()
    assert compiled.manifest.why == "edited or branched away"
    assert compiled.params["tools"] == talk.requests[0].params["tools"]
    assert names(compiled) == ["files", "mails", "notes"]


def test_a_changed_effort_is_appended() -> None:
    for format, setting in (("anthropic", "output_config"), ("openai_responses", "reasoning")):
        talk = ChangingTools(format)
        talk.settings = {setting: {"effort": "low"}}
        talk.step()
        talk.settings = {setting: {"effort": "high"}}
        second = talk.step()
        assert (second.manifest.why, second.params[setting]) == ("", {"effort": "low"})
        assert second.features == {"effort_changes"}
        assert second.params[second.formatter.messages_key][-1][setting] == {"effort": "high"}
        third = talk.step()
        assert (third.manifest.why, third.params[setting], third.record.remarks) == ("", {"effort": "low"}, ())
        talk.settings = {}
        fourth = talk.step()
        assert fourth.manifest.why == "reasoning settings changed", "no message sets the default again"
        assert setting not in fourth.params
        assert fourth.features == frozenset()


def test_tools_and_effort_change_in_one_message() -> None:
    talk = ChangingTools("anthropic")
    talk.step()
    talk.settings, talk.tools = {"output_config": {"effort": "max"}}, [*talk.tools[1:], tool("mails")]
    second = talk.step()
    last = second.params["messages"][-1]
    assert (last["role"], last["output_config"]) == ("system", {"effort": "max"})
    assert [block["type"] for block in last["content"]] == ["tool_removal", "tool_addition"]
    assert second.record.remarks == (
        "appended, so that the prefix stays: tools added: mails; tools removed: files; effort: max",
    )


def test_the_pro_mode_of_openai_takes_no_changed_effort() -> None:
    talk = ChangingTools("openai_responses")
    talk.settings = {"reasoning": {"mode": "pro", "effort": "low"}}
    talk.step()
    talk.settings = {"reasoning": {"mode": "pro", "effort": "high"}}
    assert talk.step().manifest.why == "reasoning settings changed"


def test_a_request_without_new_input_states_no_change() -> None:
    """A change must follow input and precede the reply to it."""
    talk = ChangingTools("anthropic")
    talk.step()
    talk.tools = [*talk.tools, tool("mails")]
    compiled = talk.compile(retry=True)
    assert compiled.manifest.why == "tools changed"
    assert compiled.features == frozenset()


def test_a_change_before_an_empty_reply_stays_valid() -> None:
    """The message that states it has to be followed by a reply, so it moves behind the next input."""
    talk = ChangingTools("anthropic")
    talk.step()
    talk.tools = [*talk.tools, tool("mails")]
    talk.store.append("demo", cc.user("And?"))
    with talk.compiler.attempt(talk.compile()) as attempt:
        attempt.commit({"role": "assistant", "content": [], "stop_reason": "end_turn", "usage": {}})
    compiled = talk.step(text="Hello?")
    assert names(compiled) == ["files", "mails", "notes"]
    assert [message["role"] for message in compiled.params["messages"][-2:]] == ["user", "system"]


def test_a_preview_without_the_program_knows_the_appended_tools() -> None:
    talk = ChangingTools("anthropic")
    talk.step()
    talk.tools = [*talk.tools[1:], tool("mails")]
    talk.step()
    talk.step()
    head = load_last_head(talk.store, talk.compiler.channel("demo"), talk.provider)
    assert head is not None
    assert sorted(each.name for each in head.tools if isinstance(each, cc.Tool) and each.name not in HISTORY) == [
        "mails",
        "notes",
    ]
    talk.store.append("demo", cc.user("And now?"))
    compiled = talk.compiler.compile("demo", instructions="You look things up.", tools=head.tools, dry_run=True)
    assert (compiled.manifest.why, compiled.record.remarks) == ("", ())


@pytest.mark.parametrize("format", MODELS)
@pytest.mark.parametrize("seed", some(range(6), 1))
def test_random_changes_are_accepted(format: str, seed: int) -> None:
    """Tools and effort change, tools return, the conversation is cut, rewound and forked, processes come and go."""
    chance = random.Random(seed)
    talk = ChangingTools(format, removed_tools=chance.choice(("drop", "keep")))
    talk.provider = cc.provider(MODELS[format], **FLAGS[format], window=chance.choice((14_000, 60_000)), output=2_000)
    talk.compiler = talk.new_compiler()
    pool = [tool(f"source_{number}", note) for number in range(6) for note in ("", "Newer.")]
    setting = {"anthropic": "output_config", "openai_responses": "reasoning"}.get(format, "")
    conversation, rules = "demo", list[cc.PromptFragment]()
    for step in range(30):
        if chance.random() < 0.4:
            taken = {each.name: each for each in chance.sample(pool, chance.randint(1, 6))}
            talk.tools = [*taken.values()]
        if chance.random() < 0.2:
            talk.instructions = rules = [
                cc.PromptFragment(name, f"Rule {chance.random()}.") for name in ("style", "scope")
            ]
        if setting and chance.random() < 0.2:
            talk.settings = {setting: {"effort": chance.choice(("low", "high", "max"))}}
        if step > 4 and chance.random() < 0.1:
            end = max(1, talk.store.conversation(conversation).length - chance.randint(1, 5))
            talk.store.rewind(conversation, end)
        if step > 4 and chance.random() < 0.1:
            talk.store.fork(conversation, f"c{step}")
            conversation = f"c{step}"
        if chance.random() < 0.2:
            get_channel_cache(talk.store).clear()
            talk.compiler = talk.new_compiler()
        compiled = talk.step(conversation, text="so it goes " * chance.choice((1, 5, 200)))
        assert lint(compiled.params, format=format) == []
        assert all(str(each.text).encode() in compiled.body for each in rules)
        wanted = {each.name for each in talk.tools}
        assert set(names(compiled)) >= wanted
        if "keep" not in talk.options.values():
            assert set(names(compiled)) == wanted


def test_flags_are_those_that_are_allowed() -> None:
    both = cc.provider(MODELS["anthropic"], betas=[TOOL_CHANGES, INLINE_TOOLS])
    assert both.flags_of({"tool_changes"}) == (TOOL_CHANGES,)
    assert both.flags_of({"tool_changes", "inline_tools"}) == (INLINE_TOOLS, TOOL_CHANGES)
    one = cc.provider(MODELS["anthropic"], betas=[INLINE_TOOLS])
    assert one.flags_of({"tool_changes", "inline_tools"}) == (INLINE_TOOLS,)
    only = cc.provider(MODELS["anthropic"], betas=[TOOL_CHANGES])
    assert only.features == {"tool_changes", "tool_search"}
    assert cc.provider("anthropic:claude-sonnet-5", betas=BETAS).features == {"tool_search"}
    assert cc.provider("openai-chat:gpt-6-sol").features == frozenset()
    with pytest.raises(InvalidSetting, match="betas: must be a list of flags"):
        cc.provider(MODELS["anthropic"], betas=INLINE_TOOLS)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("format", MODELS)
def test_another_format_has_the_final_tools_beside_the_messages(format: str) -> None:
    """No other format has messages that change tools or effort."""
    talk = ChangingTools(format)
    talk.step()
    talk.tools = [*talk.tools, tool("mails")] if format == "openai_responses" else talk.tools[1:]
    talk.settings = {"openai_responses": {"reasoning": {"effort": "high"}}}.get(format, {})
    compiled = talk.step()
    converted = convert(compiled.params, source=format, target="openai_chat")
    assert [each["role"] for each in converted["messages"]] == ["system", "user", "assistant", "user"]
    offered = [each["function"]["name"] for each in converted["tools"]]
    assert [name for name in offered if name not in HISTORY] == [each.name for each in talk.tools]
    assert converted.get("reasoning_effort") == ("high" if talk.settings else None)
    assert [message.role for message in compiled.messages] == ["user", "assistant", "user"]


@pytest.mark.parametrize("removed_tools", ["drop", "keep"])
@pytest.mark.parametrize("left", [(), BETAS[1:]])
def test_changes_whose_flag_is_gone_are_taken_into_a_new_head(removed_tools: str, left: tuple[str, ...]) -> None:
    """A provider that refuses a flag would refuse every later request of the epoch."""
    talk = ChangingTools("anthropic", removed_tools=removed_tools)
    talk.step()
    talk.tools = [*talk.tools, tool("mails")]
    talk.step()
    talk.provider = cc.provider(MODELS["anthropic"], betas=left)
    talk.compiler = talk.new_compiler()
    compiled = talk.step()
    assert (compiled.manifest.why, compiled.features, compiled.record.betas) == ("tools changed", frozenset(), left)
    assert names(compiled) == ["files", "mails", "notes"]


def test_an_effort_whose_flag_is_gone_is_set_beside_the_messages() -> None:
    talk = ChangingTools("anthropic")
    talk.settings = {"output_config": {"effort": "low"}}
    talk.step()
    talk.settings = {"output_config": {"effort": "high"}}
    talk.step()
    talk.provider = cc.provider(MODELS["anthropic"], betas=BETAS[:1])
    talk.compiler = talk.new_compiler()
    compiled = talk.step()
    assert (compiled.manifest.why, compiled.record.betas) == ("reasoning settings changed", BETAS[:1])
    assert compiled.params["output_config"] == {"effort": "high"}


def test_a_call_of_an_appended_tool_cannot_be_forced() -> None:
    """A forced tool has to be beside the messages, also if a call of another one was forced before."""
    talk = ChangingTools("anthropic")
    talk.step()
    talk.tools = [*talk.tools, tool("mails")]
    talk.store.append("demo", cc.user("And now?"))
    reasons: list[str] = []
    for name in ("files", "mails", "files"):
        talk.settings = {"tool_choice": {"type": "tool", "name": name}}
        reasons.append(talk.compile(dry_run=True).manifest.why)
    assert reasons == ["", "tools changed", ""]


def test_a_tool_that_the_provider_runs_does_not_stay_declared() -> None:
    """Nobody but the provider would answer its calls, so it could still be used."""
    for format, search in (
        ("anthropic", {"type": "web_search_20250305", "name": "web_search"}),
        ("openai_responses", {"type": "web_search"}),
    ):
        talk = ChangingTools(format, appends=False, removed_tools="keep")
        talk.native = [NativeTool(provider=talk.provider.formatter.provider, data=search)]
        talk.store.append("demo", cc.user("First?"))
        with talk.compiler.attempt(talk.compile()) as attempt:
            attempt.commit(cc.assistant("Done."))
        talk.native = []
        talk.store.append("demo", cc.user("Second?"))
        compiled = talk.compile()
        assert (compiled.manifest.why, compiled.record.remarks) == ("tools changed", ())
        assert b"web_search" not in compiled.body


def test_an_appended_tool_of_the_provider_does_not_stay_declared() -> None:
    talk = ChangingTools("openai_responses", removed_tools="keep")
    search = NativeTool(provider="openai", data={"type": "web_search"})
    reasons: list[str] = []
    for talk.native in ([], [search], []):
        talk.store.append("demo", cc.user("Next?"))
        compiled = talk.compile()
        with talk.compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("Done."))
        reasons.append(compiled.manifest.why)
    assert reasons == ["first request", "", "tools changed"]


@pytest.mark.parametrize(
    "model",
    [
        "anthropic:claude-opus-5-5",
        "bedrock:us.anthropic.claude-opus-4-5",
        "gemini:gemini-3-pro-preview",
        "mistral:mistral-large-latest",
        "ollama:qwen3:8b",
        "openai:gpt-6-astra",
        "openai-chat:gpt-5.5",
    ],
)
def test_a_removed_tool_stays_declared_in_another_process(model: str) -> None:
    """Guarantee 9.3. The head comes from the store, where most formats have the name inside of a definition."""
    store, provider = cc.open_store("memory:"), cc.provider(model)
    bodies: list[bytes] = []
    for tools in ([tool("files"), tool("notes")], [tool("files")], [tool("files"), tool("notes")]):
        get_channel_cache(store).clear()
        compiler = cc.MessageCompiler(store, provider, removed_tools="keep")
        store.append("demo", cc.user("Next?"))
        compiled = compiler.compile("demo", tools=tools)
        with compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("Done."))
        bodies.append(compiled.body)
        assert compiled.state.epoch == 1
    assert [compiler.rebuild("demo", number) for number in (1, 2, 3)] == bodies
    assert [body.count(b"Looks things up in notes") for body in bodies] == [1, 1, 1]


def test_breakpoints_of_the_caller_are_not_appended() -> None:
    """Callers move theirs to the last tool. A request may have four, and a tool is the same without it."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(MODELS["anthropic"], betas=BETAS))
    tools: list[JSONObject] = []
    for name in ("files", "notes", "mails", "dates", "calls"):
        tools = [{key: each[key] for key in each if key != "cache_control"} for each in tools]
        definition: JSONObject = {"name": name, "description": name * 200, "input_schema": {"type": "object"}}
        tools.append({**definition, "cache_control": {"type": "ephemeral"}})
        store.append("demo", cc.user("Go on. " * 2_000))
        compiled = compiler.compile("demo", instructions="Be brief. " * 1_000, tools=tools)
        assert lint(compiled.params, format="anthropic") == []
        assert compiled.body.count(b'"cache_control"') <= 4
        if name != "files":
            assert compiled.record.remarks == (f"appended, so that the prefix stays: tools added: {name}",)
        with compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("Done."))


def test_the_linter_counts_breakpoints_of_tools_in_messages() -> None:
    talk = ChangingTools("anthropic")
    talk.step()
    talk.tools = [*talk.tools, *[tool(f"source_{number}") for number in range(5)]]
    body = talk.step().params
    for block in next(each for each in body["messages"] if each["role"] == "system")["content"]:
        block["tool"]["definition"]["cache_control"] = {"type": "ephemeral"}
    assert [each.code for each in lint(body, format="anthropic")] == ["ANT016"]


@pytest.mark.parametrize(
    ("format", "unnamed", "reasons"),
    [
        ("bedrock", {"cachePoint": {"type": "default"}}, ["", "", ""]),
        ("bedrock", {"systemTool": {"name": "nova_grounding"}}, ["tools changed", "tools changed", "tools changed"]),
        ("anthropic", {"type": "mcp_toolset", "mcp_server_name": "docs"}, ["tools changed", "", "tools changed"]),
    ],
    ids=["a breakpoint", "a tool of Bedrock", "a server of tools"],
)
def test_a_tool_without_a_name_is_not_removed_by_one(format: str, unnamed: JSONObject, reasons: list[str]) -> None:
    """The vendor would not know it. A breakpoint among the tools is none of them."""
    talk = ChangingTools(format)
    found: list[str] = []
    native = NativeTool(provider=talk.provider.formatter.provider, data=unnamed)
    for talk.native in ([native], [], [native], []):
        talk.store.append("demo", cc.user("Next?"))
        compiled = talk.compile()
        with talk.compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("Done."))
        assert lint(compiled.params, format=format) == []
        found.append(compiled.manifest.why)
    assert found[1:] == reasons


def test_two_servers_of_tools_are_no_duplicates() -> None:
    store = cc.open_store("memory:")
    store.append("demo", cc.user("Hi!"))
    servers: list[JSONObject] = [
        {"type": "mcp", "server_label": name, "server_url": f"http://127.0.0.1/{name}"} for name in ("docs", "code")
    ]
    compiled = cc.MessageCompiler(store, "openai:gpt-5.5").compile("demo", tools=servers)
    assert [each["server_label"] for each in compiled.params["tools"] if each["type"] == "mcp"] == ["docs", "code"]


def test_tools_without_a_name_are_compared_by_their_definitions() -> None:
    """Google's own tools have none."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider("gemini:gemini-3-pro-preview"), removed_tools="keep")
    reasons: list[str] = []
    for kinds in (("googleSearch", "codeExecution"), ("urlContext", "codeExecution"), ("codeExecution",)):
        store.append("demo", cc.user("Next?"))
        compiled = compiler.compile("demo", tools=[NativeTool(provider="google", data={kind: {}}) for kind in kinds])
        with compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("Done."))
        sent = [kind for each in compiled.params["tools"] for kind in each if kind != "functionDeclarations"]
        assert sent == [*kinds]
        reasons.append(compiled.manifest.why)
    assert reasons == ["first request", "tools changed", "tools changed"]


def test_names_that_a_format_spells_otherwise_change_alike() -> None:
    """A preview and a conversion read the tools from a request, in which `files.read` has another spelling."""
    talk = ChangingTools("anthropic")
    talk.tools = [tool("files.read"), tool("notes")]
    talk.step()
    talk.tools = [tool("notes"), tool("mails.send")]
    compiled = talk.step()
    head = load_last_head(talk.store, talk.compiler.channel("demo"), talk.provider)
    assert head is not None
    passed = [each.name for each in head.tools if isinstance(each, cc.Tool) and each.name not in HISTORY]
    assert sorted(passed) == ["mails.send", "notes"]
    converted = convert(compiled.params, source="anthropic", target="openai_chat")
    offered = [each["function"]["name"] for each in converted["tools"]]
    assert [name for name in offered if name not in HISTORY] == ["notes", "mails_x2E_send"]


@pytest.mark.parametrize("format", ["anthropic", "bedrock"])
def test_reasoning_after_a_redacted_message_is_left_out_where_it_is_bound(format: str) -> None:
    """Its signature covers the message that is gone, so the vendor would refuse every later request."""
    talk = ChangingTools(format)
    for _ in range(5):
        talk.step()
    asked = [message for message in talk.store.load("demo") if message.role == "user"]
    talk.store.redact("demo", asked[1].seq)
    compiled = talk.step()
    assert compiled.manifest.why == "redacted"
    assert compiled.record.signed_lost > 0
