"""AG-UI over HTTP with the real, unmodified client: `HttpAgent` of @ag-ui/client."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx
import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.web import turn_manager
from contextc.web.app_state import ServerOptions
from tests.cli.chat_terminal import recorded, refuses
from tests.executor.scripted_provider import call, says
from tests.web.clients.client_process import HERE, ClientProcess
from tests.web.conftest import Served
from tests.web.sse_reader import read_events


class Client:
    """A real AG-UI client in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self._process, self._url = process, url

    def run(self, thread: str, **asked: object) -> JSONObject:
        """Run the agent, and say what the client saw, and what its messages are now."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"url": self._url, "thread": thread, **asked}) + "\n")
        self._process.stdin.flush()
        return cast(JSONObject, json.loads(self._process.stdout.readline()))


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    model = recorded(tmp_path / "answers.jsonl", says("Good ", "day."), says("Yes."))
    return ServerOptions(root=tmp_path, model=model, recordings=tmp_path)


@pytest.fixture(scope="module")
def process(judge: ClientProcess) -> "Iterator[subprocess.Popen[str]]":
    program = [str(judge.node), str(HERE / "agui.mjs"), str(judge.folder)]
    quiet = {"PATH": os.environ.get("PATH", "")}
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=quiet, cwd=judge.folder, encoding="utf-8"
    ) as process:
        yield process
        process.kill()


@pytest.fixture
def agent(server: Served, process: "subprocess.Popen[str]") -> Client:
    return Client(process, server.url)


def roles(answer: JSONObject) -> list[str]:
    return [message["role"] for message in answer["messages"] if message["role"] != "activity"]


def stored(server: Served, name: str = "demo") -> list[cc.Message]:
    with cc.open_store(server.address) as store:
        return store.load(name)


def test_a_client_talks_and_continues(server: Served, agent: Client) -> None:
    """Guarantee 12.2: it sends what it has each time, and nothing is stored twice."""
    first = agent.run("demo", say="Hello")
    assert (first["types"][0], first["types"][-1], first["problem"]) == ("RUN_STARTED", "RUN_FINISHED", None)
    assert first["messages"][-1]["content"] == "Good day." or "Good day." in str(first["messages"])
    second = agent.run("demo", say="Really?")
    assert roles(second) == ["user", "assistant", "user", "assistant"]
    assert [(message.role, message.text) for message in stored(server)] == [
        ("user", "Hello"),
        ("assistant", "Good day."),
        ("user", "Really?"),
        ("assistant", "Yes."),
    ]


def test_a_call_and_its_result_are_in_the_clients_messages(server: Served, agent: Client, tmp_path: Path) -> None:
    """Guarantee 12.2."""
    (tmp_path / "note.txt").write_text("buy milk")
    model = recorded(tmp_path / "tools.jsonl", says(call(1, "read_file", path="note.txt")), says("Milk."))
    answer = agent.run("demo", say="What is to be done?", props={"model": model})
    assert roles(answer) == ["user", "assistant", "tool", "assistant"]
    asking = next(message for message in answer["messages"] if message.get("toolCalls"))
    assert asking["toolCalls"][0]["function"] == {"name": "read_file", "arguments": '{"path": "note.txt"}'}
    assert "buy milk" in next(message for message in answer["messages"] if message["role"] == "tool")["content"]


def test_a_call_that_needs_approval_interrupts_the_run(server: Served, agent: Client, tmp_path: Path) -> None:
    """AG-UI's own way to ask a person, and to be answered."""
    writes = says("I write. ", ("w1", "write_file", {"path": "note.txt", "content": "hello"}))
    model = recorded(tmp_path / "writing.jsonl", writes, says("Done."))
    asked = agent.run("demo", say="Write", props={"model": model})
    assert asked["outcome"]["type"] == "interrupt"
    (interrupt,) = asked["interrupts"]
    assert interrupt["toolCallId"] == "w1"
    assert not (tmp_path / "note.txt").exists()
    content = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    answer = agent.run("demo", resume=[content])
    assert answer["problem"] is None
    assert roles(answer) == ["user", "assistant", "tool", "assistant"]
    assert (tmp_path / "note.txt").read_text() == "hello"


