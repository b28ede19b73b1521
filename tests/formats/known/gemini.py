"""Google's generateContent: pydantic models, which forbid what they do not know.

They are strict already, but for what only their documentation states.
"""

import json
import warnings
from functools import cache
from typing import Any, cast

from pydantic import ConfigDict, TypeAdapter, create_model
from pydantic import ValidationError as Refusal
from pydantic.alias_generators import to_camel

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.base import OPENING_TEXT
from contextc.formats.gemini.codec import PLACEHOLDER_SIGNATURE
from contextc.formats.gemini.rules import with_camel_case
from contextc.tools.definitions import NativeTool
from tests.formats.judging import Place, Problem
from tests.formats.known import PARTIAL, Blocks, Refused

CALLS = {"functionCall", "functionResponse", "executableCode", "codeExecutionResult", "toolCall", "toolResponse"}
DATA = {"text", "inlineData", "fileData", *CALLS}
SETTINGS: JSONObject = {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}}
MODEL = "gemini:gemini-2.5-pro"
UNANSWERED, ORPHAN = "GEM008", "GEM009"
USER_FIRST = "GEM007"
ARGUMENTS_AT = ("parts", 0, "functionCall", "args")
VENDOR = "google"
OPENED: JSONObject = {"role": "user", "parts": [{"text": OPENING_TEXT}]}
MALFORMED: JSONObject = {
    "functionCall": {"id": "a", "name": "look", "args": {"malformed_arguments": PARTIAL}},
    "thoughtSignature": PLACEHOLDER_SIGNATURE,
}
BROKEN: list[JSONObject] = [
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "half"}]}}]},
    {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}},
]
ERRORS: list[JSONObject] = [
    {"error": {"code": 503, "status": "UNAVAILABLE", "message": "Overloaded"}},
]
THOUGHTS = (
    cc.Reasoning(text="*", provider="google", signature="c2lnbmVk"),
    cc.Reasoning(text="*", provider="google"),
)
FILES = (cc.Media(mime_type="image/png", file_id="https://files/1", provider="google"),)
USER_BLOCKS: Blocks = (("google", {"text": "*", "partMetadata": {"a": 1}}),)
MODEL_BLOCKS: Blocks = (("google", {"executableCode": {"language": "PYTHON", "code": "*"}}),)
TOOLS = (NativeTool(provider="google", data={"googleSearch": {}}),)
GOOD: list[JSONObject] = [
    {"role": "user", "parts": [{"text": "Weather?"}, {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}]},
    {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}, "thoughtSignature": "c2ln"}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "sunny"}}}]},
]
REFUSED: list[Refused] = [
    ("0.parts.0.functionCall", {"name": "f"}, "contents.0.parts.0: Must have exactly one data field, not"),
    ("0.parts.1.inlineData.data", "!", "contents.0.parts.1.inlineData.data: Data should be valid base64"),
    ("1.role", "assistant", "contents.1.role: Must be user or model, not 'assistant'"),
    ("1.parts.0.colour", "red", "contents.1.parts.0.colour: Extra inputs are not permitted"),
    ("2.parts.0.functionResponse.response", "sunny", "contents.2.parts.0.functionResponse.response: Input"),
]


def arguments(wire: JSONObject) -> JSON:
    return with_camel_case(with_camel_case(wire)["functionCall"])["args"]


def problems(body: JSONObject) -> list[Problem]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a word that an enum does not know is only warned of
            _content_request().validate_json(json.dumps(body), strict=True)  # as JSON: base64 is base64
    except Refusal as refusal:
        return [(error["loc"], error["msg"]) for error in refusal.errors()]
    except UserWarning as warning:
        return [((), str(warning))]
    found = _one_datum_each(body.get("systemInstruction") or {}, ("systemInstruction",))
    for number, content in enumerate(cast(list[JSONObject], body["contents"])):
        place = ("contents", number)
        if content.get("role") not in ("user", "model"):
            found.append(((*place, "role"), f"Must be user or model, not {content.get('role')!r}"))
        if not content.get("parts"):
            found.append(((*place, "parts"), "Must not be empty"))
        found += _one_datum_each(content, place)
    return found


def _one_datum_each(content: JSONObject, place: Place) -> list[Problem]:
    parts = cast(list[JSONObject], content.get("parts") or [])
    data = [[key for key in part if to_camel(key) in DATA] for part in parts]  # Google takes function_call too
    return [
        ((*place, "parts", number), f"Must have exactly one data field, not {keys}")
        for number, keys in enumerate(data)
        if len(keys) != 1
    ]


@cache
def _content_request() -> TypeAdapter[Any]:  # Any: what it validates is not used
    """The body of generateContent, which the SDK puts together from its models without having one of it."""
    from google.genai import types as google

    fields: dict[str, Any] = {  # Any: create_model takes types as values
        "contents": (list[google.Content], ...),
        "systemInstruction": (google.Content, None),
        "tools": (list[google.Tool], None),
        "toolConfig": (google.ToolConfig, None),
        "safetySettings": (list[google.SafetySetting], None),
        "generationConfig": (google.GenerationConfig, None),
        "cachedContent": (str, None),
        "labels": (dict[str, str], None),
        "serviceTier": (google.ServiceTier, None),
    }
    return TypeAdapter(create_model("Body", __config__=ConfigDict(extra="forbid"), **fields))
