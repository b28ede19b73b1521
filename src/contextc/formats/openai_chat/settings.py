"""Names of the Chat Completions settings."""

from contextc._json import JSON, JSONObject
from contextc.formats.request_settings import OutputFormat, RequestSettings, SettingsTable, ToolChoice, object_or_empty

MODES = ("auto", "none", "required")
MAX_STOPS = 4


def read_structured(rest: JSONObject) -> dict[str, object]:
    found: dict[str, object] = {}
    choice: JSON = rest.get("tool_choice")
    named: JSON = object_or_empty(object_or_empty(choice).get("function")).get("name")
    if isinstance(choice, str) and choice in MODES:
        found["tool_choice"] = ToolChoice(choice)
        del rest["tool_choice"]
    elif isinstance(named, str):
        found["tool_choice"] = ToolChoice("named", named)
        del rest["tool_choice"]
    form = object_or_empty(rest.get("response_format"))
    schema = object_or_empty(form.get("json_schema"))
    if form.get("type") == "json_object" or isinstance(schema.get("schema"), dict):
        found["output"] = OutputFormat(
            schema=schema.get("schema"), name=schema.get("name") or "answer", strict=schema.get("strict")
        )
        del rest["response_format"]
    if isinstance(rest.get("stop"), str):
        found["stop"] = [rest.pop("stop")]
    return found


def write_structured(settings: RequestSettings) -> JSONObject:
    body: JSONObject = {}
    choice, output = settings.tool_choice, settings.output
    if choice is not None:
        named: JSONObject = {"type": "function", "function": {"name": choice.name}}
        body["tool_choice"] = named if choice.mode == "named" else choice.mode
    if settings.stop:
        body["stop"] = settings.stop[:MAX_STOPS]
    if output is not None and output.schema is None:
        body["response_format"] = {"type": "json_object"}
    elif output is not None:
        strict: JSONObject = {} if output.strict is None else {"strict": output.strict}
        schema: JSONObject = {"name": output.name, "schema": output.schema, **strict}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


SETTINGS = SettingsTable(
    paths={
        "model": "model",
        "max_output_tokens": "max_completion_tokens",
        "temperature": "temperature",
        "top_p": "top_p",
        "seed": "seed",
        "stream": "stream",
        "frequency_penalty": "frequency_penalty",
        "presence_penalty": "presence_penalty",
        "parallel_tool_calls": "parallel_tool_calls",
        "effort": "reasoning_effort",
        "user": "user",
        "store": "store",
        "metadata": "metadata",
        "service_tier": "service_tier",
        "cache_key": "prompt_cache_key",
        "verbosity": "verbosity",
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
