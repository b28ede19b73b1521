"""The transcript of a session, split after the last known reply: kept part, and detection of an answer.

Entries are written here by their letters: u a prompt, a the model's words, r a tool's result, x what the CLI adds, q a
prompt in its queue. Each follows the one before it.
"""

import pytest

from contextc._json import JSONObject
from contextc.providers.claude_code.sessions import (
    find_answer,
    result_line,
    split_transcript,
    with_session_id,
)

TEXT: JSONObject = {"type": "text", "text": "Hello"}


def entries(letters: str) -> list[JSONObject]:
    """One entry for each letter; its name is the letter and its number: u0, a1, …"""
    found: list[JSONObject] = []
    parent = None
    for number, letter in enumerate(letters):
        entry = {**_entry(letter), "sessionId": "one"}
        if letter != "q":
            entry |= {"uuid": f"{letter}{number}", "parentUuid": parent}
            parent = entry["uuid"]
        found.append(entry)
    return found


def _entry(letter: str) -> JSONObject:
    match letter:
        case "u":
            return {"type": "user", "promptId": "p", "message": {"role": "user", "content": "Hello"}}
        case "a":
            message = {"role": "assistant", "content": [TEXT], "stop_reason": "end_turn"}
            return {"type": "assistant", "message": message}
        case "c":
            call: JSONObject = {"type": "tool_use", "id": "1", "name": "sum", "input": {}}
            return {"type": "assistant", "message": {"role": "assistant", "content": [call], "stop_reason": "tool_use"}}
        case "r":
            result = {"type": "tool_result", "tool_use_id": "1", "content": "4"}
            return {"type": "user", "message": {"role": "user", "content": [result]}}
        case "e":
            message = {"role": "assistant", "model": "<synthetic>", "content": [TEXT], "stop_reason": "stop_sequence"}
            return {"type": "assistant", "isApiErrorMessage": True, "message": message}
        case "q":
            return {"type": "queue-operation", "operation": "enqueue"}
        case _:
            return {"type": "attachment"}


@pytest.mark.parametrize(
    ("letters", "cursor", "kept"),
    [
        ("ua", "a1", "ua"),  # nothing came after it
        ("uaxx", "a1", "uaxx"),  # what belongs to the same turn
        ("uaxqquxa", "a1", "uax"),  # another turn, from its place in the queue on
        ("uaue", "a1", "ua"),  # one that failed
        ("ucr", "c1", "ucr"),  # a result ends the turn
        ("ucraua", "a3", "ucra"),
        ("uaua", "", "uaua"),  # where nobody knows better: its end
    ],
)
def test_a_session_is_kept_up_to_the_next_prompt(letters: str, cursor: str, kept: str) -> None:
    """Guarantee 9.8: back to the last message that was acknowledged, and no further."""
    found = split_transcript(entries(letters), cursor)
    assert found is not None
    assert found.kept == entries(kept)
    assert [*found.kept, *found.after] == entries(letters)
    assert found.last_uuid == entries(kept)[-1]["uuid"]


def test_a_record_without_the_cursor_or_with_a_gap_before_it_is_not_used() -> None:
    """Guarantee 9.5: a session is valid if it is known to hold everything up to the cursor."""
    whole = entries("uaxua")
    assert split_transcript(whole, "a7") is None
    assert split_transcript([*whole[:2], *whole[3:]], "a4") is None
    assert split_transcript([*whole[:2], *whole[3:]], "a1") is not None


@pytest.mark.parametrize(
    ("behind", "lines"),
    [
        ("qquxa", "a"),
        ("ucra", "cra"),  # with what its tools did
        ("u", ""),  # asked, and never answered
        ("ucr", ""),  # in the middle
        ("ue", ""),  # the CLI's own words for a failure
        ("uaua", ""),  # more than this was asked
        ("x", ""),
    ],
)
def test_a_prompt_counts_as_answered_only_if_it_was_in_full(behind: str, lines: str) -> None:
    """Guarantee 9.8: found to have gone through after all. Whatever is less is asked again."""
    found = find_answer(entries(behind), [], {"role": "user", "content": [TEXT]})
    assert [line["type"] for line in found] == [_entry(letter)["type"] for letter in lines]
    assert find_answer(entries(behind), [], {"role": "user", "content": "Something else"}) == []


def test_an_answer_counts_only_behind_the_same_history() -> None:
    """Guarantees 9.8, 9.10: what was taken over from elsewhere before the prompt is part of what was asked."""
    taken_over = [{**entry, "promptId": None} for entry in entries("a")]
    del taken_over[0]["promptId"]
    behind = [*taken_over, *entries("ua")]
    history: list[JSONObject] = [{"type": "assistant", "message": {"role": "assistant", "content": [TEXT]}}]
    assert len(find_answer(behind, history, {"role": "user", "content": "Hello"})) == 1
    assert find_answer(behind, [], {"role": "user", "content": "Hello"}) == []


def test_recorded_lines_end_like_a_turn_of_the_cli() -> None:
    """What is read of them is what would have been read of the turn."""
    lines = find_answer(entries("ua"), [], {"role": "user", "content": "Hello"})
    assert lines[0]["uuid"] == "a1"
    end = result_line(lines)
    assert (end["type"], end["is_error"], end["session_id"], end["result"]) == ("result", False, "one", "Hello")


def test_a_copy_has_another_name_and_the_same_texts() -> None:
    """Guarantee 9.8: the session that failed is left as it is."""
    before = entries("uax")
    after = with_session_id(before, "two")
    assert {entry["sessionId"] for entry in after} == {"two"}
    assert [{**entry, "sessionId": "one"} for entry in after] == before == entries("uax")
