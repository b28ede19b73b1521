"""Replies in the shape of a provider, put together from messages.

A reply is stored as a message, without the bytes that arrived. The body made here is decoded to the same message and
the same usage.
"""

from collections.abc import Mapping, Sequence

from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter
from contextc.messages import Message, Usage

FINISH_REASONS: Mapping[str, Mapping[str, str]] = {
    "anthropic": {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "pause": "pause_turn"},
    "bedrock": {
        "stop": "end_turn",
        "tool_calls": "tool_use",
        "length": "max_tokens",
        "content_filter": "content_filtered",
    },
    "gemini": {
        "stop": "STOP",
        "tool_calls": "STOP",
        "length": "MAX_TOKENS",
        "pause": "CONTINUATION",
        "content_filter": "SAFETY",
    },
    "ollama": {"tool_calls": "stop"},
}
"""Finish reasons of the formats that have other names for them than ours."""


def encode_reply(
    form: Formatter,
    model: str,
    answers: Sequence[Message],
    usage: Usage | None,
    blobs: Mapping[str, bytes],
    response_id: str = "",
) -> JSONObject:
    """Return the body of a reply in a format. Formats with one answer per reply get the first."""
    wires = [list(form.encode([answer], blobs=blobs).messages) for answer in answers]
    names = FINISH_REASONS.get(form.name, {})
    reasons = [names.get(answer.finish, answer.finish) if answer.finish else None for answer in answers]
    first: JSONObject = wires[0][0] if wires and wires[0] else {"role": "assistant", "content": []}
    finish = reasons[0] if reasons else None
    used = usage or Usage()
    id: JSONObject = {"id": response_id} if response_id else {}
    match form.name:
        case "anthropic":
            made: JSONObject = {
                **id,
                "type": "message",
                "role": "assistant",
                "model": model,
                "content": first.get("content"),
                "stop_reason": finish,
            }
            return {**made, **({"usage": anthropic_usage(used)} if usage else {})}
        case "openai_responses":
            status = {"length": "incomplete", None: "in_progress"}.get(finish, "completed")
            made = {**id, "object": "response", "model": model, "status": status, "output": wires[0] if wires else []}
            if status == "incomplete":
                made["incomplete_details"] = {"reason": "max_output_tokens"}
            return {**made, **({"usage": responses_usage(used)} if usage else {})}
        case "gemini":
            candidates: list[JSON] = [
                {"index": index, "content": wire[0] if wire else {"role": "model", "parts": []}}
                | ({"finishReason": reason} if reason else {})
                for index, (wire, reason) in enumerate(zip(wires, reasons, strict=True))
            ]
            made = {"modelVersion": model, "candidates": candidates}
            return {**made, **({"usageMetadata": gemini_usage(used)} if usage else {})}
        case "bedrock":
            made = {"output": {"message": first}, "stopReason": finish}
            return {**made, **({"usage": _bedrock_usage(used)} if usage else {})}
        case "ollama":
            counts: JSONObject = {"prompt_eval_count": used.input, "eval_count": used.output} if usage else {}
            done: JSONObject = {"done": True, "done_reason": finish} if finish else {"done": False}
            return {"model": model, "message": first, **done, **counts}
        case _:
            choices: list[JSON] = [
                {"index": index, "finish_reason": reason, "message": wire[0] if wire else {"role": "assistant"}}
                for index, (wire, reason) in enumerate(zip(wires, reasons, strict=True))
            ]
            made = {**id, "object": "chat.completion", "model": model, "choices": choices}
            return {**made, **({"usage": chat_usage(used)} if usage else {})}


def anthropic_usage(usage: Usage) -> JSONObject:
    made: JSONObject = {
        "input_tokens": usage.input - usage.cache_read - usage.cache_write,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
    }
    return {**made, **({"output_tokens_details": {"thinking_tokens": usage.reasoning}} if usage.reasoning else {})}


def _bedrock_usage(usage: Usage) -> JSONObject:
    return {
        "inputTokens": usage.input - usage.cache_read - usage.cache_write,
        "outputTokens": usage.output,
        "cacheReadInputTokens": usage.cache_read,
        "cacheWriteInputTokens": usage.cache_write,
    }


def gemini_usage(usage: Usage) -> JSONObject:
    return {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "cachedContentTokenCount": usage.cache_read,
    }


def responses_usage(usage: Usage) -> JSONObject:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": _details(cached_tokens=usage.cache_read, cache_write_tokens=usage.cache_write),
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def chat_usage(usage: Usage) -> JSONObject:
    return {
        "prompt_tokens": usage.input,
        "prompt_tokens_details": _details(cached_tokens=usage.cache_read, cache_write_tokens=usage.cache_write),
        "completion_tokens": usage.output,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _details(**figures: int) -> JSONObject:
    return {name: figure for name, figure in figures.items() if figure}
