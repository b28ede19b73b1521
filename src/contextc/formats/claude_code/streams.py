"""The reader of Claude Code's output: calls, the results of its tools, and text.

If partial messages are enabled, a reply arrives as events of Anthropic's stream, and then as one line per block. It is
shown once. Every reply has the usage of its own model call. Streamed content of an attempt that Claude Code abandoned
is not part of the answer, because its session does not contain it.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from msgspec.structs import replace

from contextc._json import JSONObject, as_object, id_text
from contextc.formats.anthropic.codec import FINISH_REASONS
from contextc.formats.anthropic.streams import AnthropicStreamReader, collect_events
from contextc.formats.claude_code.codec import (
    content_blocks,
    decode_lines,
    decode_reply,
    is_conversation_message,
    make_line,
    merge_lines,
    tool_results,
)
from contextc.formats.streams import Delta, StreamDecoder
from contextc.messages import Message, Reasoning, Text, ToolCall, Usage


class _StreamedReply:
    """One reply of the model: its streamed events, and its lines."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.events: list[JSONObject] = []
        self.lines: list[JSONObject] = []

    def settle(self) -> None:
        """Finish the reply. If its stream was cut, only the lines count: the session contains nothing else."""
        if not any(event.get("type") == "message_delta" for event in self.events):  # which has the stop reason
            self.events = []

    def wire(self) -> JSONObject:
        """Return the reply. A call that started without any arguments has a blank text for them."""
        if not self.events:
            return next(merge_lines(self.lines))
        reply = collect_events(self.events)
        places = sorted({event["index"] for event in self.events if "index" in event})
        ended = {event["index"] for event in self.events if event.get("type") == "content_block_stop"}
        for place, block in zip(places, reply["content"], strict=True):
            if block.get("type") == "tool_use" and place not in ended:
                block["input"] = block.get("input") or ""
        return reply


