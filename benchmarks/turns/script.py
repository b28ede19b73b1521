"""The turn that everybody runs, and a provider that answers at once.

The model asks for one tool a hundred times, with arguments and results of the transcripts, and then says that it is
done. A transport stands where the network would be: it answers in the process, with bytes that were made beforehand,
as a stream or as a whole. Only the size of the request is looked at, because the usage of a reply must fit to it.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import httpx2

from converters import CLAUDE, GPT, TOOL, Said
from transcripts import steps

STEPS = 100
CONVERSATION = "benchmark"
QUESTION, DONE = "Go through the reservations one by one, and tell me what you found.", "That was all of them."
DESCRIPTION = "Reads what is known about something."
CHARACTERS, INPUT = 4, b"13371337"
"""Characters of a token, and what stands in a reply where the tokens of the request are told."""


class Asked(NamedTuple):
    """One call of the model, and what its tool returns."""

    id: str
    query: str
    result: str


class Subject(Protocol):
    """An agent with one tool."""

    stores: str
    transport: "Instant"

    def __init__(self, folder: Path) -> None: ...

    def fill(self, history: Sequence[Said]) -> None: ...

    def prepare(self, script: Sequence[Asked]) -> None:
        """What is to happen in the next turn; not timed."""
        ...

    def turn(self) -> str:
        """Run it, and return the last words of the model."""
        ...

    def close(self) -> None: ...


def scripted(count: int, *, after: int = 0) -> list[Asked]:
    """So many calls, none of which was there before."""
    each = islice(steps(turn=10**9), after, after + count)
    return [Asked(step.given.call_id, json.dumps(step.reply.calls[0][1]), step.given.text) for step in each]


class Instant(httpx2.AsyncBaseTransport, httpx2.BaseTransport):
    """Answers every request with the next reply. `sent` counts bytes of requests, `calls` how many there were."""

    def __init__(self, content_type: str) -> None:
        self.sent = self.calls = 0
        self._headers = {"content-type": content_type}
        self._replies: Iterator[bytes] = iter(())

    def expect(self, replies: Sequence[bytes]) -> None:
        self._replies = iter(replies)

    def _answer(self, size: int) -> httpx2.Response:
        self.sent, self.calls = self.sent + size, self.calls + 1
        content = next(self._replies).replace(INPUT, b"%d" % (size // CHARACTERS))
        return httpx2.Response(200, headers=self._headers, content=content)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._answer(len(await request.aread()))

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._answer(len(request.read()))


def streaming() -> Instant:
    return Instant("text/event-stream; charset=utf-8")


def answering() -> Instant:
    return Instant("application/json")


# ── replies ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def anthropic_replies(script: Sequence[Asked]) -> list[bytes]:
    """Whole replies of Anthropic's API."""
    return [_encoded(_anthropic(number, asked)) for number, asked in _numbered(script)]


def anthropic_streams(script: Sequence[Asked]) -> list[bytes]:
    """The same, as streams of events."""
    return [
        b"".join(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), _encoded(event)) for event in events)
        for events in (_events(_anthropic(number, asked)) for number, asked in _numbered(script))
    ]


def openai_replies(script: Sequence[Asked]) -> list[bytes]:
    """Whole replies of OpenAI's chat API."""
    return [_encoded(_completion(number, asked)) for number, asked in _numbered(script)]


def _numbered(script: Sequence[Asked]) -> Iterator[tuple[int, Asked | None]]:
    return enumerate([*script, None])


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _anthropic(number: int, asked: Asked | None) -> Any:  # Any: JSON
    content: list[Any] = [{"type": "text", "text": _words(number, asked)}]
    if asked is not None:
        content.append({"type": "tool_use", "id": asked.id, "name": TOOL, "input": {"query": asked.query}})
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": CLAUDE,
        "content": content,
        "stop_reason": "tool_use" if asked is not None else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": int(INPUT), "output_tokens": 40},
    }


def _words(number: int, asked: Asked | None) -> str:
    return DONE if asked is None else f"{number + 1}. I look it up."


def _events(message: Any) -> Iterator[Any]:
    usage = {**message["usage"], "output_tokens": 1}
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}}
    for index, block in enumerate(message["content"]):
        yield {"type": "content_block_start", "index": index, "content_block": _begun(block)}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": message["usage"]["output_tokens"]}}
    yield {"type": "message_stop"}


def _begun(block: Any) -> Any:
    return {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}


def _deltas(block: Any) -> Iterator[Any]:
    """A block in three pieces."""
    text: str = block["text"] if block["type"] == "text" else json.dumps(block["input"])
    size = len(text) // 3 + 1
    for start in range(0, len(text), size):
        piece = text[start : start + size]
        if block["type"] == "text":
            yield {"type": "text_delta", "text": piece}
        else:
            yield {"type": "input_json_delta", "partial_json": piece}


def _completion(number: int, asked: Asked | None) -> Any:
    message: Any = {"role": "assistant", "content": _words(number, asked)}
    if asked is not None:
        function = {"name": TOOL, "arguments": json.dumps({"query": asked.query})}
        message["tool_calls"] = [{"id": asked.id, "type": "function", "function": function}]
    finish = "tool_calls" if asked is not None else "stop"
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": GPT,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {"prompt_tokens": int(INPUT), "completion_tokens": 40, "total_tokens": int(INPUT)},
    }
