"""Ollama's `/api/chat`, validated with the pydantic models of its client.

Those let pass what they do not know, and `ChatRequest` takes any mapping for a message. So each is copied with nothing
let pass, and with what the server's own types have and the client's have not: ids of calls, `truncate`, `shift`. Only
the schema of a tool may say more than they know: a server reads of it what it understands.
"""

import json
from functools import cache
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, create_model
from pydantic import ValidationError as Refusal

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter
from tests.formats.judging import Problem
from tests.formats.known import PARTIAL, Refused

SETTINGS: JSONObject = {"model": "qwen3:8b", "think": True, "truncate": False, "options": {"num_ctx": 40_960}}
MODEL = "ollama:qwen3:8b"
UNANSWERED, ORPHAN = "OLL003", "OLL004"
RESULTS_ANYWHERE = True
ROLES = ("system", "user", "assistant", "tool")
ARGUMENTS_AT = ("tool_calls", 0, "function", "arguments")
VARIANTS: dict[str, Formatter] = {"window": cc.formats.OllamaFormatter(provider="mine", num_ctx=8_192)}
OPENED: JSONObject = {"role": "assistant", "content": "Hello!"}
MALFORMED: JSONObject = {"id": "a", "function": {"name": "look", "arguments": {"malformed_arguments": PARTIAL}}}
BROKEN: list[JSONObject] = [
    {"model": "qwen3:8b", "message": {"role": "assistant", "content": "half"}, "done": False},
    {"error": "overloaded"},
]
ERRORS: list[JSONObject] = [{"error": "an error was encountered while running the model: unexpected EOF"}]
THOUGHTS = (cc.Reasoning(text="*", provider="ollama"), cc.Reasoning(text="", provider="ollama"))
GOOD: list[JSONObject] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather?", "images": ["iVBO"]},
    {
        "role": "assistant",
        "content": "",
        "thinking": "Where?",
        "tool_calls": [{"id": "call_1", "function": {"index": 0, "name": "weather", "arguments": {"city": "Paris"}}}],
    },
    {"role": "tool", "content": "sunny", "tool_name": "weather", "tool_call_id": "call_1"},
]
REFUSED: list[Refused] = [
    ("1.content", [{"type": "text", "text": "Hi"}], "messages.1.content: Input should be a valid string"),
    (
        "1.images.0",
        "a.png",
        "messages.1.images.0: Value error, Error calling function `serialize_model`: ValueError: File a.",
    ),
    ("1.images.0", "data:image/png;base64,iVBO", "messages.1.images.0: Value error, Not plain base64"),
    ("1.role", "developer", "messages.1.role: Must be one of system, user, assistant, tool"),
    ("1.role", ..., "messages.1.role: Field required"),
    ("1.colour", "red", "messages.1.colour: Extra inputs are not permitted"),
    ("2.tool_calls.0.function.arguments", "{}", "messages.2.tool_calls.0.function.arguments: Input should be an obj"),
    ("2.tool_calls.0.function.name", ..., "messages.2.tool_calls.0.function.name: Field required"),
    ("2.tool_calls.0.function", ..., "messages.2.tool_calls.0.function: Field required"),
    ("2.tool_calls.0.type", "function", "messages.2.tool_calls.0.type: Extra inputs are not permitted"),
    ("2.tool_calls.0.id", 1, "messages.2.tool_calls.0.id: Input should be a valid string"),
    ("3.name", "weather", "messages.3.name: Extra inputs are not permitted"),
]


def arguments(wire: JSONObject) -> JSON:
    return wire["function"]["arguments"]


def problems(body: JSONObject) -> list[Problem]:
    try:
        _request().model_validate_json(json.dumps({"model": "m", **body}), strict=True)
    except Refusal as refusal:
        return [(error["loc"], error["msg"]) for error in refusal.errors()]
    return [
        (("messages", number, "role"), f"Must be one of {', '.join(ROLES)}, not {message['role']!r}")
        for number, message in enumerate(body["messages"])
        if message["role"] not in ROLES
    ]


@cache
def _request() -> type[BaseModel]:
    """The client's `ChatRequest`, as strict as the server, or stricter."""
    from ollama import _types as ollama

    tool = strict(ollama.Tool, function=(strict(ollama.Tool.Function, name=(str, ...)), ...))
    return strict(
        ollama.ChatRequest,
        messages=(list[message_model()], ...),
        tools=(list[tool] | None, None),
        options=(strict(ollama.Options) | None, None),
        truncate=(bool | None, None),
        shift=(bool | None, None),
    )


@cache
def message_model() -> Any:  # Any: a type as a value
    """The client's `Message`, with the ids that only the server knows."""
    from ollama import _types as ollama

    def plain(image: str) -> str:
        if ":" in image or cast(object, ollama.Image(value=image).model_dump()) != image:
            raise ValueError("Not plain base64")
        return image

    function = strict(ollama.Message.ToolCall.Function, index=(int | None, None))
    call = strict(ollama.Message.ToolCall, id=(str | None, None), function=(function, ...))
    return strict(
        ollama.Message,
        images=(list[Annotated[str, AfterValidator(plain)]] | None, None),
        tool_calls=(list[call] | None, None),
        tool_call_id=(str | None, None),
    )


def strict(model: type[BaseModel], **fields: Any) -> Any:  # Any: create_model takes types as values
    """The model with these fields, and none that neither has."""
    return create_model(model.__name__, __base__=model, __cls_kwargs__={"extra": "forbid"}, **fields)
