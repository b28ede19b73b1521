"""Session bugs reported for similar systems, as far as they concern compiling, each with its report."""

import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject, decode
from tests.compiler.recorded_replay import begins_with, blocks

LOOK = cc.Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
WRITE = cc.Tool(name="write", description="Writes.", parameters={"type": "object", "properties": {}})
SESSIONS = "openai-session:gpt-5"
CLAUDE = "anthropic:claude-sonnet-4-5"


def compiler_for(provider: str, *, window: int | None = None, output: int | None = None) -> cc.MessageCompiler:
    return cc.MessageCompiler(cc.open_store("memory:"), cc.provider(provider, window=window, output=output))


def answered(compiler: cc.MessageCompiler, text: str, reply: str = "Yes.", session: str | None = None) -> cc.Compiled:
    compiler.store.append("c", cc.user(text))
    compiled = compiler.compile("c", instructions="Be brief.")
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant(reply), session_id=session)
    return compiled


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_is_sent_what_it_has_not_seen_and_nothing_twice() -> None:
    """openai-agents-python#1789, agent-framework#3295: "Duplicate item found". Guarantees 9.4, 9.6."""
    compiler = compiler_for(SESSIONS)
    held: list[bytes] = []
    for index in range(6):
        compiled = answered(compiler, f"Question {index}.", f"Answer {index}.", session=f"resp_{index}")
        sent = blocks({"input": compiled.params["input"]})
        assert not set(sent) & set(held)
        assert compiled.mode == ("full" if index == 0 else "resume")
        assert compiled.session_id == (f"resp_{index - 1}" if index else None)
        held += sent
    assert [f"Question {index}." in held[index].decode() for index in range(6)] == [True] * 6
    assert len(held) == 6  # what the model said itself, the session has already


def test_an_output_without_its_call_goes_into_a_session_that_has_the_call() -> None:
    """agno#9372: the guard against orphans must not fire there. Guarantees 9.4, 5.1."""
    compiler = compiler_for(SESSIONS)
    compiler.store.append("c", cc.user("Look."))
    compiled = compiler.compile("c", tools=[LOOK])
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant(tool_calls=[cc.tool_call("a", "look", {})]), session_id="resp_1")
    compiler.store.append("c", cc.tool_result("a", "look", "A file."))
    after = compiler.compile("c", tools=[LOOK])
    assert after.mode == "resume"
    assert [item["type"] for item in after.params["input"]] == ["function_call_output"]


def test_no_round_stores_the_conversation_again(tmp_path: Path) -> None:
    """agent-framework#7211, #7930. Guarantee 3.3: what a step writes does not grow with the history."""
    store = cc.open_store(f"sqlite:///{tmp_path}/chat.db")
    compiler = cc.MessageCompiler(store, cc.provider(SESSIONS))
    for index in range(10):
        answered(compiler, f"Question {index}.", f"Answer {index}.", session=f"resp_{index}")
    assert [message.text for message in store.load("c")] == [
        text for index in range(10) for text in (f"Question {index}.", f"Answer {index}.")
    ]
    wire = b"".join(row[0] for row in sqlite3.connect(tmp_path / "chat.db").execute("SELECT wire FROM shown"))
    assert [wire.count(f"Question {index}.".encode()) for index in range(10)] == [1] * 10


def test_an_expired_session_gets_the_whole_conversation_and_a_new_name() -> None:
    """opencodex#702, term-llm#251: retried with the delta only, it forgets everything. Guarantees 9.5, 9.6."""
    compiler = compiler_for(SESSIONS)
    for index in range(4):
        answered(compiler, f"Question {index}.", f"Answer {index}.", session=f"resp_{index}")
    compiler.store.append("c", cc.user("And now?"))
    refused = compiler.compile("c", instructions="Be brief.")
    assert refused.session_id == "resp_3"
    compiler.begin(refused)
    compiler.abort(refused, "previous_response_not_found")
    cc.SessionManager(compiler.store).invalidate(refused.channel, "the response id has expired")
    compiled = compiler.compile("c", instructions="Be brief.")
    assert (compiled.mode, compiled.session_id) == ("full", None)
    assert compiled.manifest.why == "the response id has expired"
    assert "previous_response_id" not in compiled.params
    shown = [line.text for line in compiled.manifest.lines if line.shown]
    asked = [text for index in range(4) for text in (f"Question {index}.", f"Answer {index}.")]
    assert shown == [*asked, "And now?"]
    for text in shown:
        assert compiled.body.decode().count(text) == 1


