"""A summary is asked for with the channel's own request and one message more, so that the provider's cache is read."""

import asyncio
from collections.abc import Callable
from itertools import count

import pytest

import contextc as cc
from contextc._json import JSONObject, decode, encode
from contextc._sequence_comparison import count_common_prefix
from contextc.compiler.compaction import LIVE_REQUEST
from contextc.events import CompactionFinished
from contextc.executor.summaries import SUMMARY_INSTRUCTIONS
from contextc.tools.definitions import NativeTool
from tests.executor.scripted_provider import SONNET, Say, Scripted, call, played, run_turn, says
from tests.executor.test_compaction import REPLIES

LIVE, SEPARATE = encode(LIVE_REQUEST)[1:-1], encode(SUMMARY_INSTRUCTIONS.partition("\n")[0])[1:-1]
MESSAGES = {"messages", "input", "contents"}


def replying(name: str, **usage: int) -> Scripted:
    """A provider that gives the same reply to every request, with new ids."""
    ids = count(1)

    def reply(_: object) -> list[JSONObject]:
        events = decode(encode(REPLIES[name]).replace(b'"msg_1"', b'"msg_%d"' % next(ids)))
        for event in events:
            event.get("message", {}).get("usage", {}).update(usage)
        return events

    return Scripted(reply)


def look_up(word: str) -> str:
    """Look a word up."""
    return "found"


def fill(store: cc.Store, turns: int = 10) -> None:
    for number in range(turns):
        store.append("demo", cc.user(f"question {number} " + "word " * 200))
        store.append("demo", cc.assistant(f"answer {number} " + "word " * 200))


def small(name: str) -> cc.Provider:
    return cc.provider(name, window=16_000, output=2_000)


def kinds(bodies: list[bytes]) -> list[str]:
    return ["live" if LIVE in body else "separate" if SEPARATE in body else "turn" for body in bodies]


@pytest.mark.parametrize("name", REPLIES)
def test_the_request_for_a_summary_extends_the_last_request(store: cc.Store, name: str) -> None:
    """Guarantee 7.10: same tools, system prompt, settings and messages, to the byte; the channel does not move."""
    line = replying(name)
    executor = cc.AgentExecutor(
        store, small(name), tools=[look_up], instructions="Be brief.", endpoint=line, triggers=()
    )
    fill(store)
    run_turn(executor, "first")
    run_turn(executor, "second")
    channel = executor.channel("demo")
    before = cc.SessionManager(store).sessions("demo")

    done = asyncio.run(executor.compact("demo"))

    assert done is not None
    assert (done.fallback, "Short." in done.text) == ("", True)
    assert kinds(line.bodies) == ["turn", "turn", "live"]
    last, asked = line.bodies[-2:]
    heads = [{key: value for key, value in decode(body).items() if key not in MESSAGES} for body in (last, asked)]
    assert heads[0] == heads[1]
    (key,) = MESSAGES & decode(last).keys()
    shared = count_common_prefix(last, asked)
    head = len(encode(heads[0]))
    assert shared + head >= 0.9 * len(asked)
    assert decode(asked)[key][: len(decode(last)[key])] == decode(last)[key]
    assert cc.lint(decode(asked), format=executor.provider.formatter.name) == []
    assert cc.SessionManager(store).sessions("demo") == before
    assert executor.compiler.explain("demo").record.request == 2
    assert executor.channel("demo") == channel
    assert not any(LIVE_REQUEST[:20] in message.text for message in store.load("demo"))


def test_a_preview_knows_what_the_cache_saves(store: cc.Store) -> None:
    """It prices the part that the provider has read before as a cache read."""
    line = replying(SONNET, input_tokens=4_900)
    executor = cc.AgentExecutor(store, small(SONNET), endpoint=line, triggers=())
    fill(store)
    cold = executor.preview_compaction("demo")
    run_turn(executor, "first")
    warm = executor.preview_compaction("demo")

    assert cold is not None
    assert warm is not None
    assert (cold.cached, warm.cached > 0.8 * warm.input) == (0, True)
    assert (warm.summary_cost or 0) < (cold.summary_cost or 0)


@pytest.mark.parametrize(
    "options",
    [
        {"settings": {"tool_choice": {"type": "any"}}, "tools": [look_up]},
        {"settings": {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}},
        {"tools": [NativeTool(provider="anthropic", data={"type": "web_search_20250305", "name": "web_search"})]},
    ],
    ids=["forced tool choice", "output format", "tool that the provider runs"],
)
def test_a_request_that_may_not_end_with_a_text_is_not_extended(store: cc.Store, options: JSONObject) -> None:
    """Guarantee 7.10: then the messages are sent in a separate request, as a fenced transcript."""
    line = replying(SONNET)
    executor = cc.AgentExecutor(store, small(SONNET), endpoint=line, triggers=(), **options)
    fill(store)
    run_turn(executor, "first")

    assert asyncio.run(executor.compact("demo")) is not None
    assert kinds(line.bodies) == ["turn", "separate"]


def test_the_first_request_of_a_channel_has_no_cache_to_read(store: cc.Store) -> None:
    line = replying(SONNET)
    fill(store)
    assert asyncio.run(cc.AgentExecutor(store, small(SONNET), endpoint=line, triggers=()).compact("demo")) is not None
    assert kinds(line.bodies) == ["separate"]


