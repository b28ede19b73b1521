"""Undocumented replies of servers: a turn accepts them, or ends as if the connection was lost."""

import asyncio
import threading
from collections.abc import AsyncGenerator

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import ProviderFailed
from contextc.events import TextDelta, ToolCallDelta
from contextc.executor.model_call import YIELD_EVERY_EVENTS, ReplyStream
from contextc.executor.turn_store import TurnStore
from contextc.providers.client import Endpoint, ProviderCall
from tests.executor.scripted_provider import SONNET, Scripted, add, call, run_turn, says

SERVER = cc.provider("myserver:some-model", url="http://127.0.0.1:9/v1", window=30_000)


def chunks(*deltas: JSONObject, finish: str = "stop") -> list[JSONObject]:
    """A stream of Chat Completions."""
    said: list[JSONObject] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return [*said, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]


def calling(*calls: tuple[str | None, str]) -> list[JSONObject]:
    """A stream that calls `add`, by ids and arguments."""
    pieces: list[JSONObject] = [
        {"index": index, "id": name, "type": "function", "function": {"name": "add", "arguments": written}}
        for index, (name, written) in enumerate(calls)
    ]
    return chunks({"tool_calls": pieces}, finish="tool_calls")


@pytest.mark.parametrize("pause", [0.0, 0.06])
def test_an_emoji_that_comes_in_two_halves_is_whole(store: cc.Store, pause: float) -> None:
    """Guarantee 10.3: whether the halves are journaled apart or not."""
    raw = Scripted(chunks({"content": "well \ud83d"}, {"content": "\ude00 done \ud83d"}), pause=pause)
    executor = cc.AgentExecutor(store, SERVER, endpoint=raw, triggers=())
    events = run_turn(executor)
    assert store.load("demo")[-1].text == "well 😀 done \ufffd"
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "well 😀 done \ufffd"


@pytest.mark.parametrize("name", [None, ""])
def test_calls_without_ids_are_given_some(store: cc.Store, name: str | None) -> None:
    """Guarantee 5.1: matching is by id, so there has to be one."""
    raw = Scripted(calling((name, '{"a": 1, "b": 2}'), (name, '{"a": 3, "b": 4}')), chunks({"content": "done"}))
    executor = cc.AgentExecutor(store, SERVER, tools=[add], endpoint=raw, triggers=())
    events = run_turn(executor)
    results = raw.requests[1]["messages"][-2:]
    assert [(each["tool_call_id"], each["content"]) for each in results] == [("call_0", "3"), ("call_1", "7")]
    assert [event.id for event in events if isinstance(event, ToolCallDelta)] == ["call_0", "call_1"]


def test_two_calls_of_one_id_at_two_indexes_are_two(store: cc.Store) -> None:
    """Guarantee 5.1: and each gets its own result."""
    raw = Scripted(calling(("c", '{"a": 1, "b": 2}'), ("c", '{"a": 3, "b": 4}')), chunks({"content": "done"}))
    executor = cc.AgentExecutor(store, SERVER, tools=[add], endpoint=raw, triggers=())
    run_turn(executor)
    said, *results = raw.requests[1]["messages"][-3:]
    assert [each["content"] for each in results] == ["3", "7"]
    assert [each["tool_call_id"] for each in results] == [each["id"] for each in said["tool_calls"]]


def test_of_two_calls_of_one_id_each_gets_its_result(store: cc.Store) -> None:
    """Guarantee 5.1: the quicker one does not get the other's, because the second waits for the first."""

    async def nap(seconds: float) -> str:
        """Sleep a little."""
        await asyncio.sleep(seconds)
        return f"slept {seconds}"

    calls = (call(1, "nap", seconds=0.05), call(1, "nap", seconds=0.0))
    scripted = Scripted(says(*calls), says("done"))
    run_turn(cc.AgentExecutor(store, SONNET, tools=[nap], endpoint=scripted, triggers=()))
    assert [each["content"] for each in scripted.requests[1]["messages"][-1]["content"]] == ["slept 0.05", "slept 0.0"]


@pytest.mark.parametrize("figure", [12.0, -3, "12", float("inf"), None])
def test_odd_figures_of_usage_do_not_lock_a_conversation(store: cc.Store, figure: object) -> None:
    """Guarantee 15.1: what a server counts is stored as numbers of tokens, and read again."""
    usage: JSONObject = {"choices": [], "usage": {"prompt_tokens": figure, "completion_tokens": 2.0}}
    raw = Scripted([*chunks({"content": "one"}), usage], chunks({"content": "two"}))
    executor = cc.AgentExecutor(store, SERVER, endpoint=raw, triggers=())
    for _ in range(2):
        run_turn(executor)
    assert [turn.finish for turn in store.turns("demo")] == ["stop", "stop"]
    used = store.turns("demo")[0].usage
    assert used is not None
    assert (used.input, used.output) == (12 if figure == 12.0 else 0, 2)


