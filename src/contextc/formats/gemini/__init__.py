"""Google's generateContent."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.formats.base import (
    OPENING_TEXT,
    Codec,
    CodecFormatter,
    Continuation,
    EncodedSegment,
    Request,
    own_extra,
)
from contextc.formats.gemini import codec
from contextc.formats.gemini.codec import (
    ALONE_KEY,
    BESIDE_KEY,
    CONTINUATION_TOKEN,
    ROLE_KEY,
    SPELLED_KEY,
    URLSAFE_KEY,
    append_parts,
    encode_segment,
    encode_system,
    encode_tool,
    encode_tools,
    is_same_model,
    without_signature,
)
from contextc.formats.gemini.request_settings import SETTINGS
from contextc.formats.gemini.rules import NAMES, RULES, has_thinking_level, with_signatures
from contextc.formats.gemini.streams import GeminiReplyStream, GeminiStreamReader
from contextc.formats.message_preparation import APART_KEY, NameCodec, ReasoningPolicy
from contextc.messages import PLACED_KEY, Message
from contextc.tools.definitions import NativeTool, Tool


class GeminiFormatter(CodecFormatter):
    """Google's generateContent. `signatures`: the first call of a step needs one, as in Gemini 3 and later.

    `model` is the requested model, if known. Signatures of another model are not sent to it.
    """

    name = "gemini"
    media_types = ("image/*", "audio/*", "video/*", "application/pdf")
    codec = Codec(encode_tool, codec.decode_request, codec.decode_reply, codec.collect_events)
    stream_reader = GeminiStreamReader
    reply_stream = GeminiReplyStream
    messages_key = "contents"
    rules = RULES
    repeats_request = True
    user_first = True
    caches_system_first = True
    tool_key = "functionDeclarations"
    merges_neighbours = True
    result_placement = "after replies"
    settings = SETTINGS
    name_codec = NameCodec("gemini", names=NAMES)
    strict_tools = False
    nested_extra = ("functionCall", "functionResponse", "inlineData", "fileData")
    layout_extra = (APART_KEY, PLACED_KEY, SPELLED_KEY, URLSAFE_KEY, BESIDE_KEY, ROLE_KEY, ALONE_KEY, "parameters")

    def __init__(
        self,
        *,
        provider: str = "google",
        signatures: bool = True,
        model: str | None = None,
        reasoning: ReasoningPolicy = "native",
    ) -> None:
        self.provider, self.signatures, self.model, self.reasoning = provider, signatures, model, reasoning

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        return encode_segment(
            [self._unsigned(message) for message in segment] if self.model else segment,
            provider=self.provider,
            signatures=self.signatures,
            blobs=blobs,
        )

    def _unsigned(self, message: Message) -> Message:
        """Return a reply without its signatures if another model wrote it."""
        wrote, asked = (
            own_extra(message.extra, self.provider).get("modelVersion"),
            (self.model or "").removeprefix("models/"),
        )
        if not wrote or is_same_model(wrote.removeprefix("models/"), asked):
            return message
        return replace(message, parts=tuple(without_signature(part, self.provider) for part in message.parts))

    def join(self, segments: Iterable[EncodedSegment], before: Sequence[JSONObject] = ()) -> list[JSONObject]:
        contents, sealed = list(before), before[-1] if before else None
        for segment in segments:
            for number, content in enumerate(segment.messages):
                if not contents and content["role"] == "model" and not content.get(APART_KEY):
                    append_parts(contents, "user", [{"text": OPENING_TEXT}])
                append_parts(
                    contents,
                    content["role"],
                    content["parts"],
                    apart=number > 0 or content.get(APART_KEY),
                    sealed=sealed,
                )
        return contents

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        body: JSONObject = {**request.settings, "contents": self.apply_settings(messages, request.settings)}
        if request.system is not None and (content := encode_system(request.system, self.provider)):
            snake = own_extra(request.system.extra, self.provider).get(SPELLED_KEY)
            body["system_instruction" if snake else "systemInstruction"] = content
        if tools := self.encode_tools(request.tools):
            alone = len(tools) == 1 and own_extra(request.tools[0].extra, self.provider).get(ALONE_KEY)
            body["tools"] = tools[0] if alone else tools
        return body

    def sdk_arguments(self, body: JSONObject, model: str) -> JSONObject:
        rest = {name: value for name, value in body.items() if name not in ("contents", "generationConfig", "model")}
        config: JSONObject = {**body.get("generationConfig", {}), **rest}
        return {"model": model, "contents": body["contents"], **({"config": config} if config else {})}

    def apply_settings(self, messages: list[JSONObject], settings: JSONObject) -> list[JSONObject]:
        if not (self.signatures and has_thinking_level(settings)):
            return messages
        return with_signatures({"contents": messages})["contents"]

    def read_continuation(self, reply: Message) -> Continuation | None:
        """Return the token of a reply that reached the limit of one request. It belongs to the next request only."""
        token = own_extra(reply.extra, self.provider).get(CONTINUATION_TOKEN) if reply.finish == "pause" else None
        return Continuation(token) if isinstance(token, str) else None

    def with_continuation(self, request: Request, value: str) -> Request:
        return replace(request, settings={**request.settings, CONTINUATION_TOKEN: value})

    def encode_tools(self, tools: Sequence[Tool | NativeTool]) -> list[JSONObject]:
        spelled = [tool if isinstance(tool, NativeTool) else self.name_codec.encode_tool(tool) for tool in tools]
        return encode_tools(spelled, self.provider)

    def _is_reply(self, reply: JSONObject) -> bool:
        return isinstance(reply.get("candidates"), list) or "promptFeedback" in reply or "usageMetadata" in reply
