"""A fix changes only what breaks a rule, and keeps the formatting of the rest."""

import json

import pytest

from contextc._json import JSONObject
from contextc.linting import fix, lint

LOST: JSONObject = {
    "system": "Be brief.",
    "model": "claude-sonnet-4-5",
    "messages": [
        {"content": "read a", "role": "user"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": {}}]},
        {"role": "user", "content": "well?"},
        {"role": "assistant", "content": "Nothing came."},
        {"role": "user", "content": "again"},
    ],
    "tools": [{"input_schema": {"type": "object", "properties": {}}, "name": "read"}],
    "max_tokens": 100,
}
"""A call of Anthropic's whose result was lost, with fields in an order of its own."""


def test_what_breaks_no_rule_stays_as_it_was_written() -> None:
    """Guarantee 10.6: to the letter, in its place; only the message that lacks a result has one more block."""
    fixed, repairs = fix(LOST, format="anthropic")
    assert [each.code for each in repairs] == ["ANT006"]
    assert lint(fixed, format="anthropic") == []
    assert list(fixed) == list(LOST)
    changed = [index for index, message in enumerate(fixed["messages"]) if message != LOST["messages"][index]]
    assert changed == [2]
    assert [block["type"] for block in fixed["messages"][2]["content"]] == ["tool_result", "text"]
    rest = [{**each, "messages": [*each["messages"][:2], *each["messages"][3:]]} for each in (fixed, LOST)]
    assert json.dumps(rest[0]) == json.dumps(rest[1])


def test_a_bare_list_is_left_alone_too() -> None:
    """Guarantee 10.6: people paste messages without the rest."""
    messages: list[JSONObject] = LOST["messages"]
    fixed, _ = fix(messages, format="anthropic")
    assert [fixed[index] for index in (0, 1, 3, 4)] == [messages[index] for index in (0, 1, 3, 4)]


@pytest.mark.parametrize("again", ["again", "well?"])
def test_a_message_that_is_twice_keeps_both_spellings_in_order(again: str) -> None:
    """Guarantee 10.6: the same in meaning is not the same in letters."""
    texts = [
        *LOST["messages"][:4],
        {"role": "user", "content": [{"type": "text", "text": again}]},
        *LOST["messages"][3:],
    ]
    fixed, _ = fix({**LOST, "messages": texts}, format="anthropic")
    assert fixed["messages"][3:] == texts[3:]


def test_what_was_itself_at_fault_is_not_put_back() -> None:
    """Guarantee 10.6: a message that is valid after our round trip may be invalid as it was written."""
    calls = [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    body: JSONObject = {
        "model": "gpt-4o",
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "user", "content": [{"text": "no type"}]},
        ],
    }
    fixed, repairs = fix(body, format="openai_chat")
    assert repairs
    assert lint(fixed, format="openai_chat") == []
    assert fixed["messages"][:2] == body["messages"][:2]
