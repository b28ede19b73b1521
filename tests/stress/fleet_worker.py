"""A worker of `fleet_faults`: `python -m tests.stress.fleet_worker ADDRESS JSON`."""

import asyncio
import json
import logging
import os
import sys
import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import contextc as cc
from contextc._json import JSONObject
from contextc.cli import worker as command
from contextc.providers.client import ProviderCall
from contextc.worker import TurnWorker, WorkerOptions
from contextc.worker.turn_worker import RetryRules
from tests.executor.scripted_provider import Say, Scripted, says

address, given = sys.argv[1], json.loads(sys.argv[2])


def note(*what: Any) -> None:
    """Write a line to the file that all workers share, in one system call."""
    handle = os.open(given["out"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (json.dumps(what) + "\n").encode())
    os.close(handle)


class Noting(Scripted):
    """A model that calls a tool in each step, and then answers. Its calls are written down."""

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        note("calls", "", call.conversation, given["name"], time.time())
        async for event in super().stream(call):
            yield event


def answer(request: JSONObject) -> Say:
    messages = request["messages"]
    asked = max(index for index, each in enumerate(messages) if "input " in json.dumps(each["content"])[:200])
    made = sum(each["role"] == "assistant" for each in messages[asked:])
    calls = [(f"toolu_{uuid.uuid4().hex}", "work", {"n": 1})] if made < given["steps"] else []
    return says("This is a step.", *calls, pause=given["gap"], input=9, output=4)


async def work(n: int, context: cc.ToolContext) -> str:
    """Do some work."""
    note("begins", context.call.id, context.conversation, given["name"], time.time())
    await asyncio.sleep(given["gap"])
    return f"did {n}"


def main() -> None:
    logging.basicConfig(filename=given["log"], level=logging.INFO)
    with cc.open_store(address) as store:
        executor = cc.AgentExecutor(
            store,
            "anthropic:claude-opus-5-5",
            tools=[work],
            endpoint=Noting(answer),
            lease_seconds=given["lease"],
            summarize=None,
            limits=cc.Limits(steps=None, tool_calls=None),
            triggers=(),
        )
        options = WorkerOptions(heartbeat=given["heartbeat"], concurrency=8, rules=RetryRules(max_deaths=1000))
        asyncio.run(command._run(TurnWorker(store, {"assistant": executor}, options), None, 0))  # pyright: ignore[reportPrivateUsage]


main()
