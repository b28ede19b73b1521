"""A process that runs turns in many conversations, and writes down what was acknowledged: `worker.py ADDRESS JSON`."""

import asyncio
import json
import os
import sys
import time
from typing import Any

import contextc as cc
from contextc._json import JSONObject
from tests.executor.scripted_provider import Say, Scripted, says

address, given = sys.argv[1], json.loads(sys.argv[2])
out = open(given["out"], "a", buffering=1, encoding="utf-8")  # noqa: SIM115
count = 0


def note(*what: Any) -> None:
    out.write(json.dumps(what) + "\n")


def answer(request: JSONObject) -> Say:
    """Stream some pieces, call a tool once, and answer."""
    global count
    has_result = '"tool_result"' in json.dumps(request["messages"][-1])
    count += not has_result
    calls = [] if has_result else [(f"toolu_{os.getpid()}_{count}", "work", {"n": 1})]
    return says(" ".join(map(str, range(given["pieces"]))), *calls, pause=given["gap"], input=9, output=4)


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
        endpoint=Scripted(answer),
        lease_seconds=given["lease"],
        summarize=None,
        triggers=(),
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
