"""Observed conversations in the HTTP API: source, parent, status, errors, latency, exactness; lint and preview."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.compiler.past_requests import EncodedElement
from contextc.observation import exchange_parser, write_observed
from contextc.store.ledger_schema import channel_id
from tests.observation.test_conversation_match import claude, claude_answer
from tests.observation.test_observe import answer, chat

HEADERS = {"x-claude-code-session-id": "s1"}
MARKS: tuple[tuple[str, dict[str, str]], ...] = (
    ("prompt_cache_breakpoint", {"mode": "explicit"}),
    ("cache_control", {"type": "ephemeral"}),
)


def get(client: TestClient, path: str) -> Any:
    answered = client.get(f"/api/conversations{path}")
    assert answered.status_code == 200, answered.text
    return answered.json()


def test_requests_report_status_error_latency_and_exactness(client: TestClient, store: cc.Store) -> None:
    options: Any = {"format": "openai_chat", "conversation": "x"}
    cc.observe(store, request=chat("a"), time=1_000, **options)
    cc.observe(
        store,
        request=chat("a"),
        reply={"error": {"message": "overloaded"}},
        status=529,
        time=2_000,
        ended=2_250,
        **options,
    )
    cc.observe(
        store, request=chat("a ann@example.com"), reply=answer("b", input=20), status=200, time=3_000, ended=4_500,
        redact="mail", **options,
    )  # fmt: skip
    found = get(client, "/x/timeline")
    assert [each["mode"] for each in found["requests"]] == ["observed"] * 3
    names = ("status", "code", "error", "began", "ended", "latency", "inexact")
    assert [tuple(each["observed"][name] for name in names) for each in found["requests"]] == [
        ("unanswered", None, "", 1_000, None, None, False),
        ("error", 529, "overloaded", 2_000, 2_250, 250, False),
        ("ok", 200, "", 3_000, 4_500, 1_500, True),
    ]
    branches = [each["number"] for each in get(client, "/x/branches")]
    assert [each["branch"] for each in found["requests"]] == [branches[0], branches[0], branches[1]]
    totals = found["totals"]
    assert (totals["requests"], totals["failed"], totals["unanswered"]) == (3, 2, 0)
    assert (totals["input"], totals["output"]) == (20, 3)
    assert totals["cost"] > 0
    channel = found["requests"][0]["channel"]
    one = get(client, f"/x/requests/{channel}/3")
    assert one["observed"]["inexact"] is True
    assert get(client, f"/x/requests/{channel}/2")["observed"]["error"] == "overloaded"
    assert get(client, f"/x/requests/{channel}/3/lint")["violations"] == []
    body = get(client, f"/x/requests/{channel}/3/body")
    assert "ann@example.com" not in str(body)


def test_conversations_report_their_source(client: TestClient, store: cc.Store) -> None:
    store.append("own", cc.user("hi"))
    main = cc.observe(store, request=claude("a"), reply=claude_answer("b"), format="anthropic", headers=HEADERS)
    sub = cc.observe(
        store, request=claude("work", system="Sub."), reply=claude_answer("done"), format="anthropic",
        headers={**HEADERS, "x-claude-code-agent-id": "a1"},
    )  # fmt: skip
    listed = {each["name"]: each for each in get(client, "")["conversations"]}
    assert "observed" not in listed["own"]
    assert listed[main.conversation]["observed"] == {"client": "claude-code", "kind": "main", "agent": "", "parent": ""}
    expected = {"client": "claude-code", "kind": "agent", "agent": "a1", "parent": main.conversation}
    assert listed[sub.conversation]["observed"] == expected
    assert get(client, f"/{sub.conversation}")["observed"] == expected
    found = get(client, f"/{sub.conversation}/timeline")
    assert found["source"] == expected
    assert found["parent"] == {
        "conversation": main.conversation, "channel": channel_id(main.channel), "request": main.request
    }  # fmt: skip
    assert "parent" not in get(client, f"/{main.conversation}/timeline")
    assert "source" not in get(client, "/own/timeline")
    store.delete(main.conversation)
    found = get(client, f"/{sub.conversation}/timeline")
    assert ("parent" in found, found["source"]["parent"]) == (False, "")


def marked_request(format: str, texts: list[str], marked: int, *, system: str = "Be brief.") -> dict[str, Any]:
    """Return a request whose cache breakpoint is on one message; the tool has one only if that is the first message."""
    field, mark = MARKS[format == "anthropic"]
    kind = "input_text" if format == "openai_responses" else "text"
    messages: list[dict[str, Any]] = []
    for index, text in enumerate(texts):
        role, part = ("assistant", "output_text") if index % 2 and kind == "input_text" else ("user", kind)
        block: dict[str, Any] = {"type": part, "text": text, **({field: mark} if index == marked else {})}
        content: Any = [block] if index == marked or index % 2 else text  # text where there is no breakpoint
        messages.append({"role": "assistant" if index % 2 else role, "content": content})
    head_mark = {field: mark} if not marked else {}
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    if format == "anthropic":
        tools = [{"name": "look", "description": "Looks.", "input_schema": schema, **head_mark}]
        blocks = [{"type": "text", "text": system, **head_mark}]
        return {"model": "claude-sonnet-4-5", "max_tokens": 9, "tools": tools, "system": blocks, "messages": messages}
    if format == "openai_responses":
        tools = [{"type": "function", "name": "look", "description": "Looks.", "parameters": schema, "strict": False}]
        return {"model": "gpt-5.6", "instructions": system, "tools": tools, "input": messages}
    lead = {"role": "system", "content": [{"type": "text", "text": system, **head_mark}]}
    tools = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": schema}}]
    return {"model": "gpt-5.6", "tools": tools, "messages": [lead, *messages]}


@pytest.mark.parametrize("format", ["anthropic", "openai_responses", "openai_chat"])
@pytest.mark.parametrize("is_old", [False, True])
def test_a_moved_cache_breakpoint_is_no_change(
    client: TestClient, store: cc.Store, monkeypatch: pytest.MonkeyPatch, format: str, is_old: bool
) -> None:
    """Also after a request that an older version stored with its breakpoints. Bodies keep them to the byte."""
    first, second = marked_request(format, ["a"], 0), marked_request(format, ["a", "b", "c"], 2)
    with monkeypatch.context() as patched:
        if is_old:
            patched.setattr(exchange_parser, "strip_marks", EncodedElement)
        cc.observe(store, request=first, format=format, conversation="x")
    monkeypatch.setattr(exchange_parser, "_recent", [])
    monkeypatch.setattr(write_observed, "_caches", {})  # what was stored is read again
    cc.observe(store, request=second, format=format, conversation="x")
    found = get(client, "/x/timeline")
    assert [each["why"] for each in found["requests"]] == ["first request", ""]
    channel = found["requests"][0]["channel"]
    one = get(client, f"/x/requests/{channel}/2")
    assert one["shared"]["broke"]["where"] == ""
    lines = get(client, f"/x/requests/{channel}/2/lines?detailed=true")["lines"]
    assert [each["state"] for each in lines] == ["shared"] * (len(lines) - 2) + ["new"] * 2
    for number, sent in enumerate((first, second), 1):
        body = client.get(f"/api/conversations/x/requests/{channel}/{number}/body").content
        assert json.loads(body) == sent
    cc.observe(
        store, request=marked_request(format, ["a", "b", "c"], 0, system="Be long."), format=format, conversation="x"
    )
    broke = get(client, f"/x/requests/{channel}/3")["shared"]["broke"]
    assert broke["where"] == "system"
    states = {
        each["text"]: each.get("again", False)
        for each in get(client, f"/x/requests/{channel}/3/lines?detailed=true")["lines"]
    }
    assert (states["look: Looks."], states["Be long."]) == (False, False)  # tools precede the system prompt
