"""What a call would do, in words and line by line, as it is shown to whoever decides.

Of our own tools it is known what they do, and whether that would fail. What a provider's own tool does is told by the
shape of its arguments: a command, a file with a content or with texts that change places, changes with their
differences. Whatever else was said with it stands below; a call of no such shape is shown as it was written.
"""

import difflib
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from contextc._json import JSON, JSONObject, encode
from contextc.agents.words import visible
from contextc.errors import ContextcError
from contextc.messages import ToolCall
from contextc.toolbox.builtin.folder import Folder

LARGEST = 1_000_000
OURS = ("run_command", "edit_file", "write_file")
PATHS, OLD, NEW = ("file_path", "path", "notebook_path"), ("old_string", "old"), ("new_string", "new")


class Deed(NamedTuple):
    """What would be done, how it looks, and which arguments say so."""

    what: str
    lines: list[str]
    told: Iterable[str]


def described(call: ToolCall, root: Path) -> tuple[str, list[str]]:
    """What a call would do, in words and line by line."""
    given = call.arguments
    if call.name in OURS:
        if (found := _ours(call.name, given, root)) is not None:
            return found
    elif (deed := _command(given, root) or _changes(given) or _file(given, root)) is not None:
        rest = [(name, value) for name, value in given.items() if value and name not in deed.told]
        more = [f"({visible(name)}: {_written(value)})" for name, value in rest]
        return f"{visible(call.name)}: {deed.what}", [*deed.lines, *more]
    shown = msgspec.json.format(encode(given), indent=2).decode()
    return f"{visible(call.name)}, with these arguments", visible(shown).split("\n")


# ── our own tools ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _ours(name: str, given: JSONObject, root: Path) -> tuple[str, list[str]] | None:
    command, path = given.get("command"), given.get("path")
    if name == "run_command" and isinstance(command, str):
        return f"run a command in {root}", visible(command).split("\n")
    if name == "run_command" or not isinstance(path, str):
        return None
    lines = _edited(path, given, root) if name == "edit_file" else _replaced(path, given, root)
    return f"{'change' if name == 'edit_file' else 'write'} {visible(path)}", lines


def _edited(path: str, given: JSONObject, root: Path) -> list[str]:
    old, new = str(given.get("old", "")), str(given.get("new", ""))
    before, note = _content(path, root)
    places = before.count(old) if old else 0
    if not note and places != 1 and not (places and given.get("replace_all")):
        note = f"the old text is there {places} times"
    if note or len(before) > LARGEST:
        return _failing(note) + _difference(old, new)
    return _difference(before, before.replace(old, new))


def _replaced(path: str, given: JSONObject, root: Path) -> list[str]:
    before, _ = _content(path, root)
    note = "the file is there already" if before and not given.get("overwrite") else ""
    return _failing(note) + _difference(before, str(given.get("content", "")))


def _failing(note: str) -> list[str]:
    return [f"(it would fail: {visible(note)})"] if note else []


# ── a provider's own ──────────────────────────────────────────────────────────────────────────────────────────────────


def _command(given: JSONObject, root: Path) -> Deed | None:
    command, where = given.get("command"), given.get("cwd")
    if isinstance(command, list):
        command = shlex.join(str(word) for word in cast(list[JSON], command))
    if not isinstance(command, str):
        return None
    place, told = (visible(where), ("command", "cwd")) if isinstance(where, str) else (str(root), ("command",))
    return Deed(f"run a command in {place}", visible(command).split("\n"), told)


def _changes(given: JSONObject) -> Deed | None:
    """Several files, each with its difference."""
    changes = given.get("changes")
    if not isinstance(changes, list) or not changes:
        return None
    lines: list[str] = []
    for change in cast(list[JSON], changes):
        match change:
            case {"path": str(path), "diff": str(difference), **rest}:
                lines += [_change(path, rest.get("kind")), *visible(difference.rstrip("\n")).split("\n")]
            case _:
                return None
    count = len(cast(list[JSON], changes))
    return Deed(f"change {count} files" if count > 1 else "change a file", lines, ("changes",))


def _change(path: str, kind: JSON) -> str:
    """One line about a file: what becomes of it."""
    match kind:
        case {"type": str(done), "move_path": str(new)}:
            return f"@ {visible(done)} {visible(path)}, which becomes {visible(new)}"
        case {"type": str(done)} | str(done):
            return f"@ {visible(done)} {visible(path)}"
        case _:
            return f"@ {visible(path)}"


def _file(given: JSONObject, root: Path) -> Deed | None:
    place = next((name for name in PATHS if isinstance(given.get(name), str)), None)
    if place is None:
        return None
    path = cast(str, given[place])
    before, content = _content(path, root)[0], given.get("content")
    if isinstance(content, str):
        return Deed(f"write {visible(path)}", _difference(before, content), (place, "content"))
    if (edits := _edits(given)) is None:
        return None
    after = before
    for old, new, everywhere in edits:
        if not old or old not in after or len(after) > LARGEST:
            apart = [line for before, after, _ in edits for line in _difference(before, after)]
            return Deed(f"change {visible(path)}", apart, (place, *OLD, *NEW, "edits"))
        after = after.replace(old, new) if everywhere else after.replace(old, new, 1)
    return Deed(f"change {visible(path)}", _difference(before, after), (place, *OLD, *NEW, "edits"))


def _edits(given: JSONObject) -> list[tuple[str, str, bool]] | None:
    """The texts that change places, each with whether everywhere."""
    found: list[tuple[str, str, bool]] = []
    edits = given.get("edits")
    for each in cast(list[JSON], edits) if isinstance(edits, list) else [given]:
        edit = cast(JSONObject, each) if isinstance(each, dict) else {}
        old, new = ([edit[name] for name in names if isinstance(edit.get(name), str)] for names in (OLD, NEW))
        if not old or not new:
            return None
        found.append((cast(str, old[0]), cast(str, new[0]), bool(edit.get("replace_all"))))
    return found or None


def _written(value: JSON) -> str:
    return visible(value if isinstance(value, str) else encode(value).decode()).replace("\n", "\\n")


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _content(path: str, root: Path) -> tuple[str, str]:
    """What is in a file, and why that is not known."""
    try:
        return Folder(root).text(path)[1].replace("\r\n", "\n"), ""
    except ContextcError as error:
        return "", str(error)


def _difference(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=3)
    return [visible(line) for line in list(lines)[2:]] or ["(no line would be different)"]
