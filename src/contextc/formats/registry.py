"""The registry of formats: the packages of `contextc.formats`, and formats of other installed packages.

A new format needs no entry anywhere else. A plugin is a `Formatter` class under an entry point of the group
`contextc.formats`; lint rules are optional.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import cast

from contextc._json import JSON
from contextc._plugins import FORMATS, load_plugin, plugins, submodules
from contextc._sequence_comparison import find_near_names
from contextc.errors import InvalidSetting
from contextc.formats.base import Formatter


@cache
def format_names() -> tuple[str, ...]:
    """Return the names of the built-in formats, then those of plugins."""
    return tuple(dict.fromkeys([*built_in_formats(), *sorted(plugins(FORMATS))]))


def is_format(name: str) -> bool:
    """Return True if there is a format of this name. Plugins are looked up only if it is not built in."""
    return name in built_in_formats() or name in format_names()


def built_in_formats() -> tuple[str, ...]:
    return submodules("contextc.formats", packages=True)


def detect_tool_format(definition: Mapping[str, JSON], own: Formatter) -> Formatter:
    """Return the format of a tool definition: the one it is recognized as, else the one in use."""
    if own.is_tool(definition):
        return own
    return next((form for form in map(formatter, format_names()) if form.is_tool(definition)), own)


@cache
def formatter(name: str) -> Formatter:
    """Return the formatter with this name, with default options."""
    if not is_format(name):
        raise InvalidSetting(
            f"Format {name!r} not found",
            fix=f"{did_you_mean(close_formats(name))}Known formats: {', '.join(format_names())}.",
            case="format",
            detail=name,
        )
    return _class_in(name)()


def close_formats(name: str) -> list[str]:
    """Return the formats whose names are similar to an unknown one."""
    written = name.lower().replace("-", "_").replace(".", "_")
    found = [each for each in format_names() if each.startswith(written)] if written else []
    return found or find_near_names(written, format_names())[:1]


def did_you_mean(names: Sequence[str]) -> str:
    return f"Did you mean {' or '.join(names)}? " if names else ""


def find_formatter_class(name: str) -> type[Formatter] | None:
    """Return the class of a format by its class name. `OpenAIFormatter` is the class of `openai_chat`."""
    short = name.removesuffix("Formatter").lower()
    if short == name.lower():
        return None
    found = next((each for each in format_names() if each.replace("_", "") in (short, f"{short}chat")), None)
    return None if found is None or (kind := _class_in(found)).__name__ != name else kind


def _class_in(name: str) -> type[Formatter]:
    """Return the class of a format. Raise InvalidSetting if a plugin is not a subclass of `Formatter`."""
    if name not in built_in_formats():
        kind = load_plugin(FORMATS, name)
        if not isinstance(kind, type) or not issubclass(kind, Formatter):
            raise InvalidSetting(
                f"{FORMATS}: entry point {name!r} must be a subclass of Formatter", got=cast(object, kind)
            )
        return kind
    module = import_module(f"contextc.formats.{name}")
    found = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Formatter)]
    return next(each for each in found if each.__module__ == module.__name__)
