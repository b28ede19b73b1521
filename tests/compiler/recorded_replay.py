"""Replay recorded conversations through a compiler step by step, and compare requests.

User messages and tool results are appended, and the model's messages are committed as replies. So a compiler sees a
conversation grow as in production.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple, cast

from msgspec.structs import replace

import contextc as cc
from contextc._json import JSON, JSONObject, encode
from contextc.messages import AnyPart, Message, Text, ToolCall, ToolResult
from contextc.tools.definitions import NativeTool
from tests.formats.traffic import transcripts

MARKS = ("cache_control", "prompt_cache_breakpoint", "cachePoint")
CONTENT = ("content", "parts")
SYSTEM = ("system", "instructions", "systemInstruction", "system_instruction")
MESSAGES = ("messages", "input", "contents")


class Recorded(NamedTuple):
    """Conversations one after the other, as one, with the system prompt and the tools of the first."""

    system_prompt: str
    tools: tuple[cc.Tool, ...]
    messages: tuple[Message, ...]

    def of_length(self, count: int) -> "Recorded":
        """So many messages, begun again as often as it takes; every call has an id of its own."""
        times = -(-count // len(self.messages))
        return self._replace(messages=tuple(_renamed(self.messages, range(times)))[:count])

    def longer(self, factor: int) -> "Recorded":
        """The same with every text so many times as long."""
        return self._replace(messages=tuple(_longer(message, factor) for message in self.messages))


@cache
def recorded() -> Recorded:
    """Every transcript that is available, joined into one conversation."""
    request = [cc.formatter("openai_chat").decode_request(each) for each in transcripts()]
    messages = [message for each in request for message in each.messages if message.role != "system"]
    prompt = next((each.system.text for each in request if each.system is not None), "")
    if not prompt:
        prompt = next(message.text for each in request for message in each.messages if message.role == "system")
    names = sorted({call.name for message in messages for call in message.tool_calls})
    parameters: JSONObject = {"type": "object", "properties": {}}
    tools = tuple(cc.Tool(name=name, description=f"Does {name}.", parameters=parameters) for name in names)
    return Recorded(prompt, tools, tuple(_renamed(messages, range(1))))


def _renamed(messages: Sequence[Message], rounds: Iterable[int]) -> Iterator[Message]:
    """The messages, with every call under an id that no other has."""
    number, open_calls = 0, dict[str, str]()
    for turn in rounds:
        for message in messages:
            parts: list[AnyPart] = []
            for part in message.parts:
                if isinstance(part, ToolCall):
                    number += 1
                    open_calls[part.id] = f"call_{turn}_{number}"
                    part = replace(part, id=open_calls[part.id], extra=None)
                elif isinstance(part, ToolResult):
                    part = replace(part, call_id=open_calls[part.call_id], extra=None)
                parts.append(part)
            yield replace(message, parts=tuple(parts), uid="", extra=None)


def _longer(message: Message, factor: int) -> Message:
    parts: list[AnyPart] = []
    for part in message.parts:
        if isinstance(part, Text):
            part = replace(part, text="\n".join([part.text] * factor))
        elif isinstance(part, ToolResult):
            part = replace(part, content="\n".join([part.text] * factor))
        parts.append(part)
    return replace(message, parts=tuple(parts))


def replay(
    compiler: cc.MessageCompiler,
    messages: Iterable[Message],
    *,
    conversation: str = "long",
    system_prompt: str | None = None,
    tools: Sequence[cc.Tool | NativeTool] = (),
    fragments: Callable[[int], Sequence[cc.PromptFragment]] = lambda number: (),
    budget: int | None = None,
    usage: Callable[[cc.Compiled, Message], cc.Usage | None] = lambda compiled, reply: None,
) -> Iterator[cc.Compiled]:
    """Yield every request, each before its reply is committed.

    `fragments` returns those of the nth request; `usage` returns what the provider reports for a request and its reply.
    """
    waiting: list[Message] = []
    number = 0
    for message in messages:
        if message.role != "assistant":
            waiting.append(message)
            continue
        if waiting:
            compiler.store.extend(conversation, waiting)
        number += 1
        compiled = compiler.compile(
            conversation,
            instructions=[system_prompt or "", *fragments(number)],
            tools=tools,
            max_input_tokens=budget,
            retry=not waiting,
        )
        waiting = []
        yield compiled
        with compiler.attempt(compiled) as attempt:
            attempt.commit(message, usage=usage(compiled, message))


def blocks(body: JSONObject) -> list[bytes]:
    """The prefix of a request as Guarantee 9.2 defines it: tools, system and content blocks, as bytes.

    Cache marks are removed, strings are single text blocks, and the merging of neighbours of one role is ignored.
    """
    tools: JSON = body.get("tools") or cast(JSONObject, body.get("toolConfig") or {}).get("tools")
    found = [{"tool": tool} for tool in _content(tools)]
    found += [{"system": block} for name in SYSTEM if name in body for block in _content(body[name])]
    for name in MESSAGES:
        for message in cast(list[JSONObject], body.get(name) or []):
            place = next((key for key in CONTENT if key in message), "")
            rest = {key: value for key, value in message.items() if key != place}
            found += [{**rest, "block": block} for block in _content(message.get(place))] or [rest]
    return [encode(_unmarked(block)) for block in found]


def _content(content: JSON) -> list[JSON]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, dict):
        return _content(cast(JSONObject, content).get("parts"))
    return [block for block in cast(list[JSON], content or []) if not _is_mark(block)]


def _is_mark(block: JSON) -> bool:
    """Return True if a block is only a cache breakpoint."""
    names = set(cast(JSONObject, block)) if isinstance(block, dict) else set[str]()
    return bool(names) and names <= set(MARKS)


def _unmarked(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {name: _unmarked(each) for name, each in cast(JSONObject, value).items() if name not in MARKS}
    return value


def begins_with(later: Sequence[bytes], earlier: Sequence[bytes]) -> bool:
    """Return True if one request is a prefix of the other."""
    return len(later) >= len(earlier) and list(later[: len(earlier)]) == list(earlier)
