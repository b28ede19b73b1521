"""An approval applies to exactly one call and to the shown arguments, whatever the call ids are."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from contextc._json import JSONObject
from contextc.app.approval_preview import preview_call
from contextc.messages import ToolCall
from contextc.web.app_state import ServerOptions
from contextc.web.turn_manager import ApprovalView
from tests.cli.chat_terminal import recorded
from tests.executor.scripted_provider import says
from tests.web.conftest import Served
from tests.web.sse_reader import frames, listening, read_events, until

HARMLESS, HARMFUL = {"path": "list.txt", "content": "the files"}, {"path": "owned.txt", "content": "everything"}


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    return ServerOptions(root=tmp_path, model="replay:none.jsonl", recordings=tmp_path)


REPLIES = {
    "same reply": [says(("x", "write_file", HARMLESS), ("x", "write_file", HARMFUL)), says("Done.")],
    "next step": [
        says(("x", "write_file", HARMLESS)),
        says(("x", "write_file", HARMFUL)),
        says("Done."),
    ],
}


@pytest.fixture(params=[*REPLIES])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A model that uses the id of a call twice: in one reply, or in two steps."""
    return recorded(tmp_path / "twice.jsonl", *REPLIES[request.param])


def begin(server: Served, model: str) -> int:
    """Begin a turn, and wait until it asks; the number of the event that does."""
    begun = httpx.post(f"{server.url}/api/conversations/demo/turns", json={"input": "List the files", "model": model})
    assert begun.status_code == 202, begun.text
    return asked_after(server, begun.json()["after"])


def asked_after(server: Served, number: int) -> int:
    return read_events(server.url, "demo", after=number, last="approval-request")[-1]["number"]


def pending(server: Served) -> ApprovalView:
    (found,) = server.desk.turns.approvals("demo")
    return found


def answer(server: Served, approval: ApprovalView, *, id: str | None = None, hash: str | None = None) -> httpx.Response:
    content = {"id": id or approval.id, "hash": hash or approval.hash, "approve": True}
    return httpx.post(f"{server.url}/api/conversations/demo/approvals", json=content)


def test_a_second_yes_does_not_approve_a_later_call_of_the_same_id(server: Served, model: str, tmp_path: Path) -> None:
    """Otherwise a double click, a retried request or a second tab runs a call that was not shown."""
    number = begin(server, model)
    shown = pending(server)
    assert (shown.call, shown.arguments) == ("x", HARMLESS)
    assert answer(server, shown).status_code == 200
    asked_after(server, number)
    other = pending(server)
    assert (other.call, other.arguments) == ("x", HARMFUL)
    assert other.id != shown.id
    again = answer(server, shown)
    assert (again.status_code, again.json()["error"]["kind"]) == (409, "UnknownApproval")
    by_call = answer(server, other, id="x")
    assert (by_call.status_code, by_call.json()["error"]["kind"]) == (409, "UnknownApproval")
    mixed = answer(server, other, hash=shown.hash)
    assert (mixed.status_code, mixed.json()["error"]["kind"]) == (409, "ApprovalChanged")
    assert pending(server) == other, "it waits as before"
    assert not (tmp_path / "owned.txt").exists()
    httpx.post(f"{server.url}/api/conversations/demo/approvals/{other.id}", json={"approve": False, "hash": other.hash})
    results = [event for event in read_events(server.url, "demo", after=number) if event["type"].startswith("tool-")]
    assert [(event["type"], event["id"]) for event in results if event["type"] != "tool-call-delta"] == [
        ("tool-start", "x"),
        ("tool-result", "x"),
        ("tool-error", "x"),
    ]
    assert (tmp_path / "list.txt").read_text() == "the files"
    assert not (tmp_path / "owned.txt").exists()


def test_the_list_names_conversations_that_need_an_approval(server: Served, model: str) -> None:
    """In the list and in the change feed; the field is absent otherwise."""

    def listed() -> list[Any]:
        found = httpx.get(f"{server.url}/api/conversations").json()["conversations"]
        return [each.get("needs_approval") for each in found]

    with listening(f"{server.url}/api/changes") as stream:
        begin(server, model)
        until(stream, lambda frame: '"needs_approval":true' in frame.data)
        assert listed() == [True]
        assert httpx.post(f"{server.url}/api/conversations/demo/cancel").status_code == 200
        until(stream, lambda frame: '"name":"demo"' in frame.data and "needs_approval" not in frame.data)
        assert listed() == [None]


def test_an_answer_without_the_hash_of_what_was_shown_is_refused(server: Served, model: str, tmp_path: Path) -> None:
    begin(server, model)
    approval = pending(server)
    address = f"{server.url}/api/conversations/demo/approvals"
    bare = httpx.post(address, json={"id": approval.id, "approve": True})
    assert (bare.status_code, bare.json()["error"]["kind"]) == (400, "InvalidRequest")
    assert pending(server) == approval
    assert not (tmp_path / "list.txt").exists()


def test_a_yes_to_a_difference_that_is_another_one_by_now_is_refused(server: Served, tmp_path: Path) -> None:
    """The file has changed since the person looked: what would be lost was never shown."""
    (tmp_path / "list.txt").write_text("old")
    begin(
        server,
        recorded(tmp_path / "w.jsonl", says(("c1", "write_file", {**HARMLESS, "overwrite": True})), says("Done.")),
    )
    shown = pending(server)
    (tmp_path / "list.txt").write_text("years of work")
    refused = answer(server, shown)
    assert (refused.status_code, refused.json()["error"]["kind"]) == (409, "ApprovalChanged")
    assert (tmp_path / "list.txt").read_text() == "years of work"
    now = pending(server)
    assert now.id == shown.id
    assert "-years of work" in now.lines
    assert answer(server, now).status_code == 200


