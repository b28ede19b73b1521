"""Regression tests for defects found by adversarial testing."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.ledger import get_channel_cache
from contextc.store.sqlite import MemoryEngine
from contextc.store.store import open_with
from contextc.store.transaction_engine import Result, Transaction

READ = cc.Tool(name="read", description="Reads a file.", parameters={"type": "object", "properties": {}})
CLAUDE = "anthropic:claude-sonnet-4-5"


def call(name: str) -> cc.ToolCall:
    return cc.ToolCall(id=name, name="read", arguments={})


def step(compiler: cc.MessageCompiler, reply: cc.Message, **asked: Any) -> cc.Compiled:
    compiled = compiler.compile("demo", **asked)
    with compiler.attempt(compiled) as attempt:
        attempt.commit(reply)
    return compiled


def test_rows_of_one_format_are_not_sent_in_another() -> None:
    """Guarantee 9.3: the same provider and model in another format begin an epoch with new encoding."""
    store = cc.open_store("memory:")
    store.append("demo", cc.user("hi"))
    responses = cc.MessageCompiler(store, cc.provider("openai:gpt-5.1"))
    step(responses, cc.assistant(tool_calls=[call("c1")]), tools=[READ])
    store.append("demo", cc.tool_result("c1", "read", "1"))
    chat = cc.MessageCompiler(store, cc.provider("openai:gpt-5.1", format="openai_chat"))
    compiled = chat.compile("demo", tools=[READ])
    assert compiled.manifest.why == "new encoder version"
    assert cc.lint(compiled.params, format="openai_chat") == []


class LastMoment(MemoryEngine):
    """A store whose disk is full just when a transaction would have been committed."""

    full = False

    def _run(self, connection: Any, work: Callable[[Transaction], Result], *, writing: bool, again: bool) -> Result:
        def then_fail(tx: Transaction) -> Result:
            result = work(tx)
            if self.full and writing:
                raise cc.errors.StoreFull("The disk is full.")
            return result

        return super()._run(connection, then_fail, writing=writing, again=again)


def test_a_commit_that_fails_leaves_the_next_request_as_it_was() -> None:
    """Guarantee 9.7: nothing of it stays, in memory neither."""
    moment = LastMoment()
    store = open_with(moment)
    compiler = cc.MessageCompiler(store, cc.provider("anthropic:claude-opus-5-5"))
    store.append("demo", cc.user("hi"))
    step(compiler, cc.assistant(tool_calls=[call("c1")]))
    store.append("demo", cc.tool_result("c1", "read", "1"))
    compiled = compiler.compile("demo")
    body = compiled.body
    compiler.begin(compiled)
    moment.full = True
    with pytest.raises(cc.errors.StoreFull):
        compiler.commit(compiled, cc.assistant(tool_calls=[call("c2")]))
    moment.full = False
    assert compiler.compile("demo").body == body
    get_channel_cache(store).clear()
    assert compiler.compile("demo").body == body
    assert len(store.load("demo")) == 3


def test_what_others_do_unseen_does_not_fill_the_window() -> None:
    """Guarantees 4.1, 7.2: the log is read back until what this agent sees fills the window."""
    store = cc.open_store("memory:")
    store.extend("demo", [cc.user("Remember the plan."), cc.assistant("My plan: tests.", author="coder")])
    hidden: list[cc.Message] = []
    for number in range(300):
        hidden.append(cc.assistant(tool_calls=[call(f"t{number}")], author="tester"))
        result = cc.ToolResult(call_id=f"t{number}", name="read", content="line " * 400)
        hidden.append(cc.Message(role="tool", author="tester", parts=(result,)))
    store.extend("demo", [*hidden, cc.user("And now?")])
    compiled = cc.MessageCompiler(store, cc.provider(CLAUDE, window=50_000)).compile("demo", name="coder")
    texts = [block["text"] for message in compiled.params["messages"] for block in message["content"]]
    assert texts == ["Remember the plan.", "My plan: tests.", "And now?"]


def test_a_summary_that_is_not_worth_it_does_not_begin_an_epoch_at_every_step() -> None:
    """Guarantee 9.3: epochs are rare."""
    store = cc.open_store("memory:")
    first = cc.MessageCompiler(store, cc.provider(CLAUDE, window=3_000, output=300))
    other = cc.MessageCompiler(store, cc.provider("openai-chat:gpt-4.1"))
    for number in range(20):
        store.append("demo", cc.user(f"question {number} " + "word " * 60))
        step(first, cc.assistant("ok"))
    assert first.compact("demo", lambda messages, previous: "They talked.") is not None
    whys: list[str] = []
    for number in range(4):
        store.append("demo", cc.user(f"and {number}?"))
        whys.append(step(other, cc.assistant("yes")).manifest.why)
    assert whys == ["first request", "", "", ""]


def test_a_shrunken_reserve_lasts_as_long_as_its_epoch() -> None:
    """Guarantee 7.2: it may shrink, and then the next steps are not over budget again."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(CLAUDE, window=20_000, output=8_000))
    store.append("demo", cc.user("word " * 12_500))
    whys: list[str] = []
    for number in range(5):
        whys.append(step(compiler, cc.assistant(tool_calls=[call(f"c{number}")])).manifest.why)
        store.append("demo", cc.tool_result(f"c{number}", "read", "found"))
    assert whys == ["first request", "", "", "", ""]


