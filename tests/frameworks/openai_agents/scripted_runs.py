"""Agents with a scripted model: steps of calls, then an answer. Used by several tests and by processes of their own."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

from agents import Agent, RunConfig, Runner, Usage, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

import contextc as cc
from contextc.adapters.openai_agents import RequestFitter, Session

QUIET = {"tracing_disabled": True}


@function_tool
def read(path: str, size: int) -> str:
    """Read a file."""
    return f"{path} " * size


def make_call(call_id: str, **arguments: Any) -> Any:
    return function_call("read", arguments, call_id=call_id)


def list_steps(count: int, *, label: str = "a", size: int = 300, seed: int = 1) -> Iterator[ModelStep]:
    """Steps of one or two calls, then an answer."""
    chance = random.Random(seed)
    for step in range(count):
        calls = [
            make_call(f"{label}-{step}-{each}", path=f"{label}{step}", size=chance.randrange(1, size))
            for each in range(chance.choice((1, 1, 2)))
        ]
        yield ModelStep(output=calls, usage=Usage(requests=1, output_tokens=10, total_tokens=10))
    yield ModelStep(output=[assistant_message(f"{label}: done", item_id=f"msg_{label}")])


def make_agent(*steps: ModelStep) -> tuple[Agent[Any], ScriptedModel]:
    model = ScriptedModel(steps=list(steps))
    return Agent(name="worker", instructions="Work.", model=model, tools=[read]), model


async def run(
    agent: Agent[Any], text: str, session: Any, fitter: RequestFitter | None, *, streamed: bool = False
) -> None:
    config = RunConfig(call_model_input_filter=fitter, **QUIET)
    options: dict[str, Any] = {"session": session, "run_config": config, "hooks": fitter, "max_turns": 100}
    if streamed:
        async for _ in Runner.run_streamed(agent, text, **options).stream_events():
            pass
    else:
        await Runner.run(agent, text, **options)


def run_in_process(address: str, label: str, runs: int, steps: int) -> None:
    """Runs of one process on the session that other processes use too."""

    async def work() -> None:
        with cc.open_store(address) as store:
            session = Session("shared", store)
            fitter = session.fitter("openai:gpt-5.4", window=32_000)
            for number in range(runs):
                name = f"{label}{number}"
                agent, _ = make_agent(*list_steps(steps, label=name, size=20))
                await run(agent, f"task {name}", session, fitter)

    asyncio.run(work())
