"""Request settings other than messages, named alike for all formats: output length, sampling, tool choice.

Each format has a table of the paths of common settings, and two functions for those with another shape. A setting that
the table does not have stays unread and is reported. It is never sent to another provider.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, NamedTuple, TypeAlias, TypeGuard, cast

from msgspec import Struct
from msgspec.structs import asdict

from contextc._json import JSON, JSONObject
from contextc.errors import InvalidSetting

SettingPath: TypeAlias = str
"""The path of a setting: `max_tokens`, or `generationConfig.maxOutputTokens`."""


ToolChoiceMode: TypeAlias = Literal["auto", "none", "required", "named"]


ANY_MODE: tuple[ToolChoiceMode, ...] = ("auto", "none", "required")


class ToolChoice(Struct, frozen=True):
    """The tools a model may or must call: any, none, at least one, or the one with this name."""

    mode: ToolChoiceMode
    name: str = ""


OF_RESULTS: dict[str, str] = dict.fromkeys(
    ("clear_at_least", "clear_arguments", "keep_results", "keep_results_of"), "clear_results_at"
)
"""Fields of a `NativeContext` that need another one."""


class NativeContext(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The parts of context management that are left to the provider. None: its default, or not at all."""

    compact_at: int | None = None
    """Input tokens above which it replaces the conversation by a summary of its own."""
    compact_instructions: str | None = None
    """Instructions for the summary, in place of the provider's."""
    clear_results_at: int | None = None
    """Input tokens above which it leaves out the oldest tool results."""
    clear_at_least: int | None = None
    """Tokens that leaving out results must save, because it costs the cache."""
    clear_arguments: bool | None = None
    """True if the arguments of their calls go, too."""
    keep_results: int | None = None
    """The number of results at the end that stay."""
    keep_results_of: tuple[str, ...] | None = None
    """Names of tools whose results stay."""
    keep_thinking: int | Literal["all"] | None = None
    """The number of replies at the end that keep their thinking."""

    def __post_init__(self) -> None:
        for name in ("compact_at", "clear_results_at", "clear_at_least", "keep_results", "keep_thinking"):
            value, least = getattr(self, name), 0 if name == "keep_results" else 1
            if value not in (None, "all") and (type(value) is not int or value < least):
                raise InvalidSetting(
                    f"NativeContext: {name} must be an integer", got=value, fix=f"Pass {least} or more, or omit it."
                )
        for name in self.names:
            needed = OF_RESULTS.get(name) or ("compact_at" if name == "compact_instructions" else "")
            if needed and needed not in self.names:
                raise InvalidSetting(f"NativeContext: {name} has no effect without {needed}", fix=f"Pass {needed}=….")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is set."""
        return tuple([name for name, value in asdict(self).items() if value is not None])

    def names_of(self, feature: str) -> tuple[str, ...]:
        """Return the names of what is set of a feature of providers: `compaction`, or `context_editing`."""
        return tuple([name for name in self.names if name.startswith("compact") == (feature == "compaction")])


class NativeSettings(NamedTuple):
    """A `NativeContext` as settings of a request, the features of the provider that these need, and what it lacks."""

    settings: JSONObject
    features: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class OutputFormat(Struct, frozen=True, kw_only=True):
    """The form of an answer: JSON, with an optional schema."""

    schema: JSONObject | None = None
    name: str = "answer"
    strict: bool | None = None


class RequestSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that more than one provider has. None means not set."""

    model: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: list[str] | None = None
    seed: int | None = None
    stream: bool | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    parallel_tool_calls: bool | None = None
    user: str | None = None
    store: bool | None = None
    metadata: JSONObject | None = None
    service_tier: str | None = None
    cache_key: str | None = None
    verbosity: str | None = None
    effort: str | None = None
    tool_choice: ToolChoice | None = None
    output: OutputFormat | None = None


