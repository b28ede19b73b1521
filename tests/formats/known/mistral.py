"""Mistral's chat completions, validated twice: with the models of its SDK and the validators of its server.

The SDK's models let pass what they do not know, and read what is nearly right. So a body is read by them, written
again, and held against what it was: a field that is gone was unknown, a value that changed was of another kind.

`mistral-common` is what Mistral's own server holds messages against: the order of roles, calls and results, ids, names,
and which chunk a role may have. It has a validator for every generation of tokenizers; those of the models that are
served now (v11, v13, v15) must all be content. It has never heard of chunks that the server resolves before it asks:
documents, files and references are shown to it as text, and a thought as its words.
"""

import json
import warnings
from functools import cache
from typing import Any, cast

from pydantic import BaseModel
from pydantic import ValidationError as Refusal

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.base import OPENING_TEXT
from contextc.formats.mistral.codec import thinking_text
from contextc.tools.definitions import NativeTool
from tests.formats.judging import Place, Problem, unexpected
from tests.formats.known import PARTIAL, Blocks, Refused
from tests.formats.known import openai_chat as chat

SERVED, OLDER = ("v11", "v13", "v15"), ("v3", "v7")
ID = "a1b2c3d4e"
SETTINGS: JSONObject = {"model": "mistral-large-latest"}
MODEL = "mistral:mistral-large-latest"
UNANSWERED, ORPHAN = "MIS006", "MIS007"
HASHES_IDS = True
OPENED: JSONObject = {"role": "user", "content": OPENING_TEXT}
MALFORMED: JSONObject = {
    "id": cc.formats.MistralFormatter.name_codec.encode_id("a"),
    "type": "function",
    "function": {"name": "look", "arguments": PARTIAL},
}
HALF_CALL = chat.HALF_CALL
BROKEN: list[JSONObject] = [
    {"choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": None}]},
    {"object": "error", "message": "overloaded", "type": "service_unavailable", "param": None, "code": "3505"},
]
ERRORS: list[JSONObject] = [
    {"object": "error", "message": "Internal server error", "type": "internal_server_error", "code": "3000"},
]
THOUGHTS = (
    cc.Reasoning(text="*", provider="mistral"),
    cc.Reasoning(text="*", provider="mistral", signature="c2lnbmVk"),
    cc.Reasoning(provider="mistral"),
)
FILES = (cc.Media(mime_type="application/pdf", file_id="file-1", provider="mistral"),)
USER_BLOCKS: Blocks = (("mistral", {"type": "resource_link", "uri": "*"}),)
MODEL_BLOCKS: Blocks = (("mistral", {"type": "reference", "reference_ids": ["*"]}),)
TOOLS = (NativeTool(provider="mistral", data={"type": "connector", "connector_id": "c"}),)
GOOD: list[JSONObject] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather?"}, {"type": "image_url", "image_url": "u"}]},
    {"role": "system", "content": "It is late."},
    {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Where?"}], "signature": "c2ln"}],
        "tool_calls": [{"id": ID, "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": ID, "name": "weather", "content": "sunny"},
]
REFUSED: list[Refused] = [
    ("1.name", "ada", "messages.1.name: Extra inputs are not permitted"),
    ("1.role", "developer", "messages.1: Input tag 'developer' found using"),
    ("1.role", "assistant", "v11: messages.1.assistant: Value error, ImageURLChunk cannot be used in assistant mes"),
    ("1.content.0.cache_control", {"type": "ephemeral"}, "messages.1.content.0.cache_control: Extra inputs are not"),
    ("1.content.0.text", ..., "messages.1.content.0: Not expected here: {'type': 'text'}"),
    ("1.content.0.text", 1, "messages.1.content.0: Not expected here: {'type': 'text'}"),
    ("1.content.0.type", "input_text", "messages.1.content.0: Not expected here: {'type': 'input_text'}"),
    ("1.content.1.image_url", {"detail": "low"}, "messages.1.content.1: Not expected here: {'type': 'image_url'}"),
    ("1.content.1.image_url", {"url": "u", "detail": "max"}, "messages.1.content.1"),
    ("2.role", "tool", "v11: Unexpected role 'tool' after role 'user'"),
    ("3.content.0.thinking", "Where?", "messages.3.content.0: Not expected here: {'type': 'thinking'}"),
    ("3.reasoning_content", "Where?", "messages.3.reasoning_content: Extra inputs are not permitted"),
    ("3.prefix", True, "v11: Assistant message with prefix True must be last message"),
    ("3.tool_calls.0.id", "call_1", "v11: Unexpected tool call id a1b2c3d4e in tool results"),
    ("3.tool_calls", ..., "v11: Unexpected tool call id a1b2c3d4e in tool results"),
    ("3.tool_calls.0.function.name", "files.read", "v11: Function name was files.read but must be a-z, A-Z, 0-9, "),
    ("3.tool_calls.0.function.arguments", 1, "messages.3.tool_calls.0.function.arguments: Input should be"),
    ("4.tool_call_id", ..., "v11: Unexpected tool call id None in tool results"),
    ("4.name", "files.read", "v11: Function name was files.read but must be a-z, A-Z, 0-9, or contain underscores"),
    ("4.content", None, "v11: messages.4.tool.content.str: Input should be a valid string"),
]


def arguments(wire: JSONObject) -> JSON:
    return wire["function"]["arguments"]


def problems(body: JSONObject) -> list[Problem]:
    if found := shape(body):
        return found
    said = ((version, objection(body, version)) for version in SERVED)
    return [((), f"{version}: {words}") for version, words in said if words][:1]


def shape(body: JSONObject) -> list[Problem]:
    """What the SDK's models have against it."""
    from mistralai.client.models import ChatCompletionRequest

    return misread(ChatCompletionRequest, {"model": "m", **body})


def misread(model: type[BaseModel], value: JSONObject) -> list[Problem]:
    """What a model of the SDK refuses in a value, does not know, or takes for something else."""
    try:
        read = model.model_validate_json(json.dumps(value), strict=True)
    except Refusal as refusal:
        found = refusal.errors()[0]  # a union has one for each of its members
        return [(_place(found["loc"], value), found["msg"])]
    return _differences(value, read.model_dump(mode="json", by_alias=True), ())


def _place(steps: Place, value: JSON) -> Place:
    """A place without what pydantic names on the way to it: roles, and members of unions."""
    found: list[int | str] = []
    for step in steps:
        whole = cast(JSONObject, value)
        if isinstance(value, dict | list) and step in (whole if isinstance(value, dict) else range(len(whole))):
            value = whole[cast(str, step)]
            found.append(step)
    return tuple(found)


def _differences(given: JSON, read: JSON, place: Place) -> list[Problem]:
    if isinstance(given, dict) and isinstance(read, dict):
        ours, theirs = cast(JSONObject, given), cast(JSONObject, read)
        if theirs.get("type") == "UNKNOWN":
            return [(place, unexpected(ours))]
        found = [((*place, name), "Extra inputs are not permitted") for name in ours if name not in theirs]
        inside = [_differences(ours[name], theirs[name], (*place, name)) for name in ours if name in theirs]
        return [*found, *(each for group in inside for each in group)]
    if isinstance(given, list) and isinstance(read, list):
        pairs = zip(cast(list[JSON], given), cast(list[JSON], read), strict=True)
        return [each for index, (a, b) in enumerate(pairs) for each in _differences(a, b, (*place, index))]
    same = given == read and isinstance(given, bool) is isinstance(read, bool)
    return [] if same else [(place, f"Read as {read!r}")]


def objection(body: JSONObject, version: str) -> str:
    """What the validator of this generation has against it; nothing where it has none."""
    request, validator = _common(), _validator(version)
    functions = [tool for tool in cast(list[JSONObject], body.get("tools") or []) if "function" in tool]
    shown = [_shown(message) for message in cast(list[JSONObject], body["messages"])]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            validator.validate_request(request.model_validate({"model": "m", "messages": shown, "tools": functions}))
    except Refusal as refusal:
        error = refusal.errors()[0]
        return f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
    except Exception as error:  # whatever it raises is its objection
        return str(error)
    return ""


@cache
def _common() -> type[BaseModel]:
    from mistral_common.protocol.instruct.messages import ChatMessage
    from mistral_common.protocol.instruct.request import ChatCompletionRequest

    return ChatCompletionRequest[ChatMessage]


@cache
def _validator(version: str) -> Any:  # Any: of a class that is generic in every message
    from mistral_common.protocol.instruct import validator
    from mistral_common.tokens.tokenizers.base import TokenizerVersion

    found: Any = cast(Any, validator).get_validator
    return found(TokenizerVersion(version), validator.ValidationMode.serving)


def _shown(message: JSONObject) -> JSONObject:
    """A message as the server hands it on: with what it resolves by itself in the place of what it was given."""
    shown, content = dict(message), cast(JSON, message.get("content"))
    if isinstance(content, list):
        shown["content"] = [_chunk(each) for each in cast(list[JSONObject], content)]
    if message.get("tool_calls"):
        shown["tool_calls"] = [{key: call[key] for key in call if key != "index"} for call in message["tool_calls"]]
    return shown


def _chunk(chunk: JSONObject) -> JSONObject:
    match chunk["type"]:
        case "thinking":
            return {"type": "thinking", "thinking": thinking_text(chunk), "closed": chunk.get("closed", True)}
        case "document_url" | "file" | "reference" | "resource" | "resource_link" as kind:
            return {"type": "text", "text": f"[{kind}]"}
        case _:
            return chunk