def test_what_is_shown_is_what_the_terminal_shows(server: Served, model: str, tmp_path: Path) -> None:
    begin(server, model)
    approval = pending(server)
    call = ToolCall(id="x", name=approval.name, arguments=approval.arguments)
    assert (approval.what, approval.lines) == preview_call(call, tmp_path)


# ── useChat ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def chunks(server: Served, *messages: JSONObject, model: str = "") -> list[JSONObject]:
    body = {"id": "demo", "messages": messages, **({"model": model} if model else {})}
    with httpx.stream("POST", f"{server.url}/api/chat", json=body, timeout=120) as stream:
        if stream.status_code != 200:
            return [{"type": "refused", "status": stream.status_code, **json.loads(stream.read())["error"]}]
        return [frame.json for frame in until_done(stream.iter_lines())]


def until_done(lines: Iterator[str]) -> Iterator[Any]:
    for frame in frames(lines):
        if frame.data == "[DONE]":
            return
        yield frame


def test_a_page_of_use_chat_answers_one_call_and_sees_what_it_answers(
    server: Served, model: str, tmp_path: Path
) -> None:
    """The SDK sends the answer back inside the message, which still holds the model's id and an older answer."""
    user = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "List the files"}]}
    first = chunks(server, user, model=model)
    shown, request = [each for each in first if each["type"].startswith("tool-") and "toolCallId" in each][-2:]
    assert (shown["type"], shown["input"]) == ("tool-input-available", HARMLESS)
    assert request["type"] == "tool-approval-request"
    part = {"type": "dynamic-tool", "toolName": "write_file", "toolCallId": "x", "input": HARMLESS}
    yes = {**part, "state": "approval-responded", "approval": {"id": request["approvalId"], "approved": True}}
    message = {"id": "turn-1", "role": "assistant", "parts": [yes]}
    then = chunks(server, user, message)
    shown, second = [each for each in then if each["type"].startswith("tool-") and "toolCallId" in each][-2:]
    assert (shown["type"], shown["input"]) == ("tool-input-available", HARMFUL)
    assert second["type"] == "tool-approval-request"
    assert second["approvalId"] != request["approvalId"]
    (again,) = chunks(server, user, message)
    assert (again["status"], again["kind"]) == (409, "UnknownApproval")
    guessed = f"{second['approvalId'].partition(':')[0]}:x"
    (by_call,) = chunks(server, user, {**message, "parts": [{**yes, "approval": {"id": guessed, "approved": True}}]})
    assert (by_call["status"], by_call["kind"]) == (409, "UnknownApproval")
    assert not (tmp_path / "owned.txt").exists()
    no = {**part, "state": "approval-responded", "approval": {"id": second["approvalId"], "approved": False}}
    last = chunks(server, user, {**message, "parts": [yes, no]})
    assert "tool-output-denied" in [each["type"] for each in last]
    assert (tmp_path / "list.txt").exists()
    assert not (tmp_path / "owned.txt").exists()


# ── AG-UI ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def run(server: Served, **body: object) -> JSONObject:
    """The last event of a run, or the refusal."""
    asked = {"threadId": "demo", "runId": "r", **body}
    with httpx.stream("POST", f"{server.url}/api/agui", json=asked, timeout=120) as stream:
        if stream.status_code != 200:
            return {"status": stream.status_code, **json.loads(stream.read())["error"]}
        return [frame.json for frame in frames(stream.iter_lines())][-1]


def resumed(*interrupts: str, approved: bool = True) -> list[JSONObject]:
    return [{"interruptId": each, "status": "resolved", "payload": {"approved": approved}} for each in interrupts]


def test_an_ag_ui_client_answers_one_call_and_learns_which(server: Served, model: str, tmp_path: Path) -> None:
    """The interrupt shows the action: a client could not distinguish the calls by the model's id alone."""
    message = {"id": "m1", "role": "user", "content": "List the files"}
    first = run(server, messages=[message], forwardedProps={"model": model})
    (asked,) = first["outcome"]["interrupts"]
    assert asked["metadata"]["contextc"] == {"name": "write_file", "arguments": HARMLESS}
    then = run(server, resume=resumed(asked["id"]))
    (other,) = then["outcome"]["interrupts"]
    assert other["metadata"]["contextc"] == {"name": "write_file", "arguments": HARMFUL}
    guessed = f"{other['id'].partition(':')[0]}:x"
    for stale in ([asked["id"]], [guessed], [other["id"], asked["id"]]):
        refused = run(server, resume=resumed(*stale))
        assert (refused["status"], refused["kind"]) == (409, "UnknownApproval")
    assert not (tmp_path / "owned.txt").exists(), "an answer that is refused in part approves nothing"
    texts = [*resumed(other["id"], approved=False), *resumed(other["id"])]
    assert run(server, resume=texts)["type"] == "RUN_FINISHED", "the first word counts"
    assert (tmp_path / "list.txt").exists()
    assert not (tmp_path / "owned.txt").exists()