def rename_tools(choice: JSON, names: Mapping[str, str], key: str = "") -> JSON:
    """Return a tool choice with other tool names, wherever it contains one."""
    if isinstance(choice, dict):
        return {name: rename_tools(value, names, name) for name, value in cast(JSONObject, choice).items()}
    if isinstance(choice, list):
        return [rename_tools(each, names, key) for each in cast(list[JSON], choice)]
    return names.get(choice, choice) if isinstance(choice, str) and key in TOOL_NAME_KEYS else choice


def read_tool_choice(
    rest: JSONObject, key: str, modes: Collection[ToolChoiceMode], name_of: Callable[[JSONObject], JSON]
) -> dict[str, object]:
    """Remove a tool choice from the settings and return it. It is one of `modes`, or an object with a tool's name."""
    choice: JSON = rest.get(key)
    if isinstance(choice, str) and choice in modes:
        found = ToolChoice(cast(ToolChoiceMode, choice))
    elif isinstance(name := name_of(object_or_empty(choice)), str):
        found = ToolChoice("named", name)
    else:
        return {}
    del rest[key]
    return {"tool_choice": found}


def write_tool_choice(choice: ToolChoice | None, key: str, named: Callable[[str], JSONObject]) -> JSONObject:
    """Return a tool choice as a setting: its mode, or the object that `named` makes from the name of a tool."""
    return {} if choice is None else {key: named(choice.name) if choice.mode == "named" else choice.mode}


def read_json_output(kind: JSON, described: JSONObject) -> OutputFormat | None:
    """Return the form of an answer in OpenAI's terms: the type, and the object with the schema and its name."""
    if kind != "json_object" and not isinstance(described.get("schema"), dict):
        return None
    return OutputFormat(
        schema=described.get("schema"), name=described.get("name") or "answer", strict=described.get("strict")
    )


def describe_schema(output: OutputFormat) -> JSONObject:
    """Return the fields of a schema in OpenAI's terms."""
    strict: JSONObject = {} if output.strict is None else {"strict": output.strict}
    return {"name": output.name, "schema": output.schema, **strict}


def same_names(*names: str) -> dict[str, SettingPath]:
    """Return the paths of settings whose names in a format are the common ones."""
    return {name: name for name in names}


TOOL_NAME_KEYS = ("name", "toolName", "allowedFunctionNames", "allowed_function_names")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


COMMON_VALUES = {
    "effort": EFFORTS,
    "service_tier": ("auto", "default", "flex", "priority"),
    "verbosity": ("low", "medium", "high"),
}
"""Settings with a fixed set of values, and the values that more than one provider accepts."""


def nearest_effort(effort: str | None, known: Sequence[str]) -> str | None:
    """Return the value in `known` closest to the requested effort, or None if there is no effort."""
    if effort is None or effort in known or effort not in EFFORTS:
        return effort if effort in known else None
    asked = EFFORTS.index(effort)
    return min(known, key=lambda each: abs(EFFORTS.index(each) - asked))


def object_or_empty(value: object) -> JSONObject:
    """Return the value if it is an object, else an empty object."""
    return cast(JSONObject, value) if isinstance(value, dict) else {}


def list_or_empty(value: object) -> list[JSON]:
    """Return the value if it is a list, else an empty list."""
    return cast(list[JSON], value) if isinstance(value, list) else []


def is_object(value: JSON) -> TypeGuard[JSONObject]:
    return isinstance(value, dict)


def is_list(value: JSON) -> TypeGuard[list[JSON]]:
    return isinstance(value, list)


class SettingsRead(NamedTuple):
    settings: RequestSettings
    unread: list[SettingPath]


class SettingsWritten(NamedTuple):
    body: JSONObject
    unwritten: list[str]


