"""Text functions of `contextc chat`: printed output, prompts and the parsing of input lines."""

from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.app.display_text import count_blank_lines, sanitize, spell_out_invisible, spell_out_line
from contextc.cli.chat.session import SLASH_COMMANDS, parse_command
from contextc.cli.chat.terminal import format_call, preview_call, render_meter, wrap_lines
from contextc.cli.console import to_one_line


@pytest.mark.parametrize(
    ("text", "read", "decided"),
    [
        ("plain\nwords", "plain\nwords", "plain\nwords"),
        ("\x1b[31mred", "\ufffd[31mred", "⟨U+001B⟩[31mred"),
        ("a\r\nb\tc\rd", "a\nb    c\ufffdd", "a⟨U+000D⟩\nb⟨U+0009⟩c⟨U+000D⟩d"),
        ("\u202e\U000e0041", "\ufffd\ufffd", "⟨U+202E⟩⟨U+E0041⟩"),
        ("\ud83d", "\ufffd", "⟨U+D83D⟩"),
        ("[red]日本[/]", "[red]日本[/]", "[red]日本[/]"),
        ("⟨U+0020⟩", "⟨U+0020⟩", "⟨U+27E8⟩U+0020⟩"),
    ],
)
def test_what_cannot_be_printed_is_marked_or_spelled_out(text: str, read: str, decided: str) -> None:
    assert (sanitize(text), spell_out_invisible(text)) == (read, decided)


INVISIBLE = (
    *("\u00ad", "\u034f", "\u061c", "\u115f", "\u1160", "\u17b4", "\u17b5", "\u180b", "\u180e", "\u200b", "\u200d"),
    *("\u200f", "\u2028", "\u202e", "\u2060", "\u2066", "\u2800", "\u3000", "\u3164", "\ufe00", "\ufe0f", "\ufeff"),
    *("\uffa0", "\ufffc", "\u00a0", "\U0001d159", "\U0001d173", "\U000e0001", "\U000e0100", "\U000e01ef"),
)


@pytest.mark.parametrize("character", INVISIBLE, ids=ascii)
def test_no_character_without_ink_is_shown_as_it_is(character: str) -> None:
    """A filler, a variation selector or a direction mark could hide a part of the shown action."""
    assert spell_out_invisible(f"ls{character}x") == f"ls⟨U+{ord(character):04X}⟩x"


def test_what_unicode_lets_a_renderer_ignore_is_spelled_out() -> None:
    """Every character with the property Default_Ignorable_Code_Point, assigned or not."""
    ranges = ((0x2060, 0x206F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF))
    ignorable = [chr(number) for first, last in ranges for number in range(first, last + 1)]
    assert [each for each in ignorable if spell_out_invisible(each) == each] == []


def test_long_runs_of_blanks_are_counted() -> None:
    """Otherwise the end of a command is outside of the visible area: far to the right, or far below."""
    assert spell_out_invisible("ls" + " " * 5_000 + "; rm -rf ~") == "ls⟨5,000 spaces⟩; rm -rf ~"
    assert spell_out_invisible("    if x:") == "    if x:"
    assert count_blank_lines(["ls", *[" "] * 300, "rm -rf ~"]) == ["ls", "⟨300 blank lines⟩", "rm -rf ~"]
    assert count_blank_lines(["+a", "+", "+", "+  ", "+", "", "+b"]) == ["+a", "+⟨4 blank lines⟩", "", "+b"]
    assert spell_out_line("a\nb") == "a⟨U+000A⟩b"


def test_a_line_is_cut_and_broken_by_the_room_it_takes() -> None:
    assert to_one_line("one\n two", 20) == "one two"
    assert to_one_line("日本語の文字", 7) == "日本語…"
    assert wrap_lines("日本語の文字\n\nx", 8) == ["日本語の", "文字", "", "x"]


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("", "look()"),
        ('{"path": "a.py", "limit": 3}', 'look(path="a.py", limit=3)'),
        ('{"path": "a', 'look({"path": "a)'),
    ],
)
def test_a_call_is_one_line(written: str, line: str) -> None:
    assert format_call("look", written) == line


def test_the_gauge_reads_without_colours() -> None:
    usage = cc.Usage(input=12_000, output=345, cache_read=11_000)
    assert render_meter(12_345, 24_690, usage=usage, cost=0.0123, suffix="3 steps").plain == (
        "██████████░░░░░░░░░░ context 50% · 12,345 of 24,690 tokens · 12,000 in (11,000 cached), 345 out · $0.0123 · "
        "3 steps"
    )
    assert render_meter(1, 1_000_000).plain.startswith("█░")
    assert render_meter(2_000, 1_000).plain.startswith("█" * 20 + " context 200%")


@pytest.mark.parametrize(
    ("line", "given"),
    [("/model x:y", "x:y"), ("  /quit ", ""), ("/fork  a b", "a b"), ("/todos", "")],
)
def test_a_line_with_a_slash_is_a_command(line: str, given: str) -> None:
    command = parse_command(line)
    assert command is not None
    assert (command.run, command.argument) == (SLASH_COMMANDS[line.split()[0].strip("/")].run, given)


@pytest.mark.parametrize("line", ["hello", "/etc/hosts", "a /quit", "/Users/me is my home", "/2 + 1"])
def test_other_lines_are_for_the_model(line: str) -> None:
    assert parse_command(line) is None


def asks(folder: Path, name: str, arguments: JSONObject) -> list[str]:
    return preview_call(cc.ToolCall(id="c1", name=name, arguments=arguments), folder)[1]


def test_the_approval_question_shows_the_action(tmp_path: Path) -> None:
    """A command as it is; a change as a difference, with the reason where it would fail."""
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    assert asks(tmp_path, "run_command", {"command": "a\n b"}) == ["a", " b"]
    changed = asks(tmp_path, "edit_file", {"path": "a.txt", "old": "two", "new": "2"})
    assert changed == ["@@ -1,3 +1,3 @@", " one", "-two", "+2", " "]
    assert asks(tmp_path, "edit_file", {"path": "a.txt", "old": "three", "new": "3"}) == [
        "(it would fail: the old text occurs 0 times)",
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
    assert "⟨U+202E⟩" in "\n".join(asks(tmp_path, "deploy", {"to": "\u202e"}))