class ClaudeCodeStreamReader(AnthropicStreamReader):
    session_fields = ("resume",)

    def __init__(self, formatter: StreamDecoder) -> None:
        super().__init__(formatter)
        self._said: list[_StreamedReply | Message] = []
        self._replies: dict[str, _StreamedReply] = {}
        self._names: dict[str, str] = {}
        self._streaming: _StreamedReply | None = None
        self._result: JSONObject = {}

    def _is_whole(self, event: JSONObject) -> bool:
        return False

    def _deltas(self, event: JSONObject) -> Iterable[Delta]:
        self.session = id_text(event.get("session_id")) or self.session
        match event.get("type"):
            case "stream_event" if not event.get("parent_tool_use_id"):
                yield from self._streamed(event["event"])
            case "assistant" if is_conversation_message(event):
                yield from self._spoken(event)
            case "user" if is_conversation_message(event) and tool_results(event):
                yield from self._answered(event)
            case "system" if event.get("subtype") == "compact_boundary":
                self.compacted = True
            case "result":
                self._result, failed = event, bool(event.get("is_error"))
                self.finished, self.error = not failed, event if failed else None
                if self.finished and self._streaming is not None:
                    self._streaming.settle()
            case _:
                pass

    def _streamed(self, event: JSONObject) -> Iterator[Delta]:
        if event.get("type") == "error":  # Claude Code retries, or reports the error itself
            return
        if event.get("type") == "message_start" or self._streaming is None:
            self._streaming = self._started(str(cast(JSONObject, event.get("message") or {}).get("id") or ""))
        self._streaming.events.append(event)
        self.message_index = self._streaming.number
        yield from super()._deltas(event)
        if event.get("type") == "message_stop":
            self._streaming.settle()
        self.finished = False

    def _spoken(self, event: JSONObject) -> Iterator[Delta]:
        message = event["message"]
        name = str(message.get("id") or event.get("uuid") or "")
        reply = self._replies.get(name) or self._started(name)
        reply.lines.append(event)
        self.message_index = reply.number
        self.cursor = id_text(event.get("uuid")) or self.cursor
        self._names |= {
            block["id"]: block["name"] for block in content_blocks(message) if block.get("type") == "tool_use"
        }
        if not reply.events:
            parts = decode_reply(message, self.formatter.provider).parts
            yield from [part for part in parts if isinstance(part, Text | Reasoning | ToolCall)]

    def _answered(self, event: JSONObject) -> Iterator[Delta]:
        given = make_line({"role": "user", "content": tool_results(event)})
        self.cursor = id_text(event.get("uuid")) or self.cursor
        for message in decode_lines([given], self.formatter.provider, self._names):
            self._said.append(message)
            yield from message.tool_results

    def _started(self, name: str) -> _StreamedReply:
        if self._streaming is not None:
            self._streaming.settle()
        reply = _StreamedReply(self._next_number())
        self._said.append(reply)
        if name:
            self._replies[name] = reply
        return reply

    def _next_number(self) -> int:
        return sum([isinstance(each, _StreamedReply) for each in self._said])

    def message(self) -> Message:
        return self.messages()[-1]

    def messages(self) -> list[Message]:
        said = [
            each
            for each in self._said
            if not isinstance(each, _StreamedReply) or each.lines or (each.events and not self.finished)
        ]
        found = [self._read(each) for each in said]
        kept = [place for place, each in enumerate(found) if each.parts]
        found, said = [found[place] for place in kept], [said[place] for place in kept]
        self.message_starts = [each.number for each in said if isinstance(each, _StreamedReply)]
        if self._result:
            found = _with_usage(
                found, [isinstance(each, _StreamedReply) and not each.events for each in said], self._result
            )
        if self.error is not None:
            found = _with_error(found, self.error)
            if len(found) > len(said):  # the error is a message of its own
                self.message_starts.append(self._next_number())
        return found or [Message(role="assistant", parts=())]

    def _read(self, said: _StreamedReply | Message) -> Message:
        decoded = decode_reply(said.wire(), self.formatter.provider) if isinstance(said, _StreamedReply) else said
        message = self.formatter.name_codec.decode(decoded)
        if message.finish is None and message.tool_calls and self._result:
            return replace(message, finish="tool_calls")
        return message


def _with_usage(messages: list[Message], rough: list[bool], result: JSONObject) -> list[Message]:
    """Return the messages with data that only the result line has: the finish reason, and output tokens.

    Lines are written before the length of their reply is known. The last reply that has only lines gets the tokens that
    no other reply accounts for.
    """
    usage, reason = as_object(result.get("usage")), cast(str | None, result.get("stop_reason"))
    last = max((index for index, message in enumerate(messages) if message.role == "assistant"), default=-1)
    if last >= 0 and messages[last].finish is None and reason:
        messages[last] = replace(messages[last], finish=FINISH_REASONS.get(reason, reason))
    counts = [message.usage or Usage() for message in messages]
    place = max((index for index, is_rough in enumerate(rough) if is_rough), default=-1)
    read, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
    total = (usage.get("input_tokens") or 0) + read + written
    if place >= 0 and total == sum(count.input for count in counts):
        others = sum(count.output for index, count in enumerate(counts) if index != place)
        output = max(counts[place].output, (usage.get("output_tokens") or 0) - others)
        messages[place] = replace(messages[place], usage=replace(counts[place], output=output))
    return messages


def _with_error(messages: list[Message], error: JSONObject) -> list[Message]:
    """Return the messages, the last of which has the error."""
    said = error.get("result") or "; ".join(map(str, error.get("errors") or [])) or error.get("error")
    if isinstance(message := error.get("message"), dict):
        said = (
            " ".join([block["text"] for block in content_blocks(cast(JSONObject, message)) if "text" in block]) or said
        )
    end = messages[-1] if messages and messages[-1].role == "assistant" else Message(role="assistant", parts=())
    before = messages[:-1] if messages and messages[-1].role == "assistant" else messages
    return [*before, replace(end, status="error", finish="error", error=str(said or error.get("subtype") or "failed"))]
