"""Replies of Gemini, streamed and recorded, as our messages."""

from typing import cast

from contextc._json import JSONObject
from tests.formats.test_gemini import GOOGLE
from tests.formats.traffic import accepted, events, normal


def test_every_accepted_request_of_the_corpus_comes_back() -> None:
    """Guarantee 10.5: decoding then encoding loses nothing of any request that Google accepted."""
    for case, _, body, _ in accepted("gemini"):
        assert normal(GOOGLE.encode_request(GOOGLE.decode_request(body))) == normal(body), case


def test_every_reply_of_the_corpus_becomes_a_message() -> None:
    """Guarantee 10.1: each reply has parts, a finish reason, and at least the tokens that Google's total counts."""
    for case, _, _, reply in accepted("gemini"):
        chunks = events(reply) if isinstance(reply, str) else [cast(JSONObject, reply)]
        message = GOOGLE.decode_stream(chunks)
        assert message.parts, case
        assert message.finish, case
        assert message.usage is not None
        total = chunks[-1]["usageMetadata"]["totalTokenCount"]  # a last chunk may forget what earlier ones counted
        assert message.usage.input + message.usage.output >= total, case
        if not isinstance(reply, str):
            assert GOOGLE.decode_reply(reply).text == message.text, case
