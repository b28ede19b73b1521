"""The settings of Converse. The model id is in the URL.

Settings of a single model family are in `additionalModelRequestFields`. Converse cannot disable tools, so a tool choice
of "none" is left out.
"""

from contextc._json import JSONObject, encode, parse_object
from contextc.formats.anthropic.request_settings import EFFORTS
from contextc.formats.request_settings import (
    OutputFormat,
    RequestSettings,
    SettingsTable,
    ToolChoice,
    ToolChoiceMode,
    nearest_effort,
    object_or_empty,
)

MODES: dict[str, ToolChoiceMode] = {"auto": "auto", "any": "required", "tool": "named"}
MODE_NAMES = {mode: name for name, mode in MODES.items()}
TIERS = ("default", "flex", "priority")
MAX_TEMPERATURE = 1.0


def read_structured(rest: JSONObject) -> dict[str, object]:
    found: dict[str, object] = {}
    choice = object_or_empty(object_or_empty(rest.get("toolConfig")).get("toolChoice"))
    kind = next(iter(choice), "")
    if kind in MODES:
        found["tool_choice"] = ToolChoice(MODES[kind], object_or_empty(choice[kind]).get("name") or "")
        del rest["toolConfig"]["toolChoice"]
    form = object_or_empty(object_or_empty(rest.get("outputConfig")).get("textFormat"))
    described = object_or_empty(object_or_empty(form.get("structure")).get("jsonSchema"))
    if (schema := parse_object(str(described.get("schema") or ""))) is not None:
        found["output"] = OutputFormat(schema=schema, name=described.get("name") or OutputFormat().name)
        del rest["outputConfig"]["textFormat"]
    return found


def write_structured(settings: RequestSettings) -> JSONObject:
    body: JSONObject = {}
    choice, output = settings.tool_choice, settings.output
    if choice is not None and choice.mode in MODE_NAMES:
        body["toolConfig"] = {"toolChoice": {MODE_NAMES[choice.mode]: {"name": choice.name} if choice.name else {}}}
    if settings.temperature is not None:
        body["inferenceConfig"] = {"temperature": min(settings.temperature, MAX_TEMPERATURE)}
    if settings.service_tier in TIERS:
        body["serviceTier"] = {"type": settings.service_tier}
    config: JSONObject = {}
    if settings.effort != "none" and (effort := nearest_effort(settings.effort, EFFORTS)):
        config["effort"] = effort
    if output is not None and output.schema is not None:
        described: JSONObject = {"schema": encode(output.schema).decode(), "name": output.name}
        config["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": described}}
    return {**body, "outputConfig": config} if config else body


SETTINGS = SettingsTable(
    paths={
        "max_output_tokens": "inferenceConfig.maxTokens",
        "top_p": "inferenceConfig.topP",
        "stop": "inferenceConfig.stopSequences",
    },
    read_structured=read_structured,
    write_structured=write_structured,
    aliases={
        "modelId": "model",
        "inferenceConfig.temperature": "temperature",
        "outputConfig.effort": "effort",
        "serviceTier.type": "service_tier",
        "additionalModelRequestFields.top_k": "top_k",
    },
    structured=("tool_choice", "output", "effort", "temperature", "service_tier"),
)
