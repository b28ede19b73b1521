"""Rules specific to Chat Completions: its many providers, and the shapes that they confuse."""

import base64
import os

import pytest

from contextc._json import JSON, JSONObject
from contextc.formats.openai_chat import OpenAIFormatter
from contextc.linting import fix, lint

FORMAT = OpenAIFormatter.name
HI: JSONObject = {"role": "user", "content": "hi"}


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in lint(body, format=FORMAT)]


def fixed(messages: list[JSONObject]) -> list[JSONObject]:
    """The messages, fixed; they are clean then."""
    found, repairs = fix(messages, format=FORMAT)
    assert repairs
    assert codes(found) == []
    return found


@pytest.mark.parametrize("place", [40, 90])
def test_encrypted_reasoning_with_a_piece_missing_is_found(place: int) -> None:
    """OpenRouter wants `reasoning_details` back as they came."""
    token = base64.urlsafe_b64encode(b"\x80" + bytes(8) + os.urandom(16 + 64 + 32)).decode()
    secret: JSONObject = {"type": "reasoning.encrypted", "format": "openai-responses-v1", "data": token}
    body = [HI, {"role": "assistant", "content": "Hello!", "reasoning_details": [secret]}, HI]
    assert codes(body) == []
    secret["data"] = token[:place] + token[place + 5 :]
    assert codes(body) == ["OAC020"]
    assert fixed(body)[1] == {"role": "assistant", "content": "Hello!"}


@pytest.mark.parametrize("body", [None, 3, "hi", {}, [[]], [None], {"messages": "hi"}, {"messages": {}, "tools": 3}])
def test_anything_can_be_looked_at(body: JSON) -> None:
    """Guarantee 10.6: a request comes from anywhere, and may be no request at all."""
    assert "OAC001" in codes(body)
