"""The settings of Converse. The model id is in the URL.

Settings of a single model family are in `additionalModelRequestFields`. Converse cannot disable tools, so a tool choice
of "none" is left out.
"""

from contextc._json import JSONObject, encode, parse_object
from contextc.formats.settings import Mode, Output, Settings, SettingsTable, ToolChoice, inner, nearest

MODES: dict[str, Mode] = {"auto": "auto", "any": "required", "tool": "named"}
ASKED = {mode: name for name, mode in MODES.items()}
TIERS = ("default", "flex", "priority")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
WARMEST = 1.0


def take(rest: JSONObject) -> dict[str, object]:
    found: dict[str, object] = {}
    choice = inner(inner(rest.get("toolConfig")).get("toolChoice"))
    kind = next(iter(choice), "")
    if kind in MODES:
        found["tool_choice"] = ToolChoice(MODES[kind], inner(choice[kind]).get("name") or "")
        del rest["toolConfig"]["toolChoice"]
    form = inner(inner(rest.get("outputConfig")).get("textFormat"))
    described = inner(inner(form.get("structure")).get("jsonSchema"))
    if (schema := parse_object(str(described.get("schema") or ""))) is not None:
        found["output"] = Output(schema=schema, name=described.get("name") or Output().name)
        del rest["outputConfig"]["textFormat"]
    return found


def put(settings: Settings) -> JSONObject:
    body: JSONObject = {}
    choice, output = settings.tool_choice, settings.output
    if choice is not None and choice.mode in ASKED:
        body["toolConfig"] = {"toolChoice": {ASKED[choice.mode]: {"name": choice.name} if choice.name else {}}}
    if settings.temperature is not None:
        body["inferenceConfig"] = {"temperature": min(settings.temperature, WARMEST)}
    if settings.service_tier in TIERS:
        body["serviceTier"] = {"type": settings.service_tier}
    config: JSONObject = {}
    if settings.effort != "none" and (effort := nearest(settings.effort, EFFORTS)):
        config["effort"] = effort
    if output is not None and output.schema is not None:
        described: JSONObject = {"schema": encode(output.schema).decode(), "name": output.name}
        config["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": described}}
    return {**body, "outputConfig": config} if config else body


SETTINGS = SettingsTable(
    places={
        "max_output_tokens": "inferenceConfig.maxTokens",
        "top_p": "inferenceConfig.topP",
        "stop": "inferenceConfig.stopSequences",
    },
    take=take,
    put=put,
    also={
        "modelId": "model",
        "inferenceConfig.temperature": "temperature",
        "outputConfig.effort": "effort",
        "serviceTier.type": "service_tier",
        "additionalModelRequestFields.top_k": "top_k",
    },
    shaped=("tool_choice", "output", "effort", "temperature", "service_tier"),
)
