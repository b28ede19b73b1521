"""Turns on a provider that runs tools itself: its reply is stored as several messages, like our own tools.

What it says is recorded from the real program (`tests/data/codex`).
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.events import (
    ApprovalRequest,
    StepFinish,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    TurnFinish,
)
from contextc.messages import Message, ToolCall, find_open_calls
from contextc.models.tokens import load_calibrations
from contextc.providers import Endpoint, ProviderCall
from tests.executor.scripted_provider import run_turn

DATA = Path(__file__).parent.parent / "data" / "codex"


def recorded(name: str) -> list[JSONObject]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


def agent(store: cc.Store, *names: str, seconds: float = 0.0) -> cc.AgentExecutor:
    provider = cc.provider("codex:gpt-5.4", client="replay")
    line = cc.endpoint(provider, recordings=[{"events": recorded(name)} for name in names], seconds=seconds)
    return cc.AgentExecutor(store, provider, endpoint=line, triggers=())


def shape(messages: list[Message]) -> list[str]:
    return [f"{message.role} {message.status}" for message in messages]


@pytest.mark.parametrize("seconds", [0.0, 0.02], ids=["at once", "piece by piece"])
def test_its_calls_and_results_are_recorded_as_ours(store: cc.Store, seconds: float) -> None:
    """Guarantee 9.7: `commit` appends what the provider produced, in one transaction, in order."""
    executor = agent(store, "turn", seconds=seconds)
    events = run_turn(executor, "Run it.")
    messages = store.load("demo")

    assert shape(messages) == ["user sent", "assistant sent", "tool sent", "assistant sent"]
    assert not list(find_open_calls(messages))
    calls = [call for message in messages for call in message.tool_calls]
    assert [result.call_id for result in messages[2].tool_results] == [call.id for call in calls]
    assert {message.turn for message in messages[1:]} == {1}
    assert {message.step for message in messages[1:]} == {1}
    assert sum(message.usage is not None for message in messages) == 2, "each of its replies has its own figures"

    kinds = [type(event) for event in events]
    assert kinds.index(ToolCallDelta) < kinds.index(ToolFinished) < kinds.index(StepFinish)
    names = {event.uid for event in events if isinstance(event, TextDelta)}
    assert names <= {message.uid for message in messages if message.role == "assistant"}
    (finish,) = [event for event in events if isinstance(event, TurnFinish)]
    assert (finish.steps, finish.tool_calls) == (1, 1)
    total = sum(message.usage.input for message in messages if message.usage)
    assert finish.usage is not None
    assert finish.usage.input == total


def test_its_thread_is_gone_on_with(store: cc.Store) -> None:
    """Guarantee 9.4: only what is new is sent the next time, and what it said itself is not."""
    executor = agent(store, "turn", "turn")
    run_turn(executor, "Run it.")
    compiled = executor.compiler.compile("demo")
    assert not compiled.is_new
    store.append("demo", cc.user("Again."))
    compiled = executor.compiler.compile("demo")
    assert (compiled.mode, compiled.session_id) == ("resume", recorded("turn")[0]["params"]["thread"]["id"])
    assert compiled.cursor
    assert [item["type"] for item in compiled.params["items"]] == ["userMessage"]


def test_a_history_it_has_shortened_is_noticed(store: cc.Store) -> None:
    """Guarantee 11.3: after a compaction, triggers for that are asked; the account says what happened."""
    seen: list[str] = []

    @cc.trigger("reminder", at=("after_compaction",))
    def reminder(moment: cc.TriggerContext) -> str:
        seen.append(moment.when)
        return "Remember the plan."

    provider = cc.provider("codex:gpt-5.4", client="replay")
    events = [{"events": recorded("auto")}, {"events": recorded("turn")}]
    executor = cc.AgentExecutor(store, provider, triggers=[reminder], endpoint=cc.endpoint(provider, recordings=events))
    run_turn(executor, "Go on and on.")
    assert [remark for remark in executor.compiler.explain("demo").record.remarks if "shortened" in remark]
    assert seen == []
    run_turn(executor, "And now?")
    assert seen == ["after_compaction"]
    assert any(message.text == "Remember the plan." for message in store.load("demo"))


def test_finished_calls_are_kept_on_cancellation(store: cc.Store) -> None:
    """Guarantees 11.10, 9.8: calls with their results stay complete; the last text is marked."""
    executor = agent(store, "turn", seconds=0.02)

    async def work() -> None:
        running = executor.start("demo", "Run it.")
        async for event in running.events():
            if isinstance(event, ToolFinished):
                running.cancel()
        await running.wait()

    asyncio.run(work())
    messages = store.load("demo")
    assert shape(messages)[:3] == ["user sent", "assistant sent", "tool sent"]
    assert not list(find_open_calls(messages))


KILLED = """
import asyncio, json, sys
from pathlib import Path
import contextc as cc