def test_made_up_results_schemas_and_tags_are_counted() -> None:
    """Guarantee 6.1: everything that is sent."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(CLAUDE, window=60_000))
    store.append("demo", cc.user("go"))
    store.append("demo", cc.assistant(tool_calls=[call(f"c{number}") for number in range(8)]))
    store.append("demo", cc.user("and?"))
    compiled = compiler.compile("demo")
    again = cc.formatter("anthropic").decode_request(compiled.params)
    assert compiled.budget.used >= sum(compiler.counter.count_message(message) for message in again.messages)
    schema: JSONObject = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(200)}}
    asked = compiler.compile("demo", settings={"output_config": {"format": {"type": "json_schema", "schema": schema}}})
    assert asked.budget.input > compiled.budget.input + 1_000


def test_decayed_pictures_are_gone_and_a_picture_beside_a_long_text_stays() -> None:
    """Guarantees 7.2, 6.1: what is counted as a line is a line."""
    picture = cc.Media(mime_type="image/png", data=b"\x89PNG" + bytes(3_000))
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(CLAUDE, window=9_000, output=500), keep_media=50)
    store.append("demo", cc.user("look around"))
    for number in range(12):
        step(compiler, cc.assistant(tool_calls=[call(f"c{number}")]), tools=[READ])
        store.append("demo", cc.tool_result(f"c{number}", "read", [picture]))
    compiled = compiler.compile("demo", tools=[READ])
    again = cc.formatter("anthropic").decode_request(compiled.params)
    counted = sum(compiler.counter.count_message(message) for message in again.messages)
    assert counted <= compiled.budget.available
    store.append("other", cc.user("look"))
    store.append("other", cc.assistant(tool_calls=[call("c")]))
    store.append("other", cc.tool_result("c", "read", [cc.Text("word " * 9_000), picture]))
    shown = compiler.compile("other", tools=[READ]).params["messages"][-1]["content"][0]["content"]
    assert [block["type"] for block in shown] == ["text", "image"]


def test_redacted_texts_leave_the_system_prompt_and_errors_too() -> None:
    """Guarantee 2.8."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(CLAUDE))
    store.extend("demo", [cc.system("the code is swordfish"), cc.user("hi")])
    step(compiler, cc.assistant("hello"))
    store.append("demo", cc.user("swordfish again"))
    with pytest.raises(RuntimeError), compiler.attempt(compiler.compile("demo")):
        raise RuntimeError("refused: 'swordfish again'")
    for seq in (1, 4):
        store.redact("demo", seq)
    tables = ("message", "channel", "shown", "head", "manifest", "overlay", "token_count")
    rows = [store.read(lambda tx, table=table: tx.rows(f"SELECT * FROM main.{table}")) for table in tables]
    assert b"swordfish" not in str(rows).encode()
    with pytest.raises(cc.errors.InvalidInput, match="redacted since"):
        compiler.rebuild("demo", 1)


def test_a_summary_ends_before_what_only_some_may_see() -> None:
    """Guarantees 4.1, 4.4, 7.5: a run that is still going, a message for one channel."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(CLAUDE, window=3_000, output=300))
    texts: list[str] = []

    def listen(messages: Any, previous: str | None) -> str:
        texts.extend(message.text for message in messages)
        return "They talked."

    for number in range(10):
        store.append("demo", cc.user(f"question {number} " + "word " * 40))
    store.append("demo", cc.system("only here", audience="openai-chat:gpt-4.1"))
    store.append("demo", replace(cc.assistant("secret plan", tool_calls=[call("c")]), run="r1"))
    store.append("demo", cc.tool_result("c", "read", "x"))
    for number in range(10, 20):
        store.append("demo", cc.user(f"question {number} " + "word " * 40))
    made = compiler.compact("demo", listen, run="r1")
    assert made is not None
    assert made.upto == 10
    assert not [text for text in texts if "secret" in text or "only here" in text]


def test_tools_that_a_session_does_not_get_begin_a_new_one() -> None:
    """Guarantees 9.3, 9.6: a session that keeps its head never hears of a new tool."""
    store = cc.open_store("memory:")
    provider = cc.provider(CLAUDE, session_resumption=True, keeps_static=True)
    compiler = cc.MessageCompiler(store, provider)
    store.append("demo", cc.user("hi"))
    compiled = compiler.compile("demo")
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant("hello"), session_id="s1")
    store.append("demo", cc.user("more"))
    assert compiler.compile("demo").mode == "resume"
    later = compiler.compile("demo", tools=[READ])
    assert (later.mode, later.manifest.why) == ("full", "tools changed")


def test_a_session_is_named_by_the_reply_where_that_is_its_name() -> None:
    """Guarantee 9.11: `previous_response_id` is the id of the response before."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, "openai-session:gpt-5.1")
    reply: JSONObject = {
        "id": "resp_1",
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yo"}]}],
    }
    store.append("demo", cc.user("hi"))
    compiled = compiler.compile("demo")
    with compiler.attempt(compiled) as attempt:
        attempt.commit(reply)
    store.append("demo", cc.user("again"))
    later = compiler.compile("demo")
    assert (later.mode, later.params["previous_response_id"]) == ("resume", "resp_1")
    assert later.params["input"] == [{"role": "user", "content": "again"}]
    with compiler.attempt(later) as attempt:
        attempt.commit(cc.assistant("yes"))
    store.append("demo", cc.user("and?"))
    assert compiler.compile("demo").manifest.why == "the last reply came without a session"


