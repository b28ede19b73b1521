"""Two servers on one store: approvals and cancelling work on each of them, and a turn survives the server of it."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import contextc as cc
from contextc._json import JSONObject
from contextc.web.app_state import AppState, ServerOptions
from contextc.web.application import create_application
from tests.cli.chat_terminal import recorded
from tests.executor.scripted_provider import Say, says
from tests.web.sse_reader import frames

WRITES = says(("w1", "write_file", {"path": "note.txt", "content": "hello"}))
SECOND = says(("w2", "write_file", {"path": "other.txt", "content": "more"}))


class Server(NamedTuple):
    """A server in this process, with a handle of its own on the store."""

    client: TestClient
    app: AppState

    def post(self, path: str, status: int = 200, **body: object) -> JSONObject:
        answer = self.client.post(f"/api/conversations/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def view(self) -> JSONObject:
        return self.client.get("/api/conversations/demo").json()

    def answer(self, approval: JSONObject, *, approve: bool = True, status: int = 200) -> JSONObject:
        shown = {"id": approval["id"], "hash": approval["hash"]}
        return self.post("demo/approvals", status, **shown, approve=approve)

    def events(self, path: str, **body: object) -> list[Any]:
        with self.client.stream("POST", path, json=body) as stream:
            assert stream.status_code == 200, stream.read()
            return [frame.data if frame.data == "[DONE]" else frame.json for frame in frames(stream.iter_lines())]

    def waited(self) -> None:
        """Wait until the turns that run in this server have ended, or wait themselves."""
        for task in list(self.app.turns._asked):  # pyright: ignore[reportPrivateUsage]
            self.client.portal.call(_ended, task)  # pyright: ignore[reportOptionalMemberAccess]


async def _ended(task: Any) -> None:
    await task


@contextmanager
def serving(address: str, options: ServerOptions) -> Generator[Server]:
    with (
        cc.open_store(address) as store,
        TestClient(create_application(store, options), base_url="http://127.0.0.1:8377") as client,
    ):
        yield Server(client, cast(AppState, cast(Starlette, client.app).state.app_state))


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    """The second server continues with the replies that the first one has not used."""
    return ServerOptions(root=tmp_path, model=recorded(tmp_path / "a.jsonl", WRITES, says("Done.")))


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shared.db"


def other(options: ServerOptions, *replies: Say) -> ServerOptions:
    model = recorded(options.root / "b.jsonl", *replies)
    return ServerOptions(root=options.root, model=model)


def test_asked_on_one_server_which_ends_and_answered_and_done_on_another(
    address: str, options: ServerOptions, tmp_path: Path
) -> None:
    """Guarantee 18.1: the approval is a row, so it survives the server, and the next one continues the turn."""
    with serving(address, options) as one:
        one.post("demo/turns", 202, input="Write")
        one.waited()
        (asked,) = one.view()["approvals"]
        assert one.view()["running"]["turn"] == 1
    with serving(address, other(options, says("Done."))) as two:
        view = two.view()
        assert view["approvals"] == [asked]
        assert (view["running"]["turn"], view["running"]["step"]) == (1, 1)
        (entry,) = two.client.get("/api/conversations").json()["conversations"]
        assert (entry["needs_approval"], entry["running"]) == (True, True)
        assert two.post("demo/follow-up", text="And?")["running"]
        two.post("demo/turns", 202, input="Now.")
        assert [each["text"] for each in two.view()["queued"]] == ["And?", "Now."]
        assert two.post("demo/turns", 409, resume=True)["error"]["kind"] == "TurnWaits"
        assert not (tmp_path / "note.txt").exists()
        two.answer(asked)
        two.waited()
        assert (tmp_path / "note.txt").read_text() == "hello"
        assert two.view()["approvals"] == []
        assert "needs_approval" not in two.client.get("/api/conversations").json()["conversations"][0]
        turns = two.app.store.turns("demo")
        assert (turns[0].state, turns[0].finish) == ("finished", "stop")
        (approval,) = two.app.store.turn_approvals("demo", 1)
        assert (approval.state, approval.who) == ("allowed", "http")


def test_of_two_answers_on_two_servers_the_first_counts(address: str, options: ServerOptions) -> None:
    """Guarantee 18.2: the other one is told, and the turn is continued once."""
    with ExitStack() as stack:
        one, two = (stack.enter_context(serving(address, options)) for _ in range(2))
        one.post("demo/turns", 202, input="Write")
        one.waited()
        (asked,) = two.view()["approvals"]
        one.answer(asked)
        refused = two.answer(asked, approve=False, status=409)["error"]
        assert refused["kind"] in ("UnknownApproval", "RunsElsewhere")
        one.waited()
        assert [each.finish for each in one.app.store.turns("demo")] == ["stop"]
        assert two.answer(asked, approve=False, status=409)["error"]["kind"] == "UnknownApproval"


def test_a_waiting_turn_is_cancelled_on_another_server(address: str, options: ServerOptions, tmp_path: Path) -> None:
    """Guarantee 18.4."""
    with ExitStack() as stack:
        one, two = (stack.enter_context(serving(address, options)) for _ in range(2))
        one.post("demo/turns", 202, input="Write")
        one.waited()
        (asked,) = one.view()["approvals"]
        assert two.post("demo/cancel") == {"cancelled": True}
        assert (one.view()["running"], one.view()["approvals"]) == (None, [])
        assert one.answer(asked, status=409)["error"]["kind"] == "UnknownApproval"
        assert two.post("demo/cancel") == {"cancelled": False}
        assert not (tmp_path / "note.txt").exists()


def test_a_running_turn_is_cancelled_on_another_server(address: str, options: ServerOptions) -> None:
    """Guarantee 18.4: the server that runs it reads the request with its next event."""
    slow = recorded(options.root / "slow.jsonl", says(*[f"{n} " for n in range(4000)])) + "?seconds=0.02"
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(serving(address, ServerOptions(root=options.root, model=slow))) for _ in range(2)
        )
        one.post("demo/turns", 202, input="Count")
        assert two.post("demo/cancel") == {"cancelled": True, "requested": True}
        one.waited()
        (turn,) = two.app.store.turns("demo")
        assert (turn.state, turn.finish) == ("finished", "cancelled")
        (request,) = two.app.store.turn_requests("demo", 1)
        assert (request.kind, request.who, request.taken > 0) == ("cancel", "http", True)


def test_a_turn_that_was_answered_and_not_continued_is_found(address: str, options: ServerOptions) -> None:
    """Guarantee 18.5: a server may die between storing the answer and continuing the turn."""
    with serving(address, options) as one:
        one.post("demo/turns", 202, input="Write")
        one.waited()
        (asked,) = one.app.store.approvals("demo")
        one.app.store.answer_approval(asked.id, True)
        portal = one.client.portal
        assert portal is not None
        while one.app.store.turns("demo")[0].state != "finished":
            portal.call(one.app.turns.resume_abandoned)
            one.waited()
        assert [each.finish for each in one.app.store.turns("demo")] == ["stop"]


def test_an_approval_without_an_answer_is_denied_after_the_time_out(address: str, tmp_path: Path) -> None:
    """Guarantee 18.3: the server looks for it by itself, and continues the turn."""
    model = recorded(tmp_path / "a.jsonl", WRITES, says("Then not."))
    with serving(address, ServerOptions(root=tmp_path, model=model, approval_timeout=0.01)) as one:
        one.post("demo/turns", 202, input="Write")
        one.waited()
        portal = one.client.portal
        assert portal is not None
        while one.app.store.turns("demo")[0].state != "finished":
            portal.call(one.app.turns.resume_abandoned)
            one.waited()
        (result,) = [part for message in one.app.store.load("demo") for part in message.tool_results]
        assert result.text == "Not run: the user declined: no answer came in time"
        (approval,) = one.app.store.turn_approvals("demo", 1)
        assert (approval.state, approval.who) == ("denied", "time-out")
        assert not (tmp_path / "note.txt").exists()


# ── clients of other protocols ────────────────────────────────────────────────────────────────────────────────────────


def test_use_chat_continues_on_another_server(address: str, options: ServerOptions, tmp_path: Path) -> None:
    """Guarantee 12.2: two calls of one reply are asked one after the other. The second answer runs both."""
    user = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Write"}]}
    model = recorded(tmp_path / "two.jsonl", says(*WRITES.calls, *SECOND.calls))
    with serving(address, ServerOptions(root=tmp_path, model=model)) as one:
        first = one.events("/api/chat", id="demo", messages=[user])
        assert first[-1] == "[DONE]"
        (request,) = [each for each in first[:-1] if each["type"] == "tool-approval-request"]
    with serving(address, other(options, says("Done."))) as two:
        with two.client.stream("GET", "/api/chat/demo/stream") as stream:
            again = [frame.json for frame in frames(stream.iter_lines()) if frame.data != "[DONE]"]
        assert [each["approvalId"] for each in again if each["type"] == "tool-approval-request"] == [
            request["approvalId"]
        ]
        yes = _responded("w1", request["approvalId"])
        message = {"id": "turn-1", "role": "assistant", "parts": [yes]}
        then = two.events("/api/chat", id="demo", messages=[user, message])[:-1]
        (second,) = [each for each in then if each["type"] == "tool-approval-request"]
        assert not (tmp_path / "note.txt").exists()
        message["parts"] = [yes, _responded("w2", second["approvalId"])]
        last = two.events("/api/chat", id="demo", messages=[user, message])[:-1]
        outputs = [each["toolCallId"] for each in last if each["type"] == "tool-output-available"]
        assert (outputs, last[-1]["type"]) == (["w1", "w2"], "finish")
        assert {each["messageId"] for each in last if each["type"] == "start"} == {"turn-1"}
        assert (tmp_path / "other.txt").read_text() == "more"
        assert two.client.get("/api/chat/demo/stream").status_code == 204


def _responded(call: str, approval: str) -> JSONObject:
    part: JSONObject = {"type": "dynamic-tool", "toolName": "write_file", "toolCallId": call, "input": {}}
    return {**part, "state": "approval-responded", "approval": {"id": approval, "approved": True}}


def test_ag_ui_continues_on_another_server(address: str, options: ServerOptions, tmp_path: Path) -> None:
    """Guarantee 12.2: a client without news sees the turn up to its interrupt; the answer runs the rest."""
    message = {"id": "m1", "role": "user", "content": "Write"}
    with serving(address, options) as one:
        first = one.events("/api/agui", threadId="demo", runId="r1", messages=[message])
        (interrupt,) = first[-1]["outcome"]["interrupts"]
    with serving(address, other(options, says("Done."))) as two:
        joined = two.events("/api/agui", threadId="demo", runId="r2", messages=[message])
        assert [each["type"] for each in joined][:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
        assert joined[-1]["outcome"]["interrupts"] == [interrupt]
        decision = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        last = two.events("/api/agui", threadId="demo", runId="r3", resume=[decision])
        assert (last[0]["type"], last[0]["runId"]) == ("RUN_STARTED", "r3")
        assert (last[-1]["type"], last[-1]["outcome"]) == ("RUN_FINISHED", {"type": "success"})
        assert (tmp_path / "note.txt").read_text() == "hello"


@pytest.mark.parametrize("protocol", ["vercel", "agui"])
def test_a_new_message_instead_of_an_answer_cancels_the_waiting_turn(
    address: str, options: ServerOptions, tmp_path: Path, protocol: str
) -> None:
    """Guarantee 11.10: as it did while the turn waited in a process."""
    texts = [("m1", "Write"), ("m2", "Never mind.")]
    with serving(address, options) as one:
        for number in (1, 2):
            if protocol == "vercel":
                parts = [{"id": id, "role": "user", "parts": [{"type": "text", "text": text}]} for id, text in texts]
                one.events("/api/chat", id="demo", messages=parts[:number])
            else:
                messages = [{"id": id, "role": "user", "content": text} for id, text in texts]
                one.events("/api/agui", threadId="demo", runId=f"r{number}", messages=messages[:number])
        assert [each.finish for each in one.app.store.turns("demo")] == ["cancelled", "stop"]
        assert one.app.store.approvals() == []
        assert not (tmp_path / "note.txt").exists()
