"""A long session with small texts, large call arguments and large results, and a check of every request of it.

In a small window, results become stubs, calls lose their arguments, and then both leave before the texts do.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any

import contextc as cc
from contextc._json import decode
from contextc.compiler.past_requests import load_channel_formatter, rebuild
from contextc.inspection.preview import find_channels
from contextc.messages import Message, Text
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.vendor import AcceptedRequest, vendor

QUESTION = "Which valves were replaced?"
ANSWER = "Those on deck three."
STEPS = 48
WINDOW = 10_000
NOTED = "I note page {}.".format


def note_page(number: int, note: str) -> str:
    """Add a note to a page of the report, and return the page."""
    return f"Page {number}. " + "The valve on deck three was replaced in spring. " * (40 + number * 7 % 50)


def noting(steps: int = STEPS, *, reasons: bool = False) -> Callable[[AcceptedRequest], Reply]:
    """Return a script: it notes pages, sometimes two at once and sometimes without a text, and then answers."""

    def call(page: int) -> ScriptedCall:
        return ScriptedCall("note_page", {"number": page, "note": f"Seen on page {page}. " * (20 + page % 20)})

    def reply(ask: AcceptedRequest) -> Reply:
        number = ask.number % (steps + 1)
        reasoning = f"I think about page {number}." if reasons else ""
        if number == steps:
            return Reply(ANSWER, reasoning=reasoning)
        pages = (number, number + 100) if number % 4 == 3 else (number,)
        return Reply(None if number % 6 == 5 else NOTED(number), [call(page) for page in pages], reasoning=reasoning)

    return reply


def check_requests(
    fake: FakeVendors, store: cc.Store, conversation: str, steps: int = STEPS, *, shortens: bool = True
) -> None:
    """Check that each request was accepted and is what was compiled, and that the session had calls of all forms.

    `shortens` is False where the provider's own fields of a call do not let it be changed: it may be signed.
    """
    assert [record.refused for record in fake.refused] == []
    assert fake.defects == []
    assert len(fake.records) == steps + 1
    (channel,) = find_channels(store, conversation)
    formatter = load_channel_formatter(store, channel)
    forms: set[str] = set()
    for number, record in enumerate(fake.records, 1):
        own = vendor(record.format).formatter
        sent = [*_list_content(own.decode_request(decode(record.raw)).messages)]
        compiled = formatter.decode_request(decode(rebuild(store, channel, formatter, number))).messages
        expected = [*_list_content(compiled)]
        for row, wanted in zip_longest(sent, expected):
            assert row == wanted, f"request {number} is not what was compiled"
        forms |= {*_list_forms(sent)}
    assert forms == ({"whole", "short", "none"} if shortens else {"whole", "none"})


def check_item_ids(fake: FakeVendors) -> None:
    """Check that no item of the Responses API has an id if its reasoning was left out: OpenAI would require that."""
    items = decode(fake.records[-1].raw)["input"]
    kinds = [item.get("type") for item in items]
    first = kinds.index("reasoning")
    assert [item["id"] for item in items[:first] if "id" in item] == []
    assert [item for item in items[:first] if item.get("role") == "assistant"]


def _list_content(messages: Sequence[Message]) -> Iterator[tuple[Any, ...]]:
    """Yield texts, calls and results in order. Frameworks join neighbouring texts in different ways."""
    rows = [
        row
        for message in messages
        for row in (
            *[(message.role, part.text) for part in message.parts if isinstance(part, Text)],
            *[("call", call.name, call.arguments) for call in message.tool_calls],
            *[("result", _unwrap(result.text)) for result in message.tool_results],
        )
    ]
    for kind, group in groupby(rows, itemgetter(0)):
        if kind in ("call", "result"):
            yield from group
        elif words := " ".join([text for _, text in group]).split():
            yield kind, words


def _unwrap(text: str) -> str:
    """Return the only value of a JSON object. Google's ADK has results in such objects."""
    try:
        return "".join(decode(text).values())
    except (ValueError, AttributeError):
        return text


def _list_forms(content: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    """Yield the forms in which calls were sent: whole, without arguments, or not at all."""
    for row, following in zip(content, [*content[1:], ()], strict=True):
        if row[0] == "call":
            yield "whole" if row[2] else "short"
        elif (
            row[0] == "assistant"
            and row[1] != ANSWER.split()
            and (following[:1] != ("call",) or row[1].count("note") > 1)
        ):
            yield "none"