PICK = {
    "name": "pick_color",
    "description": "Let the user pick a color.",
    "parameters": {"type": "object", "properties": {"among": {"type": "array", "items": {"type": "string"}}}},
}


def test_a_tool_of_the_client_is_run_by_the_client(server: Served, agent: Client, tmp_path: Path) -> None:
    """Guarantee 18.6: the turn waits for the result without a process. The client's next run brings it."""
    picks = says("Which one? ", ("p1", "pick_color", {"among": ["red", "blue"]}))
    model = recorded(tmp_path / "picking.jsonl", picks, says("Blue."), says(("p2", "pick_color", {})))
    asked = agent.run("demo", say="Pick", props={"model": model}, tools=[PICK])
    assert (asked["problem"], asked["outcome"], asked["interrupts"]) == (None, {"type": "success"}, [])
    calling = next(message for message in asked["messages"] if message.get("toolCalls"))
    assert calling["toolCalls"][0]["function"]["name"] == "pick_color"
    view = httpx.get(f"{server.url}/api/conversations/demo").json()
    assert [(each["name"], each["client"]) for each in view["approvals"]] == [("pick_color", True)]
    refused = {"id": view["approvals"][0]["id"], "hash": view["approvals"][0]["hash"], "approve": True}
    answer = httpx.post(f"{server.url}/api/conversations/demo/approvals", json=refused)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "InvalidInput")  # only the client has a result
    answer = agent.run("demo", result={"toolCallId": "p1", "content": "blue"}, tools=[PICK])
    assert (answer["problem"], answer["outcome"]) == (None, {"type": "success"})
    assert roles(answer) == ["user", "assistant", "tool", "assistant"]
    assert [(message.role, message.text) for message in stored(server)[2:]] == [("tool", ""), ("assistant", "Blue.")]
    (result,) = stored(server)[2].tool_results
    assert (result.call_id, result.text, result.is_error) == ("p1", "blue", False)
    agent.run("demo", say="Again", tools=[PICK])
    answer = agent.run("demo", say="No, stop.", props={"model": recorded(tmp_path / "more.jsonl", says("Fine."))})
    assert (answer["problem"], answer["messages"][-1]["content"]) == (None, "Fine.")
    assert [result.is_error for message in stored(server) for result in message.tool_results] == [False, True]


def test_the_definition_of_a_tool_is_checked(server: Served) -> None:
    message = {"id": "m", "role": "user", "content": "Hello"}
    for wrong in ({"name": "no name"}, {"name": "fine", "parameters": 5}):
        body = {"threadId": "demo", "runId": "r", "messages": [message], "tools": [wrong]}
        answer = httpx.post(f"{server.url}/api/agui", json=body)
        assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "InvalidRequest")


def test_a_client_that_leaves_ends_its_run(server: Served, agent: Client, tmp_path: Path) -> None:
    """Guarantee 11.10: the partial reply stays, and the next run is not delayed."""
    model = recorded(tmp_path / "slow.jsonl", says(*[f"{n} " for n in range(400)]), says("Here."))
    agent.run("demo", say="Count", props={"model": f"{model}?seconds=0.05"}, stopAt="TEXT_MESSAGE_CONTENT")
    answer = agent.run("demo", say="And now?", props={"model": f"{model}?seconds=0.05"})
    assert answer["problem"] is None
    assert [message.status for message in stored(server) if message.role == "assistant"] == ["cancelled", "sent"]


