"""Turns with tools on a strict fake of Ollama, with its SDK: streamed or not, with and without faults."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import ProviderFailed
from contextc.events import AnyEvent, ReasoningDelta, TextDelta
from tests.conftest import some
from tests.fake_vendors import KEY, FakeVendors, RandomFaults, Reply, Scripted, ScriptedCall, faults
from tests.fake_vendors.faults import Plan

VARIABLE = "CONTEXTC_STANDIN_KEY"
STEPS = [
    Reply("Let me look.", [ScriptedCall("look", {"thing": "a"}), ScriptedCall("look", {"thing": "b"})], "Hm. A look?"),
    Reply(None, [ScriptedCall("look", {"thing": "c"})], "One more."),
    Reply("A ship, 🦊.", reasoning="So."),
]
WINDOW = 8_192
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[cc.Store]:
    monkeypatch.setenv(VARIABLE, KEY)
    with cc.open_store(f"sqlite:///{tmp_path / 'turns.db'}") as opened:
        yield opened


@cc.tool
def look(thing: str) -> str:
    """Look at a thing."""
    return f"I see {thing}."


def played(store: cc.Store, standin: FakeVendors, model: str = "qwen3:8b", **settings: object) -> list[AnyEvent]:
    """The events of one turn."""
    provider = cc.provider(f"ollama:{model}", url=standin.url("ollama"), key=VARIABLE, window=WINDOW)

    async def run() -> list[AnyEvent]:
        agent = cc.AgentExecutor(
            store, provider, tools=[look], instructions="Be brief.", settings=settings, triggers=()
        )
        return [event async for event in agent.run("c", "What is there?")]

    return asyncio.run(run())


def answered(standin: FakeVendors) -> list[JSONObject]:
    """The requests that had a whole reply."""
    return [json.loads(record.raw) for record in standin.records if record.completed]


@STREAMED
def test_a_turn_with_tools_is_asked_step_by_step(on_disk: cc.Store, stream: bool) -> None:
    """Guarantees 11.1, 10.5: each request is sound, extends the one before it, says its window and is not cut."""
    with FakeVendors(Scripted(STEPS)) as standin:
        events = played(on_disk, standin, stream=stream)
    assert [record.refused for record in standin.refused] == []
    assert (standin.defects, standin.breaks()) == ([], [])
    first, second, third = answered(standin)
    assert first == {
        "model": "qwen3:8b",
        "stream": stream,
        "think": True,
        "options": {"num_ctx": WINDOW},
        "truncate": False,
        "tools": first["tools"],
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is there?"}],
    }
    assert third["messages"][: len(second["messages"])] == second["messages"]
    reply, *results = second["messages"][2:]
    assert (reply["content"], reply["thinking"]) == ("Let me look.", "Hm. A look?")
    assert [call["id"] for call in reply["tool_calls"]] == [each["tool_call_id"] for each in results]
    assert [(each["tool_name"], each["content"]) for each in results] == [("look", "I see a."), ("look", "I see b.")]
    assert [message.text for message in on_disk.load("c") if message.role == "assistant"] == [
        "Let me look.",
        "",
        "A ship, 🦊.",
    ]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Let me look.A ship, 🦊."
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "Hm. A look?One more.So."


FAULTS = [faults.cut(), faults.ended(), faults.garbled(), faults.error_inside(), faults.overloaded(), faults.closed()]


@STREAMED
@pytest.mark.parametrize("fault", some(FAULTS, 2), ids=lambda fault: fault.name)
def test_a_step_that_failed_before_its_first_output_is_asked_again(
    on_disk: cc.Store, stream: bool, fault: faults.Fault
) -> None:
    """Guarantee 11.11: nothing is lost or doubled. If output precedes the fault, the turn reports its end."""
    first: Plan = lambda ask: fault if (ask.number, ask.attempt) == (0, 0) else None  # noqa: E731
    failed = ""
    with FakeVendors(Scripted(STEPS), faults=first) as standin:
        try:
            played(on_disk, standin, stream=stream)
        except cc.errors.ProviderFailed as error:
            failed = error.kind
    texts = [message.text for message in on_disk.load("c") if message.role == "assistant" and message.status == "sent"]
    assert [record.refused for record in standin.refused] == []
    assert (standin.defects, standin.breaks()) == ([], [])
    broke = stream and fault.name in ("cut", "ended", "garbled", "error inside")
    assert (failed, texts) == (("transient", []) if broke else ("", ["Let me look.", "", "A ship, 🦊."]))


@STREAMED
def test_turns_continue_through_failures(on_disk: cc.Store, stream: bool) -> None:
    """Guarantees 11.1, 11.11: every question is asked until it is answered, and no request is refused."""
    replies = [Reply(f"Answer {number}.", reasoning="Hm.") for number in range(200)]
    with FakeVendors(Scripted(replies), faults=RandomFaults(5, share=0.4)) as standin:
        for _ in range(6):
            while True:
                try:
                    played(on_disk, standin, stream=stream)
                except cc.errors.ProviderFailed:
                    continue
                break
        assert any(record.fault for record in standin.records)
    assert [record.refused for record in standin.refused] == []
    assert standin.defects == []
    assert len(answered(standin)) >= 6
    for body in answered(standin):
        assert (body["truncate"], body["options"]["num_ctx"]) == (False, WINDOW)


def test_a_model_that_does_not_think_is_not_asked_to(on_disk: cc.Store) -> None:
    """The server would refuse it; an explicit setting raises an error with a fix."""
    with FakeVendors(Scripted(["Hello."])) as standin:
        played(on_disk, standin, "llama3.1")
        assert "think" not in answered(standin)[0]
        with pytest.raises(cc.errors.ProviderFailed, match=r'"llama3.1" does not support thinking.*"think": False'):
            played(on_disk, standin, "llama3.1", think=True)


def test_a_prompt_that_is_too_long_is_reported(on_disk: cc.Store) -> None:
    """The server reports it, because truncation is disabled. It is called once more, and its message is the error."""
    with FakeVendors(Scripted(["Hello."]), window=10) as standin, pytest.raises(ProviderFailed, match="10 tokens"):
        played(on_disk, standin)
    assert len(standin.records) == 2
    for record in standin.records:
        assert "exceeds the available context size (10 tokens)" in record.refused
