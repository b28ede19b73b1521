"""The file tools: what they read and write, and that no path leaves their folder."""

import asyncio
import errno
import os
import queue
import stat
import threading
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import contextc as cc
from contextc.errors import InvalidInput
from contextc.tools.builtin import file_tools
from contextc.tools.builtin.file_tools import make_search_files
from contextc.tools.builtin.search_worker import glob_pattern
from contextc.tools.builtin.workspace import Workspace
from tests.movable_clock import HOUR, MovableTime


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project, with a secret beside it."""
    (tmp_path / "secret.txt").write_text("the secret\n")
    root = tmp_path / "project"
    (root / "src/deep").mkdir(parents=True)
    (root / "src/main.py").write_text("import os\n\n\ndef main():\n    return 1\n")
    (root / "src/deep/page.ts").write_text("const one = 1\n")
    (root / "README.md").write_text("# Hello\n")
    (root / "node_modules").mkdir()
    (root / "node_modules/found.py").write_text("def main(): ...\n")
    (root / "picture.png").write_bytes(b"\x89PNG\0\0def main")
    return root


def use(root: Path, name: str, **arguments: object) -> cc.ToolResult:
    tools = {tool.name: tool for tool in file_tools(root)}
    return asyncio.run(tools[name].run(cc.ToolCall(id="c1", name=name, arguments=arguments)))


def fine(root: Path, name: str, **arguments: object) -> str:
    result = use(root, name, **arguments)
    assert not result.is_error, result.text
    return result.text


def refused(root: Path, name: str, **arguments: object) -> str:
    result = use(root, name, **arguments)
    assert result.is_error, result.text
    return result.text


def everything_below(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


ESCAPES = [
    "../secret.txt",
    "src/../../secret.txt",
    "{outside}/secret.txt",
    "link.txt",
    "folder/secret.txt",
    "chain/secret.txt",
    "src\0/main.py",
]


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leads_out_of_the_folder(project: Path, path: str) -> None:
    """Dots, absolute paths, links to files and folders, links to links, and NUL."""
    outside = project.parent
    (project / "link.txt").symlink_to(outside / "secret.txt")
    (project / "folder").symlink_to(outside)
    (project / "chain").symlink_to(project / "folder")
    path = path.format(outside=outside)
    before = everything_below(outside)
    answers = [
        refused(project, "read_file", path=path),
        refused(project, "edit_file", path=path, old="secret", new="x"),
        refused(project, "write_file", path=path, content="x"),
        refused(project, "write_file", path=path, content="x", overwrite=True),
        refused(project, "write_file", path=f"{path}.new", content="x") if "link" not in path else "NUL",
        refused(project, "list_files", path=path.removesuffix("/secret.txt")) if "/secret" in path else "NUL",
        refused(project, "search_files", path=path, pattern="secret"),
    ]
    for answer in answers:
        assert "is outside the folder you may work in. Give a path inside it" in answer or "NUL" in answer
        assert "the secret" not in answer
    assert everything_below(outside) == before


def test_a_private_file_with_a_name_outside_is_refused(project: Path) -> None:
    """A hard link cannot be followed like a symbolic one. Files that a package manager linked are still read."""
    (project.parent / "key").write_text("hunter2")
    (project.parent / "key").chmod(0o600)
    (project / "key").hardlink_to(project.parent / "key")
    assert "is a private file with another name" in refused(project, "read_file", path="key")
    assert "hunter2" not in use(project, "search_files", pattern="hunter").text
    (project.parent / "key").chmod(0o644)
    assert "hunter2" in use(project, "read_file", path="key").text
    assert "hunter2" in use(project, "search_files", pattern="hunter").text


def test_a_walk_does_not_follow_links(project: Path) -> None:
    (project / "out").symlink_to(project.parent)
    (project / "again").symlink_to(project)
    (project / "copy.txt").symlink_to(project.parent / "secret.txt")
    assert fine(project, "search_files", pattern="the secret") == "[No line matches the secret.]"
    assert fine(project, "list_files", pattern="*.txt") == "[No file matches *.txt.]"
    listed = fine(project, "list_files", depth=9)
    assert "out (a link)" in listed
    assert "secret" not in listed


def test_a_link_that_stays_inside_is_followed_and_stays_a_link(project: Path) -> None:
    (project / "here.py").symlink_to("src/main.py")
    assert fine(project, "edit_file", path="here.py", old="return 1", new="return 2").startswith("Replaced 1 place")
    assert (project / "here.py").is_symlink()
    assert "return 2" in (project / "src/main.py").read_text()


def test_a_link_to_itself_is_text(project: Path) -> None:
    (project / "loop").symlink_to("loop")
    for name, rest in (("read_file", {}), ("write_file", {"content": "x"}), ("list_files", {})):
        refused(project, name, path="loop", **rest)


def test_the_root_itself_may_be_a_link(project: Path) -> None:
    (project.parent / "short").symlink_to(project)
    assert "# Hello" in fine(project.parent / "short", "read_file", path="README.md")
    assert "# Hello" in fine(project.parent / "short", "read_file", path=str(project / "README.md"))


def test_reading_shows_numbered_lines_and_the_way_on(project: Path) -> None:
    assert fine(project, "read_file", path="src/main.py", offset=4, limit=1) == (
        "     4\tdef main():\n[Lines 4 to 4; 5 lines in all. Read on with offset 5.]"
    )
    assert fine(project, "read_file", path="src/main.py", offset=5) == "     5\t    return 1"
    beyond = refused(project, "read_file", path="src/main.py", offset=6)
    assert beyond == "src/main.py has 5 lines; there is no line 6. Use an offset from 1 to 5."
    (project / "empty").touch()
    assert fine(project, "read_file", path="empty") == "[empty is empty.]"


def test_what_is_read_has_a_limit_however_long_the_file_or_a_line_is(project: Path) -> None:
    (project / "long.txt").write_text("word " * 10 + "\n" + "x" * 3_000_000 + "\nlast\n")
    text = fine(project, "read_file", path="long.txt")
    assert len(text) < 3_000
    assert "characters more]\n     3\tlast" in text
    (project / "many.txt").write_text("".join(f"line {number} {'x' * 60}\n" for number in range(1, 20_001)))
    text = fine(project, "read_file", path="many.txt", limit=20_000)
    assert len(text) < 61_000
    assert "20,000 lines in all. Read on with offset " in text
    after = int(text.rpartition("offset ")[2].rstrip(".]"))
    assert fine(project, "read_file", path="many.txt", offset=after, limit=1).startswith(f"{after:>6}\tline {after} ")


def test_binary_files_are_refused_with_a_message(project: Path) -> None:
    assert refused(project, "read_file", path="picture.png") == (
        "picture.png is not text (14 bytes of binary data), so it cannot be read here."
    )
    assert refused(project, "read_file", path="src") == "src is a folder. Use list_files to see what is in it."
    assert refused(project, "read_file", path="READNE.md").endswith("Did you mean README.md?")
    os.mkfifo(project / "pipe")
    assert refused(project, "read_file", path="pipe") == "pipe is not a plain file, and is left alone."
    (project / "latin.txt").write_bytes("für".encode("latin-1"))
    assert "is not text in UTF-8" in refused(project, "edit_file", path="latin.txt", old="r", new="x")
    assert "f\ufffdr" in fine(project, "read_file", path="latin.txt")


def test_listing_is_a_tree_with_limits(project: Path) -> None:
    assert fine(project, "list_files") == (
        "node_modules/ (left out)\nsrc/\n  deep/\n    page.ts\n  main.py\nREADME.md\npicture.png"
    )
    assert fine(project, "list_files", depth=1, path="src") == (
        "deep/ …\nmain.py\n[A folder with … has more in it: list it by its path.]"
    )
    assert fine(project, "list_files", pattern="*.{py,ts}") == "src/main.py\nsrc/deep/page.ts"
    assert fine(project, "list_files", path="src", pattern="**/*.ts") == "src/deep/page.ts"
    (project / "big").mkdir()
    for number in range(700):
        (project / f"big/{number:03}.txt").touch()
    listed = fine(project, "list_files")
    assert len(listed.splitlines()) == 501
    assert "more entries. List one of the folders" in listed
    assert "[More than 500 files match." in fine(project, "list_files", pattern="*.txt")


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.py", "a/b/c.py", True),
        ("*.py", "a/b/c.pyc", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/a/b/c.py", True),
        ("src/**", "src/a/b", True),
        ("test_*_?.py", "test_a_b_c.py", True),
        ("test_*_?.py", "test_a_bc.py", False),
        ("*.{js,ts}", "a.ts", True),
        ("a.b", "axb", False),
        ("./a.py", "a.py", True),
    ],
)
def test_globs(glob: str, path: str, fits: bool) -> None:
    assert (glob_pattern(glob).fullmatch(path) is not None) is fits


def test_no_glob_takes_long(project: Path) -> None:
    started = time.monotonic()
    assert glob_pattern("*a" * 90 + "b").fullmatch("a" * 250) is None
    assert glob_pattern("**/a/**/a/**/a/**/b").fullmatch("a/" * 60 + "c") is None
    assert time.monotonic() - started < 30, "it grows exponentially"
    assert "too many" in refused(project, "list_files", pattern="**/" * 9)
    assert "too many" in refused(project, "search_files", pattern="a", glob="**/" * 9)


def test_searching_finds_lines(project: Path) -> None:
    assert fine(project, "search_files", pattern=r"^def \w+") == "src/main.py:4: def main():"
    assert fine(project, "search_files", pattern="HELLO", ignore_case=True) == "README.md:1: # Hello"
    assert fine(project, "search_files", pattern="1$", glob="*.ts") == "src/deep/page.ts:1: const one = 1"
    assert fine(project, "search_files", pattern="one", path="src/deep/page.ts") == "src/deep/page.ts:1: const one = 1"
    assert fine(project, "search_files", pattern="nowhere") == "[No line matches nowhere.]"
    assert refused(project, "search_files", pattern="(").startswith("The pattern is no regular expression: missing )")
    assert refused(project, "search_files", pattern="a", path="none").startswith("There is no none.")


def test_what_a_search_shows_has_a_limit(project: Path) -> None:
    (project / "many.txt").write_text("".join(f"needle {number}\n" for number in range(5_000)))
    (project / "wide.txt").write_text("x" * 10_000 + "thread" + "x" * 10_000)
    text = fine(project, "search_files", pattern="needle", limit=3)
    assert text.splitlines()[2:] == [
        "many.txt:3: needle 2",
        "[There are more than these 3 lines. Narrow the search with a path or a glob.]",
    ]
    text = fine(project, "search_files", pattern="thread")
    assert "thread" in text
    assert len(text) < 400


def test_a_slow_pattern_is_stopped_and_stops_no_other_call(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's `re` would hold every thread up; what was found before is not lost."""
    (project / "a.txt").write_text("aaaa!\n")
    (project / "b.txt").write_text("a" * 60 + "!\n")
    others_run = threading.Event()

    class Lines(queue.SimpleQueue[bytes]):
        """The time is over when a line was found, and others had their time, too."""

        was_found = False

        def get(self, block: bool = True, timeout: float | None = None) -> bytes:
            if self.was_found and others_run.is_set():
                clock.advance(HOUR)
            line = super().get(block, timeout)
            self.was_found = True
            return line

    module = import_module("contextc.tools.builtin.file_tools")  # the package exports a function of this name
    monkeypatch.setattr(module, "time", clock := MovableTime())
    monkeypatch.setattr(module, "queue", SimpleNamespace(SimpleQueue=Lines, Empty=queue.Empty))
    tool = make_search_files(Workspace(project), seconds=HOUR)

    async def run() -> cc.ToolResult:
        call = cc.ToolCall(id="c1", name="search_files", arguments={"pattern": "(a+)+$|^aaaa!$", "glob": "*.txt"})
        task = asyncio.create_task(tool.run(call))
        for _ in range(10):
            await asyncio.sleep(0.01)
            assert not task.done()
        others_run.set()
        return await task

    result = asyncio.run(run())
    assert result.text.startswith("a.txt:1: aaaa!\n[The search was not finished within 3600 seconds.")


