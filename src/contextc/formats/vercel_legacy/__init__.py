"""Vercel AI SDK format before version 4: `function_call`, and role `function` for results."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, cast

from contextc._json import JSONObject
from contextc.formats.base import EncodedSegment, Formatter, Request
from contextc.formats.identifiers import NameCodec
from contextc.formats.lint_engine import RuleSet
from contextc.formats.reasoning_policy import ReasoningPolicy
from contextc.formats.request_settings import SettingsTable
from contextc.formats.vercel_legacy import decode
from contextc.formats.vercel_legacy.encode import encode_segment
from contextc.formats.vercel_legacy.rules import RULES
from contextc.formats.vercel_legacy.settings import SETTINGS
from contextc.messages import Message
from contextc.tools.spec import Tool


class VercelLegacyFormatter(Formatter):
    """Format of old code and old logs. Later versions of the SDK silently remove `function_call`."""

    name: ClassVar[str] = "vercel_legacy"
    rules: ClassVar[RuleSet] = RULES
    settings: ClassVar[SettingsTable] = SETTINGS
    name_codec: ClassVar[NameCodec] = NameCodec("vercel_legacy")
    unique_ids: ClassVar[bool] = True
    system_among_messages: ClassVar[bool] = True
    allows_leading_system: ClassVar[bool] = True
    strict_tools: ClassVar[bool] = False

    def __init__(self, *, provider: str = "vercel_legacy", reasoning: ReasoningPolicy = "native") -> None:
        self.provider, self.reasoning = provider, reasoning

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        return encode_segment(segment, provider=self.provider, blobs=blobs)

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        return self._body_with_system_message(request, messages, "functions")

    def encode_tool(self, tool: Tool) -> JSONObject:
        return decode.encode_tool(tool)

    def _decode_request(self, body: JSONObject) -> Request:
        return decode.decode_request(body, self.provider)

    def _is_reply(self, reply: JSONObject) -> bool:
        return any(name in reply for name in ("role", "content", "function_call", "messages"))

    def _decode_reply(self, reply: JSONObject) -> Message:
        messages = cast(list[JSONObject], reply["messages"]) if "messages" in reply else [reply]
        return decode.decode_reply(messages, self.provider)

    def _collect(self, events: Iterable[JSONObject]) -> JSONObject:
        """Collect the whole messages of one reply, one per call. Stream chunks of that time are not supported."""
        return {"messages": list(events)}
