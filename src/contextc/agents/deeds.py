"""Preview of a tool call for approval: a title, and the effect line by line.

The effect of the built-in tools is known, including whether they would fail. The effect of a provider's own tool is
inferred from its arguments: a command, a file with new content or with replacements, changes with diffs. All other
arguments follow, also empty ones. A call of any other shape is shown as JSON. Nothing is omitted: invisible characters
are spelled out, and long runs of spaces and blank lines are counted.
"""

import difflib
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from contextc._json import JSON, JSONObject, encode
from contextc.agents.words import counted, visible, visible_line
from contextc.errors import ContextcError
from contextc.messages import ToolCall
from contextc.toolbox.builtin.folder import Folder

LARGEST = 1_000_000
OURS = ("run_command", "edit_file", "write_file")
OWN = {"edit_file": ("path", "old", "new", "replace_all"), "write_file": ("path", "content", "overwrite")}
"""The arguments of the built-in tools that the diff covers."""
PATHS, OLD, NEW = ("file_path", "path", "notebook_path"), ("old_string", "old"), ("new_string", "new")


class Deed(NamedTuple):
    """The title and the lines of a preview, and the arguments that they cover."""

    what: str
    lines: list[str]
    told: Iterable[str]


class Edit(NamedTuple):
    """A replacement of one text by another, once or at every occurrence."""

    old: str
    new: str
    everywhere: bool

    def of(self, text: str) -> str | None:
        """Return the edited text; None if the old text does not occur exactly once, or at all with `everywhere`."""
        places = text.count(self.old) if self.old else 0
        fits = places > 0 if self.everywhere else places == 1
        return text.replace(self.old, self.new) if fits and len(text) <= LARGEST else None


def described(call: ToolCall, root: Path) -> tuple[str, list[str]]:
    """Return the title and the lines of a call's preview."""
    given = call.arguments
    if call.name in OURS:
        deed, lead = _ours(call.name, given, root), ""
    else:
        deed, lead = _command(given, root) or _changes(given) or _file(given, root), f"{visible_line(call.name)}: "
    if deed is None:
        shown = msgspec.json.format(encode(given), indent=2).decode()
        return f"{visible_line(call.name)}, with these arguments", counted(visible(shown).split("\n"))
    rest = [(name, value) for name, value in given.items() if name not in deed.told]
    more = [f"({visible_line(name)}: {_written(value)})" for name, value in rest]
    return f"{lead}{deed.what}", [*counted(deed.lines), *more]


# ── built-in tools ────────────────────────────────────────────────────────────────────────────────────────────────────


def _ours(name: str, given: JSONObject, root: Path) -> Deed | None:
    command, path = given.get("command"), given.get("path")
    if name == "run_command" and isinstance(command, str):
        return Deed(f"run a command in {root}", visible(command).split("\n"), ("command",))
    if name == "run_command" or not isinstance(path, str):
        return None
    lines = _edited(path, given, root) if name == "edit_file" else _replaced(path, given, root)
    return Deed(f"{'change' if name == 'edit_file' else 'write'} {visible_line(path)}", lines, OWN[name])


def _edited(path: str, given: JSONObject, root: Path) -> list[str]:
    old, new = str(given.get("old", "")), str(given.get("new", ""))
    before, note = _content(path, root)
    places = before.count(old) if old else 0
    if not note and places != 1 and not (places and given.get("replace_all")):
        note = f"the old text occurs {places} times"
    if note or len(before) > LARGEST:
        return _failing(note) + _exchanged(old, new)
    return _difference(before, before.replace(old, new))


def _replaced(path: str, given: JSONObject, root: Path) -> list[str]:
    before, _ = _content(path, root)
    note = "the file already exists" if before and not given.get("overwrite") else ""
    return _failing(note) + _difference(before, str(given.get("content", "")))


def _failing(note: str) -> list[str]:
    return [f"(it would fail: {visible_line(note)})"] if note else []