def test_a_reply_that_was_streamed_into_the_record_is_committed_as_it_is() -> None:
    """Guarantees 3.3, 9.7: stored once, with its usage."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, CLAUDE)
    store.append("demo", cc.user("hi"))
    compiled = compiler.compile("demo")
    with store.lease("demo") as lease, compiler.attempt(compiled, lease=lease) as attempt:
        stream = store.stream(lease)
        stream.write(cc.Text("hel"))
        stream.write(cc.Text("lo"))
        stored = stream.end(usage=cc.Usage(input=90, output=2))
        assert attempt.commit(stored) == [stored]
    assert [message.text for message in store.load("demo")] == ["hi", "hello"]
    assert compiler.explain("demo").record.usage == cc.Usage(input=90, output=2)
    store.append("demo", cc.user("more"))
    later = compiler.compile("demo")
    assert [message["role"] for message in later.params["messages"]] == ["user", "assistant", "user"]


def test_a_figure_that_cannot_be_true_does_not_move_a_budget() -> None:
    """Guarantee 6.2: bounded; some servers report only what they had not cached."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider("my:model", window=4_000, output=500))
    for _ in range(12):
        store.append("demo", cc.user("word " * 600))
        compiled = compiler.compile("demo")
        with compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("ok"), usage=cc.Usage(input=600, output=2))
        assert len(compiled.body) < 4_000 * 12


def test_a_new_message_that_is_large_leaves_room_for_some_of_the_old() -> None:
    """Guarantee 7.4: a cut goes to the low mark, or to half of what the rest leaves."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(CLAUDE, window=6_000, output=500))
    for number in range(40):
        store.append("demo", cc.user(f"question {number} " + "word " * 30))
        step(compiler, cc.assistant("ok"))
    store.append("demo", cc.user("word " * 3_300))
    compiled = compiler.compile("demo")
    assert compiled.manifest.why == "over budget"
    assert 5 < len(compiled.params["messages"]) < 60


def test_the_google_sdk_gets_its_own_arguments() -> None:
    """Keyword arguments for that vendor's own SDK call."""
    from google.genai.types import GenerateContentConfig

    store = cc.open_store("memory:")
    store.append("demo", cc.user("hi"))
    compiler = cc.MessageCompiler(store, "gemini:gemini-3-pro-preview")
    compiled = compiler.compile("demo", instructions="Be brief.", tools=[READ], max_output_tokens=100)
    arguments = compiled.arguments
    assert list(arguments) == ["model", "contents", "config"]
    config = GenerateContentConfig.model_validate(arguments["config"]).model_dump(exclude_none=True)
    assert (config["max_output_tokens"], len(config["tools"])) == (100, 1)
    chat = cc.MessageCompiler(store, "openai-chat:gpt-4.1").compile("demo")
    assert chat.arguments == chat.params


def test_a_run_that_is_hidden_is_not_read_again_at_every_step() -> None:
    """Guarantee 4.1: cost follows what is new; it is shown, whole, when it has ended."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(CLAUDE))
    store.append("demo", cc.user("go"))
    for number in range(50):
        store.append("demo", replace(cc.assistant(f"thought {number}", tool_calls=[call(f"c{number}")]), run="r1"))
        store.append("demo", replace(cc.tool_result(f"c{number}", "read", "x"), run="r1"))
    first = step(compiler, cc.assistant("done"), run="r2")
    store.append("demo", cc.user("and?"))
    second = compiler.compile("demo", run="r2")
    assert (len(first.record.left), len(second.record.left)) == (100, 0)
    assert second.snapshot.revealed == {}
    step(compiler, cc.assistant("done"), run="r2")
    store.append("demo", replace(cc.assistant("the end"), run="r1"))
    store.append("demo", cc.user("now?"))
    later = compiler.compile("demo", run="r2")
    assert [str(later.params).count(f"thought {number}'") for number in (0, 49)] == [1, 1]
    assert cc.lint(later.params, format="anthropic") == []
