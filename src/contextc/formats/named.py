"""A format by its name. Each is a folder here: one more format is one more folder, and no line elsewhere."""

from functools import cache
from importlib import import_module
from pathlib import Path

from contextc.errors import InvalidSetting
from contextc.formats.base import Formatter


@cache
def format_names() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in Path(__file__).parent.glob("*/rules.py")))


@cache
def formatter(name: str) -> Formatter:
    """The formatter of this name, with its defaults."""
    if name not in format_names():
        raise InvalidSetting(f"there is no format {name!r}. There are: {', '.join(format_names())}.")
    module = import_module(f"contextc.formats.{name}")
    faces = [face for face in vars(module).values() if isinstance(face, type) and issubclass(face, Formatter)]
    return next(face for face in faces if face.__module__ == module.__name__)()
