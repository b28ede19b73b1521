"""Streams of real endpoints: split at odd places, truncated, or with an error in the middle."""

import pytest

from contextc._json import JSON, JSONObject
from contextc.formats import formatter
from tests.formats.known import having, known


def chunk(**delta: JSON) -> JSONObject:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


END: JSONObject = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def piece(arguments: str, *, id: str | None = None, index: int | None = None, name: str | None = None) -> JSONObject:
    made: JSONObject = {"function": {"arguments": arguments} | ({"name": name} if name else {})}
    return made | ({"id": id} if id else {}) | ({"index": index} if index is not None else {})


@pytest.mark.parametrize("name", having("BROKEN"))
def test_an_error_in_the_middle_is_kept_with_what_came_before(name: str) -> None:
    """Guarantee 11.10: the partial text with its status, and the provider's reason."""
    message = formatter(name).decode_stream(known(name).BROKEN)
    assert (message.text, message.status, message.error, message.finish) == ("half", "error", "overloaded", "error")
