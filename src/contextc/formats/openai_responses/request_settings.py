"""Names of the settings of the Responses API."""

from contextc._json import JSONObject
from contextc.formats.request_settings import (
    ANY_MODE,
    RequestSettings,
    SettingsTable,
    describe_schema,
    object_or_empty,
    read_json_output,
    read_tool_choice,
    same_names,
    write_tool_choice,
)

MIN_OUTPUT_TOKENS = 16
LEAST_COMPACT_AT = 1_000
"""Tokens from which on a compaction can be triggered."""


def read_structured(rest: JSONObject) -> dict[str, object]:
    found = read_tool_choice(
        rest, "tool_choice", ANY_MODE, lambda choice: choice.get("name") if choice.get("type") == "function" else None
    )
    text = object_or_empty(rest.get("text"))
    form = object_or_empty(text.get("format"))
    if output := read_json_output(form.get("type"), form):
        found["output"] = output
        del text["format"]
    elif form.get("type") == "text":
        del text["format"]
    return found


def write_structured(settings: RequestSettings) -> JSONObject:
    body: JSONObject = {}
    if settings.max_output_tokens is not None:
        body["max_output_tokens"] = max(settings.max_output_tokens, MIN_OUTPUT_TOKENS)
    body |= write_tool_choice(settings.tool_choice, "tool_choice", lambda name: {"type": "function", "name": name})
    if settings.output is not None and settings.output.schema is None:
        body["text"] = {"format": {"type": "json_object"}}
    elif settings.output is not None:
        body["text"] = {"format": {"type": "json_schema", **describe_schema(settings.output)}}
    return body


SETTINGS = SettingsTable(
    paths={
        **same_names("model", "temperature", "top_p", "stream", "parallel_tool_calls"),
        **same_names("user", "store", "metadata", "service_tier"),
        "effort": "reasoning.effort",
        "cache_key": "prompt_cache_key",
        "verbosity": "text.verbosity",
    },
    read_structured=read_structured,
    write_structured=write_structured,
    aliases={"max_output_tokens": "max_output_tokens", "safety_identifier": "user"},
    structured=("max_output_tokens", "tool_choice", "output"),
)