def test_what_a_summary_replaces_is_not_sent_beside_it() -> None:
    """pydantic-ai#7224: not every provider ignores what comes before a compaction. Guarantee 7.5."""
    for provider in (CLAUDE, "openai:gpt-5"):
        compiler = compiler_for(provider, window=4_000, output=500)
        for index in range(8):
            answered(compiler, f"Question {index}: " + "why " * 200)
        made = compiler.compact("c", lambda messages, previous: "They asked why.", system_prompt="Be brief.")
        assert made is not None
        compiled = answered(compiler, "And now?")
        assert compiled.manifest.why == "compaction"
        assert "They asked why." in compiled.body.decode()
        assert '"Question 0:' not in compiled.body.decode()
        assert "Question 7:" in compiled.body.decode()


def test_one_dead_call_stops_neither_cuts_nor_compaction() -> None:
    """adk-python#7236. Guarantees 5.3, 7.2, 7.5."""
    compiler = compiler_for(CLAUDE, window=4_000, output=500)
    answered(compiler, "Question one.")
    compiler.store.append("c", cc.user("Look."))
    compiler.store.append("c", cc.assistant(tool_calls=[cc.tool_call("dead", "look", {})]))
    reasons: Counter[str] = Counter()
    for index in range(40):
        compiled = answered(compiler, f"Question {index}: " + "why " * 220)
        reasons[compiled.manifest.why] += 1
        if index == 20:
            made = compiler.compact("c", lambda messages, previous: "They asked why.", system_prompt="Be brief.")
            assert made is not None
        assert not cc.lint(compiled.params, format="anthropic")
    assert reasons["over budget"] >= 2
    assert reasons["compaction"] == 1


@pytest.mark.parametrize("compacts", [False, True])
def test_a_result_is_reported_though_its_call_was_cut_away_meanwhile(compacts: bool) -> None:
    """adk-python#5602: compaction swallows a pending call whose result comes later. Guarantee 5.3."""
    compiler = compiler_for(CLAUDE, window=4_000, output=500)
    compiler.store.append("c", cc.user("Look."))
    compiler.store.append("c", cc.assistant(tool_calls=[cc.tool_call("slow", "look", {})]))
    for index in range(14):
        answered(compiler, f"Question {index}: " + "why " * 220)
    if compacts:
        made = compiler.compact("c", lambda messages, previous: "They asked why.", system_prompt="Be brief.")
        assert made is not None
    assert '"slow"' not in answered(compiler, "Is it still there?").body.decode()
    compiler.store.append("c", cc.tool_result("slow", "look", "The file is empty."))
    result = answered(compiler, "And now?")
    assert result.body.decode().count("The file is empty.") == 1
    assert "call slow" in result.body.decode()
    compiler.store.append("c", cc.tool_result("slow", "look", "The file is empty."))
    again = answered(compiler, "Once more.")
    assert again.body.decode().count("The file is empty.") == 1
    assert not cc.lint(again.params, format="anthropic")


# ── cache ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_clock_among_the_dynamic_fragments_leaves_the_prefix_alone() -> None:
    """OpenHands software-agent-sdk#3690: a timestamp at the head of the prompt breaks the cache. Guarantees 8.3,
    9.2.
    """
    compiler = compiler_for(CLAUDE)
    before: list[bytes] = []
    for index in range(5):
        compiler.store.append("c", cc.user(f"Question {index}."))
        clock = cc.PromptFragment("clock", f"It is 12:0{index}.", lifecycle="dynamic")
        compiled = compiler.compile("c", instructions=["Be brief.", clock])
        now = blocks(compiled.params)
        assert begins_with(now, before)
        assert (compiled.manifest.why == "") == bool(index)
        assert f"It is 12:0{index}." in now[-1].decode()
        compiler.begin(compiled)
        compiler.commit(compiled, cc.assistant("Yes."))
        before = now


