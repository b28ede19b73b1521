"""A scripted agent that reads pages, for the frameworks with small adapters. It needs nothing of a framework."""

from collections.abc import Callable, Iterator
from itertools import pairwise

from contextc._json import decode
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.responses import RequestRecord
from tests.fake_vendors.vendor import AcceptedRequest, vendor

QUESTION = "When was the valve replaced?"
ANSWER = "The valve was replaced in spring."
STEPS = 60
WINDOW = 12_000


def read_page(number: int) -> str:
    """Read a page of the report."""
    return f"Page {number}. " + "The valve on deck three was replaced in spring. " * (8 + number * 7 % 90)


def reading(steps: int) -> Callable[[AcceptedRequest], Reply]:
    """Return a script: it reads pages one after another, sometimes two at once, and then answers."""

    def reply(ask: AcceptedRequest) -> Reply:
        number = ask.number % (steps + 1)
        if number == steps:
            return Reply(ANSWER)
        pages = (number, number + 100) if number % 4 == 3 else (number,)
        return Reply(f"I read page {number}.", [ScriptedCall("read_page", {"number": page}) for page in pages])

    return reply


def check_fitted(fake: FakeVendors, steps: int = STEPS) -> None:
    """Check the requests of a run that did not fit: none was refused, and most extend the one before."""
    assert not fake.refused
    assert not fake.defects
    assert len(fake.records) == steps + 1
    assert 0 < len(list_cuts(fake)) < steps / 5


def list_cuts(fake: FakeVendors) -> list[RequestRecord]:
    """Return the requests that do not extend the one before."""
    requests = [(record, [*_list_content(record)]) for record in fake.records]
    return [record for (_, before), (record, later) in pairwise(requests) if later[: len(before)] != before]


def _list_content(record: RequestRecord) -> Iterator[object]:
    """Yield what a model reads of each message. A cut may change the first one, which `fake.breaks` needs."""
    for message in vendor(record.format).formatter.decode_request(decode(record.raw)).messages:
        yield message.role, message.text, [each.text for each in message.tool_results], len(message.tool_calls)
