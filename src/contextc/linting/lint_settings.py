"""Settings of the linter in a project: the rules that apply, the files that are checked, and exceptions for some files.

They stand in the table `[tool.contextc.lint]` of `pyproject.toml` or `[lint]` of `contextc.toml`, in the current folder
or the nearest one above it. They choose among checks and nothing else, so they need no trust.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from contextc.config import CONFIG_FILE, LINT
from contextc.errors import InvalidSetting
from contextc.formats.rules_docs import find_rule, list_rules

PROJECT_FILE = "pyproject.toml"
LISTS = ("select", "ignore", "exclude")
EXCEPTIONS = "per-file-ignores"
ALL = "ALL"
SUFFIXES = (".json", ".jsonl", ".ndjson", ".har")
SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "build", "dist", "venv"})
"""Folders that are not searched; nor are those whose name begins with a dot."""


class LintSettings(Struct, frozen=True, kw_only=True):
    """`folder` has the file with the settings: patterns are relative to it."""

    folder: str = ""
    select: tuple[str, ...] = ()
    """Codes, or their beginnings; none means every rule."""
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = {}

    def is_checked(self, code: str, file: str = "") -> bool:
        """Return True if a rule applies to a file. Of `select` and `ignore` the longer beginning decides."""
        chosen = _longest_beginning(code, self.select) if self.select else 0
        if chosen < 0 or _longest_beginning(code, self.ignore) >= chosen:
            return False
        return not any(
            _longest_beginning(code, codes) >= 0
            for pattern, codes in self.per_file_ignores.items()
            if file and self._matches(file, pattern)
        )

    def is_excluded(self, file: str) -> bool:
        return any(self._matches(file, pattern) for pattern in self.exclude)

    def changed(self, select: Sequence[str], ignore: Sequence[str]) -> "LintSettings":
        """Return these settings with options of a command: `select` replaces the selection, `ignore` adds to it."""
        given = replace(self, select=_read_codes("--select", select) or self.select)
        return replace(given, ignore=(*self.ignore, *_read_codes("--ignore", ignore)))

    def _matches(self, file: str, pattern: str) -> bool:
        """Return True if a pattern matches a path, a folder above it, or if it has no slash, one name in the path."""
        path = os.path.relpath(file, self.folder or os.curdir).replace(os.sep, "/")
        names = path.split("/")
        pattern = pattern.rstrip("/")
        if "/" not in pattern and any(fnmatchcase(name, pattern) for name in names):
            return True
        return any(fnmatchcase("/".join(names[:end]), pattern) for end in range(1, len(names) + 1))


def read_lint_settings(folder: str = os.curdir) -> LintSettings:
    """Return the settings of the nearest file that has some, from this folder upwards."""
    here = os.path.abspath(folder)
    while True:
        for name, keys in ((CONFIG_FILE, (LINT,)), (PROJECT_FILE, ("tool", "contextc", LINT))):
            path = os.path.join(here, name)
            if (table := _read_table(path, keys)) is not None:
                return _read_settings(path, ".".join(keys), table)
        above = os.path.dirname(here)
        if above == here:
            return LintSettings()
        here = above


def find_request_files(folder: str, settings: LintSettings) -> Iterator[str]:
    """Yield the files below a folder that may have requests: JSON, JSON Lines and recordings, packed or not."""
    for parent, folders, names in os.walk(folder):
        kept = [each for each in folders if each not in SKIPPED_FOLDERS and not each.startswith(".")]
        folders[:] = sorted([each for each in kept if not settings.is_excluded(os.path.join(parent, each))])
        for name in sorted(names):
            path = os.path.normpath(os.path.join(parent, name))
            if name.lower().removesuffix(".gz").endswith(SUFFIXES) and not settings.is_excluded(path):
                yield path


def _longest_beginning(code: str, beginnings: Sequence[str]) -> int:
    """Return the length of the longest beginning of a code, 0 for `ALL`, -1 if there is none."""
    fitting = [0 if each == ALL else len(each) for each in beginnings if each == ALL or code.startswith(each)]
    return max(fitting, default=-1)


def _read_table(path: str, keys: Sequence[str]) -> object:
    """Return a table of a file; None if the file or the table does not exist."""
    try:
        with open(path, "rb") as file:
            found: object = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSetting(f"{path} cannot be read: {error}.") from error
    for key in keys:
        found = cast(dict[str, object], found).get(key) if isinstance(found, dict) else None
    return found


def _read_settings(path: str, name: str, table: object) -> LintSettings:
    where = f"{path}: {name}"
    if not isinstance(table, dict):
        raise InvalidSetting(f"{where} must be a table", fix=f'Write [{name}], below it ignore = ["ANT014"].')
    given = cast(dict[str, object], table)
    if unknown := sorted(given.keys() - {*LISTS, EXCEPTIONS}):
        raise InvalidSetting(
            f"{where}.{unknown[0]} is not a setting", fix=f"Use one of {', '.join([*LISTS, EXCEPTIONS])}."
        )
    lists = {key: _read_list(f"{where}.{key}", given.get(key, [])) for key in LISTS}
    exceptions = given.get(EXCEPTIONS, {})
    if not isinstance(exceptions, dict):
        raise InvalidSetting(
            f"{where}.{EXCEPTIONS} must be a table",
            fix=f'Write [{name}.{EXCEPTIONS}], below it "tests/*" = ["ANT014"].',
        )
    return LintSettings(
        folder=os.path.dirname(path),
        select=_read_codes(f"{where}.select", lists["select"]),
        ignore=_read_codes(f"{where}.ignore", lists["ignore"]),
        exclude=tuple(lists["exclude"]),
        per_file_ignores={
            pattern: _read_codes(f"{where}.{EXCEPTIONS}", _read_list(f"{where}.{EXCEPTIONS}.{pattern}", codes))
            for pattern, codes in cast(dict[str, object], exceptions).items()
        },
    )


def _read_list(where: str, given: object) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in cast(list[object], given)):
        raise InvalidSetting(
            f"{where} must be a list of texts", got=cast(object, given), fix='Write it like ["ANT014", "OAC"].'
        )
    return cast(list[str], given)


def _read_codes(where: str, given: Sequence[str]) -> tuple[str, ...]:
    """Return codes and beginnings of codes, in capitals. A text may have several, separated by commas."""
    codes = [code.strip().upper() for text in given for code in text.split(",") if code.strip()]
    for code in codes:
        if code != ALL and not list_rules(code=code):
            try:
                find_rule(code)
            except InvalidSetting as error:
                raise InvalidSetting(f"{where}: no rule begins with this", got=code, fix=error.fix) from None
    return tuple(codes)
