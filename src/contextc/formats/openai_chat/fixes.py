"""Repairs that decoding and encoding does not make: empty lists, names, tools, settings and media."""

import re
from copy import deepcopy
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.fix_builders import change_messages, keep_messages, messages_of, without_fields
from contextc.formats.identifiers import IdentifierCodec
from contextc.formats.media_encoding import decode_base64
from contextc.formats.openai_chat.lint_parser import FIELDS, KINDS, find_function, text_block
from contextc.formats.signature_check import MIN_LENGTH, is_fernet_token, is_valid_signature

MAX_STOPS, MAX_TOOLS = 4, 128
TOOL_NAME_CODEC = IdentifierCodec("a-zA-Z0-9_-", 64)
INVALID_NAME_CHARACTERS = re.compile(r"[\s<|\\/>]")
CONTENT_SUBSTITUTES = (
    *("tool_calls", "function_call", "refusal", "audio"),
    *("reasoning", "reasoning_content", "reasoning_details"),
)
REQUIRED_FIELDS = {"tool_choice": "tools", "parallel_tool_calls": "tools", "function_call": "functions"}
"""Settings that are rejected unless the field they depend on is present."""
SAMPLING = ("temperature", "top_p")
IMAGE_TYPE = "image_url"


def is_empty_reply(message: JSONObject) -> bool:
    """Return True if an assistant message has neither content nor anything that may replace it."""
    return message.get("content") is None and not any(message.get(name) for name in CONTENT_SUBSTITUTES)


def without_empty_replies(body: JSONObject) -> JSONObject:
    """Remove assistant messages without content, also if they have unknown fields."""
    return keep_messages(body, lambda message: message.get("role") != "assistant" or not is_empty_reply(message))


def without_unknown_fields(body: JSONObject) -> JSONObject:
    return change_messages(body, lambda message: {name: message[name] for name in message if name in FIELDS})


def without_empty_content(body: JSONObject) -> JSONObject:
    """Remove messages whose content is an empty list. A tool message stays, because its call needs it."""
    messages: list[JSONObject] = []
    for message in messages_of(body):
        if message.get("content") != [] or message.get("tool_calls"):
            messages.append(message)
        elif message["role"] in ("tool", "function") or message.get("function_call"):
            messages.append({**message, "content": ""})
    return {**body, "messages": messages}


def without_empty_lists(body: JSONObject) -> JSONObject:
    body = {name: value for name, value in body.items() if name != "tools" or value != []}
    return change_messages(
        body, lambda message: without_fields(message, "tool_calls") if message.get("tool_calls") == [] else message
    )


def with_assistant_calls(body: JSONObject) -> JSONObject:
    return change_messages(body, lambda message: {**message, "role": "assistant"} if has_calls(message) else message)


def with_valid_tool_names(body: JSONObject) -> JSONObject:
    copy = deepcopy(body)
    choice: JSON = copy.get("tool_choice")
    things = [*cast(list[JSON], copy.get("tools") or []), choice]
    for message in messages_of(copy):
        things += cast(list[JSON], message.get("tool_calls") or [])
    for named in filter(None, map(find_function, things)):
        if not TOOL_NAME_CODEC.accepts(named["name"]):  # encoding has already changed some of them
            named["name"] = TOOL_NAME_CODEC.encode(named["name"])
    return copy


def with_valid_message_names(body: JSONObject) -> JSONObject:
    def plain(message: JSONObject) -> JSONObject:
        if message.get("name") is None or message["role"] in ("tool", "function"):
            return message
        return {**message, "name": INVALID_NAME_CHARACTERS.sub("_", message["name"]) or "_"}

    return change_messages(body, plain)


def with_unique_tools(body: JSONObject) -> JSONObject:
    given = list(enumerate(cast(list[JSONObject], body["tools"])))
    tools = {tool_name(tool) or str(index): tool for index, tool in reversed(given)}
    return {**body, "tools": list(tools.values())[::-1]}


def without_unusable_settings(body: JSONObject) -> JSONObject:
    return {
        name: value for name, value in body.items() if name not in REQUIRED_FIELDS or body.get(REQUIRED_FIELDS[name])
    }


def with_user_media(body: JSONObject) -> JSONObject:
    """Move media from other messages into user messages, after the results of that step."""
    messages: list[JSONObject] = []
    shown: list[JSONObject] = []
    for message in messages_of(body):
        if shown and message["role"] != "tool":
            messages.append({"role": "user", "content": shown})
            shown = []
        if message["role"] != "user" and isinstance(message.get("content"), list):
            parts = cast(list[JSONObject], message["content"])
            if media := [part for part in parts if part["type"] not in KINDS]:
                whose = "a tool" if message["role"] in ("tool", "function") else f"the {message['role']}"
                shown += [text_block(f"[media of {whose}:]"), *media]
                message = {**message, "content": [part for part in parts if part["type"] in KINDS] or ""}
        messages.append(message)
    return {**body, "messages": [*messages, {"role": "user", "content": shown}] if shown else messages}


def with_completion_limit(body: JSONObject) -> JSONObject:
    return {"max_completion_tokens": body["max_tokens"], **without_fields(body, "max_tokens")}


def with_images_described(body: JSONObject) -> JSONObject:
    def described(part: JSONObject) -> JSONObject:
        if part["type"] != IMAGE_TYPE:
            return part
        given: JSON = part[IMAGE_TYPE]
        url = cast(str, cast(JSONObject, given)["url"] if isinstance(given, dict) else given)
        return text_block("[image; not shown]" if url.startswith("data:") else f"[image: {url}; not shown]")

    def seen(message: JSONObject) -> JSONObject:
        if not isinstance(message.get("content"), list):
            return message
        return {**message, "content": [described(part) for part in cast(list[JSONObject], message["content"])]}

    return change_messages(body, seen)


def without_damaged_reasoning(body: JSONObject) -> JSONObject:
    return change_messages(
        body, lambda message: without_fields(message, "reasoning_details") if damaged_details(message) else message
    )


def damaged_details(message: JSONObject) -> list[int]:
    """Return the indexes of a message's `reasoning_details` whose encrypted content is detectably altered."""
    details: JSON = message.get("reasoning_details")
    given = enumerate(cast(list[JSON], details) if isinstance(details, list) else [])
    return [index for index, each in given if isinstance(each, dict) and not _is_whole(cast(JSONObject, each))]


def _is_whole(detail: JSONObject) -> bool:
    format = str(detail.get("format"))
    secrets = [secret for name in ("signature", "data") if isinstance(secret := cast(JSON, detail.get(name)), str)]
    for secret in secrets:
        sound = is_valid_signature(secret) if format.startswith("anthropic") else _is_encrypted(secret, format)
        if len(secret) >= MIN_LENGTH and not sound:
            return False
    return True


def _is_encrypted(secret: str, format: str) -> bool:
    """Return True if this is base64 and, if OpenAI wrote it, has the frame of a Fernet token."""
    data = decode_base64(secret, urlsafe=True)
    if data is None:
        return False
    return is_fernet_token(data) or not format.startswith("openai")


def has_calls(message: JSONObject) -> bool:
    return bool(message.get("tool_calls") or message.get("function_call"))


def tool_name(tool: JSON) -> str | None:
    return named["name"] if (named := find_function(tool)) else None
