"""Names of the settings of the Responses API."""

from contextc._json import JSON, JSONObject
from contextc.formats.request_settings import OutputFormat, RequestSettings, SettingsTable, ToolChoice, object_or_empty

MODES = ("auto", "none", "required")
MIN_OUTPUT_TOKENS = 16


def read_structured(rest: JSONObject) -> dict[str, object]:
    found: dict[str, object] = {}
    choice: JSON = rest.get("tool_choice")
    if isinstance(choice, str) and choice in MODES:
        found["tool_choice"] = ToolChoice(choice)
        del rest["tool_choice"]
    elif object_or_empty(choice).get("type") == "function" and isinstance(object_or_empty(choice).get("name"), str):
        found["tool_choice"] = ToolChoice("named", object_or_empty(choice)["name"])
        del rest["tool_choice"]
    text = object_or_empty(rest.get("text"))
    form = object_or_empty(text.get("format"))
    if form.get("type") == "json_object" or isinstance(form.get("schema"), dict):
        found["output"] = OutputFormat(
            schema=form.get("schema"), name=form.get("name") or "answer", strict=form.get("strict")
        )
        del text["format"]
    elif form.get("type") == "text":
        del text["format"]
    return found


def write_structured(settings: RequestSettings) -> JSONObject:
    body: JSONObject = {}
    choice, output = settings.tool_choice, settings.output
    if settings.max_output_tokens is not None:
        body["max_output_tokens"] = max(settings.max_output_tokens, MIN_OUTPUT_TOKENS)
    if choice is not None:
        body["tool_choice"] = {"type": "function", "name": choice.name} if choice.mode == "named" else choice.mode
    if output is not None and output.schema is None:
        body["text"] = {"format": {"type": "json_object"}}
    elif output is not None:
        strict: JSONObject = {} if output.strict is None else {"strict": output.strict}
        schema: JSONObject = {"type": "json_schema", "name": output.name, "schema": output.schema, **strict}
        body["text"] = {"format": schema}
    return body


SETTINGS = SettingsTable(
    paths={
        "model": "model",
        "temperature": "temperature",
        "top_p": "top_p",
        "stream": "stream",
        "parallel_tool_calls": "parallel_tool_calls",
        "effort": "reasoning.effort",
        "user": "user",
        "store": "store",
        "metadata": "metadata",
        "service_tier": "service_tier",
        "cache_key": "prompt_cache_key",
        "verbosity": "text.verbosity",
    },
    read_structured=read_structured,
    write_structured=write_structured,
    aliases={"max_output_tokens": "max_output_tokens", "safety_identifier": "user"},
    structured=("max_output_tokens", "tool_choice", "output"),
)
