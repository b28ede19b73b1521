"""Transcripts of Claude Code: its own are read as conversations, and it reads ours."""

import json
from uuid import UUID

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.base import OPENING_TEXT
from contextc.formats.claude_code import split_history_and_prompt, transcript_entries
from tests.formats.claude_code_samples import (
    FORM,
    TRANSCRIPTS,
    assistant,
    outline,
    result,
    sample,
    text,
    use,
    user,
)

SESSION = "6f1d9a52-7a1c-4c0e-9a86-0d4c6f1b2e3a"


def read(lines: list[JSONObject]) -> list[str]:
    return outline(list(FORM.decode_request(lines).messages))


def test_a_reply_is_one_message_though_it_has_a_line_a_block() -> None:
    """Guarantee 10.2: with its usage and how it ended."""
    messages = FORM.decode_request(sample("transcript-resumed")).messages
    assert outline(list(messages)) == [
        "user: What is in a.txt?",
        "assistant thinks: A file.",
        "assistant: I will look.",
        "assistant calls Read as toolu_01",
        "tool answers Read as toolu_01: 1\thello\n2\t",
        "assistant: It says hello.",
        "user: What did I ask?",
        "assistant: You asked about a.txt.",
    ]
    assert [(each.finish, each.usage) for each in messages if each.role == "assistant"] == [
        ("tool_calls", cc.Usage(input=110, output=21, cache_read=7, cache_write=3)),
        ("stop", cc.Usage(input=210, output=22, cache_read=7, cache_write=3)),
        ("stop", cc.Usage(input=110, output=21, cache_read=7, cache_write=3)),
    ]


def test_tools_that_ran_at_once_are_all_there() -> None:
    """Guarantee 5.1: each result hangs on its own call, and the last line's way back leads through one of them
    alone.
    """
    assert read(sample("transcript-parallel")) == [
        "user: What is in a.txt?",
        "assistant thinks: A file.",
        "assistant: I will look.",
        "assistant calls Read as toolu_01",
        "assistant calls Read as toolu_02",
        "tool answers Read as toolu_02: File does not exist. Note: your current working directory is "
        "/home/somebody/work.",
        "tool answers Read as toolu_01: 1\thello\n2\t",
        "assistant: It says hello.",
    ]


def test_a_compaction_is_followed_by_its_summary_and_kept_messages() -> None:
    """Guarantee 10.2: as Claude Code itself goes on from there."""
    said = read(sample("transcript-compacted"))
    assert said[0].startswith("user: This session is being continued from a previous conversation")
    assert said[1:] == ["user: Second", "assistant: Two."]


def test_text_of_claude_code_itself_is_not_model_output() -> None:
    """Guarantee 11.11: the text of an error is not a reply."""
    assert read(sample("transcript-overloaded")) == ["user: Hi"]


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_a_real_transcript_breaks_no_rule_and_converts_to_every_format(name: str) -> None:
    """Guarantees 10.5, 10.6."""
    lines = sample(name)
    assert cc.lint(lines, format="claude_code") == []
    made = cc.convert(lines, source="claude_code", target="anthropic")
    assert cc.lint(made, format="anthropic") == []
    assert [each for each in made.warnings if "reasoning" not in each] == []


HISTORY = [user([text("hi")]), assistant(use("a"), use("b")), user([result("a"), result("b")])]


def test_entries_are_chained_and_named_by_what_they_are() -> None:
    """Guarantee 9.10: the same history at the same place is the same entries, so that writing it twice changes
    nothing.
    """
    entries = transcript_entries(HISTORY, session=SESSION, cwd="/work", time=1_700_000_000_000)
    again = transcript_entries(HISTORY, session=SESSION, cwd="/work", time=1_800_000_000_000)
    assert [each["uuid"] for each in entries] == [each["uuid"] for each in again]
    assert [each["parentUuid"] for each in entries] == [None, *[each["uuid"] for each in entries[:-1]]]
    assert len({UUID(each["uuid"]) for each in entries}) == 3
    assert entries[0] == {
        "type": "user",
        "uuid": entries[0]["uuid"],
        "parentUuid": None,
        "sessionId": SESSION,
        "timestamp": "2023-11-14T22:13:20.000Z",
        "isSidechain": False,
        "cwd": "/work",
        "version": "2.1.325",
        "userType": "external",
        "message": HISTORY[0]["message"],
    }
    elsewhere = transcript_entries(HISTORY, session=SESSION, cwd="/work", after=entries[-1]["uuid"])
    assert elsewhere[0]["parentUuid"] == entries[-1]["uuid"]
    assert {each["uuid"] for each in elsewhere}.isdisjoint(each["uuid"] for each in entries)


def test_entries_are_read_as_what_they_were_made_of() -> None:
    """Guarantee 10.5."""
    entries = transcript_entries(HISTORY, session=SESSION, cwd="/work")
    assert read(json.loads(json.dumps(entries))) == read(HISTORY)
    assert cc.lint(entries, format="claude_code") == []


def test_a_history_in_a_new_session_begins_with_the_user() -> None:
    """Guarantee 10.4: the API refuses one that does not; what is put before it is not read back."""
    entries = transcript_entries([assistant(text("Hello."))], session=SESSION, cwd="/work")
    assert [each["message"]["content"] for each in entries] == [[text(OPENING_TEXT)], [text("Hello.")]]
    assert read(entries) == ["assistant: Hello."]
    assert len(transcript_entries([assistant(text("Hello."))], session=SESSION, cwd="/work", after="x")) == 1


def test_calls_of_our_tools_are_written_as_claude_code_knows_them() -> None:
    """Guarantee 9.10: else it would see calls of tools that it does not have."""
    entries = transcript_entries(HISTORY[:2], session=SESSION, cwd="/work", tools=["look"])
    assert [block["name"] for block in entries[1]["message"]["content"]] == ["mcp__contextc__look"] * 2
    assert read(entries) == read(HISTORY[:2])


@pytest.mark.parametrize(
    ("lines", "history", "prompt"),
    [
        ([user("hi")], [], [text("hi")]),
        ([user("hi"), assistant(text("Hi.")), user("a"), user([text("b")])], 2, [text("a"), text("b")]),
        ([*HISTORY[:2], user([result("a"), result("b"), text("and?")])], HISTORY, [text("and?")]),
        ([*HISTORY[:2], user([text("and?")]), user([result("a"), result("b")])], HISTORY, [text("and?")]),
        (HISTORY, HISTORY, []),
        ([user([result("a")])], [user([result("a")])], []),
        ([user("hi"), assistant(text("Hi."))], 2, []),
        ([], [], []),
    ],
    ids=[
        "new",
        "two",
        "results, then words",
        "words, then results",
        "results alone",
        "of the session",
        "reply",
        "none",
    ],
)
def test_history_is_separated_from_the_new_prompt(
    lines: list[JSONObject], history: JSON, prompt: list[JSONObject]
) -> None:
    """Guarantees 9.4, 9.10: results belong to what was said; in a prompt Claude Code would leave them out."""
    assert split_history_and_prompt(lines) == (lines[:history] if isinstance(history, int) else history, prompt)
