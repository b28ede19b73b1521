"""What a call would do, in words: our own tools by their names, everybody else's by the shape of their arguments."""

from pathlib import Path

import pytest

from contextc._json import JSONObject
from contextc.agents.deeds import described
from contextc.messages import ToolCall

CHANGE = ["@@ -1,4 +1,4 @@", " one", "-two", "+zwei", " three", " "]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    return tmp_path


def told(root: Path, name: str, arguments: JSONObject) -> tuple[str, list[str]]:
    return described(ToolCall(id="c1", name=name, arguments=arguments), root)


def test_a_command_is_shown_whole_with_where_it_runs(root: Path) -> None:
    """SPEC 12.2."""
    assert told(root, "run_command", {"command": "ls\nrm x"}) == (f"run a command in {root}", ["ls", "rm x"])
    what, lines = told(root, "Bash", {"command": "ls", "description": "List\nthem", "timeout": 5, "background": False})
    assert (what, lines) == (f"Bash: run a command in {root}", ["ls", "(description: List\\nthem)", "(timeout: 5)"])
    assert told(root, "shell", {"command": ["echo", "a b"], "cwd": "/x"}) == (
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
    """SPEC 12.2: whatever the tool is called."""
    what, lines = told(root, "some_tool", arguments)
    assert what == f"some_tool: {'write' if 'content' in arguments else 'change'} a.txt"
    assert lines == CHANGE


def test_a_change_that_does_not_fit_is_shown_by_itself(root: Path) -> None:
    what, lines = told(root, "Edit", {"file_path": "/elsewhere/b.txt", "old_string": "x", "new_string": "y"})
    assert (what, lines) == ("Edit: change /elsewhere/b.txt", ["@@ -1 +1 @@", "-x", "+y"])
    _, lines = told(root, "edit_file", {"path": "a.txt", "old": "vier", "new": "four"})
    assert lines == ["(it would fail: the old text is there 0 times)", "@@ -1 +1 @@", "-vier", "+four"]


def test_changes_of_several_files_each_have_their_difference(root: Path) -> None:
    changes = [
        {"path": "a.txt", "kind": {"type": "update", "move_path": "b.txt"}, "diff": "@@ -1 +1 @@\n-x\n+\x1b[2J\n"},
        {"path": "c.txt", "kind": {"type": "add"}, "diff": "new\n"},
    ]
    what, lines = told(root, "apply_patch", {"changes": changes, "reason": "tidy up"})
    assert what == "apply_patch: change 2 files"
    assert lines == [
        *("@ update a.txt, which becomes b.txt", "@@ -1 +1 @@", "-x", "+\\x1b[2J"),
        *("@ add c.txt", "new", "(reason: tidy up)"),
    ]


@pytest.mark.parametrize(
    "arguments",
    [{"url": "http://x"}, {"path": "a.txt"}, {"changes": ["?"]}, {"changes": []}, {"edits": [1], "path": "a.txt"}],
)
def test_what_has_no_such_shape_is_shown_as_it_was_written(root: Path, arguments: JSONObject) -> None:
    what, lines = told(root, "Fetch\x07", arguments)
    assert what == "Fetch\\x07, with these arguments"
    assert lines[0] == "{"
