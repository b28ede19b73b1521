"""Formats, providers and import sources of other installed packages, found through entry points.

A package declares them in its metadata, for example:

    [project.entry-points."contextc.formats"]
    acme = "acme_contextc:AcmeFormatter"

An entry point is loaded when its name is looked up. A plugin never replaces something built in: names that contextc
itself has are ignored.
"""

import os
import pkgutil
from functools import cache
from importlib import import_module

from contextc.errors import InvalidSetting, describe_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FORMATS, PROVIDERS, SOURCES = "contextc.formats", "contextc.providers", "contextc.sources"
"""Groups of entry points: a `Formatter` class, a table of provider facts, a module with the functions of a source."""


@cache
def submodules(package: str, *, packages: bool = False) -> tuple[str, ...]:
    """Return the names of a package's modules, or of its packages only. It may be inside a zip file."""
    found = pkgutil.iter_modules(import_module(package).__path__)
    return tuple(sorted(each.name for each in found if each.ispkg or not packages))


def data_files(package: str, suffix: str, folder: str = "") -> dict[str, str]:
    """Return the texts of a package's data files with this suffix, by file name. It may be inside a zip file."""
    place = os.path.join(import_module(package).__path__[0], folder)
    if os.path.isdir(place):  # `importlib.resources` would take longer to import than all else that opens a store
        return {name: _text(os.path.join(place, name)) for name in sorted(os.listdir(place)) if name.endswith(suffix)}
    from importlib.resources import files

    found = [each for each in files(package).joinpath(folder).iterdir() if each.name.endswith(suffix)]
    return {each.name: each.read_text(encoding="utf-8") for each in sorted(found, key=lambda each: each.name)}


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


@cache
def plugins(group: str) -> "dict[str, EntryPoint]":
    """Return the entry points of a group by name. Nothing is loaded."""
    from importlib.metadata import entry_points

    return {each.name: each for each in entry_points(group=group)}


def load_plugin(group: str, name: str) -> object:
    """Load an entry point. Raise InvalidSetting if that fails."""
    entry = plugins(group)[name]
    try:
        return entry.load()
    except Exception as error:
        raise InvalidSetting(
            f"{group}: entry point {name!r} ({entry.value}) cannot be loaded: {describe_error(error)}",
            fix="Correct or remove the package that declares it.",
        ) from error
