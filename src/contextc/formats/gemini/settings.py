"""The settings of generateContent. The model is in the URL, not in the body."""

from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.base import text_of
from contextc.formats.gemini.decode import json_schema
from contextc.formats.settings import Mode, Output, Settings, SettingsTable, ToolChoice, inner, nearest

MODES: dict[str, Mode] = {"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none"}
ASKED = {"auto": "AUTO", "required": "ANY", "named": "ANY", "none": "NONE"}
LEVELS = ("minimal", "low", "medium", "high")
SNAKE = {"generation_config": "generationConfig", "tool_config": "toolConfig"}


def take(rest: JSONObject) -> dict[str, object]:
    for snake, camel in SNAKE.items():
        if snake in rest:
            rest[camel] = rest.pop(snake)
        if isinstance(rest.get(camel), dict):
            rest[camel] = {_camel(name): value for name, value in cast(JSONObject, rest[camel]).items()}
    found: dict[str, object] = {}
    calling = inner(inner(rest.get("toolConfig")).get("functionCallingConfig"))
    named: JSON = calling.get("allowedFunctionNames") or []
    allowed = cast(list[JSON], named) if isinstance(named, list) else None
    kind = text_of(calling.get("mode"))
    if kind in MODES and allowed is not None and len(allowed) <= 1:
        mode: Mode = "named" if allowed else MODES[kind]
        found["tool_choice"] = ToolChoice(mode, allowed[0] if allowed else "")
        del rest["toolConfig"]["functionCallingConfig"]
    config = inner(rest.get("generationConfig"))
    schema: JSON = config.get("responseJsonSchema")
    if schema is None and isinstance(config.get("responseSchema"), dict):
        schema = json_schema(config["responseSchema"])
    if config.get("responseMimeType") == "application/json":
        found["output"] = Output(schema=schema)
        for name in ("responseMimeType", "responseJsonSchema", "responseSchema"):
            config.pop(name, None)
    level: JSON = inner(config.get("thinkingConfig")).get("thinkingLevel")
    if isinstance(level, str) and level.lower() in LEVELS:
        found["effort"] = level.lower()
        del config["thinkingConfig"]["thinkingLevel"]
    return found


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.title() for each in others)


def put(settings: Settings) -> JSONObject:
    body: JSONObject = {}
    choice, config = settings.tool_choice, JSONObject()
    if choice is not None:
        calling: JSONObject = {"mode": ASKED[choice.mode]}
        if choice.name:
            calling["allowedFunctionNames"] = [choice.name]
        body["toolConfig"] = {"functionCallingConfig": calling}
    if settings.output is not None:
        config["responseMimeType"] = "application/json"
        if settings.output.schema is not None:
            config["responseJsonSchema"] = settings.output.schema
    if settings.effort != "none" and (level := nearest(settings.effort, LEVELS)):
        config["thinkingConfig"] = {"thinkingLevel": level.upper()}
    return {**body, "generationConfig": config} if config else body


SETTINGS = SettingsTable(
    places={
        "max_output_tokens": "generationConfig.maxOutputTokens",
        "temperature": "generationConfig.temperature",
        "top_p": "generationConfig.topP",
        "top_k": "generationConfig.topK",
        "stop": "generationConfig.stopSequences",
        "seed": "generationConfig.seed",
        "frequency_penalty": "generationConfig.frequencyPenalty",
        "presence_penalty": "generationConfig.presencePenalty",
    },
    take=take,
    put=put,
    also={"model": "model"},
    shaped=("tool_choice", "output", "effort"),
)
