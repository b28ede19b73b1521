"""Questions of MCP servers over HTTP: listed beside the approvals, with a JSON schema, and answered there."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from contextc._json import JSONObject
from contextc.web.app_state import ServerOptions
from tests.cli.chat_terminal import recorded
from tests.executor.scripted_provider import says
from tests.mcp.servers import configure_asking
from tests.web.conftest import Served
from tests.web.sse_reader import read_events
from tests.web.test_approvals import run

SIZES = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "oneOf": [{"const": "small"}, {"const": "large"}], "title": "Size"},
        "cups": {"type": "integer", "minimum": 1, "maximum": 9},
        "gift": {"type": "boolean"},
        "mail": {"type": "string", "format": "email"},
    },
    "required": ["size"],
}


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    return ServerOptions(root=tmp_path, model="replay:none.jsonl", recordings=tmp_path)


def begin(server: Served, folder: Path, tool: str, arguments: JSONObject) -> tuple[int, JSONObject]:
    """Begin a turn that calls a tool which asks; the number of the event that does, and the approval."""
    configure_asking(folder)
    model = recorded(folder / "asks.jsonl", says(("x", f"asking__{tool}", arguments)), says("Done."))
    begun = httpx.post(f"{server.url}/api/conversations/demo/turns", json={"input": "Tea", "model": model}, timeout=60)
    assert begun.status_code == 202, begun.text
    number = read_events(server.url, "demo", after=begun.json()["after"], last="approval-request")[-1]["number"]
    (asked,) = pending(server)
    return number, asked


def pending(server: Served) -> list[Any]:
    return httpx.get(f"{server.url}/api/conversations/demo").json()["approvals"]


def answer(server: Served, asked: JSONObject, approve: bool, **more: object) -> httpx.Response:
    body = {"id": asked["id"], "hash": asked["hash"], "approve": approve, **more}
    return httpx.post(f"{server.url}/api/conversations/demo/approvals", json=body)


def result_after(server: Served, number: int) -> str:
    (found,) = [each for each in read_events(server.url, "demo", after=number) if each["type"] == "tool-result"]
    return found["text"]


def test_a_question_is_listed_with_its_schema_and_answered(server: Served, tmp_path: Path) -> None:
    number, asked = begin(server, tmp_path, "order", {"drink": "tea"})
    assert asked["what"] == "The server asking asks: Which size of tea?"
    request = {"key": "size", "message": "Which size of tea?", "schema": SIZES}
    assert asked["question"] == {"server": "asking", "requests": [request]}
    for content in (None, {"size": "huge"}, {"size": "small", "cups": 0}, {"size": "small", "other": 1}):
        refused = answer(server, asked, True, content=content)
        assert (refused.status_code, refused.json()["error"]["kind"]) == (400, "InvalidInput")
    assert "Pass one of: small, large" in answer(server, asked, True).json()["error"]["message"]
    wrong = answer(server, {**asked, "hash": "0"}, True, content={"size": "small"})
    assert (wrong.status_code, wrong.json()["error"]["kind"]) == (409, "ApprovalChanged")
    assert pending(server) == [asked], "it stays open"
    assert answer(server, asked, True, content={"size": "small", "cups": 2}).status_code == 200
    assert result_after(server, number) == 'One tea, {"size": "small", "cups": 2}.'
    late = answer(server, asked, True, content={"size": "large"})
    assert (late.status_code, late.json()["error"]["kind"]) == (409, "UnknownApproval")


@pytest.mark.parametrize(("cancel", "told"), [(False, "decline"), (True, "cancel")])
def test_a_question_is_declined_or_closed(server: Served, tmp_path: Path, cancel: bool, told: str) -> None:
    number, asked = begin(server, tmp_path, "order", {"drink": "tea"})
    both = answer(server, asked, True, content={"size": "small"}, cancel=True)
    assert (both.status_code, both.json()["error"]["kind"]) == (400, "InvalidInput")
    assert answer(server, asked, False, cancel=cancel).status_code == 200
    assert result_after(server, number) == f"No tea: {told}."


def test_a_link_is_listed_with_its_host(server: Served, tmp_path: Path) -> None:
    number, asked = begin(server, tmp_path, "visit", {})
    page = "https://shop.example/login?a=1"
    assert asked["question"]["requests"] == [
        {"key": "page", "message": "Sign in.", "url": page, "host": "shop.example"}
    ]
    assert answer(server, asked, True).status_code == 200
    assert result_after(server, number) == '{"action": "accept"}'


def test_content_is_for_questions_only(server: Served, tmp_path: Path) -> None:
    model = recorded(tmp_path / "w.jsonl", says(("x", "write_file", {"path": "a", "content": "b"})), says("Done."))
    begun = httpx.post(f"{server.url}/api/conversations/demo/turns", json={"input": "Go", "model": model})
    read_events(server.url, "demo", after=begun.json()["after"], last="approval-request")
    (asked,) = pending(server)
    assert "question" not in asked
    for approve, more in ((True, JSONObject({"content": {}})), (False, JSONObject({"cancel": True}))):
        refused = answer(server, asked, approve, **more)
        assert (refused.status_code, refused.json()["error"]["kind"]) == (400, "InvalidInput")
    assert pending(server) == [asked]


def test_an_ag_ui_client_answers_with_the_content_of_the_form(server: Served, tmp_path: Path) -> None:
    configure_asking(tmp_path)
    call = says(("x", "asking__order", {"drink": "tea"}))
    message = {"id": "m1", "role": "user", "content": "Tea"}
    model = recorded(tmp_path / "asks.jsonl", call, says("Done."))
    first = run(server, messages=[message], forwardedProps={"model": model})
    (asked,) = first["outcome"]["interrupts"]
    assert asked["message"] == "The server asking asks: Which size of tea?"
    payload: JSONObject = {"approved": True, "content": {"size": "huge"}}
    answer: JSONObject = {"interruptId": asked["id"], "status": "resolved", "payload": payload}
    refused = run(server, resume=[answer])
    assert (refused["status"], refused["kind"]) == (400, "InvalidInput")
    payload["content"] = {"size": "small"}
    assert run(server, resume=[answer])["type"] == "RUN_FINISHED"
    store = server.desk.store
    (result,) = [each for message in store.load("demo") for each in message.tool_results]
    assert result.text == 'One tea, {"size": "small"}.'
