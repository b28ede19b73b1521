"""Names of the settings of the Responses API."""

from contextc._json import JSON, JSONObject
from contextc.formats.settings import Output, Settings, SettingsTable, ToolChoice, inner

MODES = ("auto", "none", "required")
SHORTEST_LIMIT = 16


def take(rest: JSONObject) -> dict[str, object]:
    found: dict[str, object] = {}
    choice: JSON = rest.get("tool_choice")
    if isinstance(choice, str) and choice in MODES:
        found["tool_choice"] = ToolChoice(choice)
        del rest["tool_choice"]
    elif inner(choice).get("type") == "function" and isinstance(inner(choice).get("name"), str):
        found["tool_choice"] = ToolChoice("named", inner(choice)["name"])
        del rest["tool_choice"]
    text = inner(rest.get("text"))
    form = inner(text.get("format"))
    if form.get("type") == "json_object" or isinstance(form.get("schema"), dict):
        found["output"] = Output(
            schema=form.get("schema"), name=form.get("name") or "answer", strict=form.get("strict")
        )
        del text["format"]
    elif form.get("type") == "text":
        del text["format"]
    return found


def put(settings: Settings) -> JSONObject:
    body: JSONObject = {}
    choice, output = settings.tool_choice, settings.output
    if settings.max_output_tokens is not None:
        body["max_output_tokens"] = max(settings.max_output_tokens, SHORTEST_LIMIT)
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
    places={
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
    take=take,
    put=put,
    also={"max_output_tokens": "max_output_tokens", "safety_identifier": "user"},
    shaped=("max_output_tokens", "tool_choice", "output"),
)
