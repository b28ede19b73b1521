"""The comparison of messages with stored ones, and the search for a history in a chain."""

import random

import pytest

import contextc as cc
from contextc.store.message_matching import (
    CLIENT,
    IMPORTED,
    OBSERVED,
    Strictness,
    find_overlap,
    is_same,
    message_key,
)


def call(id: str, **arguments: int) -> cc.Message:
    return cc.assistant("look", tool_calls=[cc.ToolCall(id=id, name="f", arguments={**arguments})])


PICTURE = cc.Media(mime_type="image/png", data=b"png")
LONG = "a long result " * 20
PAIRS: list[tuple[str, cc.Message, cc.Message, str]] = [
    ("white space", cc.user("a"), cc.user("a \n"), "CLIENT OBSERVED IMPORTED"),
    ("reasoning", cc.assistant("a", reasoning="why"), cc.assistant("a"), "CLIENT OBSERVED IMPORTED"),
    ("other text", cc.user("a"), cc.user("b"), ""),
    ("other role", cc.user("a"), cc.system("a"), ""),
    ("no author", cc.user("a", author="ann"), cc.user("a"), "CLIENT OBSERVED IMPORTED"),
    ("other author", cc.user("a", author="ann"), cc.user("a", author="bob"), "OBSERVED"),
    ("no calls", call("c1"), cc.assistant("look"), "CLIENT"),
    ("other id of a call", call("c1"), call("c2"), "OBSERVED"),
    ("generated ids", call("call_0"), call("call_7"), "OBSERVED IMPORTED"),
    ("other arguments", call("c1", x=1), call("c1", x=2), "CLIENT IMPORTED"),
    ("a picture", cc.user([cc.Text("a"), PICTURE]), cc.user("a"), "OBSERVED"),
    ("a date", cc.system("It is May 1."), cc.system("It is May 22."), "IMPORTED"),
    ("truncated", cc.tool_result("c1", "f", LONG), cc.tool_result("c1", "f", LONG[:150]), "CLIENT OBSERVED IMPORTED"),
    ("other result", cc.tool_result("c1", "f", "1"), cc.tool_result("c1", "f", "2"), "CLIENT"),
    ("other result id", cc.tool_result("c1", "f", "1"), cc.tool_result("c2", "f", "1"), "OBSERVED"),
]
STRICTNESS = {"CLIENT": CLIENT, "OBSERVED": OBSERVED, "IMPORTED": IMPORTED}


@pytest.mark.parametrize(("stored", "sent", "same"), [pair[1:] for pair in PAIRS], ids=[pair[0] for pair in PAIRS])
def test_each_sender_has_its_strictness(stored: cc.Message, sent: cc.Message, same: str) -> None:
    """What a sender may change, and what makes it another message."""
    assert [name for name, by in STRICTNESS.items() if is_same(stored, sent, by)] == same.split()


@pytest.mark.parametrize("by", STRICTNESS.values(), ids=STRICTNESS)
def test_messages_that_are_the_same_have_one_key(by: Strictness) -> None:
    """So that an index of keys finds each of them."""
    messages = [message for pair in PAIRS for message in pair[1:3]]
    for one in messages:
        for other in messages:
            assert not is_same(one, other, by) or message_key(one, by) == message_key(other, by)


def test_the_longest_beginning_of_a_history_is_found_anywhere() -> None:
    """The result is that of trying each place, also if texts repeat. The last place counts."""
    chance = random.Random(1)
    for _ in range(300):
        chain = [chance.choice("ab") for _ in range(chance.randrange(12))]
        history = [chance.choice("ab") for _ in range(chance.randrange(6))]
        found = find_overlap(len(chain), history, lambda at, index, a=chain, b=history: a[at] == b[index])
        places = [
            (size, start)
            for start in range(len(chain))
            for size in range(1, len(history) + 1)
            if chain[start : start + size] == history[:size]
        ]
        size, start = max(places, default=(0, 0))
        assert found == (start, size)


def test_the_search_takes_linear_time() -> None:
    """The worst case: all messages are the same but the last one."""
    count = 0

    def is_equal(at: int, index: int) -> bool:
        nonlocal count
        count += 1
        return (at < 1_999) == (index < 1_999)

    find_overlap(2_000, ["yes"] * 1_999 + ["no"], is_equal)
    assert count < 10_000
