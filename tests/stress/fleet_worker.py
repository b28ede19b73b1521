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
from contextc.providers.client import Endpoint
from contextc.worker import TurnWorker, WorkerOptions
from contextc.worker.turn_worker import RetryRules

address, given = sys.argv[1], json.loads(sys.argv[2])


def note(*what: Any) -> None:
    """Write a line to the file that all workers share, in one system call."""
    handle = os.open(given["out"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (json.dumps(what) + "\n").encode())
    os.close(handle)


class Scripted(Endpoint):
    """A model that calls a tool in each step, and then answers."""

    async def stream(self, call: Any) -> AsyncGenerator[JSONObject]:
        note("calls", "", call.conversation, given["name"], time.time())
        messages = json.loads(call.body)["messages"]
        asked = max(index for index, each in enumerate(messages) if "input " in json.dumps(each["content"])[:200])
        made = sum(each["role"] == "assistant" for each in messages[asked:])
        usage: JSONObject = {"input_tokens": 9}
        yield {"type": "message_start", "message": {"id": "m", "model": "claude-opus-5-5", "usage": usage}}
        block: JSONObject = {"type": "text", "text": ""}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        for word in ("This ", "is ", "a ", "step."):
            await asyncio.sleep(given["gap"])
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
        yield {"type": "content_block_stop", "index": 0}
        if made < given["steps"]:
            block = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex}", "name": "work", "input": {}}
            yield {"type": "content_block_start", "index": 1, "content_block": block}
            piece: JSONObject = {"type": "input_json_delta", "partial_json": '{"n": 1}'}
            yield {"type": "content_block_delta", "index": 1, "delta": piece}
            yield {"type": "content_block_stop", "index": 1}
        reason = "tool_use" if made < given["steps"] else "end_turn"
        yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 4}}
        yield {"type": "message_stop"}


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
            endpoint=Scripted(),
            lease_seconds=given["lease"],
            summarize=None,
            limits=cc.Limits(steps=None, tool_calls=None),
        )
        options = WorkerOptions(heartbeat=given["heartbeat"], concurrency=8, rules=RetryRules(max_deaths=1000))
        asyncio.run(command._run(TurnWorker(store, {"assistant": executor}, options), None, 0))  # pyright: ignore[reportPrivateUsage]


main()
