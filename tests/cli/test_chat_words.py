"""The parts of `contextc chat` that are only about words: what is printed, what is asked, what a line means."""

from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.agents.words import clean, visible
from contextc.cli.chat.approval import described
from contextc.cli.chat.commands import COMMANDS, parse
from contextc.cli.chat.gauge import gauge
from contextc.cli.chat.words import call_line, folded, short


@pytest.mark.parametrize(
    ("text", "read", "decided"),
    [
        ("plain\nwords", "plain\nwords", "plain\nwords"),
        ("\x1b[31mred", "\ufffd[31mred", r"\x1b[31mred"),
        ("a\r\nb\tc\rd", "a\nb    c\ufffdd", r"a\x0d" + "\n" + r"b\x09c\x0dd"),
        ("\u202e\U000e0041", "\ufffd\ufffd", r"\u202e\U000e0041"),
        ("\ud83d", "\ufffd", r"\ud83d"),
        ("[red]日本[/]", "[red]日本[/]", "[red]日本[/]"),
    ],
)
def test_what_cannot_be_printed_is_marked_or_spelled_out(text: str, read: str, decided: str) -> None:
    assert (clean(text), visible(text)) == (read, decided)


def test_a_line_is_cut_and_broken_by_the_room_it_takes() -> None:
    assert short("one\n two", 20) == "one two"
    assert short("日本語の文字", 7) == "日本語…"
    assert folded("日本語の文字\n\nx", 8) == ["日本語の", "文字", "", "x"]


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("", "look()"),
        ('{"path": "a.py", "limit": 3}', 'look(path="a.py", limit=3)'),
        ('{"path": "a', 'look({"path": "a)'),
    ],
)
def test_a_call_is_one_line(written: str, line: str) -> None:
    assert call_line("look", written) == line


def test_the_gauge_reads_without_colours() -> None:
    usage = cc.Usage(input=12_000, output=345, cache_read=11_000)
    assert gauge(12_345, 24_690, usage=usage, cost=0.0123, more="3 steps").plain == (
        "██████████░░░░░░░░░░ context 50% · 12,345 of 24,690 tokens · 12,000 in (11,000 cached), 345 out · $0.0123 · "
        "3 steps"
    )
    assert gauge(1, 1_000_000).plain.startswith("█░")
    assert gauge(2_000, 1_000).plain.startswith("█" * 20 + " context 200%")


@pytest.mark.parametrize(
    ("line", "given"),
    [("/model x:y", "x:y"), ("  /quit ", ""), ("/fork  a b", "a b"), ("/todos", "")],
)
def test_a_line_with_a_slash_is_a_command(line: str, given: str) -> None:
    command = parse(line)
    assert command is not None
    assert (command.run, command.given) == (COMMANDS[line.split()[0].strip("/")].run, given)


@pytest.mark.parametrize("line", ["hello", "/etc/hosts", "a /quit", "/Users/me is my home", "/2 + 1"])
def test_other_lines_are_for_the_model(line: str) -> None:
    assert parse(line) is None


def asks(folder: Path, name: str, arguments: JSONObject) -> list[str]:
    return described(cc.ToolCall(id="c1", name=name, arguments=arguments), folder)[1]


def test_what_is_asked_about_is_what_would_be_done(tmp_path: Path) -> None:
    """A command as it is; a change as a difference, with the reason where it would fail."""
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    assert asks(tmp_path, "run_command", {"command": "a\n b"}) == ["a", " b"]
    changed = asks(tmp_path, "edit_file", {"path": "a.txt", "old": "two", "new": "2"})
    assert changed == ["@@ -1,3 +1,3 @@", " one", "-two", "+2", " "]
    assert asks(tmp_path, "edit_file", {"path": "a.txt", "old": "three", "new": "3"}) == [
        "(it would fail: the old text is there 0 times)",
        "@@ -1 +1 @@",
        "-three",
        "+3",
    ]
    assert asks(tmp_path, "edit_file", {"path": "../x", "old": "a", "new": "b"})[0].startswith("(it would fail: ../x")
    assert asks(tmp_path, "write_file", {"path": "b.txt", "content": "new\n"}) == ["@@ -1 +1,2 @@", "+new", " "]
    assert asks(tmp_path, "write_file", {"path": "a.txt", "content": "new"})[0].startswith("(it would fail: the file")
    whole = asks(tmp_path, "write_file", {"path": "a.txt", "content": "one\ntwo\n3\n", "overwrite": True})
    assert whole == ["@@ -1,3 +1,4 @@", " one", " two", "+3", " "]


def test_arguments_of_the_wrong_kind_are_shown_as_they_are(tmp_path: Path) -> None:
    """A tool that is not built in, or a call that makes no sense, hides nothing either."""
    assert asks(tmp_path, "run_command", {"command": ["rm"]}) == ["{", '  "command": [', '    "rm"', "  ]", "}"]
    assert "\\u202e" in "\n".join(asks(tmp_path, "deploy", {"to": "\u202e"}))