def test_editing_replaces_one_exact_text(project: Path) -> None:
    path = project / "src/main.py"
    path.chmod(0o750)
    assert fine(project, "edit_file", path="src/main.py", old="    return 1", new="    return 2") == (
        "Replaced 1 place in src/main.py (line 5)."
    )
    assert path.read_text() == "import os\n\n\ndef main():\n    return 2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert sorted(os.listdir(project / "src")) == ["deep", "main.py"]


def test_an_edit_that_is_not_clear_changes_nothing_and_gives_the_reason(project: Path) -> None:
    (project / "twice.txt").write_text("one\ntwo\none\n")
    before = everything_below(project)
    assert refused(project, "edit_file", path="twice.txt", old="one", new="1") == (
        "The old text is in twice.txt 2 times (lines 1, 3). Nothing was changed. Take in more of the lines around the "
        "one you mean, or set replace_all."
    )
    assert "Its first line is there (line 4), but not what follows" in refused(
        project, "edit_file", path="src/main.py", old="def main():\n  return 1", new="x"
    )
    assert "without line numbers" in refused(project, "edit_file", path="src/main.py", old="     4\tdef", new="x")
    assert "are the same" in refused(project, "edit_file", path="twice.txt", old="two", new="two")
    assert "is empty" in refused(project, "edit_file", path="twice.txt", old="", new="x")
    assert everything_below(project) == before
    assert fine(project, "edit_file", path="twice.txt", old="one", new="1", replace_all=True).startswith("Replaced 2")
    assert (project / "twice.txt").read_text() == "1\ntwo\n1\n"


