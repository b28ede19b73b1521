"""Whole turns on Bedrock, through boto3 and with a strict fake on loopback."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc._json import JSONObject
from contextc.events import RetryScheduled, TextDelta
from contextc.providers import Endpoint, ProviderCall
from tests.conftest import some
from tests.fake_vendors import KEY, AcceptedRequest, FakeVendors, Reply, faults, listed
from tests.fake_vendors import ScriptedCall as Asked
from tests.fake_vendors.faults import Fault

VARIABLE = "CONTEXTC_STANDIN_KEY"


@pytest.fixture(autouse=True)
def without_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv(VARIABLE, KEY)


class Whole(Endpoint):
    """A line that asks for no stream."""

    def __init__(self, line: Endpoint) -> None:
        self.line = line

    def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        return self.line.stream(replace(call, stream=False))


def model(ask: AcceptedRequest) -> Reply:
    """Looks at two things, and then answers."""
    last = ask.request.messages[-1]
    if last.role != "user":
        return Reply("Both are there.", reasoning="So they are.")
    return Reply("Let me look.", [Asked("look", {"thing": "a"}), Asked("look", {"thing": "b"})], "Which ones?")


def look(thing: str) -> str:
    """Look at a thing."""
    return f"{thing} is there"


def turn(*wrong: Fault, streamed: bool = True) -> tuple[FakeVendors, list[cc.Message], list[object]]:
    """Two turns of an agent with a tool, in which these things go wrong one after the other."""
    events: list[object] = []

    async def run() -> None:
        provider = cc.provider("bedrock:us.anthropic.claude-opus-5-5", url=standin.url("bedrock"), key=VARIABLE)
        async with cc.endpoint(provider) as line:
            agent = cc.AgentExecutor(
                store, provider, tools=[look], endpoint=line if streamed else Whole(line), triggers=()
            )
            for text in ("What is there?", "And now?"):
                events.extend([event async for event in agent.run("demo", text)])

    with cc.open_store("memory:") as store, FakeVendors(model, faults=listed(*wrong)) as standin:
        asyncio.run(run())
        return standin, list(store.load("demo")), events


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_an_agent_runs_whole_turns_with_tools(streamed: bool) -> None:
    """Guarantees 11.1, 10.5: every request is taken by our rules, by AWS's description and by the seals of the
    reasoning.
    """
    standin, messages, events = turn(streamed=streamed)
    assert [record.refused for record in standin.records] == [""] * 4
    assert standin.breaks() == []
    assert [message.role for message in messages] == ["user", "assistant", "tool", "tool", "assistant"] * 2
    assert [call.arguments for call in messages[1].tool_calls] == [{"thing": "a"}, {"thing": "b"}]
    results = sorted(result.text for message in messages for result in message.tool_results)
    assert results == ["a is there"] * 2 + ["b is there"] * 2
    assert messages[-1].text == "Both are there."
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == "Let me look.Both are there." * 2
    path = "/converse-stream" if streamed else "/converse"
    assert all(record.path.endswith(path) for record in standin.records)


PASSING = (
    faults.rate(0.01),
    faults.overloaded(),
    faults.internal(),
    faults.closed(),
    faults.reset(),
    faults.garbled(0),
)


@pytest.mark.parametrize(
    ("wrong", "streamed"),
    some([pytest.param(each, stream, id=f"{each.name}-{stream}") for each in PASSING for stream in (True, False)], 2),
)
def test_what_may_pass_is_tried_again_and_nothing_is_doubled(wrong: Fault, streamed: bool) -> None:
    """Guarantee 11.11."""
    standin, messages, events = turn(wrong, streamed=streamed)
    assert len([event for event in events if isinstance(event, RetryScheduled)]) == 1
    assert (standin.refused, len(standin.records), len(messages)) == ([], 5, 10)
