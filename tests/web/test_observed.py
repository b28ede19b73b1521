"""Observed conversations in the HTTP API: source, parent, status, errors, latency, exactness; lint and preview."""

from typing import Any

from starlette.testclient import TestClient

import contextc as cc
from contextc.web.channel_list import channel_id
from tests.observation.test_conversation_match import claude, claude_answer
from tests.observation.test_observe import answer, chat

HEADERS = {"x-claude-code-session-id": "s1"}


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
