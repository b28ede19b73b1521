"""Sessions that begin alike but for a detail: a finding about a store, which no single conversation shows."""

from typing import Any

import pytest

import contextc as cc
from contextc.analysis import store_findings
from contextc.analysis.conversation_findings import CauseSummary
from contextc.analysis.session_starts import find_session_starts

WRITE, READ = 6.25, 0.5  # dollars per million tokens of the model of the tests
TEXT = "Be exact and careful. " * 2_000
MARK = {"type": "ephemeral"}
MINUTE = 60_000
TOOLS = [
    {"name": f"tool{n}", "description": f"Does {n}. " * 1_500, "input_schema": {"type": "object"}} for n in range(3)
]


def anthropic(text: str, **fields: Any) -> dict[str, Any]:
    system = [{"type": "text", "text": text, "cache_control": MARK}]
    return {"model": "claude-opus-4-5", "max_tokens": 50, "system": system, **fields}


def record(
    store: cc.Store,
    number: int,
    body: dict[str, Any],
    *,
    time: int | None = None,
    read: int = 0,
    written: int = 9_000,
    requests: int = 1,
) -> None:
    """Record a session of some requests."""
    messages = [{"role": "user", "content": f"Job {number}"}]
    for index in range(requests):
        reply = {
            "role": "assistant", "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 10, "cache_creation_input_tokens": written, "cache_read_input_tokens": read,
                      "output_tokens": 3},
        }  # fmt: skip
        began = 1_794_940_000_000 + (number * MINUTE if time is None else time) + index * 10_000
        request = {**body, "messages": messages}
        cc.observe(
            store, request=request, reply=reply, format="anthropic", conversation=f"job{number}", time=began,
            ended=began + 2_000,
        )  # fmt: skip
        messages = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": f"Go on {index}"}]


def find(store: cc.Store) -> list[CauseSummary]:
    return [each for each in store_findings(store).causes if each.code == "USE003"]


def test_a_clock_at_the_start_of_each_session_is_found_over_the_store() -> None:
    """Each of five one-shot sessions wrote what four of them could have read. None of them alone shows it."""
    store = cc.open_store("memory:")
    for number in range(5):
        record(store, number, anthropic(f"Now: 2026-11-17T18:0{number}:12Z. {TEXT}"))
    (cause,) = find(store)
    (found,) = cause.examples
    assert (cause.count, cause.conversations, found.sessions) == (1, 5, 5)
    assert found.title == "5 of 5 sessions begin with a system prompt of their own: it contains the time"
    assert found.fix.startswith("Move the time to the end of the conversation")
    (evidence,) = found.evidence
    assert evidence.path == "system[0].text"
    assert evidence.before.startswith("Now: 2026-11-17T18:00:12Z.")
    assert evidence.after.startswith("Now: 2026-11-17T18:01:12Z.")
    assert evidence.compared is not None
    assert (found.conversation, evidence.compared.conversation) == ("job1", "job0")
    assert found.tokens == pytest.approx(4 * 9_000, rel=0.02)
    assert found.cost == pytest.approx(found.tokens * (WRITE - READ) / 1e6)
    assert [each.code for number in range(5) for each in cc.findings(store, f"job{number}")] == ["CAC001"] * 5


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("id", "a system prompt of their own: it contains a random id"),
        ("tool", "tool definitions of their own"),
        ("implicit", "a system message of their own: it contains the time"),
        ("long", "a system prompt of their own"),
    ],
)
def test_the_part_that_differs_is_named(case: str, says: str) -> None:
    """Ids, tools and the first messages of Chat Completions break a prefix as a clock does."""
    store = cc.open_store("memory:")
    for number in range(4):
        time = number * MINUTE
        match case:
            case "id":
                record(store, number, anthropic(f"Session 7f3a{number}e91-42c{number}-4b1a-9d0e-aa{number}1. {TEXT}"))
            case "tool":
                first = {**TOOLS[0], "description": f"Listens on port {4000 + number}. {TOOLS[0]['description']}"}
                record(store, number, anthropic("Help.", tools=[first, *TOOLS[1:]]), written=12_000)
            case "long":  # an earlier session was still going on when the next one began
                record(store, number, anthropic(f"User {'abcd'[number] * 4}. {TEXT}"), time=time * 20, requests=110)
            case _:
                system = {"role": "system", "content": f"It is 12:0{number}. {TEXT}"}
                usage = {"prompt_tokens": 9_000, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}}
                choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}
                cc.observe(
                    store, format="openai_chat", provider="openai", conversation=f"job{number}", time=1 + time,
                    request={"model": "gpt-5.2", "messages": [system, {"role": "user", "content": "Go."}]},
                    reply={"model": "gpt-5.2", "choices": [choice], "usage": usage},
                )  # fmt: skip
    (found,) = find_session_starts(store)
    assert f"4 of 4 sessions begin with {says}" in found.title
    assert (found.cost or 0) > 0


