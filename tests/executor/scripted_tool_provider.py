"""A scripted provider in Codex's format that runs tools itself and calls ours.

A script is given the call and its number, and yields events. The thread and the turn are always the same.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from itertools import count
from typing import Any, TypeAlias

import contextc as cc
from contextc._json import JSONObject
from contextc.providers.client import Endpoint, ProviderCall

THREAD, TURN = "01a1dfae-c98f-7581-8000-c4b760b71211", "01a1dfae-c9a2-7e52-b83f-710387a627b3"
NUMBERS = count(1)
Script: TypeAlias = Callable[[ProviderCall, int], AsyncGenerator[JSONObject, None]]


def _event(method: str, **params: object) -> JSONObject:
    return {"method": method, "params": {"threadId": THREAD, "turnId": TURN, **params}}


def started() -> JSONObject:
    return _event("turn/started", turn={"id": TURN, "items": [], "status": "inProgress"})


def said(text: str) -> JSONObject:
    return _event("item/completed", item={"type": "agentMessage", "id": f"msg_{next(NUMBERS)}", "text": text})


def asked(call: str, tool: str = "look") -> JSONObject:
    item: JSONObject = {"type": "dynamicToolCall", "id": call, "tool": tool, "arguments": {"thing": "it"}}
    return _event("item/started", item={**item, "status": "inProgress"})


def answered(call: str, text: str, tool: str = "look") -> JSONObject:
    item: JSONObject = {"type": "dynamicToolCall", "id": call, "tool": tool, "arguments": {"thing": "it"}}
    content = [{"type": "inputText", "text": text}]
    return _event("item/completed", item={**item, "status": "completed", "contentItems": content, "success": True})


def used(input: int, output: int) -> JSONObject:
    last = {"inputTokens": input, "outputTokens": output, "totalTokens": input + output}
    total = {"totalTokens": 1_000 * next(NUMBERS)}
    return _event("thread/tokenUsage/updated", tokenUsage={"last": last, "total": total})


def ended() -> JSONObject:
    return _event("turn/completed", turn={"id": TURN, "items": [], "status": "completed"})


class Program(Endpoint):
    def __init__(self, script: Script, *, starts: bool = True) -> None:
        self.script, self.starts, self.calls = script, starts, list[ProviderCall]()

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        self.calls.append(call)
        if self.starts:
            yield started()
        async for event in self.script(call, len(self.calls)):
            yield event


def agent(
    store: cc.Store, script: Script, *, triggers: Iterable[cc.Trigger] = (), **options: Any
) -> tuple[cc.AgentExecutor, Program]:
    provider, program = cc.provider("codex:gpt-5.4"), Program(script)
    made = cc.AgentExecutor(store, provider, endpoint=program, triggers=triggers, **options)
    return made, program
