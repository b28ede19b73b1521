"""Names of the Chat Completions settings."""

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

MAX_STOPS = 4


def read_structured(rest: JSONObject) -> dict[str, object]:
    found = read_tool_choice(
        rest, "tool_choice", ANY_MODE, lambda choice: object_or_empty(choice.get("function")).get("name")
    )
    form = object_or_empty(rest.get("response_format"))
    if output := read_json_output(form.get("type"), object_or_empty(form.get("json_schema"))):
        found["output"] = output
        del rest["response_format"]
    if isinstance(rest.get("stop"), str):
        found["stop"] = [rest.pop("stop")]
    return found


def write_structured(settings: RequestSettings) -> JSONObject:
    body = write_tool_choice(
        settings.tool_choice, "tool_choice", lambda name: {"type": "function", "function": {"name": name}}
    )
    if settings.stop:
        body["stop"] = settings.stop[:MAX_STOPS]
    if settings.output is not None and settings.output.schema is None:
        body["response_format"] = {"type": "json_object"}
    elif settings.output is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": describe_schema(settings.output)}
    return body


SETTINGS = SettingsTable(
    paths={
        **same_names("model", "temperature", "top_p", "seed", "stream", "frequency_penalty", "presence_penalty"),
        **same_names("parallel_tool_calls", "user", "store", "metadata", "service_tier", "verbosity"),
        "max_output_tokens": "max_completion_tokens",
        "effort": "reasoning_effort",
        "cache_key": "prompt_cache_key",
    },
    read_structured=read_structured,
    write_structured=write_structured,
    aliases={
        "max_tokens": "max_output_tokens",
        "stop": "stop",
        "top_k": "top_k",
        "reasoning.effort": "effort",
        "safety_identifier": "user",
    },
    structured=("tool_choice", "output", "stop"),
)
