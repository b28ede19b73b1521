"""The settings of Anthropic's API. Sampling settings such as temperature are read, but no longer written."""

from contextc._json import JSON, JSONObject
from contextc.formats.base import text_of
from contextc.formats.request_settings import (
    NativeContext,
    NativeSettings,
    OutputFormat,
    RequestSettings,
    SettingsTable,
    ToolChoice,
    ToolChoiceMode,
    nearest_effort,
    object_or_empty,
)

MODES: dict[str, ToolChoiceMode] = {"auto": "auto", "any": "required", "none": "none", "tool": "named"}
MODE_NAMES = {mode: name for name, mode in MODES.items()}
EFFORTS = ("low", "medium", "high", "xhigh", "max")
COMPACTION_NOW = "compaction_on_demand"
"""The feature of a compaction that a request asks for. Its block is signed."""
DEFAULT_MAX_TOKENS = 8_192
COMPACT_EDIT, CLEAR_THINKING_EDIT, CLEAR_RESULTS_EDIT = (
    "compact_20260112",
    "clear_thinking_20251015",
    "clear_tool_uses_20250919",
)
LEAST_COMPACT_AT = 50_000
"""Tokens from which on a compaction can be triggered."""


def encode_context_management(context: NativeContext, kept_tools: list[str]) -> NativeSettings:
    """Return the edits of a context. Clearing of thinking must come first."""
    edits: list[JSONObject] = []
    features: list[str] = []
    if (kept := context.keep_thinking) is not None:
        keep: JSON = kept if kept == "all" else {"type": "thinking_turns", "value": kept}
        edits.append({"type": CLEAR_THINKING_EDIT, "keep": keep})
    if context.clear_results_at is not None:
        edit: JSONObject = {"type": CLEAR_RESULTS_EDIT, "trigger": _tokens(context.clear_results_at)}
        if context.keep_results is not None:
            edit["keep"] = {"type": "tool_uses", "value": context.keep_results}
        if context.clear_at_least is not None:
            edit["clear_at_least"] = _tokens(context.clear_at_least)
        if context.clear_arguments is not None:
            edit["clear_tool_inputs"] = context.clear_arguments
        edits.append({**edit, **({"exclude_tools": kept_tools} if kept_tools else {})})
    if edits:
        features.append("context_editing")
    if context.compact_at is not None:
        features.append("compaction")
        said: JSONObject = {"instructions": context.compact_instructions} if context.compact_instructions else {}
        edits.append({"type": COMPACT_EDIT, "trigger": _tokens(context.compact_at), **said})
    return NativeSettings({"context_management": {"edits": edits}} if edits else {}, tuple(features))


def find_answer_settings(settings: JSONObject) -> list[tuple[str, ...]]:
    """Return the paths of settings that only an answer can have. A request for a compaction must not have them."""
    choice = object_or_empty(settings.get("tool_choice")).get("type")
    found: list[tuple[str, ...]] = [(name,) for name in ("stop_sequences", "output_format") if settings.get(name)]
    found += [("output_config", "format")] * bool(object_or_empty(settings.get("output_config")).get("format"))
    return found + [("tool_choice",)] * (choice in ("any", "tool"))


def without_answer_settings(settings: JSONObject) -> JSONObject:
    """Return the settings without those that only an answer can have."""
    rest = dict(settings)
    for name, *inside in find_answer_settings(settings):
        if inside:
            rest[name] = {field: value for field, value in rest[name].items() if field not in inside}
        else:
            del rest[name]
    return rest


def request_compaction(settings: JSONObject, instructions: str) -> NativeSettings:
    """Return the settings of a request for a compaction, without those that the API refuses in one."""
    rest = without_answer_settings({name: value for name, value in settings.items() if name != "context_management"})
    asked: JSONObject = {"type": "summarize", **({"instructions": instructions} if instructions.strip() else {})}
    return NativeSettings({**rest, "compaction": asked}, (COMPACTION_NOW,))


def _tokens(count: int) -> JSONObject:
    return {"type": "input_tokens", "value": count}


def read_structured(rest: JSONObject) -> dict[str, object]:
    found: dict[str, object] = {}
    choice, config = object_or_empty(rest.get("tool_choice")), object_or_empty(rest.get("output_config"))
    if (kind := text_of(choice.get("type"))) in MODES:
        found["tool_choice"] = ToolChoice(MODES[kind], choice.get("name") or "")
        if choice.get("disable_parallel_tool_use") is not None:
            found["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]
        del rest["tool_choice"]
    if schema := object_or_empty(object_or_empty(config.get("format")).get("schema")):
        found["output"] = OutputFormat(schema=schema)
        del config["format"]
    return found


def write_structured(settings: RequestSettings) -> JSONObject:
    body: JSONObject = {}
    if settings.model is not None or settings.max_output_tokens is not None:
        body["max_tokens"] = settings.max_output_tokens or DEFAULT_MAX_TOKENS
    choice: JSONObject = {}
    if settings.tool_choice is not None:
        choice = {"type": MODE_NAMES[settings.tool_choice.mode]}
        if settings.tool_choice.name:
            choice["name"] = settings.tool_choice.name
    if settings.parallel_tool_calls is False and choice.get("type") != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    if choice:
        body["tool_choice"] = choice
    config: JSONObject = {}
    if settings.effort != "none" and (effort := nearest_effort(settings.effort, EFFORTS)):
        config["effort"] = effort
    if settings.output is not None and settings.output.schema is not None:
        config["format"] = {"type": "json_schema", "schema": settings.output.schema}
    return {**body, "output_config": config} if config else body


SETTINGS = SettingsTable(
    paths={"model": "model", "stop": "stop_sequences", "stream": "stream", "user": "metadata.user_id"},
    read_structured=read_structured,
    write_structured=write_structured,
    aliases={
        "max_tokens": "max_output_tokens",
        "output_config.effort": "effort",
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
    },
    structured=("max_output_tokens", "tool_choice", "parallel_tool_calls", "effort", "output"),
)
