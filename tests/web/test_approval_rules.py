"""Rules "always allow" and "always deny" over HTTP: made by a decision, listed, revoked, and named by the calls."""

from pathlib import Path
from typing import Any

import httpx
import pytest

import contextc as cc
from contextc.store.approval_rules import ApprovalRule, insert_rule
from contextc.store.message_log import load_tip
from contextc.web.app_state import ServerOptions
from tests.cli.chat_terminal import recorded
from tests.executor.scripted_provider import says
from tests.web.conftest import Served
from tests.web.sse_reader import read_events

FIRST, SECOND = {"path": "a.txt", "content": "1"}, {"path": "b.txt", "content": "2"}


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    return ServerOptions(root=tmp_path, model="replay:none.jsonl", recordings=tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model that writes two files, one after the other."""
    replies = [says(("c1", "write_file", FIRST)), says(("c2", "write_file", SECOND)), says("Done.")]
    return recorded(tmp_path / "writes.jsonl", *replies)


def begin(server: Served, model: str) -> dict[str, Any]:
    """Begin a turn, and wait until it asks. Return the pending approval."""
    begun = httpx.post(f"{server.url}/api/conversations/demo/turns", json={"input": "Write.", "model": model})
    read_events(server.url, "demo", after=begun.json()["after"], last="approval-request")
    (found,) = httpx.get(f"{server.url}/api/conversations/demo").json()["approvals"]
    return found


def decide(server: Served, asked: dict[str, Any], *, approve: bool = True, **always: object) -> httpx.Response:
    body = {"id": asked["id"], "hash": asked["hash"], "approve": approve, "always": always}
    return httpx.post(f"{server.url}/api/conversations/demo/approvals", json=body)


def rules(server: Served, *, ended: bool = False) -> list[dict[str, Any]]:
    return httpx.get(f"{server.url}/api/approval-rules", params={"ended": ended}).json()


def test_a_decision_makes_a_rule_and_the_next_call_names_it(server: Served, model: str, tmp_path: Path) -> None:
    """Guarantee 18.7."""
    asked = begin(server, model)
    assert decide(server, asked, arguments="any", seconds=3_600, who="Ada").status_code == 200
    read_events(server.url, "demo", last="turn-finish")
    assert [(tmp_path / name).read_text() for name in ("a.txt", "b.txt")] == ["1", "2"]
    (rule,) = rules(server)
    assert (rule["tool"], rule["scope"], rule["conversation"], rule["who"], rule["expires"] - rule["made"]) == (
        *("write_file", "conversation", "demo", "Ada"),
        3_600_000,
    )
    assert rule["text"] == "allow write_file with any arguments, in this conversation"
    messages = httpx.get(f"{server.url}/api/conversations/demo/messages").json()["messages"]
    seqs = [each["seq"] for each in messages if any(part["type"] == "tool_call" for part in each["parts"])]
    found = [httpx.get(f"{server.url}/api/conversations/demo/messages/{seq}/approvals").json() for seq in seqs]
    assert [(each["call"], each["who"], each.get("rule", "")) for (each,) in found] == [
        ("c1", "Ada", ""),
        ("c2", "rule", rule["id"]),
    ]
    assert found[0][0]["text"].startswith("Allowed by Ada on ")
    assert found[1][0]["text"].startswith(f"Allowed by rule {rule['id']} ({rule['text']}), made on 20")
    assert found[1][0]["text"].endswith(" UTC by Ada")
    user = next(each["seq"] for each in messages if each["role"] == "user")
    assert httpx.get(f"{server.url}/api/conversations/demo/messages/{user}/approvals").json() == []


def test_a_revoked_rule_is_listed_only_with_those_that_ended(server: Served, model: str) -> None:
    """Guarantee 18.8."""
    decide(server, begin(server, model), arguments="any", scope="store")
    read_events(server.url, "demo", last="turn-finish")
    (rule,) = rules(server)
    gone = httpx.delete(f"{server.url}/api/approval-rules/{rule['id']}")
    assert (gone.status_code, gone.json()["revoked_by"]) == (200, "http")
    assert (rules(server), [each["id"] for each in rules(server, ended=True)]) == ([], [rule["id"]])
    missing = httpx.delete(f"{server.url}/api/approval-rules/nothing")
    assert (missing.status_code, missing.json()["error"]["kind"]) == (404, "UnknownRule")


def test_always_deny_has_its_reason(server: Served, model: str) -> None:
    asked = begin(server, model)
    body = {
        "id": asked["id"],
        "hash": asked["hash"],
        "approve": False,
        "why": "Not here.",
        "always": {"arguments": "any"},
    }
    assert httpx.post(f"{server.url}/api/conversations/demo/approvals", json=body).status_code == 200
    read_events(server.url, "demo", last="turn-finish")
    texts = [result.text for each in server.desk.store.load("demo") for result in each.tool_results]
    assert texts == ["Not run: the user declined: Not here."] * 2


@pytest.mark.parametrize(
    "always", [{"scope": "world"}, {"seconds": -1}, {"argument": "path", "prefix": "/etc"}, {"unknown": 1}]
)
def test_a_wrong_rule_is_refused_and_the_approval_stays(server: Served, model: str, always: dict[str, Any]) -> None:
    asked = begin(server, model)
    assert decide(server, asked, **always).status_code == 400
    assert [each["id"] for each in httpx.get(f"{server.url}/api/conversations/demo").json()["approvals"]] == [
        asked["id"]
    ]
    assert rules(server, ended=True) == []


def test_other_protocols_show_a_call_that_a_rule_allowed_and_ask_nothing(server: Served, tmp_path: Path) -> None:
    """Guarantee 18.7: clients of the Vercel AI SDK and of AG-UI go on, too."""
    store = server.desk.store
    store.append("first", cc.user("Hello."))
    rule = ApprovalRule(id="0123456789ab", tool="write_file", allow=True, scope="store")
    store.write(lambda tx: insert_rule(tx, load_tip(tx, "first").conversation, rule, None))
    model = recorded(tmp_path / "one.jsonl", says(("c1", "write_file", FIRST)), says("Done."))
    message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Write."}]}
    asked: dict[str, Any] = {"id": "vercel", "messages": [message], "model": model}
    chat = httpx.post(f"{server.url}/api/chat", json=asked, timeout=120).text
    assert ("tool-output-available" in chat, "tool-approval-request" in chat) == (True, False)
    (tmp_path / "a.txt").unlink()
    model = recorded(tmp_path / "two.jsonl", says(("c1", "write_file", FIRST)), says("Done."))
    body = {
        "threadId": "agui",
        "runId": "r",
        "state": {},
        "tools": [],
        "context": [],
        "messages": [{"id": "m1", "role": "user", "content": "Write."}],
        "forwardedProps": {"model": model},
    }
    run = httpx.post(f"{server.url}/api/agui", json=body, timeout=120).text
    assert ("TOOL_CALL_RESULT" in run, '"interrupt"' in run, "RUN_ERROR" in run) == (True, False, False)
    assert (tmp_path / "a.txt").read_text() == "1"
    for name in ("vercel", "agui"):
        assert [each.rule for each in store.turn_approvals(name, 1)] == [rule.id]