def test_line_ends_and_byte_order_marks_are_kept(project: Path) -> None:
    (project / "dos.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert fine(project, "read_file", path="dos.txt") == "     1\tone\n     2\ttwo"
    fine(project, "edit_file", path="dos.txt", old="one\ntwo", new="1\n2")
    assert (project / "dos.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n"


def test_writing_makes_new_files_and_replaces_only_on_request(project: Path) -> None:
    assert fine(project, "write_file", path="new/deep/a.txt", content="a\nb\n") == "Wrote new/deep/a.txt (2 lines)."
    assert (project / "new/deep/a.txt").read_text() == "a\nb\n"
    assert "is there already, and was left as it is" in refused(project, "write_file", path="README.md", content="x")
    assert (project / "README.md").read_text() == "# Hello\n"
    (project / "README.md").chmod(0o600)
    fine(project, "write_file", path="README.md", content="# Bye", overwrite=True)
    assert (project / "README.md").read_text() == "# Bye"
    assert stat.S_IMODE((project / "README.md").stat().st_mode) == 0o600
    assert "cannot be made: not a directory" in refused(project, "write_file", path="README.md/x/y", content="x")
    refused(project, "write_file", path="src", content="x", overwrite=True)
    assert not [name for name in everything_below(project) if name.endswith(".tmp")]


def test_what_git_would_run_is_never_written(project: Path) -> None:
    """A hook is code, and writing one would be running it."""
    (project / ".git/hooks").mkdir(parents=True)
    (project / ".git/config").write_text("[core]\n")
    (project / "hooks").symlink_to(".git/hooks")
    for path in (".git/hooks/pre-commit", "hooks/pre-commit", "src/../.git/x"):
        assert "belongs to git itself" in refused(project, "write_file", path=path, content="x")
    assert "belongs to git itself" in refused(project, "edit_file", path=".git/config", old="core", new="x")
    assert "[core]" in fine(project, "read_file", path=".git/config")


def test_only_reading_needs_no_approval(project: Path) -> None:
    assert [tool.name for tool in file_tools(project) if tool.approval] == ["edit_file", "write_file"]
    assert [tool.name for tool in file_tools(project) if not tool.parallel] == ["edit_file", "write_file"]
    assert not any(tool.approval for tool in file_tools(project, approval=False))


def test_a_root_that_is_not_a_folder_is_refused(project: Path) -> None:
    with pytest.raises(cc.errors.InvalidSetting, match="root must be an existing folder"):
        file_tools(project / "README.md")


def test_a_file_that_is_too_large_is_not_changed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contextc.tools.builtin.workspace.MAX_TEXT_BYTES", 5)
    with pytest.raises(InvalidInput, match=r"README.md has 8 bytes; files of up to 5 can be changed here\."):
        Workspace(project).read_text("README.md")


def test_a_file_that_cannot_be_read_gives_the_reason(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", fails)
    with pytest.raises(InvalidInput, match=r"README.md cannot be read: permission denied\."):
        Workspace(project).read_text("README.md")


def test_a_name_in_a_folder_that_is_not_there_has_no_suggestion(project: Path) -> None:
    assert refused(project, "read_file", path="nowhere/main.py").endswith("no such file or directory.")
    assert "Did you mean src/main.py?" in refused(project, "read_file", path="src/mian.py")


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_never_replaces_another(project: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    """Also in a file system without hard links; nothing else is left in the folder."""
    if not links:

        def no_links(source: Path, target: Path) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", no_links)
    space, before = Workspace(project), everything_below(project)
    with pytest.raises(InvalidInput, match=r"README.md is there already, and was left as it is\."):
        space.write_text(project / "README.md", "other", new=True)
    assert everything_below(project) == before
    space.write_text(project / "new.txt", "text", new=True)
    assert (project / "new.txt").read_text() == "text"
    assert len(everything_below(project)) == len(before) + 1


def test_a_full_disk_leaves_the_file_as_it_was(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = everything_below(project)
    monkeypatch.setattr(os, "fsync", full)
    for new in (True, False):
        with pytest.raises(InvalidInput, match=r"cannot be written: no space left on device\."):
            Workspace(project).write_text(project / ("new.txt" if new else "README.md"), "other", new=new)
    assert everything_below(project) == before


def test_a_link_that_fails_for_another_reason_is_reported(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(source: Path, target: Path) -> None:
        raise OSError(errno.EMLINK, "Too many links")

    monkeypatch.setattr(os, "link", too_many)
    with pytest.raises(InvalidInput, match=r"new.txt cannot be written: too many links\."):
        Workspace(project).write_text(project / "new.txt", "text", new=True)
    assert not (project / "new.txt").exists()
