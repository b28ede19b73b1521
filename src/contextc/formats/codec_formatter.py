"""The base class of formats whose tools, requests and replies are converted by functions of the provider alone."""

from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple

from contextc._json import JSONObject
from contextc.formats.base import Formatter, Request
from contextc.messages import Message
from contextc.tools.spec import Tool


class Codec(NamedTuple):
    """The functions of a format. The second argument of a decoder is the provider."""

    encode_tool: Callable[[Tool], JSONObject]
    decode_request: Callable[[JSONObject, str], Request]
    decode_reply: Callable[[JSONObject, str], Message]
    collect_events: Callable[[Iterable[JSONObject]], JSONObject]


class CodecFormatter(Formatter):
    """A format with a codec. It may still define a method of its own, where options matter."""

    codec: ClassVar[Codec]

    def encode_tool(self, tool: Tool) -> JSONObject:
        return self.codec.encode_tool(tool)

    def _decode_request(self, body: JSONObject) -> Request:
        return self.codec.decode_request(body, self.provider)

    def _decode_reply(self, reply: JSONObject) -> Message:
        return self.codec.decode_reply(reply, self.provider)

    def _collect(self, events: Iterable[JSONObject]) -> JSONObject:
        return self.codec.collect_events(events)