async def main() -> None:
    events = [json.loads(line) for line in Path(sys.argv[2]).read_text().splitlines()]
    store = cc.open_store(sys.argv[1])
    provider = cc.provider("codex:gpt-5.4", client="replay")
    line = cc.endpoint(provider, recordings=[{"events": events}], seconds=0.05)
    async for event in cc.AgentExecutor(store, provider, endpoint=line).run("demo", "Run it."):
        if event.__class__.__name__ == "ToolFinished":
            print("now", flush=True)

asyncio.run(main())
"""


def test_finished_calls_survive_a_killed_process(tmp_path: Path) -> None:
    """Guarantees 3.3, 3.6: the journal holds results too, and becomes the messages it was made of."""
    address = f"sqlite:///{tmp_path / 'chat.db'}"
    command = [sys.executable, "-c", KILLED, address, str(DATA / "turn.jsonl")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        os.kill(process.pid, signal.SIGKILL)
    with cc.open_store(address) as store:
        store.recover()
        messages = store.load("demo")
    assert shape(messages)[:3] == ["user sent", "assistant sent", "tool sent"]
    assert not list(find_open_calls(messages))
    assert all(message.status == "error" for message in messages[3:])


class Asking(Endpoint):
    """Asks for its command as soon as it has said that it wants to run it."""

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        assert call.host is not None
        for event in recorded("turn"):
            yield event
            if event["method"] == "item/started" and event["params"]["item"]["type"] == "commandExecution":
                await call.host.approve(ToolCall(id="c", name="shell", arguments={"command": "ls"}))


def test_text_before_an_approval_is_published_before_the_request(store: cc.Store) -> None:
    """Guarantee 12.1: events are in the order in which things happened, also where they are stored in batches."""
    provider = cc.provider("codex:gpt-5.4", client="replay")
    executor = cc.AgentExecutor(store, provider, endpoint=Asking(), approve=lambda call, tool: True, triggers=())
    events = run_turn(executor, "Run it.")
    asked = next(index for index, event in enumerate(events) if isinstance(event, ApprovalRequest))
    (call,) = [event for event in events[:asked] if isinstance(event, ToolCallDelta)]
    assert "command" in json.loads(call.arguments), "as a model writes them"
    assert shape(store.load("demo")) == ["user sent", "assistant sent", "tool sent", "assistant sent"]


def test_the_provider_prompt_uses_tokens_without_affecting_calibration(store: cc.Store) -> None:
    """Guarantee 7.1: the figure of the last request is used, however far it is from ours; no factor is
    learned from it.
    """
    events = recorded("turn")
    for event in events:
        if event["method"] == "thread/tokenUsage/updated":
            event["params"]["tokenUsage"]["last"]["inputTokens"] += 20_000
    provider = cc.provider("codex:gpt-5.4", client="replay")
    line = cc.endpoint(provider, recordings=[{"events": events}])
    executor = cc.AgentExecutor(store, provider, endpoint=line, triggers=())
    run_turn(executor, "Run it. " + "word " * 60)
    usage = store.load("demo", last=1)[0].usage
    store.append("demo", cc.user("Again."))
    compiled = executor.compiler.compile("demo")
    assert usage is not None
    assert usage.input > 2 * compiled.estimated_input > 100
    assert (compiled.budget.measured, compiled.budget.input > usage.input) == (True, True)
    assert store.read(lambda tx: load_calibrations(tx, "gpt-5.4")) == {}
