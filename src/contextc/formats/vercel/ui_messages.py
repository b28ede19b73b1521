"""Interpret the AI SDK's `UIMessage` parts, and build a `UIMessage` from its stream.

A `UIMessage` holds a whole turn of the assistant: its steps, with a call and its result in one part.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from contextc._json import JSON, JSONObject

APPROVAL_FIELDS = {
    "requestReason": "reason",
    "isAutomatic": "isAutomatic",
    "inputSchemaInput": "inputSchemaInput",
    "signature": "signature",
}
"""Fields of an approval request beside its ids: the name in a `UIMessage`, and the name elsewhere."""


def is_ui_message(message: JSONObject) -> bool:
    """Return True if this is a `UIMessage`. A list as `content` excludes it: no version of the SDK writes that."""
    parts, content = message.get("parts"), message.get("content")
    said = bool(content) and (isinstance(content, list) or (isinstance(content, str) and not parts))
    return isinstance(parts, list) and not said


def with_content_in_parts(message: JSONObject) -> JSONObject:
    """Return a message that has `content` and `parts`, with text that the SDK would ignore added to the parts.

    Version 4 wrote the same text to both, so text that is in the other already is not repeated.
    """
    parts, content = message.get("parts"), message.get("content")
    if not isinstance(parts, list) or not content:
        return message
    shown = cast(list[JSONObject], parts)
    if is_ui_message(message):
        left = missing_text(content, _texts(shown)) if isinstance(content, str) else ""
        step = [{"type": "step-start"}] if any(map(is_tool_part, shown)) else []
        return {**message, "parts": [*shown, *step, {"type": "text", "text": left}]} if left else message
    given = cast(list[JSONObject], content) if isinstance(content, list) else []
    more = [text for text in _texts(shown) if missing_text(text, _texts(given))]
    if not more or not given:
        return message
    added = [{"type": "text", "text": text} for text in more]
    return {**{name: value for name, value in message.items() if name != "parts"}, "content": [*given, *added]}


def missing_text(words: str, texts: list[str]) -> str:
    """Return the text that is not in `texts` already, regardless of line breaks."""
    if "".join(words.split()) in "".join("".join(texts).split()):
        return ""
    for text in texts:
        words = words.replace(text, "", 1)
    return words


def _texts(parts: list[JSONObject]) -> list[str]:
    found = [part.get("text") for part in parts if isinstance(cast(JSON, part), dict) and part.get("type") == "text"]
    return [text for text in found if isinstance(text, str)]


def split_steps(parts: list[JSONObject]) -> Iterator[list[JSONObject]]:
    """Split the parts where a step begins. A steering message is separate."""
    step: list[JSONObject] = []
    for part in parts:
        if part.get("type") == "step-start" or is_steering_message(part):
            yield step
            step = []
        if is_steering_message(part):
            yield [part]
        elif part.get("type") != "step-start":
            step.append(part)
    yield step


def is_steering_message(part: JSONObject) -> bool:
    """Return True if this is a user message sent during the turn."""
    return part.get("type") == "steering-message" and isinstance(part.get("parts"), list)


def steering_content(part: JSONObject) -> list[JSONObject]:
    """Return the content of the steering message."""
    return [to_model_part(each) for each in cast(list[JSONObject], part["parts"])]


def is_tool_part(part: JSONObject) -> bool:
    return "toolCallId" in part and (part["type"] == "dynamic-tool" or part["type"].startswith("tool-"))


def to_model_part(part: JSONObject) -> JSONObject:
    """Convert a part of a `UIMessage` to that of a `ModelMessage`; parts for the interface alone stay unchanged."""
    options = {"providerOptions": part["providerMetadata"]} if part.get("providerMetadata") else {}
    match part.get("type"):
        case "text" | "reasoning" as kind:
            return {"type": kind, "text": part["text"], **options}
        case "file" | "reasoning-file" as kind:
            name = {"filename": part["filename"]} if part.get("filename") else {}
            data: JSON = part.get("url") or ""
            if part.get("providerReference") is not None:
                data = {"type": "reference", "reference": part["providerReference"]}
            return {"type": kind, "mediaType": part["mediaType"], "data": data, **name, **options}
        case "custom":
            return {"type": "custom", "kind": part["kind"], **options}
        case _:
            return part


def tool_output(part: JSONObject) -> JSONObject | None:
    """Return the result inside a tool part; None if there is none yet."""
    match part.get("state"):
        case "output-available":
            output = part.get("output")
            if output is None or isinstance(output, str):
                return {"type": "text", "value": output or ""}
            return {"type": "json", "value": output}
        case "output-error":
            return {"type": "error-text", "value": part.get("errorText") or ""}
        case "output-denied":
            return _denied(part)
        case "approval-responded" if _approval(part).get("approved") is False:
            return _denied(part)
        case _:
            return None


def approval_request(part: JSONObject) -> JSONObject | None:
    """Return the approval request inside a tool part."""
    approval = _approval(part)
    if not approval.get("id"):
        return None
    said = {theirs: approval[ours] for ours, theirs in APPROVAL_FIELDS.items() if approval.get(ours) is not None}
    return {"type": "tool-approval-request", "approvalId": approval["id"], "toolCallId": part["toolCallId"], **said}


def approval_response(part: JSONObject) -> JSONObject | None:
    """Return the approval response inside a tool part; None if there is none."""
    approval = _approval(part)
    if not approval.get("id") or approval.get("approved") is None:
        return None
    said = {name: approval[name] for name in ("approved", "reason") if approval.get(name) is not None}
    by_provider = {"providerExecuted": True} if part.get("providerExecuted") is True else {}
    return {"type": "tool-approval-response", "approvalId": approval["id"], **said, **by_provider}


def _approval(part: JSONObject) -> JSONObject:
    return cast(JSONObject, part["approval"] if isinstance(part.get("approval"), dict) else {})


def _denied(part: JSONObject) -> JSONObject:
    reason = _approval(part).get("reason")
    return {"type": "execution-denied", **({"reason": reason} if reason else {})}


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Build a `UIMessage` from the chunks of its stream. `finishReason`, `errorText` and `aborted` state its end."""
    message: JSONObject = {"role": "assistant", "parts": []}
    streaming: dict[tuple[str, str], JSONObject] = {}
    calls: dict[str, JSONObject] = {}
    for event in events:
        kind = cast(str, event.get("type") or "")
        family, _, phase = kind.rpartition("-")
        if family in ("text", "reasoning") and phase in ("start", "delta", "end"):
            _gather_text(message["parts"], streaming, family, phase, event)
        elif kind.startswith("tool-"):
            _gather_call(message["parts"], calls, kind, event)
        elif kind == "start-step":
            message["parts"].append({"type": "step-start"})
        elif kind in ("file", "reasoning-file", "custom") or kind.startswith(("data-", "source-", "steering-")):
            if not event.get("transient"):
                _gather_part(message["parts"], event)
        elif kind in ("start", "finish", "message-metadata"):
            if kind == "start" and event.get("messageId"):
                message["id"] = event["messageId"]
            if event.get("finishReason"):
                message["finishReason"] = event["finishReason"]
            if isinstance(event.get("messageMetadata"), dict):
                message["metadata"] = {**message.get("metadata", {}), **event["messageMetadata"]}
        elif kind == "error":
            message["errorText"] = event.get("errorText") or ""
        elif kind == "abort":
            message["aborted"] = True
    return message


