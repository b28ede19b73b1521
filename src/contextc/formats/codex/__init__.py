"""Codex: the items of a thread in its app-server."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from contextc._json import JSONObject, id_text
from contextc.formats.base import Codec, CodecFormatter, EncodedSegment, Request
from contextc.formats.codex import codec
from contextc.formats.codex.codec import (
    BARE_KEY,
    ITEM_KEY,
    NAME_CODEC,
    encode_segment,
    encode_text,
    is_event,
    is_rollout_line,
)
from contextc.formats.codex.request_settings import SETTINGS
from contextc.formats.codex.rules import RULES
from contextc.formats.codex.streams import CodexStreamReader
from contextc.formats.lint_engine import RuleFinding, make_finding
from contextc.formats.message_preparation import ReasoningPolicy
from contextc.messages import Message, PairedHistory, ToolResult


class CodexFormatter(CodecFormatter):
    """Codex. `messages` are the items of a thread, and the system prompt is `developerInstructions`."""

    name = "codex"
    media_types = ("image/*", "audio/*")
    codec = Codec(codec.encode_tool, codec.decode_request, codec.decode_reply, codec.collect_turn)
    stream_reader = CodexStreamReader
    rules = RULES
    messages_key = "items"
    settings = SETTINGS
    name_codec = NAME_CODEC
    unique_ids = True
    session_line_fields = ("type", "method")
    strict_tools = False
    layout_extra = (BARE_KEY, ITEM_KEY, "turn", "text_elements")

    def check_surroundings(self, message: JSONObject) -> Iterable[RuleFinding]:
        if is_event(message) or is_rollout_line(message):
            yield make_finding(
                (0,), "`item` must be given alone, not in an event or a line of a rollout file.", field="item"
            )

    def __init__(self, *, provider: str = "codex", reasoning: ReasoningPolicy = "native") -> None:
        self.provider, self.reasoning = provider, reasoning

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        return encode_segment(segment, provider=self.provider, blobs=blobs)

    def pair_calls(self, history: Sequence[Message], *, used_ids: Collection[str] = ()) -> PairedHistory:
        """Put results in the order of their calls: the item of a call contains its result."""
        paired = super().pair_calls(history, used_ids=used_ids)
        return PairedHistory(_in_order_of_calls(paired.messages), paired.repairs)

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        body: JSONObject = {**request.settings}
        if request.system is not None and (text := encode_text(request.system, self.provider)):
            body["developerInstructions"] = text
        if tools := self.encode_tools(request.tools):
            body["dynamicTools"] = tools
        return {**body, "items": messages}

    def _is_reply(self, reply: JSONObject) -> bool:
        return isinstance(reply.get("items", reply.get("steps")), list) and "status" in reply

    def session_id_of(self, reply: JSONObject, field: str) -> str:
        return id_text(reply.get("threadId"))


def _in_order_of_calls(messages: list[Message]) -> list[Message]:
    found: list[Message] = []
    for message in messages:
        if found and message.role == "tool" and len(message.parts) > 1 and found[-1].role == "assistant":
            order = [call.id for call in found[-1].tool_calls]
            ids = [part.call_id if isinstance(part, ToolResult) else "" for part in message.parts]
            if len(order) > 1 and sorted(order) == sorted(ids) and order != ids:
                parts = dict(zip(ids, message.parts, strict=True))
                message = replace(message, parts=tuple([parts[each] for each in order]))
        found.append(message)
    return found
