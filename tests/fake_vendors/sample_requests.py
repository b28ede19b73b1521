"""Helpers for the tests of the fake vendors: a sample request and a sample reply for all vendors."""

import pytest

from contextc._json import JSONObject
from contextc.formats.registry import formatter
from contextc.messages import Message, tool_result, user
from tests.fake_vendors import KEY, FakeVendors, Reply, ScriptedCall
from tests.fake_vendors.sdks import LOOK, SDKClient

FULL = Reply(
    "Let me look: déjà vu 🦊.",
    [ScriptedCall("look", {"thing": "a"}), ScriptedCall("look", {"thing": "b"})],
    "Hm. A look?",
)


def ask(client: SDKClient, *messages: Message) -> JSONObject:
    return client.body(messages or [user("What is there?")], tools=[LOOK])


def refusal(client: SDKClient, standin: FakeVendors, body: JSONObject, key: str = KEY) -> tuple[str, str]:
    """Return the error that the SDK raises, and its text."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the SDKs' errors have no common base class
        client.whole(standin.url(client.name), body, key=key)
    return type(caught.value).__name__, str(caught.value)


def answered(client: SDKClient, standin: FakeVendors, history: list[Message]) -> list[Message]:
    """Return the history, extended by the reply and results for its tool calls."""
    reply = formatter(client.format).decode_reply(client.whole(standin.url(client.name), ask(client, *history)))
    return [*history, reply, *(tool_result(call.id, call.name, "seen") for call in reply.tool_calls)]
