"""Blocks that move from request to request: where they were, where they are, and what that costs."""

from typing import Any

import pytest

from contextc.analysis import Finding
from contextc.analysis.changed_content import MOVED_FIX, describe_way, find_move
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.request_comparison import RequestComparison, compare_two_requests
from contextc.analysis.request_elements import Element
from tests.analysis.cached_client import Client

REMINDER = "<system-reminder>Run the tests.{}</system-reminder>"


def send_with_reminder(client: Client, text: str, *, own_message: bool, read: int | None) -> None:
    """Send a request with a text at its end, which no later request has at this place."""
    block = {"type": "text", "text": text}
    kept = [{**each, "content": [*each["content"]]} for each in client.messages]
    if own_message:
        client.messages.append({"role": "user", "content": [block]})
    else:
        client.messages[-1]["content"].append(block)
    size = len(client.messages)
    client.send(read)
    client.messages = [*kept, *client.messages[size:]]


def compare_last(client: Client) -> RequestComparison:
    *_, before, now = load_conversation_view(client.store, "c").requests
    return compare_two_requests(client.store, before, now)


@pytest.mark.parametrize("step", ["", " Step {}."], ids=["same text", "other text"])
@pytest.mark.parametrize("own_message", [True, False], ids=["own message", "last block"])
def test_a_reminder_that_moves_is_named_with_both_places(own_message: bool, step: str) -> None:
    """Guarantee 17.2: not what took its place, but what left it. What was added between is no loss."""
    client = Client().work(4)
    for number in range(2):
        text = REMINDER.format(step.format(number))
        send_with_reminder(client, text, own_message=own_message, read=4_500 if number else None)
    found = client.last()
    start, part = (9, 0) if own_message else (8, 1)
    way = f"from message {start} to message {start + 2}{', and its text changed' if step else ''}"
    assert (found.cause, found.title, found.fix) == ("message_changed", f"A reminder moved {way}", MOVED_FIX)
    (evidence,) = found.evidence
    assert evidence.path == f"messages[{start + 2}].content[{part}]"
    assert evidence.before.startswith(f"left messages[{start}].content[{part}]: <system-reminder>Run the tests.")
    assert (evidence.after, evidence.is_change) == (f"now at {evidence.path}", False)

    compared = compare_last(client)
    assert (compared.reason, compared.fix) == (f"A reminder moved {way}.", MOVED_FIX)
    assert compared.lost == found.tokens
    moved, *added = compared.differences
    assert (moved.kind, moved.type, moved.is_break, moved.note) == ("moved", "reminder", True, way)
    assert (moved.before, moved.after) == (evidence.before.split()[1].rstrip(":"), evidence.path)
    assert {each.kind for each in moved.segments} == ({"same", "removed", "added"} if step else {"same"})
    assert [(each.kind, each.type, each.unchanged) for each in added] == [
        ("added", "tool_call", 0),
        ("added", "tool_result", 0),
    ]
    requests = load_conversation_view(client.store, "c").requests
    assert moved.unchanged == compared.unchanged == requests[-2].count - 1
    assert found.tokens <= requests[-2].input - 4_400


def test_a_text_that_is_moved_behind_later_messages_is_named() -> None:
    client = Client()
    client.messages[0]["content"].append({"type": "text", "text": "The files are in src."})
    client.work(5)
    client.messages[-1]["content"].append(client.messages[0]["content"].pop())
    client.send(4_500)
    assert client.last().title == "A text moved from message 0 to message 10"
    assert compare_last(client).reason == "A text moved from message 0 to message 10."


def insert(client: Client) -> None:
    client.messages.insert(1, {"role": "user", "content": [{"type": "text", "text": "<reminder>Be brief.</reminder>"}]})


def remove(client: Client) -> None:
    client.messages[0]["content"].pop()


def replace_by_other_reminder(client: Client) -> None:
    remove(client)
    client.messages[-1]["content"].append(
        {"type": "text", "text": "<system-reminder>main.py was changed.</system-reminder>"}
    )


@pytest.mark.parametrize(
    ("change", "cause", "title"),
    [
        (insert, "message_inserted", "A message was inserted before earlier ones"),
        (remove, "message_changed", "A reminder was removed from an earlier message"),
        (replace_by_other_reminder, "message_changed", "A reminder was removed from an earlier message"),
    ],
)
def test_what_did_not_move_is_not_said_to_have_moved(change: Any, cause: str, title: str) -> None:
    client = Client()
    client.messages[0]["content"].append({"type": "text", "text": REMINDER.format("")})
    client.work(4)
    change(client)
    client.send(4_500)
    found: Finding = client.last()
    assert (found.cause, found.title) == (cause, title)
    assert all(each.kind != "moved" for each in compare_last(client).differences)


def block(text: str, role: str = "user", type: Any = "text") -> Element:
    return Element("message", type, role, "", "", f"{role} {text}".encode(), f'"{text}"'.encode(), "")


A, B, REPLY = block("a"), block("b"), block("reply", "assistant")
FIRST, SECOND = block("<reminder>step 1 of 9"), block("<reminder>step 2 of 9")


@pytest.mark.parametrize(
    ("old", "new", "move"),
    [
        ([A, B], [B, A], (1, True)),
        ([A], [REPLY, B, A], (2, True)),
        ([A], [B, A], None),  # no reply between them: something was inserted
        ([A, B], [REPLY, A, B], (1, True)),
        ([A, REPLY, B], [block("example", "assistant"), A, REPLY, B], None),  # an example was inserted
        ([FIRST], [REPLY, SECOND], (1, False)),
        ([FIRST, REPLY], [REPLY, B, SECOND], (2, False)),
        ([FIRST], [REPLY, block("<reminder>todo: 2")], None),
        ([FIRST], [REPLY, block("<reminder>step 2 of 9", "system")], None),
        ([A, B, A], [B, A], None),  # it was sent twice, and once it is left
        ([block("a", "assistant"), B], [B, block("a", "assistant")], None),
        ([A], [], None),
        ([], [A], None),
    ],
)
def test_where_a_block_went(old: list[Element], new: list[Element], move: tuple[int, bool] | None) -> None:
    assert find_move(old, new) == move


def test_a_way_is_named_by_the_numbers_of_messages() -> None:
    assert describe_way("contents[4].parts[1]", "contents[8].parts[0]", is_same=True) == "from message 4 to message 8"
    assert describe_way("input[4].content[0]", "input[4].content[2]", is_same=True) == "within message 4"
