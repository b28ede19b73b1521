"""Requests of different conversations and agents that begin at once with the same prefix."""

import asyncio
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.analysis import Finding
from contextc.analysis.cache_model import find_cache_rules
from contextc.analysis.cache_neighbours import compare_with_overlapping, find_overlapping
from contextc.analysis.conversation_loader import load_conversation_view
from tests.analysis.observed_run import MARK, MODEL, define_tool, find_by_request, words
from tests.executor.scripted_provider import SONNET, Say, Scripted, played, says

START = 1_790_000_000_000
SYSTEM = words(6_000, "s")
DOCUMENT = words(5_000, "d")
FIX = "Send the first of these requests alone, wait for the first token of its reply"


def text(content: str, *, is_marked: bool = False) -> dict[str, Any]:
    return {"type": "text", "text": content, **({"cache_control": MARK} if is_marked else {})}


def send(
    store: cc.Store,
    name: str,
    messages: list[str],
    *,
    began: int,
    read: int,
    total: int,
    ended: int = 0,
    model: str = MODEL,
) -> None:
    """Record a request of Claude Code. Its first message is marked; `name` is the sub-agent, "" for the main agent."""
    marked = [text(each, is_marked=not at) for at, each in enumerate(messages)]
    body = {
        "model": model,
        "max_tokens": 900,
        "system": [text(SYSTEM, is_marked=True)],
        "tools": [define_tool("read", 400)],
        "messages": [{"role": "user", "content": marked}],
    }
    usage = {
        "input_tokens": 0, "cache_read_input_tokens": read, "cache_creation_input_tokens": total - read,
        "output_tokens": 5,
    }  # fmt: skip
    reply = {
        "id": f"msg_{name}{began}", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Done."}], "usage": usage,
    }  # fmt: skip
    headers = {"x-claude-code-session-id": "0a1b2c3d-0000-4000-8000-123456789abc"}
    cc.observe(
        store, request=body, reply=reply, time=START + began, ended=START + (ended or began + 8_000),
        headers={**headers, **({"x-claude-code-agent-id": name} if name else {})},
    )  # fmt: skip


def misses(store: cc.Store, agent: str) -> list[Finding]:
    (name,) = [each.name for each in store.conversations() if each.name.endswith(agent) or f"-{agent}-" in each.name]
    return [each for each in find_by_request(store, name) if each.code.startswith("CAC")]


@pytest.fixture(scope="module")
def sizes() -> tuple[int, int]:
    """The tokens of the system prompt with the tools, and of the whole request with the document."""
    store = cc.open_store("memory:")
    send(store, "", [DOCUMENT, "Task"], began=0, read=0, total=1)
    (request,) = load_conversation_view(store, store.conversations()[0].name).requests
    return request.head_totals[2], request.estimated


def test_sub_agents_that_share_a_document_pay_for_it_once_each(store: cc.Store, sizes: tuple[int, int]) -> None:
    """The system prompt was in the cache. The first of them writes the document, the others should have waited."""
    head, total = sizes
    for number in range(4):
        send(store, f"sub{number}", [DOCUMENT, f"Task {number}"], began=100 * number, read=head, total=total)
    assert misses(store, "sub0") == []
    for number in range(1, 4):
        (found,) = misses(store, f"sub{number}")
        assert found.cause == "parallel_request"
        assert found.tokens == pytest.approx(total - head, rel=0.05)
        assert found.cost == pytest.approx(found.tokens * (3.75 - 0.3) / 1_000_000)
        assert found.fix.startswith(FIX)
        before, after = found.evidence[0].before, found.evidence[0].after
        assert before.startswith("request 1 of claude-code-")
        assert "sub0" in before
        assert after == f"began {8 - number / 10:.1f} s before its reply ended"


def test_sub_agents_that_read_what_they_share_are_no_finding(store: cc.Store, sizes: tuple[int, int]) -> None:
    _, total = sizes
    send(store, "sub0", [DOCUMENT, "Task 0"], began=0, read=0, total=total)
    for number in range(1, 4):
        send(store, f"sub{number}", [DOCUMENT, f"Task {number}"], began=2_000 + number, read=total - 40, total=total)
        assert misses(store, f"sub{number}") == []


def test_what_one_of_them_read_was_in_the_cache(store: cc.Store, sizes: tuple[int, int]) -> None:
    """The first one read everything, so the others did not have to wait for it."""
    _, total = sizes
    send(store, "sub0", [DOCUMENT, "Task 0"], began=0, read=total - 40, total=total)
    send(store, "sub1", [DOCUMENT, "Task 1"], began=50, read=0, total=total)
    assert [each.cause for each in misses(store, "sub1")] == ["first_request"]


