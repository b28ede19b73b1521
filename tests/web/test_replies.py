"""Replies and sub-agents in the HTTP API: stop reason, latency, error, events, attempts, and the tree of a session."""

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.errors import ProviderFailed
from tests.executor.scripted_provider import SONNET, Scripted, fails, run_turn, says
from tests.observation.test_conversation_match import claude, claude_answer
from tests.web.sample_conversations import Asking, Life
from tests.web.test_unanswered_requests import stopped

HEADERS = {"x-claude-code-session-id": "s1"}


def get(client: TestClient, path: str) -> Any:
    answered = client.get(f"/api/conversations{path}")
    assert answered.status_code == 200, answered.text
    return answered.json()


def test_an_observed_reply_has_its_messages_its_latency_and_other_attempts(client: TestClient, store: cc.Store) -> None:
    common: dict[str, Any] = {"format": "anthropic", "headers": HEADERS}
    error = {"type": "overloaded_error", "message": "Overloaded"}
    overloaded = {"type": "error", "error": error, "request_id": "req_1"}
    cc.observe(store, request=claude("hi"), reply=overloaded, status=529, time=1_000, ended=1_400, **common)
    seen = cc.observe(store, request=claude("hi"), reply=claude_answer("Hello."), time=2_000, ended=4_000, **common)
    found = get(client, f"/{seen.conversation}/timeline")
    base = f"/{seen.conversation}/requests/{found['requests'][0]['channel']}"
    reply = get(client, f"{base}/2/reply")
    assert (reply["status"], reply["finish"], reply["latency"], reply["began"]) == ("ok", "stop", 2_000, 2_000)
    assert (reply["provider_finish"], reply["error_type"], reply["request_id"]) == ("end_turn", "", "")
    assert [part["text"] for part in reply["messages"][0]["parts"]] == ["Hello."]
    assert reply["usage"]["output"] > 0
    assert reply["cost"] > 0
    assert reply["events"] == []
    assert [(each["number"], each["status"], each["code"], each["error"]) for each in reply["attempts"]] == [
        (1, "error", 529, "Overloaded")
    ]
    assert get(client, f"{base}/2/raw") == {"is_stored": False, "status": 0, "size": 0, "kept": 0, "events": []}
    failed = get(client, f"{base}/1/reply")
    assert (failed["status"], failed["code"], failed["error"]) == ("error", 529, "Overloaded")
    assert (failed["error_type"], failed["request_id"]) == ("overloaded_error", "req_1")
    assert found["requests"][0]["observed"]["error_type"] == "overloaded_error"
    assert failed["messages"] == []
    assert [each["number"] for each in failed["attempts"]] == [2]


def test_the_reply_of_a_turn_has_its_events_and_retries(client: TestClient, store: cc.Store) -> None:
    busy = fails("transient", "try again", status=529)
    say = says("one two three", input=120)
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(busy, say, says("more")), triggers=())
    run_turn(executor, "count")
    run_turn(executor, "go on")
    found = get(client, "/demo/timeline")
    channel = found["channels"][0]["id"]
    reply = get(client, f"/demo/requests/{channel}/1/reply")
    assert (reply["status"], reply["finish"]) == ("ok", "stop")
    assert reply["latency"] is not None
    kinds = [each["type"] for each in reply["events"]]
    assert kinds[0] == "step-start"
    assert kinds[-1] == "step-finish"
    assert "text-delta" in kinds
    assert reply["more_events"] is False
    assert [(each["attempt"], each["kind"]) for each in reply["retries"]] == [(1, "transient")]
    (attempt,) = reply["attempts"]
    assert attempt["status"] == "error"
    assert "try again" in attempt["error"]
    second = get(client, f"/demo/requests/{channel}/2/reply")
    assert second["attempts"] == second["retries"] == []
    assert second["messages"][0]["parts"][0]["text"] == "more"


