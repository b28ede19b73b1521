"""What a call would do, in words and line by line, as it is shown to whoever decides.

Of our own tools it is known what they do, and whether that would fail. What a provider's own tool does is told by the
shape of its arguments: a command, a file with a content or with texts that change places, changes with their
differences. Every other argument stands below, also an empty one; a call of no such shape is shown as it was written.
Nothing is left out: what cannot be seen is spelled out, and long runs of spaces and blank lines are counted.
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
"""The arguments of our own tools that the difference tells."""
PATHS, OLD, NEW = ("file_path", "path", "notebook_path"), ("old_string", "old"), ("new_string", "new")


class Deed(NamedTuple):
    """What would be done, how it looks, and which arguments say so."""

    what: str
    lines: list[str]
    told: Iterable[str]


class Edit(NamedTuple):
    """A text that takes the place of another one, once or at every place."""

    old: str
    new: str
    everywhere: bool

    def of(self, text: str) -> str | None:
        """Return the text with this edit; None where the old text is not at exactly as many places as it must be."""
        places = text.count(self.old) if self.old else 0
        fits = places > 0 if self.everywhere else places == 1
        return text.replace(self.old, self.new) if fits and len(text) <= LARGEST else None


def described(call: ToolCall, root: Path) -> tuple[str, list[str]]:
    """What a call would do, in words and line by line."""
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


# ── our own tools ─────────────────────────────────────────────────────────────────────────────────────────────────────


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
        note = f"the old text is there {places} times"
    if note or len(before) > LARGEST:
        return _failing(note) + _exchanged(old, new)
    return _difference(before, before.replace(old, new))


def _replaced(path: str, given: JSONObject, root: Path) -> list[str]:
    before, _ = _content(path, root)
    note = "the file is there already" if before and not given.get("overwrite") else ""
    return _failing(note) + _difference(before, str(given.get("content", "")))


def _failing(note: str) -> list[str]:
    return [f"(it would fail: {visible_line(note)})"] if note else []


# ── a provider's own ──────────────────────────────────────────────────────────────────────────────────────────────────


def _command(given: JSONObject, root: Path) -> Deed | None:
    command, where = given.get("command"), given.get("cwd")
    if isinstance(command, list):
        command = shlex.join(str(word) for word in cast(list[JSON], command))
    if not isinstance(command, str):
        return None
    place, told = (visible_line(where), ("command", "cwd")) if isinstance(where, str) else (str(root), ("command",))
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
            return f"@ {visible_line(done)} {visible_line(path)}, which becomes {visible_line(new)}"
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
    """Return what an edit says; None where it says more than that, or less."""
    edit = cast(JSONObject, given) if isinstance(given, dict) else {}
    old, new = ([name for name in names if isinstance(edit.get(name), str)] for names in (OLD, NEW))
    everywhere = edit.get("replace_all", False)
    if len(old) != 1 or len(new) != 1 or {*edit} - {*old, *new, "replace_all"} or not isinstance(everywhere, bool):
        return None
    return Edit(cast(str, edit[old[0]]), cast(str, edit[new[0]]), everywhere)


def _apart(edits: list[Edit]) -> list[str]:
    """Each edit by itself, whole: both texts, and whether it is for every place."""
    lines: list[str] = []
    for number, edit in enumerate(edits, 1):
        if len(edits) > 1 or edit.everywhere:
            where = ", at every place" if edit.everywhere else ""
            lines.append(f"@ edit {number} of {len(edits)}{where}")
        lines += _exchanged(edit.old, edit.new)
    return lines


def _exchanged(old: str, new: str) -> list[str]:
    """Both texts, whole, as a difference."""
    if old == new:
        return ["(the new text is the old one)", *[f" {line}" for line in visible(old).split("\n")]]
    return _difference(old, new, context=LARGEST)


def _written(value: JSON) -> str:
    return visible_line(value if isinstance(value, str) else encode(value).decode())


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _content(path: str, root: Path) -> tuple[str, str]:
    """What is in a file, and why that is not known."""
    try:
        return Folder(root).text(path)[1].replace("\r\n", "\n"), ""
    except ContextcError as error:
        return "", str(error)


def _difference(before: str, after: str, context: int = 3) -> list[str]:
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=context)
    return [visible(line) for line in list(lines)[2:]] or ["(no line would be different)"]