def test_a_turn_without_followers_is_stopped(
    server: Served, agent: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 11.10: a page that was closed spends nothing."""
    assert turn_manager.FOLLOWER_TIMEOUT >= 1, "a page that is loaded again has to be there before"
    monkeypatch.setattr(turn_manager, "FOLLOWER_TIMEOUT", 3600)
    model = recorded(tmp_path / "slow.jsonl", says(*[f"{n} " for n in range(4000)]))
    agent.run("demo", say="Count", props={"model": f"{model}?seconds=0.05"}, stopAt="TEXT_MESSAGE_CONTENT")
    assert server.desk.turns.running_conversations == ["demo"]
    monkeypatch.setattr(turn_manager, "FOLLOWER_TIMEOUT", 0.1)
    agent.run("demo", stopAt="TEXT_MESSAGE_CONTENT")
    assert read_events(server.url, "demo")[-1]["finish"] == "cancelled"


def test_a_run_that_fails_gives_the_reason(server: Served, agent: Client, tmp_path: Path) -> None:
    model = recorded(tmp_path / "failing.jsonl", refuses(401, "No such key."))
    answer = agent.run("demo", say="Hello", props={"model": model})
    assert answer["types"][-1] == "RUN_ERROR"
    assert "No such key" in answer["problem"]


def test_a_client_without_anything_new_is_shown_what_there_is(server: Served, agent: Client) -> None:
    """A client that joins a conversation it does not know."""
    agent.run("demo", say="Hello")
    answer = agent.run("demo", fresh=True)
    assert answer["types"] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert [(each["role"], each["content"]) for each in answer["messages"]] == [
        ("user", "Hello"),
        ("assistant", "Good day."),
    ]


def test_a_client_joins_a_turn_that_runs(server: Served, agent: Client, tmp_path: Path) -> None:
    """And gets it from its beginning, none of it twice."""
    model = recorded(tmp_path / "slow.jsonl", says(*[f"{n} " for n in range(40)]))
    body = {"input": "Count", "model": f"{model}?seconds=0.05"}
    httpx.post(f"{server.url}/api/conversations/demo/turns", json=body)
    answer = agent.run("demo")
    assert answer["problem"] is None
    assert answer["messages"][0]["content"] == "Count"
    assert [each["content"] for each in answer["messages"] if each["role"] == "assistant"] == [stored(server)[-1].text]


def test_an_invalid_run_is_refused(server: Served) -> None:
    body = {"threadId": "demo", "runId": "r", "messages": [{"id": "m", "role": "user", "content": 3}]}
    answer = httpx.post(f"{server.url}/api/agui", json=body)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "InvalidRequest")


def test_what_is_refused_stops_nothing(server: Served, tmp_path: Path) -> None:
    """Guarantee 15.1: the run that a client follows goes on, whatever another one sends."""
    slow = recorded(tmp_path / "slow.jsonl", says(*[f"{n} " for n in range(4000)])) + "?seconds=0.05"
    message = {"id": "m0", "role": "user", "content": "Count"}
    body = {"threadId": "demo", "runId": "r", "messages": [message], "forwardedProps": {"model": slow}}
    with httpx.stream("POST", f"{server.url}/api/agui", json=body, timeout=120) as answer:
        lines = answer.iter_lines()
        assert any("TEXT_MESSAGE_CONTENT" in line for line in lines)
        begun = server.desk.turns.running_turn("demo")
        for more in (
            {"messages": [{"id": "m1", "role": "user", "content": "x"}], "forwardedProps": {"model": "nobody:x"}},
            {"messages": [{"id": "m" * 600, "role": "user", "content": "x"}]},
            {"messages": [{"id": "m1", "role": "user", "content": [{"type": "text", "text": 5}]}]},
        ):
            refused = httpx.post(f"{server.url}/api/agui", json={**body, **more})
            assert refused.status_code == 400, refused.text
        assert any("TEXT_MESSAGE_CONTENT" in line for line in lines), "it goes on"
        assert server.desk.turns.running_turn("demo") is begun
        httpx.post(f"{server.url}/api/conversations/demo/cancel", json={})


def test_a_late_approval_is_reported(server: Served) -> None:
    body = {"threadId": "demo", "runId": "r", "resume": [{"interruptId": "1:c1", "status": "resolved"}]}
    answer = httpx.post(f"{server.url}/api/agui", json=body)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (409, "UnknownApproval")
