"""Bedrock's Converse, validated with botocore's description of the API.

Its validator looks at keys, types and the one member of a union, and passes over words, patterns and most limits, which
stand in the same description: a walk over it looks at those.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, cast

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats import formatter
from contextc.formats.base import OPENING_TEXT, Formatter
from contextc.formats.bedrock import BedrockFormatter
from contextc.tools.definitions import NativeTool
from tests.formats.judging import Place, Problem
from tests.formats.known import PARTIAL, Blocks, Refused

SETTINGS: JSONObject = {"inferenceConfig": {"maxTokens": 100}}
MODEL = "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0"
ADDS = ("toolConfig",)
OVERHEAD = 540
UNANSWERED, ORPHAN = "BED006", "BED008"
ARGUMENTS_AT = ("content", 0, "toolUse", "input")
VENDOR = "bedrock"
VARIANTS: dict[str, Formatter] = {"system between": BedrockFormatter(system_between=True)}
OPENED: JSONObject = {"role": "user", "content": [{"text": OPENING_TEXT}]}
MALFORMED: JSONObject = {"toolUse": {"toolUseId": "a", "name": "look", "input": {"malformed_arguments": PARTIAL}}}
BEGUN: JSONObject = {"messageStart": {"role": "assistant"}}
HALF_CALL: list[JSONObject] = [
    BEGUN,
    {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "a", "name": "look"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": PARTIAL}}}},
]
BROKEN: list[JSONObject] = [
    BEGUN,
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "half"}}},
    {"error": {"type": "serviceUnavailableException", "message": "overloaded"}},
]
ERRORS: list[JSONObject] = [{"error": {"type": "throttlingException", "message": "Too many tokens, please wait."}}]
THOUGHTS = (
    cc.Reasoning(text="*", provider="bedrock", signature="c2lnbmVk"),
    cc.Reasoning(text="*", provider="bedrock"),
    cc.Reasoning(data="cmVkYWN0ZWQ=", provider="bedrock"),
)
FILES = (
    cc.Media(mime_type="video/mp4", url="s3://films/a.mp4"),
    cc.Media(mime_type="text/markdown", data=b"# A", name="notes  (1).md"),
)
USER_BLOCKS: Blocks = (("bedrock", {"searchResult": {"source": "s", "title": "*", "content": [{"text": "x"}]}}),)
TOOLS = (NativeTool(provider="bedrock", data={"systemTool": {"name": "nova_grounding"}}),)
GOOD: list[JSONObject] = [
    {"role": "user", "content": [{"text": "Weather?"}, {"image": {"format": "png", "source": {"bytes": "iVBO"}}}]},
    {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}},
            {"toolUse": {"toolUseId": "a", "name": "weather", "input": {"city": "Paris"}}},
        ],
    },
    {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "sunny"}]}}]},
]
REFUSED: list[Refused] = [
    ("0.role", "tool", "messages.0.role: Must be one of user, assistant, system"),
    ("0.content.1.image.format", "bmp", "messages.0.content.1.image.format: Must be one of png, jpeg, gif, webp"),
    ("0.content.1.image.source.bytes", "!", "messages.0.content.1.image.source.bytes: No base64"),
    ("1.content.0.text", "Hm.", "messages.1.content.0: Invalid number of parameters set for tagged union"),
    (
        "1.content.0.reasoningContent.reasoningText.text",
        ...,
        "messages.1.content.0.reasoningContent.reasoningText: Missing",
    ),
    ("1.content.1.toolUse.toolUseId", "a/b", "messages.1.content.1.toolUse.toolUseId: Must match [a-zA-Z0-9_.:-]+"),
    ("1.content.1.toolUse.name", "n" * 65, "messages.1.content.1.toolUse.name: At most 64"),
    (
        "2.content.0.toolResult.status",
        "failed",
        "messages.2.content.0.toolResult.status: Must be one of success, error",
    ),
    ("2.content.0.toolResult.colour", "red", "messages.2.content.0.toolResult: Unknown parameter"),
]
EVENT = re.compile(
    r":event-type\x07.{2}(\w+)\r:content-type\x07.{2}application/json\r:message-type\x07.{2}event\{", re.S
)
NUMBERED = re.compile(r"\[(\d+)\]")
NAMED = re.compile(r"(?: in | parameter (?!in )|structure ?)((?:[a-zA-Z]\w*)(?:\.\w+|\[\d+\])*)")


def arguments(wire: JSONObject) -> JSON:
    return wire["toolUse"]["input"]


def events(reply: str) -> list[JSONObject]:
    """Return the events of a recorded stream: frames stored as text, of which only the text is left."""
    found: list[JSONObject] = []
    for match in EVENT.finditer(reply):
        said, _ = json.JSONDecoder().raw_decode(reply, match.end() - 1)
        found.append({match[1]: {name: value for name, value in said.items() if name != "p"}})
    return found


def problems(body: JSONObject) -> list[Problem]:
    given = formatter("bedrock").sdk_arguments({name: each for name, each in body.items() if name != "modelId"}, "m")
    return _problems(given, _operation("Converse").input_shape)


def is_of(operation: str, member: str, given: JSONObject) -> list[Problem]:
    """Return the problems in a member of an operation's response."""
    return _problems(given, _operation(operation).output_shape.members[member])


def _problems(given: JSONObject, shape: Any) -> list[Problem]:
    report = import_module("botocore.validate").ParamValidator().validate(given, shape)
    found = [_problem(line) for line in report.generate_report().splitlines()] if report.has_errors() else []
    return found or list(_beyond(given, shape, ()))


def _problem(line: str) -> Problem:
    """What the validator says, with its place: 'Unknown parameter in messages[0]: "x", must be one of: …'."""
    named = NAMED.search(line)
    place = NUMBERED.sub(r".\1", named[1]) if named else ""
    return tuple(int(step) if step.isdigit() else step for step in place.split(".") if step not in ("", "input")), line


@cache
def session() -> Any:  # Any: botocore has no types
    """One for all: its descriptions take long to read."""
    return import_module("botocore.session").Session()


@cache
def _operation(name: str) -> Any:  # Any: as above
    return session().get_service_model("bedrock-runtime").operation_model(name)


def _beyond(value: JSON, shape: Any, place: Place) -> Iterator[Problem]:
    """Yield the violations of enumerations, patterns and limits in the description."""
    if getattr(shape, "is_document_type", False):
        return
    match shape.type_name:
        case "structure":
            for name, each in cast(JSONObject, value).items():
                yield from _beyond(each, shape.members[name], (*place, name))
        case "list":
            for index, each in enumerate(cast(list[JSON], value)):
                yield from _beyond(each, shape.member, (*place, index))
        case "map":
            for name, each in cast(JSONObject, value).items():
                yield from _beyond(name, shape.key, (*place, name))
                yield from _beyond(each, shape.value, (*place, name))
        case _:
            pass
    facts, size = shape.metadata, value if isinstance(value, int | float) else len(value)
    if shape.type_name == "blob" and not isinstance(value, bytes):
        yield place, "No base64"
    if (words := facts.get("enum")) and str(value).rpartition("/")[2] not in words:  # video/mp4 was taken, too
        yield place, f"Must be one of {', '.join(words)}"
    if (pattern := facts.get("pattern")) and not re.fullmatch(pattern, cast(str, value)):
        yield place, f"Must match {pattern}"
    if facts.get("max") is not None and size > facts["max"]:
        yield place, f"At most {facts['max']}"
    if facts.get("min") is not None and size < facts["min"]:
        yield place, f"At least {facts['min']}"
