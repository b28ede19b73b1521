"""Arize Phoenix, a viewer of traces, shows the spans of a turn as what they are (guarantee 25.1)."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import contextc as cc
from contextc.testing import FakeModel

PATIENCE = 540.0
"""Phoenix takes half a minute to start, and some minutes where the machine is busy."""


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on loopback; its address."""
    folder, port = tmp_path_factory.mktemp("phoenix"), free_port()
    environment = {
        **os.environ,
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    address = f"http://127.0.0.1:{port}"
    with (folder / "log").open("w") as log:
        command = [sys.executable, "-m", "phoenix.server.main", "serve"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_for(lambda: process.poll() is not None or is_up(address))
            assert process.poll() is None, (folder / "log").read_text()
            yield address
        finally:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_up(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_phoenix_shows_a_turn_as_an_agent_with_model_calls_and_tools(phoenix: str) -> None:
    @cc.tool
    def add(first: int, second: int) -> int:
        """Add two numbers."""
        return first + second

    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{phoenix}/v1/traces")))
    call = cc.tool_call("c1", "add", {"first": 1, "second": 2})
    model = FakeModel(call, "It is 3.", provider="anthropic:claude-opus-5-5")
    cc.telemetry.enable(content=True, tracer_provider=tracers)
    try:
        asyncio.run(cc.Agent(model, instructions="Be brief.", tools=[add]).run("1 + 2?", conversation="demo"))
    finally:
        cc.telemetry.disable()
        tracers.shutdown()
    spans: list[Any] = []

    def arrived() -> bool:
        answer = httpx.get(f"{phoenix}/v1/projects/default/spans", params={"limit": 100})
        spans[:] = answer.json()["data"] if answer.status_code == 200 else []
        return len(spans) >= 4

    wait_for(arrived)
    spans.sort(key=lambda each: each["start_time"])
    assert [each["span_kind"] for each in spans] == ["AGENT", "LLM", "TOOL", "LLM"]
    turn, first, called, last = [each["attributes"] for each in spans]
    assert [each["parent_id"] for each in spans] == [None, *[spans[0]["context"]["span_id"]] * 3]
    assert {each["session.id"] for each in (turn, first, called, last)} == {"demo"}
    assert (called["tool.name"], called["tool.parameters.second"], called["output.value"]) == ("add", 2, "3")
    messages = "llm.input_messages"
    assert last[f"{messages}.0.message.content"] == "Be brief."
    assert last[f"{messages}.2.message.tool_calls.0.tool_call.function.name"] == "add"
    assert last[f"{messages}.3.message.content"] == "3"
    assert last["llm.output_messages.0.message.content"] == "It is 3."
    assert '"add"' in first["llm.tools.0.tool.json_schema"]
    tokens = "llm.token_count.prompt"
    assert turn[tokens] == first[tokens] + last[tokens]