@pytest.mark.parametrize(
    "case",
    ["same", "day apart", "two", "other apps", "end", "read", "short", "no breakpoint", "days", "one conversation"],
)
def test_sessions_that_lose_nothing_have_no_finding(case: str) -> None:
    """Most sessions of a store differ somewhere: that is a loss only where a cache of an equal beginning existed."""
    store = cc.open_store("memory:")
    for number in range(2 if case == "two" else 6):
        clock, time, fields = f"It is 12:0{number}. ", None, {}
        body = anthropic(clock + TEXT)
        match case:
            case "same":
                body = anthropic(TEXT)
            case "day apart":
                time = number * 24 * 60 * MINUTE
            case "other apps":
                body = anthropic(f"{['Sort', 'Cook', 'Walk', 'Play', 'Sing', 'Draw'][number]} it very well. " * 1_500)
            case "end":
                body = anthropic(f"Be exact. {clock}", tools=[{**each, "cache_control": MARK} for each in TOOLS])
            case "read":
                fields = {"read": 9_000, "written": 0} if number else {}
            case "short":
                body, fields = anthropic(f"{clock} Be exact."), {"written": 0}
            case "no breakpoint":
                body["system"][0].pop("cache_control")
            case "days":  # three sessions a day
                body = anthropic(f"Today is 2026-11-{10 + number // 3}. {TEXT}")
            case _:
                pass
        if case == "one conversation":
            record(store, 0, body, time=number * MINUTE)
        else:
            record(store, number, body, time=time, **fields)
    assert find_session_starts(store) == []


def test_some_conversations_are_compared_with_each_other_only() -> None:
    """`contextc findings FILE` and names of conversations are such a choice."""
    store = cc.open_store("memory:")
    for number in range(8):
        record(store, number, anthropic(f"It is 12:0{number}. {TEXT}" if number > 3 else TEXT))
    assert find_session_starts(store, [f"job{number}" for number in range(4)]) == []
    (found,) = find_session_starts(store, [f"job{number}" for number in range(4, 8)])
    assert found.sessions == 4
    summary = store_findings(store, ["job4", "job5", "job6"])
    assert [each.code for each in summary.causes] == ["USE003"]


def test_an_own_agent_with_a_clock_in_its_instructions_is_found() -> None:
    """Guarantee 17.1: own and observed conversations alike."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider("anthropic:claude-opus-4-5"))
    for number in range(4):
        store.append(f"job{number}", cc.user("Go."))
        compiled = compiler.compile(f"job{number}", system_prompt=f"It is 12:0{number}. {TEXT}")
        usage = cc.Usage(input=9_010, output=3, cache_write=9_000)
        with compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("ok", usage=usage))
    (found,) = find_session_starts(store)
    assert "it contains the time" in found.title


def test_only_first_requests_are_read() -> None:
    """The time grows with the number of sessions, not with their length: nothing else of them need be readable."""
    store = cc.open_store("memory:")
    for number in range(4):
        record(store, number, anthropic(f"It is 12:0{number}. {TEXT}"), requests=6)
    store.write(lambda tx: tx.run("DELETE FROM main.shown"))
    store.write(lambda tx: tx.run("DELETE FROM main.message"))
    store.write(lambda tx: tx.run("UPDATE main.manifest SET body = ? WHERE place % 4294967296 > 1", b"broken"))
    (found,) = find_session_starts(store)
    assert found.sessions == 4
