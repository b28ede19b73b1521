"""The AI SDK's `UIMessage`: what its parts mean, and how its stream becomes one.

A `UIMessage` holds a whole turn of the assistant: steps, and in one part a call and its result.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from contextc._json import JSONObject


def steps(parts: list[JSONObject]) -> Iterator[list[JSONObject]]:
    step: list[JSONObject] = []
    for part in parts:
        if part.get("type") == "step-start":
            yield step
            step = []
        else:
            step.append(part)
    yield step


def is_tool(part: JSONObject) -> bool:
    return "toolCallId" in part and (part["type"] == "dynamic-tool" or part["type"].startswith("tool-"))


def as_model(part: JSONObject) -> JSONObject:
    """A part of a `UIMessage` as a `ModelMessage` has it; what only an interface shows stays as it is."""
    options = {"providerOptions": part["providerMetadata"]} if part.get("providerMetadata") else {}
    match part.get("type"):
        case "text" | "reasoning" as kind:
            return {"type": kind, "text": part["text"], **options}
        case "file" | "reasoning-file" as kind:
            name = {"filename": part["filename"]} if part.get("filename") else {}
            return {"type": kind, "mediaType": part["mediaType"], "data": part["url"], **name, **options}
        case "custom":
            return {"type": "custom", "kind": part["kind"], **options}
        case _:
            return part


def output(part: JSONObject) -> JSONObject | None:
    """The result inside a tool part of a `UIMessage`; None where there is none yet."""
    match part.get("state"):
        case "output-available":
            output = part.get("output")
            if output is None or isinstance(output, str):
                return {"type": "text", "value": output or ""}
            return {"type": "json", "value": output}
        case "output-error":
            return {"type": "error-text", "value": part.get("errorText") or ""}
        case "output-denied":
            reason = cast(JSONObject, part.get("approval") or {}).get("reason")
            return {"type": "execution-denied", **({"reason": reason} if reason else {})}
        case _:
            return None


def gather(events: Iterable[JSONObject]) -> JSONObject:
    """A `UIMessage`, from the chunks of its stream; `finishReason`, `errorText` and `aborted` say how it ended."""
    message: JSONObject = {"role": "assistant", "parts": []}
    streaming: dict[tuple[str, str], JSONObject] = {}
    calls: dict[str, JSONObject] = {}
    for event in events:
        kind = cast(str, event.get("type") or "")
        family, _, phase = kind.rpartition("-")
        if family in ("text", "reasoning") and phase in ("start", "delta", "end"):
            _gather_words(message["parts"], streaming, family, phase, event)
        elif kind.startswith("tool-"):
            _gather_call(message["parts"], calls, kind, event)
        elif kind == "start-step":
            message["parts"].append({"type": "step-start"})
        elif kind in ("file", "reasoning-file", "custom") or kind.startswith(("data-", "source-", "steering-")):
            if not event.get("transient"):
                message["parts"].append(event)
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


def _gather_words(
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
    if call_id is None:  # an answer to a request for approval names the request alone
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
            part |= {"state": "approval-requested", "approval": {"id": event["approvalId"]}}
        case "tool-output-available":
            part |= {"state": "output-available", "output": event.get("output")}
        case "tool-output-error":
            part |= {"state": "output-error", "errorText": event.get("errorText")}
        case "tool-output-denied":
            part["state"] = "output-denied"
        case _:  # tool-input-start, and whatever comes next
            pass
