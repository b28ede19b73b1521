"""A process that runs turns in many conversations, and writes down what was acknowledged: `worker.py ADDRESS JSON`."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator
from typing import Any

import contextc as cc
from contextc._json import JSONObject
from contextc.providers.client import Endpoint

address, given = sys.argv[1], json.loads(sys.argv[2])
out = open(given["out"], "a", buffering=1, encoding="utf-8")  # noqa: SIM115
count = 0


def note(*what: Any) -> None:
    out.write(json.dumps(what) + "\n")


class Scripted(Endpoint):
    """A model that streams some pieces, calls a tool once, and answers."""

    async def stream(self, call: Any) -> AsyncGenerator[JSONObject]:
        global count
        has_result = '"tool_result"' in json.dumps(json.loads(call.body)["messages"][-1])
        yield {
            "type": "message_start",
            "message": {"id": "m", "model": "claude-opus-5-5", "usage": {"input_tokens": 9}},
        }
        for number in range(given["pieces"]):
            await asyncio.sleep(given["gap"])
            delta: JSONObject = {"type": "text_delta", "text": f"piece {number} "}
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
        if not has_result:
            count += 1
            block: JSONObject = {"type": "tool_use", "id": f"toolu_{os.getpid()}_{count}", "name": "work", "input": {}}
            yield {"type": "content_block_start", "index": 1, "content_block": block}
            piece: JSONObject = {"type": "input_json_delta", "partial_json": '{"n": 1}'}
            yield {"type": "content_block_delta", "index": 1, "delta": piece}
            yield {"type": "content_block_stop", "index": 1}
        reason = "end_turn" if has_result else "tool_use"
        yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 4}}
        yield {"type": "message_stop"}


async def work(n: int, context: cc.ToolContext) -> str:
    """Do some work."""
    note("tool", context.call.id)
    await asyncio.sleep(0.02)
    return f"did {n}"


async def main() -> None:
    store = cc.open_store(address)
    began = time.monotonic()
    executor = cc.AgentExecutor(
        store,
        "anthropic:claude-opus-5-5",
        tools=[work],
        endpoint=Scripted(),
        lease_seconds=given["lease"],
        summarize=None,
    )

    async def converse(name: str) -> None:
        number = 0
        while number < given["turns"] and time.monotonic() < began + given["seconds"]:
            number += 1
            try:
                turn = executor.start(name, cc.user(f"say {number}", uid=f"{name}x{os.getpid()}x{number}"))
                async for event in turn.events():
                    if type(event).__name__ in ("StepFinish", "ToolFinished", "TurnFinish"):
                        seq, uid = getattr(event, "seq", 0), getattr(event, "uid", "")
                        note("told", name, event.number, type(event).__name__, seq, uid)
                result = turn.results[-1]
                note("turn", result.finish, str(result.error or "")[:150])
            except Exception as error:
                note("turn", type(error).__name__, str(error)[:150])
                await asyncio.sleep(0.2)

    note("begins")
    await asyncio.gather(*[converse(f"{given['name']}-{number}") for number in range(given["conversations"])])
    await executor.close()
    store.close()


asyncio.run(main())