@pytest.mark.parametrize("finish", ["error", "cancelled"])
def test_a_finish_reason_of_the_provider_is_not_confused_with_ours(store: cc.Store, finish: str) -> None:
    """Guarantee 11.9: queued input is answered, because the turn was not cancelled."""

    async def results() -> list[cc.TurnResult]:
        await executor.follow_up("demo", "and then?")
        turn = executor.start("demo", "hello")
        await turn.wait()
        return turn.results

    raw = Scripted(chunks({"content": "one"}, finish=finish), chunks({"content": "two"}))
    executor = cc.AgentExecutor(store, SERVER, endpoint=raw, triggers=())
    assert [each.text for each in asyncio.run(results())] == ["one", "two"]
    assert [each.finish for each in store.turns("demo")] == ["other", "stop"]


def test_a_connection_lost_after_the_complete_reply_is_not_a_failure(store: cc.Store) -> None:
    """Guarantee 11.11: the reason for the end had come, and nothing was to follow."""
    whole = says("hello there")
    cut = says("hello there", broken=len(whole.events()) - 1)
    run_turn(cc.AgentExecutor(store, SONNET, endpoint=Scripted(cut), triggers=()))
    assert [(message.text, message.status) for message in store.load("demo")][-1] == ("hello there", "sent")


def test_an_event_that_cannot_be_read_is_a_failure_that_may_pass(store: cc.Store) -> None:
    """Guarantee 11.11: tried again before anything was said; after that, what was said is kept."""
    sound = says("hello there").events()
    scripted = Scripted([sound[0], {"type": "content_block_start"}], sound)
    run_turn(cc.AgentExecutor(store, SONNET, endpoint=scripted, triggers=()), conversation="first")
    assert [message.text for message in store.load("first")] == ["hello", "hello there"]

    cut = Scripted([*sound[:3], {"type": "content_block_delta"}])
    with pytest.raises(ProviderFailed, match="cannot be parsed"):
        run_turn(cc.AgentExecutor(store, SONNET, endpoint=cut, triggers=()), conversation="second")
    assert [(message.text, message.status) for message in store.load("second")] == [
        ("hello", "sent"),
        ("hello ", "error"),
    ]
    assert [step.state for step in store.steps("second")] == ["failed"]


@pytest.mark.parametrize("event", [[], None, 5, {"type": "contextc.note"}], ids=repr)
def test_an_invalid_event_is_a_transient_failure(store: cc.Store, event: JSONObject) -> None:
    """Whatever an endpoint gives, the call is tried again: no error of our own ends the turn."""
    sound = says("hello there").events()
    run_turn(cc.AgentExecutor(store, SONNET, endpoint=Scripted([sound[0], event], sound), triggers=()))
    assert [message.text for message in store.load("demo")] == ["hello", "hello there"]


def test_the_event_that_failed_is_left_out_and_not_an_equal_one_before_it(store: cc.Store) -> None:
    """An event may be harmless at first and unreadable later: what came in between is kept."""
    odd: JSONObject = {"type": "response.output_text.delta", "output_index": 0}
    item: JSONObject = {"type": "message", "id": "m", "role": "assistant", "content": []}
    added: JSONObject = {"type": "response.output_item.added", "output_index": 0, "item": item}
    said: JSONObject = {"type": "response.output_text.delta", "output_index": 0, "delta": "well said"}
    provider = cc.provider("openai:gpt-5.1")
    incoming = ReplyStream(
        TurnStore(store, "demo", "assistant", store.acquire("demo", "assistant")),
        cc.MessageCompiler(store, provider).compile("demo", instructions="x", dry_run=True),
        1,
    )
    for event in ({**odd}, added, said):
        incoming.reader.read(event)
    with pytest.raises(ProviderFailed, match="cannot be parsed"):
        incoming._read_event(odd)  # pyright: ignore[reportPrivateUsage]
    assert incoming.reader.events == [odd, added, said]
    assert [message.text for message in incoming.received_messages()] == ["well said"]


@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_a_call_of_no_tool_in_particular_is_answered(store: cc.Store, pause: float) -> None:
    """Guarantee 2.3: nothing crashes, and nothing is lost."""
    nameless: JSONObject = {"index": 0, "id": "c1", "type": "function", "function": {"name": "", "arguments": "{}"}}
    line = Scripted(chunks({"tool_calls": [nameless]}, finish="tool_calls"), chunks({"content": "Sorry."}), pause=pause)
    executor = cc.AgentExecutor(store, SERVER, tools=[add], endpoint=line, triggers=())

    run_turn(executor)

    results = [result for message in store.load("demo") for result in message.tool_results]
    assert [result.call_id for result in results] == ["c1"]
    assert "There is no tool" in results[0].text
    assert store.load("demo")[-1].text == "Sorry."


def test_a_reply_of_many_events_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that come without a pause, and a long reply that is put together, must not stop a whole server."""
    ran: list[bool] = []
    threads: list[threading.Thread] = []
    put_together = ReplyStream.received_messages

    class Flood(Endpoint):
        async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
            asyncio.get_running_loop().call_soon(ran.append, True)
            for event in chunks(*[{"content": "x"}] * (YIELD_EVERY_EVENTS + 10)):
                yield event
            ran.append(False)

    def messages(self: ReplyStream) -> list[cc.Message]:
        threads.append(threading.current_thread())
        return put_together(self)

    monkeypatch.setattr(ReplyStream, "received_messages", messages)
    executor = cc.AgentExecutor(cc.open_store("memory:"), SERVER, endpoint=Flood(), triggers=())
    run_turn(executor)
    assert ran == [True, False], "something else ran before the stream had ended"
    assert threads[0] is not threading.main_thread()
