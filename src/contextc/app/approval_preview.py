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
from contextc.app.display_text import count_blank_lines, spell_out_invisible, spell_out_line
from contextc.errors import ContextcError
from contextc.messages import ToolCall
from contextc.tools.builtin.workspace import Workspace

MAX_CHARACTERS = 1_000_000
PREVIEWED_TOOLS = ("run_command", "edit_file", "write_file")
COVERED_ARGUMENTS = {"edit_file": ("path", "old", "new", "replace_all"), "write_file": ("path", "content", "overwrite")}
"""The arguments of the built-in tools that the diff covers."""
PATH_ARGUMENTS, OLD_ARGUMENTS, NEW_ARGUMENTS = (
    ("file_path", "path", "notebook_path"),
    ("old_string", "old"),
    ("new_string", "new"),
)


class CallPreview(NamedTuple):
    """The title and the lines of a preview, and the arguments that they cover."""

    title: str
    lines: list[str]
    covered: Iterable[str]


class TextReplacement(NamedTuple):
    """A replacement of one text by another, once or at every occurrence."""

    old: str
    new: str
    everywhere: bool

    def apply_to(self, text: str) -> str | None:
        """Return the edited text; None if the old text does not occur exactly once, or at all with `everywhere`."""
        places = text.count(self.old) if self.old else 0
        fits = places > 0 if self.everywhere else places == 1
        return text.replace(self.old, self.new) if fits and len(text) <= MAX_CHARACTERS else None


def preview_call(call: ToolCall, root: Path) -> tuple[str, list[str]]:
    """Return the title and the lines of a call's preview."""
    given = call.arguments
    if call.name in PREVIEWED_TOOLS:
        preview, lead = _preview_builtin(call.name, given, root), ""
    else:
        preview, lead = (
            _preview_command(given, root) or _preview_changes(given) or _preview_file(given, root),
            f"{spell_out_line(call.name)}: ",
        )
    if preview is None:
        shown = msgspec.json.format(encode(given), indent=2).decode()
        return f"{spell_out_line(call.name)}, with these arguments", count_blank_lines(
            spell_out_invisible(shown).split("\n")
        )
    rest = [(name, value) for name, value in given.items() if name not in preview.covered]
    more = [f"({spell_out_line(name)}: {_value_text(value)})" for name, value in rest]
    return f"{lead}{preview.title}", [*count_blank_lines(preview.lines), *more]


# ── built-in tools ────────────────────────────────────────────────────────────────────────────────────────────────────


def _preview_builtin(name: str, given: JSONObject, root: Path) -> CallPreview | None:
    command, path = given.get("command"), given.get("path")
    if name == "run_command" and isinstance(command, str):
        return CallPreview(f"run a command in {root}", spell_out_invisible(command).split("\n"), ("command",))
    if name == "run_command" or not isinstance(path, str):
        return None
    lines = _edit_lines(path, given, root) if name == "edit_file" else _write_lines(path, given, root)
    return CallPreview(
        f"{'change' if name == 'edit_file' else 'write'} {spell_out_line(path)}", lines, COVERED_ARGUMENTS[name]
    )


def _edit_lines(path: str, given: JSONObject, root: Path) -> list[str]:
    old, new = str(given.get("old", "")), str(given.get("new", ""))
    before, note = _read_file(path, root)
    places = before.count(old) if old else 0
    if not note and places != 1 and not (places and given.get("replace_all")):
        note = f"the old text occurs {places} times"
    if note or len(before) > MAX_CHARACTERS:
        return _failure_lines(note) + _replacement_lines(old, new)
    return _diff_lines(before, before.replace(old, new))


def _write_lines(path: str, given: JSONObject, root: Path) -> list[str]:
    before, _ = _read_file(path, root)
    note = "the file already exists" if before and not given.get("overwrite") else ""
    return _failure_lines(note) + _diff_lines(before, str(given.get("content", "")))


def _failure_lines(note: str) -> list[str]:
    return [f"(it would fail: {spell_out_line(note)})"] if note else []


# ── tools of a provider ───────────────────────────────────────────────────────────────────────────────────────────────


def _preview_command(given: JSONObject, root: Path) -> CallPreview | None:
    command, where = given.get("command"), given.get("cwd")
    if isinstance(command, list):
        command = shlex.join(str(argument) for argument in cast(list[JSON], command))
    if not isinstance(command, str):
        return None
    place, shown = (spell_out_line(where), ("command", "cwd")) if isinstance(where, str) else (str(root), ("command",))
    return CallPreview(f"run a command in {place}", spell_out_invisible(command).split("\n"), shown)


