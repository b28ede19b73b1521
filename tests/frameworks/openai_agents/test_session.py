"""The session of OpenAI Agents on a store: the protocol, and what is kept."""

import asyncio
import random
from multiprocessing import get_context
from typing import Any, cast

import pytest
from agents import SQLiteSession, TResponseInputItem

import contextc as cc
from contextc.adapters.openai_agents import Session
from contextc.errors import InvalidMessage
from tests.frameworks.openai_agents.scripted_runs import run_in_process

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ITEMS = cast(
    list[TResponseInputItem],
    [
        {"role": "user", "content": "hi"},
        {"content": "hi", "role": "user"},
        {"role": "user", "content": ""},
        {"role": "user", "content": [{"type": "input_text", "text": "what is this?"}]},
        {
            "role": "user",
            "content": [{"type": "input_image", "detail": "low", "image_url": f"data:image/png;base64,{PIXEL}"}],
        },
        {"role": "developer", "content": "careful"},
        {"type": "message", "role": "system", "content": "be brief"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAabc"},
        {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [
                {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
                {"type": "refusal", "refusal": "no"},
            ],
        },
        {"role": "assistant", "content": "plain"},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "f",
            "arguments": '{"a": 1}',
            "id": "fc_1",
            "status": "completed",
        },
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": '{"a": '},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
        {"type": "function_call_output", "output": None},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "mcp_approval_response", "approval_request_id": "r", "approve": True},
        {"type": "from_next_year", "deep": {"list": [1, 2.5, None, {"x": "ü\u2028"}]}},
        {"no": "type"},
        {},
    ],
)


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: str(item)[:40])
def test_an_item_comes_back_equal_in_another_process(item: TResponseInputItem, shared_address: str) -> None:
    """Guarantee 21.1: also items of a type that contextc does not know, or that no provider would accept."""
    first = Session("s", shared_address)
    run(first.add_items([item]))
    first.close()
    second = Session("s", shared_address)
    assert run(second.get_items()) == [item]
    assert run(second.pop_item()) == item
    assert run(second.get_items()) == []
    second.close()


def test_all_items_together_come_back_in_order() -> None:
    """Guarantee 21.1: items of one model response become one message, and are still separate items."""
    chance = random.Random(3)
    for _ in range(30):
        items = chance.choices(ITEMS, k=20)
        session = Session("s")
        run(session.add_items(items[:12]))
        run(session.add_items(items[12:]))
        assert run(session.get_items()) == items
        assert run(session.get_items(7)) == items[-7:]
        session.close()


@pytest.mark.parametrize("seed", range(6))
def test_random_operations_give_what_the_sdks_own_session_gives(seed: int, store: cc.Store) -> None:
    """Guarantee 21.1: differential test of the protocol: add, pop, clear, and reads with limits."""

    async def compare() -> None:
        chance = random.Random(seed)
        theirs, ours = SQLiteSession("s"), Session("s", store)
        for _ in range(60):
            match chance.randrange(10):
                case 0 | 1 | 2 | 3 | 4:
                    items = chance.choices(ITEMS, k=chance.randrange(4))
                    await theirs.add_items(items)
                    await ours.add_items(items)
                case 5 | 6:
                    assert await ours.pop_item() == await theirs.pop_item()
                case 7 if not chance.randrange(4):
                    await theirs.clear_session()
                    await ours.clear_session()
                case _:
                    limit = chance.choice((None, -1, 0, 1, 2, 5, 100))
                    assert await ours.get_items(limit) == await theirs.get_items(limit)
            assert await ours.get_items() == await theirs.get_items()
        theirs.close()

    run(compare())


def test_popped_and_cleared_items_stay_on_their_branches(store: cc.Store) -> None:
    """Guarantee 21.3: nothing is deleted."""
    session = Session("s", store)
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    run(session.add_items(cast(Any, [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ok"}, call])))
    assert run(session.pop_item()) == call
    assert [message.text for message in store.load("s")] == ["hi", "ok"]
    run(session.clear_session())
    assert run(session.get_items()) == []
    histories = [[m.text for m in store.load("s", branch=branch.number)] for branch in store.branches("s")]
    assert histories == [["hi", "ok"], ["hi", "ok"], []]
    assert store.load("s", branch=store.branches("s")[0].number)[1].tool_calls[0].id == "c1"


def test_what_is_not_json_is_refused_and_nothing_is_stored() -> None:
    """Guarantee 21.1: all items or none, and the session can be used afterwards."""
    session = Session("s")
    bad = cast(Any, [{"role": "user", "content": "good"}, {"role": "user", "content": object()}])
    with pytest.raises(InvalidMessage, match="not JSON"):
        run(session.add_items(bad))
    assert run(session.get_items()) == []
    run(session.add_items(bad[:1]))
    assert run(session.get_items()) == bad[:1]


def test_a_conversation_of_contextc_is_a_session_too(store: cc.Store) -> None:
    """Guarantee 21.1: messages that other software stored have items as well."""
    store.extend("s", [cc.user("hi"), cc.assistant("hello", tool_calls=[cc.tool_call("c", "f", "{}")])])
    items = run(Session("s", store).get_items())
    assert [item.get("type", item.get("role")) for item in items] == ["user", "assistant", "function_call"]
    store.redact("s", 1)
    assert len(run(Session("s", store).get_items())) == 2


def test_eight_processes_on_one_session_lose_nothing(shared_address: str) -> None:
    """Guarantee 21.3: langgraph#8115: concurrent runs lose messages without an error. Each run has two steps."""
    context = get_context("spawn")
    cc.open_store(shared_address).close()
    arguments = [(shared_address, f"p{number}x", 2, 2) for number in range(8)]
    processes = [context.Process(target=run_in_process, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    session = Session("shared", shared_address)
    items = run(session.get_items())
    tasks = [item["content"] for item in items if item.get("role") == "user"]
    assert sorted(tasks) == sorted(f"task p{number}x{run}" for number in range(8) for run in range(2))
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    results = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert len(calls) == len(set(calls))
    assert sorted(calls) == sorted(results)
    assert len({call.rpartition("-")[0] for call in calls}) == 8 * 2 * 2
    assert sum(item.get("role") == "assistant" for item in items) == 16
    session.close()