def _gather_part(parts: list[JSONObject], event: JSONObject) -> None:
    """Add a part that arrives whole. Data of the same name and id replaces the earlier one."""
    told = event["type"].startswith("data-") and event.get("id") is not None
    for index, part in enumerate(parts if told else ()):
        if (part.get("type"), part.get("id")) == (event["type"], event["id"]):
            parts[index] = event
            return
    parts.append(event)


def _gather_text(
    parts: list[JSONObject], streaming: dict[tuple[str, str], JSONObject], family: str, phase: str, event: JSONObject
) -> None:
    place = (family, cast(str, event.get("id") or ""))
    if phase == "start" or place not in streaming:
        streaming[place] = {"type": family, "text": ""}
        parts.append(streaming[place])
    part = streaming[place]
    part["text"] += event.get("delta") or ""
    if event.get("providerMetadata"):
        part["providerMetadata"] = event["providerMetadata"]


def _gather_call(parts: list[JSONObject], calls: dict[str, JSONObject], kind: str, event: JSONObject) -> None:
    call_id = cast(str | None, event.get("toolCallId"))
    if call_id is None:  # an approval response refers only to its request
        for part in calls.values():
            approval = cast(JSONObject, part.get("approval") or {})
            if approval and approval.get("id") == event.get("approvalId"):
                part["approval"] = {**approval, **{k: event[k] for k in ("approved", "reason") if k in event}}
                part["state"] = "approval-responded"
        return
    part = calls.get(call_id)
    if part is None:
        part = calls[call_id] = {"type": "dynamic-tool", "toolCallId": call_id, "state": "input-streaming"}
        parts.append(part)
    for name in ("toolName", "providerExecuted"):
        if event.get(name) is not None:
            part[name] = event[name]
    if event.get("providerMetadata"):
        whose = "resultProviderMetadata" if kind.startswith("tool-output") else "callProviderMetadata"
        part[whose] = event["providerMetadata"]
    match kind:
        case "tool-input-delta":
            part["input"] = (part.get("input") or "") + event["inputTextDelta"]
        case "tool-input-available":
            part |= {"state": "input-available", "input": event.get("input")}
        case "tool-input-error":
            part |= {"state": "output-error", "input": event.get("input"), "errorText": event.get("errorText")}
        case "tool-approval-request":
            more = {ours: event[theirs] for ours, theirs in APPROVAL_FIELDS.items() if event.get(theirs) is not None}
            part |= {"state": "approval-requested", "approval": {"id": event["approvalId"], **more}}
        case "tool-output-available":
            part |= {"state": "output-available", "output": event.get("output")}
        case "tool-output-error":
            part |= {"state": "output-error", "errorText": event.get("errorText")}
        case "tool-output-denied":
            part["state"] = "output-denied"
        case _:  # tool-input-start, and unknown types
            pass