def test_a_later_request_of_another_conversation_counts(store: cc.Store, sizes: tuple[int, int]) -> None:
    """The main agent had many requests before and after the one that the sub-agents overlap with."""
    head, total = sizes
    for number in range(40):
        content = [DOCUMENT, "Task"] if number == 21 else [f"Question {number}"]
        size = total if number == 21 else head + 40
        send(store, "", content, began=10_000 * number, read=0 if not number else head, total=size)
    send(store, "sub1", [DOCUMENT, "Other task"], began=210_300, read=head, total=total)
    (found,) = misses(store, "sub1")
    assert found.cause == "parallel_request"
    assert found.evidence[0].before.startswith("request 22 of claude-code-")


@pytest.mark.parametrize("table", ["manifest", "channel"])
def test_a_corrupt_conversation_does_not_affect_others(sizes: tuple[int, int], table: str) -> None:
    head, total = sizes
    store = cc.open_store("memory:")
    for number in range(3):
        send(store, f"sub{number}", [DOCUMENT, f"Task {number}"], began=100 * number, read=head, total=total)
    channels = store.read(lambda tx: tx.rows("SELECT number, conversation FROM main.channel ORDER BY number"))
    (first,) = [number for number, name in channels if "sub0" in name]
    if table == "manifest":
        store.write(lambda tx: tx.run("UPDATE main.manifest SET body = ? WHERE place / 4294967296 = ?", b"{", first))
    else:
        store.write(lambda tx: tx.run("UPDATE main.channel SET state = ? WHERE number = ?", b"{", first))
    assert misses(store, "sub1") == []
    (found,) = misses(store, "sub2")
    assert "sub1" in found.evidence[0].before


def test_requests_to_other_models_do_not_count(store: cc.Store, sizes: tuple[int, int]) -> None:
    _, total = sizes
    send(store, "sub0", [DOCUMENT, "Task 0"], began=0, read=0, total=total, model="claude-opus-4-8")
    send(store, "sub1", [DOCUMENT, "Task 1"], began=50, read=0, total=total)
    assert [each.cause for each in misses(store, "sub1")] == ["first_request"]


def test_overlapping_requests_are_found_without_reading_all(store: cc.Store) -> None:
    for number in range(60):
        send(store, "", [f"Question {number}"], began=10_000 * number, read=0, total=5_000)
    view = load_conversation_view(store, store.conversations()[0].name)
    channel = view.requests[0].channel_number
    for number, time, found in ((0, 1, [1]), (37, 7_999, [38]), (37, 8_000, []), (59, 100, [60]), (60, 0, [])):
        at = START + 10_000 * number + time
        records = store.read(lambda tx, at=at: find_overlapping(tx, channel, 60, at))
        assert [record.request for _, record in records] == found


def run_at_once(store: cc.Store, *turns: tuple[str, str]) -> None:
    """Run turns of agents, by conversation and agent. All requests are sent before the first reply begins."""

    async def run() -> None:
        started = asyncio.Barrier(len(turns))

        async def answer(_: JSONObject) -> Say:
            await started.wait()
            return says("This is done.", input=7_000, pause=0.003)

        def make(agent: str) -> cc.AgentExecutor:
            return cc.AgentExecutor(
                store, SONNET, instructions=SYSTEM, endpoint=Scripted(answer), name=agent, triggers=()
            )

        await asyncio.gather(
            *[played(make(agent), conversation, f"Task of {agent} in {conversation}") for conversation, agent in turns]
        )

    asyncio.run(run())


def test_own_conversations_that_run_at_once(store: cc.Store) -> None:
    names = ["c0", "c1", "c2"]
    for number in range(20):
        run_at_once(store, (f"before{number}", "assistant"))
    run_at_once(store, *[(name, "assistant") for name in names])
    run_at_once(store, ("later", "assistant"))
    found = {name: find_by_request(store, name)[0] for name in (*names, "later")}
    assert sorted([found[name].cause for name in names]) == ["first_request", "parallel_request", "parallel_request"]
    assert found["later"].cause == "first_request"
    first = next(name for name in names if found[name].cause == "first_request")
    others = [found[name] for name in names if name != first]
    assert {each.evidence[0].before for each in others} == {f"request 1 of {first} was still being answered"}


def test_agents_of_one_conversation_that_run_at_once(store: cc.Store) -> None:
    run_at_once(store, ("c", "coder"), ("c", "tester"))
    found = {each.cause: each.evidence[0].before for each in find_by_request(store, "c")}
    first = next(name for name in ("coder", "tester") if name in found["parallel_request"])
    assert found == {"first_request": "", "parallel_request": f"request 1 of {first} was still being answered"}


def test_nothing_is_shared_with_requests_that_ended_before(store: cc.Store) -> None:
    send(store, "sub0", ["Task 0"], began=0, read=0, total=7_000)
    send(store, "sub1", ["Task 1"], began=8_000, read=0, total=7_000)
    views = [load_conversation_view(store, each.name) for each in store.conversations()]
    one, other = sorted([view.requests[0] for view in views], key=lambda each: each.began)
    rules = find_cache_rules(other)
    assert rules is not None
    assert compare_with_overlapping(rules, other, [one]).comparison is None