def test_a_clock_in_the_system_prompt_is_announced_every_time() -> None:
    """OpenHands software-agent-sdk#3690: the remark is repeated for each request. Guarantees 9.3, 13.2."""
    compiler = compiler_for(CLAUDE)
    for index in range(3):
        compiler.store.append("c", cc.user(f"Question {index}."))
        compiled = compiler.compile("c", instructions=f"It is 12:0{index}.")
        assert compiled.manifest.why == ("system prompt changed" if index else "first request")
        assert (compiled.cost.cached_tokens_lost > 0) == bool(index)
        compiler.begin(compiled)
        compiler.commit(compiled, cc.assistant("Yes."))


def test_tools_given_in_another_order_are_sent_in_the_old_one() -> None:
    """qwen-code#6338: the order of tools breaks the cache. Guarantees 8.2, 9.2."""
    compiler = compiler_for(CLAUDE)
    before: list[bytes] = []
    for index, tools in enumerate([[LOOK, WRITE], [WRITE, LOOK], [LOOK, WRITE]]):
        compiler.store.append("c", cc.user(f"Question {index}."))
        compiled = compiler.compile("c", instructions="Be brief.", tools=tools)
        assert [tool["name"] for tool in compiled.params["tools"]][:3] == ["look", "write", "fetch_result"]
        assert begins_with(blocks(compiled.params), before)
        assert (compiled.manifest.why == "") == bool(index)
        compiler.begin(compiled)
        compiler.commit(compiled, cc.assistant("Yes."))
        before = blocks(compiled.params)


@pytest.mark.parametrize("provider", [CLAUDE, "anthropic:claude-opus-5-5", "openai:gpt-5", "gemini:gemini-2.5-pro"])
def test_a_system_message_in_the_middle_stays_there(provider: str) -> None:
    """litellm#36559: hoisting it to the head breaks the cache. Guarantees 10.3, 9.2."""
    compiler = compiler_for(provider)
    first = answered(compiler, "Question one.")
    compiler.store.append("c", cc.system("The user is in a hurry."))
    second = answered(compiler, "Question two.")
    assert second.manifest.why == ""
    assert begins_with(blocks(second.params), blocks(first.params))
    assert second.body.decode().count("The user is in a hurry.") == 1
    assert not cc.lint(second.params, format=second.formatter.name)


# ── writers and bytes ─────────────────────────────────────────────────────────────────────────────────────────────────

WRITERS, ROUNDS = 8, 4


def sent_by(store: cc.Store, writer: int, *, leased: bool) -> int:
    """One writer's rounds: append, compile, commit. Returns how often it had to compile again."""
    compiler = cc.MessageCompiler(store, cc.provider(CLAUDE))
    again = 0
    for number in range(ROUNDS):
        store.append("c", cc.user(f"<{writer}.{number}>"))
        while True:
            try:
                if leased:
                    with store.lease("c", wait=60) as lease:
                        commit(compiler, writer, number, lease)
                else:
                    commit(compiler, writer, number, None)
                break
            except cc.errors.StaleCompile:
                again += 1
    return again


def commit(compiler: cc.MessageCompiler, writer: int, number: int, lease: cc.store.Lease | None) -> None:
    compiled = compiler.compile("c", retry=True)
    with compiler.attempt(compiled, lease=lease) as attempt:
        attempt.commit(cc.assistant(f"to <{writer}.{number}>"))


@pytest.mark.parametrize("leased", [True, False])
def test_eight_writers_on_one_conversation_lose_nothing(store: cc.Store, leased: bool) -> None:
    """langgraph#8115, adk-python#4751: eight writers on LangGraph's SQLite keep 1 of 8 messages. Guarantees 3.2,
    9.7.
    """
    store.append("c", cc.user("Begin."))
    with ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(sent_by, store, writer, leased=leased) for writer in range(WRITERS)]
    again = [writer.result() for writer in writers]
    asked = [f"<{writer}.{number}>" for writer in range(WRITERS) for number in range(ROUNDS)]
    messages = store.load("c")
    assert sorted(message.text for message in messages) == sorted(["Begin.", *asked, *(f"to {text}" for text in asked)])
    assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
    if leased:
        assert sum(again) == 0
    compiler = cc.MessageCompiler(store, cc.provider(CLAUDE))
    store.append("c", cc.user("End."))
    compiled = compiler.compile("c")
    assert sorted(line.seq for line in compiled.manifest.lines if line.shown) == list(range(1, len(messages) + 2))
    assert compiled.record.request == WRITERS * ROUNDS + 1
    assert decode(compiled.body) == compiled.params