# ── tools of a provider ───────────────────────────────────────────────────────────────────────────────────────────────


def _command(given: JSONObject, root: Path) -> Deed | None:
    command, where = given.get("command"), given.get("cwd")
    if isinstance(command, list):
        command = shlex.join(str(word) for word in cast(list[JSON], command))
    if not isinstance(command, str):
        return None
    place, told = (visible_line(where), ("command", "cwd")) if isinstance(where, str) else (str(root), ("command",))
    return Deed(f"run a command in {place}", visible(command).split("\n"), told)


def _changes(given: JSONObject) -> Deed | None:
    """Return the preview of changes to several files, each with its diff."""
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
    """Return the line about one file: its change, and its new name if it is moved."""
    match kind:
        case {"type": str(done), "move_path": str(new)}:
            return f"@ {visible_line(done)} {visible_line(path)}, moved to {visible_line(new)}"
        case {"type": str(done)} | str(done):
            return f"@ {visible_line(done)} {visible_line(path)}"
        case _:
            return f"@ {visible_line(path)}"


def _file(given: JSONObject, root: Path) -> Deed | None:
    place = next((name for name in PATHS if isinstance(given.get(name), str)), None)
    if place is None:
        return None
    path = cast(str, given[place])
    before, content = _content(path, root)[0], given.get("content")
    if isinstance(content, str):
        return Deed(f"write {visible_line(path)}", _difference(before, content), (place, "content"))
    edits, told = given.get("edits"), ("edits",)
    if not isinstance(edits, list):
        told = tuple(name for name in given if name in (*OLD, *NEW, "replace_all"))
        edits = [{name: given[name] for name in told}]
    found = [_edit(each) for each in cast(list[JSON], edits)]
    whole = [edit for edit in found if edit is not None]
    if not whole or len(whole) < len(found):
        return None
    after = whole[0].of(before) if len(whole) == 1 else None
    lines = _apart(whole) if after is None else _difference(before, after)
    return Deed(f"change {visible_line(path)}", lines, (place, *told))


def _edit(given: JSON) -> Edit | None:
    """Return an edit; None if its arguments are not exactly those of an edit."""
    edit = cast(JSONObject, given) if isinstance(given, dict) else {}
    old, new = ([name for name in names if isinstance(edit.get(name), str)] for names in (OLD, NEW))
    everywhere = edit.get("replace_all", False)
    if len(old) != 1 or len(new) != 1 or {*edit} - {*old, *new, "replace_all"} or not isinstance(everywhere, bool):
        return None
    return Edit(cast(str, edit[old[0]]), cast(str, edit[new[0]]), everywhere)


def _apart(edits: list[Edit]) -> list[str]:
    """Return the lines of each edit separately: both texts, and whether it applies to every occurrence."""
    lines: list[str] = []
    for number, edit in enumerate(edits, 1):
        if len(edits) > 1 or edit.everywhere:
            where = ", every occurrence" if edit.everywhere else ""
            lines.append(f"@ edit {number} of {len(edits)}{where}")
        lines += _exchanged(edit.old, edit.new)
    return lines


def _exchanged(old: str, new: str) -> list[str]:
    """Return both texts in full, as a diff."""
    if old == new:
        return ["(the new text equals the old one)", *[f" {line}" for line in visible(old).split("\n")]]
    return _difference(old, new, context=LARGEST)


def _written(value: JSON) -> str:
    return visible_line(value if isinstance(value, str) else encode(value).decode())


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _content(path: str, root: Path) -> tuple[str, str]:
    """Return the content of a file, or an empty text and the reason why it cannot be read."""
    try:
        return Folder(root).text(path)[1].replace("\r\n", "\n"), ""
    except ContextcError as error:
        return "", str(error)


def _difference(before: str, after: str, context: int = 3) -> list[str]:
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=context)
    return [visible(line) for line in list(lines)[2:]] or ["(no line would change)"]
