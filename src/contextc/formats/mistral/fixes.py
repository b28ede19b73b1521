"""Repairs that decoding and encoding does not make: settings and fields that Mistral does not define."""

from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.fix_builders import change_messages, without_fields
from contextc.formats.mistral.lint_parser import CHUNKS, unknown_field_names
from contextc.formats.request_settings import object_or_empty

RENAMED_SETTINGS = {"max_completion_tokens": "max_tokens", "seed": "random_seed"}
OPENAI_SETTINGS = (
    *RENAMED_SETTINGS,
    *("audio", "function_call", "functions", "logit_bias", "modalities", "prompt_cache_options", "safety_identifier"),
    *("store", "stream_options", "user", "verbosity", "web_search_options"),
)
"""Settings of Chat Completions that Mistral does not define."""
OTHER_API_SETTINGS = (
    *("reasoning", "include_reasoning", "thinking", "think", "system", "instructions", "input", "include", "text"),
    *("max_output_tokens", "stop_sequences", "previous_response_id", "truncation", "cache_control", "output_config"),
    *("options", "format", "keep_alive"),
)
"""Settings of other APIs. New Mistral settings are in no list here, so only these are known to be rejected."""
TOOL_CHOICES = ("auto", "none", "any", "required")
RESPONSE_FORMATS = ("text", "json_object", "json_schema")
FUNCTION = "function"


def without_unknown_chunk_fields(body: JSONObject) -> JSONObject:
    """Remove fields of chunks that Mistral does not define. Encoding already removes those of messages."""

    def known(chunk: JSONObject) -> JSONObject:
        others = (
            set(unknown_field_names(chunk, CHUNKS.get(str(chunk.get("type")), {}), "type"))
            if "type" in chunk
            else set[str]()
        )
        return without_fields(chunk, *others)

    def with_known(message: JSONObject) -> JSONObject:
        content: JSON = message.get("content")
        if not isinstance(content, list):
            return message
        chunks = cast(list[JSON], content)
        return {**message, "content": [known(cast(JSONObject, c)) if isinstance(c, dict) else c for c in chunks]}

    return change_messages(body, with_known)


def without_openai_settings(body: JSONObject) -> JSONObject:
    """Rename OpenAI settings to Mistral's names, and remove those without an equivalent."""
    said = {new: body[old] for old, new in RENAMED_SETTINGS.items() if body.get(old) is not None}
    return {**said, **without_fields(body, *OPENAI_SETTINGS)}


def is_valid_tool_choice(value: JSON) -> bool:
    """Return True if `tool_choice` may have this value."""
    return (
        value is None
        or value in TOOL_CHOICES
        or isinstance(object_or_empty(object_or_empty(value).get("function")).get("name"), str)
    )


def is_valid_response_format(value: JSON) -> bool:
    """Return True if `response_format` may have this value."""
    return value is None or (
        isinstance(value, dict) and object_or_empty(cast(object, value)).get("type", "text") in RESPONSE_FORMATS
    )
