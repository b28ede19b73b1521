"""The settings of generateContent. The model is in the URL, not in the body."""

from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.base import text_of
from contextc.formats.gemini.codec import json_schema
from contextc.formats.request_settings import (
    OutputFormat,
    RequestSettings,
    SettingsTable,
    ToolChoice,
    ToolChoiceMode,
    nearest_effort,
    object_or_empty,
)

MODES: dict[str, ToolChoiceMode] = {"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none"}
MODE_NAMES = {"auto": "AUTO", "required": "ANY", "named": "ANY", "none": "NONE"}
LEVELS = ("minimal", "low", "medium", "high")
SNAKE_CASE_NAMES = {"generation_config": "generationConfig", "tool_config": "toolConfig"}


def read_structured(rest: JSONObject) -> dict[str, object]:
    for snake, camel in SNAKE_CASE_NAMES.items():
        if snake in rest:
            rest[camel] = rest.pop(snake)
        if isinstance(rest.get(camel), dict):
            rest[camel] = {_camel(name): value for name, value in cast(JSONObject, rest[camel]).items()}
    found: dict[str, object] = {}
    calling = object_or_empty(object_or_empty(rest.get("toolConfig")).get("functionCallingConfig"))
    named: JSON = calling.get("allowedFunctionNames") or []
    allowed = cast(list[JSON], named) if isinstance(named, list) else None
    kind = text_of(calling.get("mode"))
    if kind in MODES and allowed is not None and len(allowed) <= 1:
        mode: ToolChoiceMode = "named" if allowed else MODES[kind]
        found["tool_choice"] = ToolChoice(mode, allowed[0] if allowed else "")
        del rest["toolConfig"]["functionCallingConfig"]
    config = object_or_empty(rest.get("generationConfig"))
    schema: JSON = config.get("responseJsonSchema")
    if schema is None and isinstance(config.get("responseSchema"), dict):
        schema = json_schema(config["responseSchema"])
    if config.get("responseMimeType") == "application/json":
        found["output"] = OutputFormat(schema=schema)
        for name in ("responseMimeType", "responseJsonSchema", "responseSchema"):
            config.pop(name, None)
    level: JSON = object_or_empty(config.get("thinkingConfig")).get("thinkingLevel")
    if isinstance(level, str) and level.lower() in LEVELS:
        found["effort"] = level.lower()
        del config["thinkingConfig"]["thinkingLevel"]
    return found


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.title() for each in others)


def write_structured(settings: RequestSettings) -> JSONObject:
    body: JSONObject = {}
    choice, config = settings.tool_choice, JSONObject()
    if choice is not None:
        calling: JSONObject = {"mode": MODE_NAMES[choice.mode]}
        if choice.name:
            calling["allowedFunctionNames"] = [choice.name]
        body["toolConfig"] = {"functionCallingConfig": calling}
    if settings.output is not None:
        config["responseMimeType"] = "application/json"
        if settings.output.schema is not None:
            config["responseJsonSchema"] = settings.output.schema
    if settings.effort != "none" and (level := nearest_effort(settings.effort, LEVELS)):
        config["thinkingConfig"] = {"thinkingLevel": level.upper()}
    return {**body, "generationConfig": config} if config else body


SETTINGS = SettingsTable(
    paths={
        "max_output_tokens": "generationConfig.maxOutputTokens",
        "temperature": "generationConfig.temperature",
        "top_p": "generationConfig.topP",
        "top_k": "generationConfig.topK",
        "stop": "generationConfig.stopSequences",
        "seed": "generationConfig.seed",
        "frequency_penalty": "generationConfig.frequencyPenalty",
        "presence_penalty": "generationConfig.presencePenalty",
    },
    read_structured=read_structured,
    write_structured=write_structured,
    aliases={"model": "model"},
    structured=("tool_choice", "output", "effort"),
)