def _preview_changes(given: JSONObject) -> CallPreview | None:
    """Return the preview of changes to several files, each with its diff."""
    changes = given.get("changes")
    if not isinstance(changes, list) or not changes:
        return None
    lines: list[str] = []
    for change in cast(list[JSON], changes):
        match change:
            case {"path": str(path), "diff": str(difference), **rest}:
                lines += [
                    _change_line(path, rest.get("kind")),
                    *spell_out_invisible(difference.rstrip("\n")).split("\n"),
                ]
            case _:
                return None
    count = len(cast(list[JSON], changes))
    return CallPreview(f"change {count} files" if count > 1 else "change a file", lines, ("changes",))


def _change_line(path: str, kind: JSON) -> str:
    """Return the line about one file: its change, and its new name if it is moved."""
    match kind:
        case {"type": str(done), "move_path": str(new)}:
            return f"@ {spell_out_line(done)} {spell_out_line(path)}, moved to {spell_out_line(new)}"
        case {"type": str(done)} | str(done):
            return f"@ {spell_out_line(done)} {spell_out_line(path)}"
        case _:
            return f"@ {spell_out_line(path)}"


def _preview_file(given: JSONObject, root: Path) -> CallPreview | None:
    place = next((name for name in PATH_ARGUMENTS if isinstance(given.get(name), str)), None)
    if place is None:
        return None
    path = cast(str, given[place])
    before, content = _read_file(path, root)[0], given.get("content")
    if isinstance(content, str):
        return CallPreview(f"write {spell_out_line(path)}", _diff_lines(before, content), (place, "content"))
    edits, shown = given.get("edits"), ("edits",)
    if not isinstance(edits, list):
        shown = tuple(name for name in given if name in (*OLD_ARGUMENTS, *NEW_ARGUMENTS, "replace_all"))
        edits = [{name: given[name] for name in shown}]
    found = [_parse_edit(each) for each in cast(list[JSON], edits)]
    whole = [edit for edit in found if edit is not None]
    if not whole or len(whole) < len(found):
        return None
    after = whole[0].apply_to(before) if len(whole) == 1 else None
    lines = _separate_edit_lines(whole) if after is None else _diff_lines(before, after)
    return CallPreview(f"change {spell_out_line(path)}", lines, (place, *shown))


def _parse_edit(given: JSON) -> TextReplacement | None:
    """Return an edit; None if its arguments are not exactly those of an edit."""
    edit = cast(JSONObject, given) if isinstance(given, dict) else {}
    old, new = ([name for name in names if isinstance(edit.get(name), str)] for names in (OLD_ARGUMENTS, NEW_ARGUMENTS))
    everywhere = edit.get("replace_all", False)
    if len(old) != 1 or len(new) != 1 or {*edit} - {*old, *new, "replace_all"} or not isinstance(everywhere, bool):
        return None
    return TextReplacement(cast(str, edit[old[0]]), cast(str, edit[new[0]]), everywhere)


def _separate_edit_lines(edits: list[TextReplacement]) -> list[str]:
    """Return the lines of each edit separately: both texts, and whether it applies to every occurrence."""
    lines: list[str] = []
    for number, edit in enumerate(edits, 1):
        if len(edits) > 1 or edit.everywhere:
            where = ", every occurrence" if edit.everywhere else ""
            lines.append(f"@ edit {number} of {len(edits)}{where}")
        lines += _replacement_lines(edit.old, edit.new)
    return lines


def _replacement_lines(old: str, new: str) -> list[str]:
    """Return both texts in full, as a diff."""
    if old == new:
        return ["(the new text equals the old one)", *[f" {line}" for line in spell_out_invisible(old).split("\n")]]
    return _diff_lines(old, new, context=MAX_CHARACTERS)


def _value_text(value: JSON) -> str:
    return spell_out_line(value if isinstance(value, str) else encode(value).decode())


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_file(path: str, root: Path) -> tuple[str, str]:
    """Return the content of a file, or an empty text and the reason why it cannot be read."""
    try:
        return Workspace(root).read_text(path)[1].replace("\r\n", "\n"), ""
    except ContextcError as error:
        return "", str(error)


def _diff_lines(before: str, after: str, context: int = 3) -> list[str]:
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=context)
    return [spell_out_invisible(line) for line in list(lines)[2:]] or ["(no line would change)"]
