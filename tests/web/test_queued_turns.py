"""Servers that submit turns to workers: each follows, cancels and answers the turns of all workers."""

import asyncio
import signal
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.events import TurnFinish
from contextc.executor import event_hub
from contextc.store import turn_records
from contextc.store.message_log import find_tip
from contextc.store.submitted_turns import park_unknown_agent
from contextc.web.app_state import ServerOptions
from contextc.worker import submit_sync
from tests.web.test_servers_on_one_store import Server, serving
from tests.worker.worker_process import PATIENCE, ToolFiles, finished, in_event_loop, wait_until, workers


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    return ServerOptions(root=tmp_path, queue="contextc")


@pytest.fixture
def two_servers(new_postgres_address: str, options: ServerOptions) -> Generator[tuple[Server, Server]]:
    with serving(new_postgres_address, options) as one, serving(new_postgres_address, options) as two:
        yield one, two


def numbers(server: Server) -> list[int]:
    return [event.number for event in server.app.store.events("demo")]


def test_turns_of_workers_on_two_servers(
    two_servers: tuple[Server, Server], new_postgres_address: str, tmp_path: Path
) -> None:
    """Guarantee 19.8: input on one server, an approval on the other, and the same gapless events on both."""
    one, two = two_servers
    files = ToolFiles(tmp_path)
    with workers(new_postgres_address, tmp_path) as start:
        start()
        chunks = one.events("/api/chat", id="demo", messages=[user_message("pay 1")])
        assert chunks[-1] == "[DONE]"
        assert "tool-approval-request" in [each["type"] for each in chunks[:-1]]
        assert (two.view()["running"]["turn"], two.view()["running"]["step"]) == (1, 1)
        (asked,) = two.view()["approvals"]
        two.post("demo/turns", 202, input="work 0")  # it waits for the turn
        assert [each["text"] for each in one.view()["queued"]] == ["work 0"]
        two.answer(asked)
        assert one.answer(asked, status=409)["error"]["kind"] == "UnknownApproval"
        wait_until(lambda: finished(one.app.store, 2), "both turns ended")
        assert len(files.begun()) == 1
        chunks = two.events("/api/chat", id="demo", messages=[user_message("work 0")])
        assert [each["type"] for each in chunks[:-1]][-1] == "finish"
        assert numbers(one) == numbers(two) == list(range(1, len(numbers(one)) + 1))
        assert [each.state for each in one.app.store.turns("demo")] == ["finished"] * 3
        assert one.view()["running"] is None


def test_cancel_on_another_server(
    two_servers: tuple[Server, Server], new_postgres_address: str, tmp_path: Path
) -> None:
    """Guarantee 19.8: a turn of a worker is cancelled from any server, also before a worker has taken it."""
    one, two = two_servers
    one.post("demo/turns", 202, input="work 1")
    assert two.view()["running"]["turn"] == 0  # no worker has taken it
    assert two.post("demo/cancel") == {"cancelled": True}
    assert two.view()["running"] is None
    with workers(new_postgres_address, tmp_path) as start:
        start()
        one.post("demo/turns", 202, input="work 1")
        wait_until(ToolFiles(tmp_path).begun, "the tool began")
        assert two.post("demo/cancel") == {"cancelled": True, "requested": True}
        wait_until(lambda: finished(one.app.store), "the turn ended")
        (turn,) = one.app.store.turns("demo")
        assert turn.finish == "cancelled"


