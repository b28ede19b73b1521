"""Repairs that decoding and encoding does not make: settings and fields that Mistral does not define."""

from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.mistral.sketch import CHUNKS, unknown
from contextc.formats.settings import inner

RENAMED = {"max_completion_tokens": "max_tokens", "seed": "random_seed"}
OPENAIS = (
    *RENAMED,
    *("audio", "function_call", "functions", "logit_bias", "modalities", "prompt_cache_options", "safety_identifier"),
    *("store", "stream_options", "user", "verbosity", "web_search_options"),
)
"""Settings of Chat Completions that Mistral does not define."""
OTHERS = (
    *("reasoning", "include_reasoning", "thinking", "think", "system", "instructions", "input", "include", "text"),
    *("max_output_tokens", "stop_sequences", "previous_response_id", "truncation", "cache_control", "output_config"),
    *("options", "format", "keep_alive"),
)
"""Settings of other APIs. New Mistral settings are in no list here, so only these are known to be rejected."""
CHOICES = ("auto", "none", "any", "required")
FORMS = ("text", "json_object", "json_schema")
FUNCTION = "function"


def with_known_chunks(body: JSONObject) -> JSONObject:
    """Remove fields of chunks that Mistral does not define. Encoding already removes those of messages."""

    def known(chunk: JSONObject) -> JSONObject:
        others = set(unknown(chunk, CHUNKS.get(str(chunk.get("type")), {}), "type")) if "type" in chunk else set[str]()
        return {name: value for name, value in chunk.items() if name not in others}

    def with_known(message: JSONObject) -> JSONObject:
        content: JSON = message.get("content")
        if not isinstance(content, list):
            return message
        chunks = cast(list[JSON], content)
        return {**message, "content": [known(cast(JSONObject, c)) if isinstance(c, dict) else c for c in chunks]}

    return {**body, "messages": [with_known(each) for each in cast(list[JSONObject], body["messages"])]}


def without_openais_settings(body: JSONObject) -> JSONObject:
    """Rename OpenAI settings to Mistral's names, and remove those without an equivalent."""
    kept = {name: value for name, value in body.items() if name not in OPENAIS}
    said = {new: body[old] for old, new in RENAMED.items() if body.get(old) is not None}
    return {**said, **kept}


def without_others_settings(body: JSONObject) -> JSONObject:
    return {name: value for name, value in body.items() if name not in OTHERS}


def without_choice(body: JSONObject) -> JSONObject:
    return {name: value for name, value in body.items() if name != "tool_choice"}


def without_form(body: JSONObject) -> JSONObject:
    return {name: value for name, value in body.items() if name != "response_format"}


def chooses(value: JSON) -> bool:
    """Return True if `tool_choice` may have this value."""
    return value is None or value in CHOICES or isinstance(inner(inner(value).get("function")).get("name"), str)


def forms(value: JSON) -> bool:
    """Return True if `response_format` may have this value."""
    return value is None or (isinstance(value, dict) and inner(cast(object, value)).get("type", "text") in FORMS)
