"""Checks of requests: errors as the provider words them.

Three judges look at a request: the rules about roles and pairs written down here once more, by themselves, so that a
mistake in our checker does not hide one in our encoders; our checker; and the vendor's own types. The wordings are
those that people were shown and reported; where nobody has, the sentence is ours and says what is wrong.
"""

from collections.abc import Callable
from typing import cast

import contextc as cc
from contextc._json import JSONObject
from tests.formats.known import problems

Blocks = list[JSONObject]


def refusal(format: str, body: JSONObject) -> tuple[int, JSONObject] | None:
    """The status and error body with which the provider of this format refuses a request; None where it takes it."""
    text = RULES[format](body) or ruled(format, body) or next(iter(problems(format, body)), None)
    return None if text is None else (400, error_body(format, text))


def ruled(format: str, body: JSONObject) -> str | None:
    """What our own checker knows of the provider."""
    found = cc.lint(body, format=format)
    return found[0].error or found[0].message if found else None


def error_body(format: str, text: str, status: int = 400) -> JSONObject:
    kind = "invalid_request_error" if status == 400 else "authentication_error" if status == 401 else "not_found_error"
    match format:
        case "anthropic":
            return {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}
        case "gemini":
            google = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED"}.get(status, "NOT_FOUND")
            return {"error": {"code": status, "message": text, "status": google}}
        case _:
            return {"error": {"message": text, "type": kind, "param": None, "code": None}}


def anthropic(body: JSONObject) -> str | None:
    for name in ("temperature", "top_p", "top_k"):
        if name in body:
            return f"{name}: this parameter is not accepted since version 2026-10-21."
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            return f"{name}: Field required"
    if "system" in body and not isinstance(body["system"], str | list):
        return "system: Input should be a valid string or list"
    messages = cast(Blocks, body["messages"])
    roles = [message["role"] for message in messages]
    if roles[:1] != ["user"]:
        return 'messages: first message must use the "user" role'
    if roles[-1] == "assistant":
        return "This model does not support assistant message prefill. The conversation must end with a user message."
    if unknown := [role for role in roles if role not in ("user", "assistant")]:
        return f"messages: Unexpected role {unknown[0]!r}. Allowed roles are 'user' or 'assistant'."
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if index and roles[index - 1] == roles[index]:
            return (
                'messages: roles must alternate between "user" and "assistant", '
                f'but found multiple "{roles[index]}" roles in a row'
            )
        blocks = blocks_of(message)
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            return "messages: text content blocks must be non-empty"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if strange := [each for each in results if each not in waiting]:
            return (
                f"messages.{index}.content.{results.index(strange[0])}: unexpected `tool_use_id` found in "
                f"`tool_result` blocks: {strange[0]}. Each `tool_result` block must have a corresponding `tool_use` "
                "block in the previous message."
            )
        if missing := [each for each in waiting if each not in results]:
            return (
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
        if any(block["type"] != "tool_result" for block in blocks[: len(waiting)]):
            return (
                f"messages.{index}: Did not find {len(waiting)} `tool_result` block(s) at the beginning of this "
                "message. Messages following `tool_use` blocks must begin with a matching number of "
                "`tool_result` blocks."
            )
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return None


def blocks_of(message: JSONObject) -> Blocks:
    """The content of a message of Anthropic's; a string is short for one block of text."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else cast(Blocks, content)


def openai_chat(body: JSONObject) -> str | None:
    if body.get("tools") and body.get("reasoning_effort") != "none":
        return (
            f"Function tools with reasoning_effort are not supported for {body.get('model')} in /v1/chat/completions. "
            "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
        )
    waiting: list[str] = []
    for message in cast(Blocks, body["messages"]):
        match message["role"]:
            case "tool":
                if message["tool_call_id"] not in waiting:
                    return (
                        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                        "'tool_calls'."
                    )
                waiting.remove(message["tool_call_id"])
                continue
            case "system" | "developer" | "user" | "assistant":
                pass
            case role:
                return (
                    f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function', "
                    "'tool', and 'developer'."
                )
        if waiting:
            break
        waiting = [call["id"] for call in cast(Blocks, message.get("tool_calls") or [])]
        if not waiting and not message.get("content"):
            return f"Invalid value for 'content': expected a string, got {message.get('content')!r}."
    if waiting:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}"
        )
    return None


def openai_responses(body: JSONObject) -> str | None:
    items = cast(Blocks, body["input"])
    waiting: list[str] = []
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        following = items[index + 1] if index + 1 < len(items) else {}
        match kind:
            case "function_call":
                waiting.append(item["call_id"])
            case "function_call_output":
                if item["call_id"] not in waiting:
                    return f"No tool call found for function call output with call_id {item['call_id']}."
                waiting.remove(item["call_id"])
            case "reasoning":
                if body.get("store") is False and not item.get("encrypted_content"):
                    return (
                        f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to "
                        "false. Try again with `store` set to true, or remove this item from your input."
                    )
                if following.get("type") != "function_call" and following.get("role") != "assistant":
                    return (
                        f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
                    )
            case "message":
                if item["role"] not in ("assistant", "system", "developer", "user"):
                    return (
                        f"Invalid value: '{item['role']}'. Supported values are: 'assistant', 'system', 'developer', "
                        "and 'user'."
                    )
                wrong = "input_text" if item["role"] == "assistant" else "output_text"
                content = item["content"]
                if isinstance(content, list) and any(block["type"] == wrong for block in cast(Blocks, content)):
                    return f"Invalid value: '{wrong}'."
            case _:
                return f"Invalid value: '{kind}'."
    if waiting:
        return f"No tool output found for function call {waiting[0]}."
    return None


def gemini(body: JSONObject) -> str | None:
    contents = cast(Blocks, body["contents"])
    if unknown := [content.get("role") for content in contents if content.get("role") not in ("user", "model")]:
        return f"Please use a valid role: user, model. (got {unknown[0]})"
    if contents[-1]["role"] != "user":
        return "Please ensure that the conversation ends with a user turn."
    calls: Blocks = []
    before = None
    for content in contents:
        parts = cast(Blocks, content["parts"])
        if not parts:
            return "Unable to submit request because it must have at least one part."
        answers = [part for part in parts if "functionResponse" in part]
        if answers and not calls:
            return "Please ensure that function response turn comes immediately after a function call turn."
        if len(answers) != len(calls):
            return (
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        if sorted(part["functionResponse"]["name"] for part in answers) != sorted(
            part["functionCall"]["name"] for part in calls
        ):
            return "Please ensure that each function response names the function that was called."
        calls = [part for part in parts if "functionCall" in part]
        if calls and before != "user":
            return (
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        if calls and not calls[0].get("thoughtSignature"):
            return "Function call is missing a thought_signature in functionCall parts."
        before = content["role"]
    return None


RULES: dict[str, Callable[[JSONObject], str | None]] = {
    "anthropic": anthropic,
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "gemini": gemini,
}
