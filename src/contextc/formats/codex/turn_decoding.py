"""Decoding of a Codex turn into messages: each answer of its model, the results of its tools, and the outcome."""

from collections.abc import Iterable, Iterator
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import text_of
from contextc.formats.codex.decode import Decoder
from contextc.formats.codex.event_collector import EventCollector, completed_notification
from contextc.formats.request_settings import object_or_empty
from contextc.messages import Message, Usage

NO_REASON = "Codex gave no reason."


def collect_turn(events: Iterable[JSONObject]) -> JSONObject:
    """Return a turn from its events, as it would be unstreamed."""
    gathered = EventCollector()
    for event in events:
        gathered.read(event)
    return as_turn(gathered)


def as_turn(gathered: EventCollector) -> JSONObject:
    return {
        "threadId": gathered.thread,
        "id": gathered.turn,
        "model": gathered.model,
        "status": gathered.status,
        "error": gathered.error,
        "steps": [{"items": list(step.items.values()), "usage": step.usage} for step in gathered.steps],
    }


def decode_turn(turn: JSONObject, provider: str) -> list[Message]:
    """Return all messages of a turn so far. At least one is the assistant's."""
    decoder = Decoder(provider, model=turn.get("model"))
    found = [message for step in _steps(turn) for message in _step(step, decoder)]
    spoken = [index for index, message in enumerate(found) if message.role == "assistant"]
    if not spoken or (turn.get("status") == "failed" and found[-1].role != "assistant"):  # its items are complete
        spoken, found = [*spoken, len(found)], [*found, Message(role="assistant")]
    for index in spoken[:-1]:
        found[index] = replace(found[index], finish="tool_calls" if found[index].tool_calls else "stop")
    rest = {name: turn[name] for name in ("threadId", "id", "model") if turn.get(name)}
    found[spoken[-1]] = _with_outcome(
        replace(found[spoken[-1]], extra={provider: {"turn": rest}} if rest else None), turn
    )
    return found


def decode_reply(turn: JSONObject, provider: str) -> Message:
    """Return the final answer of a turn. A stream reader returns all messages of it."""
    return last_reply(decode_turn(turn, provider))


def last_reply(messages: list[Message]) -> Message:
    return next(message for message in reversed(messages) if message.role == "assistant")


def usage_of(last: JSONObject) -> Usage:
    """Return the token usage of one model call."""
    return Usage(
        input=last.get("inputTokens") or 0,
        output=last.get("outputTokens") or 0,
        cache_read=last.get("cachedInputTokens") or 0,
        cache_write=last.get("cacheWriteInputTokens") or 0,
        reasoning=last.get("reasoningOutputTokens") or 0,
    )


def _steps(turn: JSONObject) -> list[JSONObject]:
    """Return the collected steps, or split the items of an unstreamed turn at its calls."""
    given: JSON = turn.get("steps")
    if isinstance(given, list):
        return cast(list[JSONObject], given)
    items = [item for item in cast(list[JSONObject], turn.get("items") or []) if isinstance(item, dict)]
    return cast(list[JSONObject], collect_turn(map(completed_notification, items))["steps"])


def _step(step: JSONObject, decoder: Decoder) -> Iterator[Message]:
    usage = object_or_empty(step.get("usage"))
    for message in decoder.decode_step(cast(list[JSONObject], step["items"])):
        spoken = message.role == "assistant" and bool(usage)
        yield replace(message, usage=usage_of(usage)) if spoken else message


def _with_outcome(message: Message, turn: JSONObject) -> Message:
    match turn.get("status"):
        case "completed":
            return replace(message, finish="stop")
        case "failed":
            said = text_of(object_or_empty(turn.get("error")).get("message"))
            return replace(message, finish="error", status="error", error=said or NO_REASON)
        case _:
            return message  # it was cut off, or is still running
