"""A provider with scripted replies, which records its requests, and the words of a script:

| word | the provider |
|---|---|
| `says("Hello.")` | answers with a text |
| `says("I add.", call(1), call(2, "read", path="a"))` | answers with calls of tools, with the ids c1 and c2 |
| `fails("rate", "slow down", status=429)` | does not answer |
| a list of events | sends these, of whatever format, with its own `pause` |
| a function of the request | does what the function returns, which may be a coroutine |

A reply is in Anthropic's format, and is streamed event by event; `pause` seconds lie between two events, and `broken`
cuts it off after so many. After `silent` events, nothing comes before `until` is true; without it, nothing comes. Tests
of commands and servers have the same words for recordings of Chat Completions (`recorded`, tests/cli/chat_terminal.py).
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias, cast

from msgspec import Struct

import contextc as cc
from contextc._json import JSONObject, decode, encode
from contextc.errors import FailureKind, ProviderFailed
from contextc.events import AnyEvent
from contextc.providers.client import Endpoint, ProviderCall
from contextc.store.store import leases_of

FIRST_WORD = 3
"""The number of events up to the first word of a reply."""
SINGLE_WORDS = 40
"""The number of words of a reply that arrive one by one."""
SONNET = "anthropic:claude-sonnet-4-5"


class Say(Struct, frozen=True, kw_only=True):
    """One reply."""

    text: str = ""
    pieces: tuple[str, ...] = ()
    thinks: tuple[str, ...] = ()
    """Of a recording: the text and the reasoning as they are streamed."""
    calls: tuple[tuple[str, str, JSONObject], ...] = ()
    """Id, name and arguments of each."""
    finish: str = ""
    input: int = 100
    output: int = 10
    pause: float = 0.0
    broken: int | None = None
    silent: int | None = None
    until: Callable[[], bool] | None = None
    malformed: str = ""
    """Arguments of the last call that are no JSON."""

    def events(self) -> list[JSONObject]:
        usage: JSONObject = {"input_tokens": self.input, "output_tokens": 1}
        opening: JSONObject = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "content": []}
        found: list[JSONObject] = [{"type": "message_start", "message": {**opening, "usage": usage}}]
        index = 0
        if self.text:
            found.append(
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            )
            found += [
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
                for piece in _pieces(self.text)
            ]
            found.append({"type": "content_block_stop", "index": 0})
            index = 1
        for number, (call_id, name, arguments) in enumerate(self.calls):
            block: JSONObject = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            last = number == len(self.calls) - 1
            written = self.malformed if self.malformed and last else encode(arguments).decode()
            half = len(written) // 2
            found.append({"type": "content_block_start", "index": index, "content_block": block})
            found += [
                {
                    "type": "content_block_delta",
                    "index": index,
                    "delta": {"type": "input_json_delta", "partial_json": piece},
                }
                for piece in (written[:half], written[half:])
            ]
            found.append({"type": "content_block_stop", "index": index})
            index += 1
        reason = self.finish or ("tool_use" if self.calls else "end_turn")
        found.append(
            {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": self.output}}
        )
        return [*found, {"type": "message_stop"}]

    def recording(self) -> JSONObject:
        """Return the same reply in the format of Chat Completions, as `replay:` takes it."""
        deltas: list[JSONObject] = [{"reasoning_content": each} for each in self.thinks]
        deltas += [{"content": each} for each in self.pieces]
        asked: list[JSONObject] = [
            {"index": at, "id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for at, (id, name, arguments) in enumerate(self.calls)
        ]
        deltas += [{"tool_calls": asked}] if asked else []
        finish = self.finish or ("tool_calls" if asked else "stop")
        choices: list[JSONObject] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": finish})
        tokens = {"prompt_tokens": self.input, "completion_tokens": self.output}
        usage = {**tokens, "total_tokens": self.input + self.output}
        events: list[JSONObject] = [{"id": "r", "model": "m", "choices": [choice]} for choice in choices]
        return {"events": [*events, {"id": "r", "model": "m", "choices": [], "usage": usage}]}


def _pieces(text: str) -> list[str]:
    """Return a text word by word. What follows after many words comes in larger pieces: it has only to be long."""
    words = text.split(" ")
    words = [*[f"{word} " for word in words[:-1]], words[-1]]
    rest = words[SINGLE_WORDS:]
    return [*words[:SINGLE_WORDS], *["".join(rest[at : at + 20]) for at in range(0, len(rest), 20)]]


Call: TypeAlias = tuple[str, str, JSONObject]
Line: TypeAlias = "Say | Sequence[JSONObject] | BaseException | Callable[[JSONObject], Line | Awaitable[Line]]"


def says(*content: str | Call, **more: Any) -> Say:
    """Return a reply with a text, calls, or both. `more` are fields of `Say`."""
    pieces = tuple(each for each in content if isinstance(each, str))
    return Say(
        text="".join(pieces),
        pieces=pieces,
        calls=tuple(each for each in content if not isinstance(each, str)),
        **more,
    )


def call(number: int | str, name: str = "add", /, **arguments: object) -> Call:
    return (f"c{number}", name, dict(arguments) or ({"a": 1, "b": 2} if name == "add" else {}))


def fails(kind: FailureKind, message: str = "", **facts: Any) -> ProviderFailed:
    return ProviderFailed("anthropic", kind, message, **facts)


class Scripted(Endpoint):
    """Answers with one line after the other; the last one again and again, if it is a function."""

    def __init__(self, *script: Line, pause: float = 0.0) -> None:
        self.script, self.pause = list(script), pause
        self.bodies: list[bytes] = []
        self.closed = 0

    @property
    def requests(self) -> list[JSONObject]:
        return [decode(body) for body in self.bodies]

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        self.bodies.append(call.body)
        endless = len(self.script) == 1 and callable(self.script[0])
        line = self.script[0] if endless else self.script.pop(0)
        while callable(line):
            found = line(decode(call.body))
            line = await found if isawaitable(found) else found
        if isinstance(line, BaseException):
            raise line
        if not isinstance(line, Say):
            for event in cast(Sequence[JSONObject], line):
                await asyncio.sleep(self.pause)
                yield event
            return
        try:
            for index, event in enumerate(line.events()):
                if line.broken is not None and index >= line.broken:
                    raise fails("transient", "the connection was cut")
                while index == line.silent and not (line.until and line.until()):
                    await asyncio.sleep(0.01)
                if line.pause:
                    await asyncio.sleep(line.pause)
                yield event
        finally:
            self.closed += 1


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def played(
    executor: cc.AgentExecutor, conversation: str, given: str | cc.Message | None = "hello"
) -> list[AnyEvent]:
    """A whole turn, as its events."""
    return [event async for event in executor.run(conversation, given)]


def run_turn(
    executor: cc.AgentExecutor, given: str | cc.Message | None = "hello", conversation: str = "demo"
) -> list[AnyEvent]:
    return asyncio.run(played(executor, conversation, given))


def kinds(events: Sequence[AnyEvent]) -> list[str]:
    """What happened, in short."""
    return [str(event.__struct_config__.tag) for event in events]


def rebuilt(executor: cc.AgentExecutor, conversation: str, requests: int) -> list[bytes]:
    return [executor.compiler.rebuild(conversation, number) for number in range(1, requests + 1)]


def taken_over(store: cc.Store) -> None:
    """End the turns that run, as another process does that finds their leases late."""
    leases = leases_of(store)
    for lease in list(leases._renewals):  # pyright: ignore[reportPrivateUsage]
        leases.stop_renewing(lease)
    store.write(lambda tx: tx.run("UPDATE main.lease SET expires = 0 WHERE holder <> ''"))
    assert store.recover()
