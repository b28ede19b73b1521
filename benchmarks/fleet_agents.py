"""The agent that the processes of `fleet.py` run: `contextc worker fleet_agents:agents`, in this folder.

Its model keeps to a timetable, which the environment names. Called with a folder, this module serves the same agent in
one process on SQLite: `python fleet_agents.py FOLDER` prints its port.
"""

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

from msgspec import Struct, json

import contextc as cc
from contextc._json import JSONObject
from contextc.app.agent_factory import ModelChoice
from contextc.executor import AgentExecutor
from contextc.providers.client import Endpoint, ProviderCall

VARIABLE = "CONTEXTC_BENCH_MODEL"
MODEL = "anthropic:claude-opus-5-5"
INPUT = "run the next turn"
"""The text of every input. The calls after the last one are those of its turn."""


class Timetable(Struct, frozen=True, kw_only=True):
    """What a model does in a turn: so many steps that call a tool, then an answer of so many words.

    `first` is the seconds to the first word of a reply, `pace` the seconds between two.
    """

    tools: int = 0
    words: int = 3
    first: float = 0.0
    pace: float = 0.0


class TimedModel(Endpoint):
    """A model that keeps to its timetable."""

    def __init__(self, timetable: Timetable) -> None:
        self._timetable = timetable

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        plan = self._timetable
        made = call.body.count(b'"role":"assistant"', call.body.rfind(INPUT.encode()))
        if plan.first:
            await asyncio.sleep(plan.first)
        usage: JSONObject = {"input_tokens": len(call.body) // 4, "output_tokens": 1}
        yield {"type": "message_start", "message": {"id": "m", "model": "claude-opus-5-5", "usage": usage}}
        opened: JSONObject = {"type": "text", "text": ""}
        yield {"type": "content_block_start", "index": 0, "content_block": opened}
        for number in range(plan.words):
            if plan.pace and number:
                await asyncio.sleep(plan.pace)
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"word{number} "}}
        yield {"type": "content_block_stop", "index": 0}
        if made < plan.tools:
            opened = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex}", "name": "look_up", "input": {}}
            yield {"type": "content_block_start", "index": 1, "content_block": opened}
            piece: JSONObject = {"type": "input_json_delta", "partial_json": '{"query": "reservation"}'}
            yield {"type": "content_block_delta", "index": 1, "delta": piece}
            yield {"type": "content_block_stop", "index": 1}
        reason = "tool_use" if made < plan.tools else "end_turn"
        yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 40}}
        yield {"type": "message_stop"}


async def look_up(query: str) -> str:
    """Read what is known about something."""
    return f"{query}: nothing is known. " * 20


def timed_model() -> TimedModel:
    return TimedModel(json.decode(os.environ.get(VARIABLE, "{}"), type=Timetable))


def assistant(store: cc.Store, model: TimedModel | None = None) -> AgentExecutor:
    return AgentExecutor(
        store,
        MODEL,
        tools=[look_up],
        triggers=cc.default_triggers(),
        instructions="Be brief. " * 100,
        summarize=None,
        endpoint=model or timed_model(),
    )


agents = {"assistant": assistant}


def serve(folder: Path) -> None:
    """Serve the agent from this process, as `contextc serve` does, on SQLite."""
    from contextc.web.app_state import ServerOptions
    from contextc.web.application import create_application
    from contextc.web.server import create_server, listen
    from contextc.web.turn_manager import ExecutorPool

    with cc.open_store(folder / "served.db") as store:

        def make(_: ModelChoice) -> tuple[AgentExecutor, Endpoint]:
            model = timed_model()
            return assistant(store, model), model

        app = create_application(store, ServerOptions(root=folder, model=MODEL))
        app.state.app_state.turns.executors = ExecutorPool(make)
        listening = listen("127.0.0.1", 0)
        server = create_server(app, lambda: print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True))
        server.run([listening])


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
