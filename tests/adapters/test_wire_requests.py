"""Requests of frameworks as JSON: each one that begins is committed or aborted."""

from collections.abc import Sequence

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.adapters.request_preparation import WireRequestPreparer


class Refusing(cc.OpenAIFormatter):
    """A format that cannot write what has to be sent."""

    def format(self, history: Sequence[cc.Message], system_prompt: str | None = None) -> list[JSONObject]:
        raise ValueError("not in this format")


def test_a_request_that_cannot_be_written_is_aborted() -> None:
    """Guarantee 21.6. Left open, it would make every later request doubtful, and its preparer would be lost."""
    store = cc.open_store("memory:")
    requests = WireRequestPreparer(store, "openai_chat")
    requests.formatter = Refusing()
    provider = cc.provider("openai-chat:gpt-4o", window=400, output=100)
    messages: list[JSONObject] = [{"role": "user", "content": f"{number} " + "word " * 60} for number in range(8)]
    with pytest.raises(ValueError, match="not in this format"):
        requests.begin("demo", provider, messages)
    (session,) = cc.SessionManager(store).sessions("demo")
    assert session.error == "ValueError: not in this format"