@pytest.mark.parametrize("window", [200_000, 8_000])
def test_what_is_stored_grows_with_the_messages(tmp_path: Path, window: int) -> None:
    """langgraph#7547: 145 MB for 0.4 MB of messages after 200 turns. Guarantee 3.3."""
    path = tmp_path / "chat.db"
    compiler = cc.MessageCompiler(cc.open_store(f"sqlite:///{path}"), cc.provider(CLAUDE, window=window, output=1_000))
    text = "This is a sentence of some length, said in order to fill the room. " * 15
    sizes: list[int] = [0]
    for index in range(200):
        answered(compiler, f"{index}: {text}", text)
        if index % 50 == 49:
            with sqlite3.connect(path) as connection:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
            sizes.append(pages * connection.execute("PRAGMA page_size").fetchone()[0])
    grown = [later - earlier for earlier, later in pairwise(sizes)]
    content = 200 * 2 * len(text)
    assert max(grown[1:]) < 1.2 * min(grown[1:])
    assert sizes[-1] < 6 * content


# ── counting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def used(compiler: cc.MessageCompiler, *messages: cc.Message) -> int:
    """Tokens that messages take in a request."""
    name = f"{len(compiler.store.conversations())}"
    compiler.store.extend(name, messages)
    return compiler.compile(name, retry=True).budget.used


def test_thinking_calls_and_pictures_are_counted_as_what_they_are() -> None:
    """langchain#39697, #35558, #38258: thinking is off 5 to 10 times, calls 2.4, base64 counts as text. Guarantee
    6.1.
    """
    compiler = compiler_for(CLAUDE)
    bare = used(compiler, cc.user("Hi."), cc.assistant("Hello."))
    message = "The cause lies in the second file, where the list is changed while it is read. " * 40
    text = compiler.counter.count_text(message)
    thought = cc.Reasoning(text=message, signature="c2ln" * 100, provider="anthropic")
    assert used(compiler, cc.user("Hi."), cc.assistant("Hello.", reasoning=thought)) == pytest.approx(
        bare + text, rel=0.1
    )
    foreign = cc.Reasoning(text=message, signature="c2ln" * 100, provider="openai")
    assert used(compiler, cc.user("Hi."), cc.assistant("Hello.", reasoning=foreign)) == bare
    arguments: JSONObject = {"content": message}
    called = cc.assistant("Hello.", tool_calls=[cc.tool_call("a", "write", arguments)])
    assert used(compiler, cc.user("Hi."), called) == pytest.approx(bare + text, rel=0.15)
    picture = cc.Media(data=b"\x89PNG" + bytes(1_000_000), mime_type="image/png")
    assert used(compiler, cc.user(["Hi.", picture]), cc.assistant("Hello.")) < bare + 5_000


def test_a_session_that_is_renamed_at_a_resume_is_followed() -> None:
    """claude-code#8069: the session id changes at a resume; #39695: and the tools' history is not lost. Guarantee
    9.1.
    """
    store = cc.open_store("memory:")
    provider = cc.provider("anthropic:claude-sonnet-4-5", session_resumption=True)
    compiler = cc.MessageCompiler(store, provider)
    seen: list[tuple[str, str | None]] = []
    for number in range(3):
        store.append("demo", cc.user(f"question {number}"))
        compiled = compiler.compile("demo")
        seen.append((compiled.mode, compiled.session_id))
        call = cc.ToolCall(id=f"c{number}", name="read", arguments={})
        produced = [cc.assistant(tool_calls=[call]), cc.tool_result(call.id, "read", f"line {number}")]
        with compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("done"), produced=produced, session_id=f"s{number}")
    assert seen == [("full", None), ("resume", "s0"), ("resume", "s1")]
    cc.SessionManager(store).invalidate(compiler.channel("demo"), "gone")
    store.append("demo", cc.user("again"))
    whole = compiler.compile("demo").body.decode()
    assert [whole.count(f"line {number}") for number in range(3)] == [1, 1, 1]