def test_a_stopped_reply_has_what_was_received(client: TestClient, store: cc.Store) -> None:
    slow = says("one two three four five six", pause=0.05, input=120)
    failed = fails("invalid", "no such model", status=404, code="not_found_error")
    failed.request_id = "req_9"
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(slow, failed), triggers=())
    asyncio.run(stopped(executor, "count"))
    with pytest.raises(ProviderFailed):
        run_turn(executor, "and now?")
    first, second = get(client, "/demo/timeline")["unanswered"]
    reply = get(client, f"/demo/requests/{first['channel']}/{first['number']}/reply")
    assert (reply["status"], reply["error"]) == ("stopped", "It was stopped.")
    assert reply["messages"][0]["parts"][0]["text"].startswith("one")
    assert reply["attempts"] == []
    reply = get(client, f"/demo/requests/{second['channel']}/{second['number']}/reply")
    assert reply["status"] == "error"
    assert "no such model" in reply["error"]
    assert (reply["code"], reply["error_type"], reply["request_id"]) == (404, "not_found_error", "req_9")
    assert reply["messages"] == []


def test_a_reply_without_a_turn_is_its_messages(client: TestClient, store: cc.Store) -> None:
    life = Life(store)
    life.turn("hi", "hello")
    asking = Asking(client, life)
    reply = asking.request(1, "/reply")
    assert (reply["status"], reply["latency"], reply["events"]) == ("ok", None, [])
    assert reply["messages"][0]["parts"] == [{"type": "text", "text": "hello"}]
    asking.request(2, "/reply", status=404)


def test_sub_agents_are_a_tree_with_times_and_costs(client: TestClient, store: cc.Store) -> None:
    common: dict[str, Any] = {"format": "anthropic"}
    main = cc.observe(
        store, request=claude("a"), reply=claude_answer("b"), time=1_000, ended=9_000, headers=HEADERS, **common
    )
    subs = [
        cc.observe(
            store, request=claude(f"work {name}", system="Sub."), reply=claude_answer("done"), time=2_000 * at,
            ended=2_000 * at + 1_500, headers={**HEADERS, "x-claude-code-agent-id": name}, **common,
        )
        for at, name in enumerate(("a1", "a2"), 1)
    ]  # fmt: skip
    below = cc.observe(
        store, request=claude("work a3", system="Sub sub."), reply=claude_answer("done"), time=2_500, ended=3_000,
        headers={**HEADERS, "x-claude-code-agent-id": "a3", "x-claude-code-parent-agent-id": "a1"}, **common,
    )  # fmt: skip
    everyone = get(client, f"/{below.conversation}/sub-agents")["agents"]
    assert [(each["name"], each["parent"], each["began"], each["ended"]) for each in everyone[-1:]] == [
        (below.conversation, subs[0].conversation, 2_500, 3_000)
    ]
    assert everyone[-1]["request"]["conversation"] == subs[0].conversation
    store.delete(below.conversation)
    agents = get(client, f"/{main.conversation}/sub-agents")["agents"]
    assert [each["name"] for each in agents] == [main.conversation, *(each.conversation for each in subs)]
    assert [each["parent"] for each in agents] == ["", main.conversation, main.conversation]
    assert [(each["began"], each["ended"]) for each in agents] == [(1_000, 9_000), (2_000, 3_500), (4_000, 5_500)]
    assert [(each["kind"], each["agent"], each["requests"]) for each in agents[1:]] == [
        ("agent", "a1", 1),
        ("agent", "a2", 1),
    ]
    assert agents[1]["title"] == "work a1"
    assert agents[1]["request"]["conversation"] == main.conversation
    assert all(each["cost"] > 0 for each in agents)
    assert get(client, f"/{subs[0].conversation}/sub-agents")["agents"] == agents
    store.append("own", cc.user("hi"))
    assert get(client, "/own/sub-agents") == {"agents": []}
    assert client.get("/api/conversations/nope/sub-agents").status_code == 404
    store.delete(main.conversation)
    agents = get(client, f"/{subs[0].conversation}/sub-agents")["agents"]
    assert [each["name"] for each in agents] == [subs[0].conversation]


def test_a_response_is_shown_as_it_arrived(client: TestClient, store: cc.Store) -> None:
    """Guarantee 16.19."""
    reply = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n'
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}
    seen = cc.observe(store, request=body, reply=reply, format="openai_chat", status=200, pieces=[(40, len(reply))])
    (request,) = get(client, f"/{seen.conversation}/timeline")["requests"]
    found = get(client, f"/{seen.conversation}/requests/{request['channel']}/1/raw")
    assert (found["is_stored"], found["status"], found["size"], found["kept"]) == (True, 200, len(reply), len(reply))
    assert [(each["offset"], each["text"]) for each in found["events"]] == [
        (40, f"{part}\n\n") for part in reply.decode().split("\n\n")[:-1]
    ]