class SettingsTable(NamedTuple):
    """The settings of a format. `read_structured` removes and returns those it understands from a copy;
    `write_structured` writes them.

    `aliases` maps other paths to settings, such as former names.
    """

    paths: Mapping[str, SettingPath]
    read_structured: Callable[[JSONObject], dict[str, object]] = lambda rest: {}
    write_structured: Callable[[RequestSettings], JSONObject] = lambda settings: {}
    aliases: Mapping[SettingPath, str] = {}
    structured: tuple[str, ...] = ()
    """The settings that `write_structured` writes."""

    def read(self, settings: JSONObject) -> SettingsRead:
        """Return the common settings of a request, and the paths of those that only its provider has."""
        rest = deepcopy(settings)
        found: dict[str, Any] = self.read_structured(rest)  # types are checked below
        for place, field in [*((place, field) for field, place in self.paths.items()), *self.aliases.items()]:
            if (value := _pop_path(rest, place)) is not None:
                found.setdefault(field, value)
        unread = list(_remaining_paths(rest))
        for field, known in COMMON_VALUES.items():
            if field in found and found[field] not in known:  # a value that only this provider has
                del found[field]
                unread.append(field)
        for field, value in list(found.items()):
            if isinstance(value, float) and value.is_integer() and field in SETTING_TYPES[int]:
                found[field] = int(value)  # 40.0, as some libraries write it
            elif not _has_type(field, value):
                del found[field]
                unread.append(field)
        return SettingsRead(RequestSettings(**found), unread)

    def write(self, settings: RequestSettings) -> SettingsWritten:
        """Return the settings in this format, and the names of those it cannot express."""
        body = self.write_structured(settings)
        unwritten: list[str] = []
        for field, value in asdict(settings).items():
            if value is None or field in self.structured:
                continue
            if (place := self.paths.get(field)) is None:
                unwritten.append(field)
            else:
                _set_path(body, place, value)
        return SettingsWritten(body, unwritten)


SETTING_TYPES: dict[type | tuple[type, ...], tuple[str, ...]] = {
    str: ("model", "user", "service_tier", "cache_key", "verbosity", "effort"),
    int: ("max_output_tokens", "top_k", "seed"),
    (int, float): ("temperature", "top_p", "frequency_penalty", "presence_penalty"),
    bool: ("stream", "parallel_tool_calls", "store"),
    list: ("stop",),
    dict: ("metadata",),
    ToolChoice: ("tool_choice",),
    OutputFormat: ("output",),
}
FIELD_TYPE = {field: kind for kind, fields in SETTING_TYPES.items() for field in fields}


def _has_type(field: str, value: object) -> bool:
    """Return True if a setting has the type that `RequestSettings` declares."""
    if isinstance(value, bool) and field not in SETTING_TYPES[bool]:
        return False
    if not isinstance(value, FIELD_TYPE[field]):
        return False
    if isinstance(value, ToolChoice):
        return isinstance(cast(object, value.name), str)
    if isinstance(value, OutputFormat):
        sound = isinstance(cast(object, value.name), str) and isinstance(cast(object, value.strict), bool | None)
        return sound and isinstance(cast(object, value.schema), dict | None)
    return field != "stop" or all(isinstance(each, str) for each in cast(list[object], value))


def _pop_path(body: JSONObject, place: SettingPath) -> JSON:
    *outer, last = place.split(".")
    for name in outer:
        inner: JSON = body.get(name)
        if not isinstance(inner, dict):
            return None
        body = cast(JSONObject, inner)
    return body.pop(last, None)


def is_set(body: JSONObject, place: SettingPath) -> bool:
    """Return True if a setting has a value."""
    *outer, last = place.split(".")
    for name in outer:
        body = object_or_empty(body.get(name))
    return body.get(last) is not None


def _set_path(body: JSONObject, place: SettingPath, value: JSON) -> None:
    *outer, last = place.split(".")
    for name in outer:
        body = body.setdefault(name, {})
    body[last] = value


def _remaining_paths(body: JSONObject, before: str = "") -> Iterator[SettingPath]:
    for name, value in body.items():
        if isinstance(value, dict) and value and not before:
            yield from _remaining_paths(cast(JSONObject, value), f"{name}.")
        elif value is not None and value not in ({}, []):
            yield before + name
