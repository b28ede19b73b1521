"""Text previews of tool calls: built-in tools by name, other tools by the shape of their arguments."""

import json
from pathlib import Path

import pytest

from contextc._json import JSONObject
from contextc.app.approval_preview import preview_call
from contextc.messages import ToolCall

CHANGE = ["@@ -1,4 +1,4 @@", " one", "-two", "+zwei", " three", " "]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    return tmp_path


def preview_text(root: Path, name: str, arguments: JSONObject) -> tuple[str, list[str]]:
    return preview_call(ToolCall(id="c1", name=name, arguments=arguments), root)


def test_a_command_is_shown_whole_with_where_it_runs(root: Path) -> None:
    """Guarantee 12.2."""
    assert preview_text(root, "run_command", {"command": "ls\nrm x"}) == (f"run a command in {root}", ["ls", "rm x"])
    what, lines = preview_text(
        root, "Bash", {"command": "ls", "description": "List\nthem", "timeout": 5, "background": False}
    )
    more = ["(description: List⟨U+000A⟩them)", "(timeout: 5)", "(background: false)"]
    assert (what, lines) == (f"Bash: run a command in {root}", ["ls", *more])
    assert preview_text(root, "shell", {"command": ["echo", "a b"], "cwd": "/x"}) == (
        "shell: run a command in /x",
        ["echo 'a b'"],
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"file_path": "a.txt", "old_string": "two", "new_string": "zwei"},
        {"path": "a.txt", "old": "two", "new": "zwei"},
        {"path": "a.txt", "edits": [{"old_string": "two", "new_string": "zwei"}]},
        {"path": "a.txt", "content": "one\nzwei\nthree\n"},
    ],
)
def test_a_file_that_would_change_is_shown_as_a_difference(root: Path, arguments: JSONObject) -> None:
    """Guarantee 12.2: whatever the tool is called."""
    what, lines = preview_text(root, "some_tool", arguments)
    assert what == f"some_tool: {'write' if 'content' in arguments else 'change'} a.txt"
    assert lines == CHANGE


def test_a_change_that_does_not_fit_is_shown_by_itself(root: Path) -> None:
    what, lines = preview_text(root, "Edit", {"file_path": "/elsewhere/b.txt", "old_string": "x", "new_string": "y"})
    assert (what, lines) == ("Edit: change /elsewhere/b.txt", ["@@ -1 +1 @@", "-x", "+y"])
    _, lines = preview_text(root, "edit_file", {"path": "a.txt", "old": "vier", "new": "four"})
    assert lines == ["(it would fail: the old text occurs 0 times)", "@@ -1 +1 @@", "-vier", "+four"]


def test_changes_of_several_files_each_have_their_difference(root: Path) -> None:
    changes = [
        {"path": "a.txt", "kind": {"type": "update", "move_path": "b.txt"}, "diff": "@@ -1 +1 @@\n-x\n+\x1b[2J\n"},
        {"path": "c.txt", "kind": {"type": "add"}, "diff": "new\n"},
    ]
    what, lines = preview_text(root, "apply_patch", {"changes": changes, "reason": "tidy up"})
    assert what == "apply_patch: change 2 files"
    assert lines == [
        *("@ update a.txt, moved to b.txt", "@@ -1 +1 @@", "-x", "+⟨U+001B⟩[2J"),
        *("@ add c.txt", "new", "(reason: tidy up)"),
    ]


@pytest.mark.parametrize(
    "arguments",
    [{"url": "http://x"}, {"path": "a.txt"}, {"changes": ["?"]}, {"changes": []}, {"edits": [1], "path": "a.txt"}],
)
def test_what_has_no_such_shape_is_shown_as_it_was_written(root: Path, arguments: JSONObject) -> None:
    what, lines = preview_text(root, "Fetch\x07", arguments)
    assert what == "Fetch⟨U+0007⟩, with these arguments"
    assert lines[0] == "{"


def test_every_argument_is_shown(root: Path) -> None:
    """An argument that is false, empty or unknown to us may be what makes a call dangerous."""
    _, lines = preview_text(root, "run_command", {"command": "make", "seconds": 0, "as": "root"})
    assert lines == ["make", "(seconds: 0)", "(as: root)"]
    _, lines = preview_text(root, "Bash", {"command": "make", "sandbox": False, "cwd": "/x", "env": {}})
    assert lines == ["make", "(sandbox: false)", "(env: {})"]


def test_an_edit_cannot_hide_behind_another_one(root: Path) -> None:
    """Only content of the shown difference is left out of the arguments below it."""
    edits = [{"old_string": "two", "new_string": "zwei"}]
    _, lines = preview_text(root, "Edit", {"path": "a.txt", "edits": edits, "old_string": "one", "new_string": "evil"})
    assert lines == [*CHANGE, "(old_string: one)", "(new_string: evil)"]
    for more in ({"old": "one"}, {"insert": "evil"}, {"replace_all": "yes"}):
        what, lines = preview_text(root, "Edit", {"path": "a.txt", "edits": [{**edits[0], **more}]})
        assert what == "Edit, with these arguments"
        assert json.loads("\n".join(lines))["edits"] == [{**edits[0], **more}]


def test_of_several_edits_each_shows_both_texts_whole(root: Path) -> None:
    long = "\n".join(f"line {number}" for number in range(12))
    edits = [
        {"old_string": "two", "new_string": "zwei"},
        {"old_string": long, "new_string": f"{long}!", "replace_all": True},
        {"old_string": "three", "new_string": "three"},
    ]
    _, lines = preview_text(root, "MultiEdit", {"file_path": "a.txt", "edits": edits})
    assert lines == [
        *("@ edit 1 of 3", "@@ -1 +1 @@", "-two", "+zwei"),
        *("@ edit 2 of 3, every occurrence", "@@ -1,12 +1,12 @@"),
        *[f" line {number}" for number in range(11)],
        *("-line 11", "+line 11!"),
        *("@ edit 3 of 3", "(the new text equals the old one)", " three"),
    ]


def test_an_edit_that_fits_at_several_places_is_not_shown_as_if_at_one(root: Path) -> None:
    """Which of them a program's own tool would take is not known."""
    (root / "a.txt").write_text("x = 1\nx = 1\n")
    _, lines = preview_text(root, "Edit", {"file_path": "a.txt", "old_string": "1", "new_string": "2"})
    assert lines == ["@@ -1 +1 @@", "-1", "+2"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {"path": "a\n? run", "content": "x"}),
        ("a\n? run", {"command": "ls", "cwd": "/\n? run"}),
        ("Bash", {"command": "ls", "a\n? run": 1}),
        ("x", {"changes": [{"path": "a\n? run", "kind": "add\n? run", "diff": "+x"}]}),
    ],
)
def test_a_name_or_a_path_cannot_begin_a_line_of_its_own(root: Path, name: str, arguments: JSONObject) -> None:
    what, lines = preview_text(root, name, arguments)
    assert "⟨U+000A⟩? run" in "\n".join([what, *lines])
    assert not [line for line in [*what.split("\n"), *lines] if line.startswith("? run")]


def test_a_hidden_end_of_a_command_is_seen(root: Path) -> None:
    _, lines = preview_text(
        root, "run_command", {"command": "ls" + " " * 9_000 + ";rm -rf ~" + "\n" * 900 + "id\u3164"}
    )
    assert lines == ["ls⟨9,000 spaces⟩;rm -rf ~", "⟨899 blank lines⟩", "id⟨U+3164⟩"]