def test_a_tool_of_the_client_in_any_process(
    two_servers: tuple[Server, Server], new_postgres_address: str, tmp_path: Path
) -> None:
    """Guarantee 18.6: a worker calls it and is killed. Another server gets the result, and another worker goes on."""
    one, two = two_servers
    message: JSONObject = {"id": "m1", "role": "user", "content": "pick 1"}
    body: JSONObject = {"threadId": "demo", "runId": "r1", "tools": [{"name": "pick", "description": "Pick a color."}]}
    with workers(new_postgres_address, tmp_path) as start:
        first = start()
        asked = one.events("/api/agui", **body, messages=[message])
        assert (asked[-1]["type"], asked[-1]["outcome"]) == ("RUN_FINISHED", {"type": "success"})
        (call,) = [each["toolCallId"] for each in asked if each["type"] == "TOOL_CALL_START"]
        first.send(signal.SIGKILL)
        first.end()
        result = {"id": "t1", "role": "tool", "toolCallId": call, "content": "blue"}
        start()
        body["runId"] = "r2"
        done = two.events("/api/agui", **body, messages=[message, result])
    assert (done[0]["type"], done[-1]["type"]) == ("RUN_STARTED", "RUN_FINISHED")
    assert "TOOL_CALL_RESULT" not in [each["type"] for each in done]  # the client has it
    assert one.app.store.load("demo")[-1].text == "Did pick 1."
    assert [part.text for each in one.app.store.load("demo") for part in each.tool_results] == ["blue"]
    assert [each.state for each in one.app.store.turns("demo")] == ["finished"]


def park(server: Server, reason: str) -> None:
    """Park the input of the conversation, as a worker without its agent does."""
    store = server.app.store
    number = store.read(lambda tx: find_tip(tx, "demo", False))
    assert number is not None
    agent = server.app.options.agent
    assert store.write(lambda tx: park_unknown_agent(tx, "demo", number.conversation, agent, reason))


def test_a_parked_turn_on_another_server(two_servers: tuple[Server, Server]) -> None:
    """Guarantee 19.6: its reason is shown everywhere, its stream ends, and it can be resumed or cancelled."""
    one, two = two_servers
    with ThreadPoolExecutor() as pool:
        streaming = pool.submit(one.events, "/api/chat", id="demo", messages=[user_message("work 1")])
        wait_until(lambda: two.view().get("running"), "the input was submitted")
        park(two, "no worker has it")
        assert streaming.result(PATIENCE)[-1] == "[DONE]"
    assert (two.view()["running"], two.view()["parked"][0]["reason"]) == (None, "no worker has it")
    (entry,) = two.client.get("/api/conversations").json()["conversations"]
    assert (entry["running"], entry["parked"]) == (False, "no worker has it")
    (listed,) = two.client.get("/api/parked").json()["turns"]
    assert (listed["conversation"], listed["agent"], listed["turn"]) == ("demo", "assistant", 0)
    one.post("demo/parked", action="resume")
    assert (two.view()["running"]["turn"], "parked" in two.view()) == (0, False)
    park(two, "again")
    assert one.post("demo/cancel") == {"cancelled": True}
    assert (two.view()["running"], "parked" in two.view()) == (None, False)
    assert one.post("demo/parked", 400, action="cancel")["error"]["kind"] == "InvalidInput"


@in_event_loop
async def test_watchers_are_notified(new_postgres_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 19.8: a watcher gets the events of another process without polling."""
    monkeypatch.setattr(event_hub, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(event_hub, "CHECK_SECONDS", 3600.0)
    with cc.open_store(new_postgres_address) as ours, cc.open_store(new_postgres_address) as theirs:
        submit_sync(theirs, "demo", "hello")  # makes the queue
        seen = asyncio.Queue[int]()

        async def watch() -> None:
            async for event in event_hub.watch(ours, "demo"):
                seen.put_nowait(event.number)

        watching = asyncio.create_task(watch())
        async with asyncio.timeout(PATIENCE):
            for number in range(1, 4):  # the second store has a hub of its own, so only the notification arrives
                event = TurnFinish(finish="stop", time=1, agent="assistant")
                await asyncio.to_thread(add_event, theirs, event)
                assert await seen.get() == number
        watching.cancel()


def add_event(store: cc.Store, event: TurnFinish) -> None:
    root = store.read(lambda tx: tx.row("SELECT number FROM main.conversation WHERE name = 'demo'"))
    assert root is not None
    store.write(lambda tx: turn_records.append_events(tx, root[0], [event]))


def user_message(text: str) -> dict[str, object]:
    return {"id": f"m {text}", "role": "user", "parts": [{"type": "text", "text": text}]}