def test_a_function_that_sums_up_gets_no_request(store: cc.Store) -> None:
    line = replying(SONNET)
    executor = cc.AgentExecutor(
        store, small(SONNET), endpoint=line, summarize=lambda messages, previous: "mine", triggers=()
    )
    fill(store)
    run_turn(executor, "first")
    assert asyncio.run(executor.compact("demo")) is not None
    assert kinds(line.bodies) == ["turn"]


def test_a_tool_call_in_the_reply_is_not_run(store: cc.Store) -> None:
    """Guarantee 7.10: the summary is then asked for once more, in a request without tools."""
    ran: list[str] = []

    def act(word: str) -> str:
        """Act."""
        ran.append(word)
        return "done"

    def reply(request: JSONObject) -> Say:
        body = encode(request)
        if LIVE in body:
            return says("Let me look.", call(1, "act", word="x"))
        return says("All of it, in short." if SEPARATE in body else "Fine.")

    line = Scripted(reply)
    executor = cc.AgentExecutor(store, small(SONNET), tools=[act], endpoint=line, triggers=())
    fill(store)
    run_turn(executor, "first")

    done = asyncio.run(executor.compact("demo"))

    assert kinds(line.bodies) == ["turn", "live", "separate"]
    assert ran == []
    assert done is not None
    assert "All of it, in short." in done.text


def changes(store: cc.Store, at: int) -> dict[str, Callable[[], object]]:
    return {
        "edit": lambda: store.edit("demo", at, cc.user("something else")),
        "rewind": lambda: store.rewind("demo", at - 1),
        "redact": lambda: store.redact("demo", at),
    }


@pytest.mark.parametrize("change", ["edit", "rewind", "redact"])
def test_a_summary_is_not_used_without_a_message_it_was_written_from(store: cc.Store, change: str) -> None:
    """Guarantee 7.10: the request had all messages, so the summary may quote those after the ones it replaces."""
    executor = cc.AgentExecutor(store, small(SONNET), endpoint=replying(SONNET), triggers=())
    fill(store)
    run_turn(executor, "the last question")
    done = asyncio.run(executor.compact("demo"))
    assert done is not None
    last = store.conversation("demo").length - 1
    assert last > done.upto

    changes(store, last)[change]()

    assert b"<context-summary>" not in executor.compiler.compile("demo", dry_run=True).body


def test_a_full_window_is_summed_up_from_the_cache_during_a_turn(store: cc.Store) -> None:
    """Guarantee 7.10: the room for the answer is enough for the summary, so the request still fits."""

    def note(text: str) -> str:
        """Write something down."""
        return "noted"

    def reply(request: JSONObject) -> Say:
        if LIVE in encode(request) or SEPARATE in encode(request):
            return says("Notes were written.", input=0)
        number = len(line.bodies)
        if number > 60:
            return says("Done.", input=0)
        return says((f"c{number}", "note", {"text": f"note {number} " + "word " * 150}), input=0, output=200)

    line = Scripted(reply)
    provider = cc.provider(SONNET, window=12_000, output=2_000)
    executor = cc.AgentExecutor(store, provider, tools=[note], endpoint=line, summarize_at=None, triggers=())

    events = run_turn(executor, "write notes")

    assert kinds(line.bodies).count("live") >= 1
    assert kinds(line.bodies).count("separate") == 0
    assert all(event.fallback == "" for event in events if isinstance(event, CompactionFinished))
    for index, kind in enumerate(kinds(line.bodies)):
        if kind == "live":
            before, asked = (decode(line.bodies[each])["messages"] for each in (index - 1, index))
            assert without_marks(asked)[: len(before)] == without_marks(before)


def test_results_that_were_left_out_before_do_not_cost_the_cache(store: cc.Store) -> None:
    """Guarantee 7.10: their facts stand in the message that asks for the summary, and all text is in the request."""

    def read(number: int) -> str:
        """Read an entry."""
        return f"entry ENT-{number:05} " + "word " * 150

    def reply(request: JSONObject) -> Say:
        if LIVE in encode(request) or SEPARATE in encode(request):
            return says("Entries were read.", input=0)
        if "tool_result" in str(request["messages"][-1]):
            return says("It is entered. " + "word " * 250, input=0, output=260)
        return says((f"c{len(line.bodies)}", "read", {"number": len(line.bodies)}), input=0, output=20)

    line = Scripted(reply)
    executor = cc.AgentExecutor(
        store, cc.provider(SONNET, window=12_000, output=2_000), tools=[read], triggers=(), endpoint=line
    )

    async def talk() -> None:
        for number in range(100):
            await played(executor, "demo", f"Read entry {number}.")
            if any(kind != "turn" for kind in kinds(line.bodies)):
                break

    asyncio.run(talk())

    asked = next(body for body in line.bodies if LIVE in body)
    assert kinds(line.bodies).count("separate") == 0
    assert "entry ENT-00001 word" not in asked.decode()
    assert "ENT-00001" in decode(asked)["messages"][-1]["content"][-1]["text"].partition("<facts>")[2]


def without_marks(messages: list[JSONObject]) -> list[JSONObject]:
    return decode(encode(messages).replace(b',"cache_control":{"type":"ephemeral"}', b""))
