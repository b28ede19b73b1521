"""Google's generateContent: contents and parts, encoded from and decoded into messages."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import assert_never, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, encode, encode_canonical
from contextc.formats.base import (
    EncodedSegment,
    PartEncoder,
    Request,
    append_text,
    billing_word,
    extra_of,
    mark_apart,
    merge_extra,
    other_fields,
    own_extra,
    split_at_results,
    tag_system_blocks,
)
from contextc.formats.message_preparation import APART_KEY, OpenCalls, decode_base64, encode_base64
from contextc.formats.request_settings import object_or_empty as object_or_empty
from contextc.messages import (
    AnyPart,
    BilledCall,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    UserNotice,
)
from contextc.tools.definitions import NativeTool, Tool

# ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Encoding of messages for Google's generateContent.
#
# Neighbours of one role become one content, but the results of a step have a separate content directly after its
# calls. Some endpoints refuse a content that mixes results with other parts, and some models answer it with nothing.
# There is no system role, so a system message between others becomes tagged user text. A signature belongs to its part
# and is sent back on it. A call from another provider gets the placeholder signature from Google's guide.
#
# Google's `extra` of a part has the data of its wire part beyond our types. Data of the inner object is nested:
# `{"functionCall": {"id": null}}` is a call without an id. `spelled` and `urlsafe` record notations. The `extra` of a
# message has the role of a result if it was not the user's. `alone` in the `extra` of a tool records that tools were
# not a list.


PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
RESULT_MEDIA_TYPES = ("image/jpeg", "image/png", "image/webp", "application/pdf", "text/plain")
PART_DATA_FIELDS = ("functionCall", "functionResponse", "inlineData", "fileData")
# The API accepts both spellings of its names, and clients mix them.
SNAKE_CASE_NAMES = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "thought_signature": "thoughtSignature",
    "mime_type": "mimeType",
    "file_uri": "fileUri",
    "function_declarations": "functionDeclarations",
    "parameters_json_schema": "parametersJsonSchema",
    "parameters": "parametersJsonSchema",
}
SPELLED_KEY, URLSAFE_KEY, BESIDE_KEY, ROLE_KEY, ALONE_KEY = "spelled", "urlsafe", "beside", "role", "alone"


def encode_segment(
    segment: Sequence[Message], *, provider: str, signatures: bool, blobs: Mapping[str, bytes]
) -> EncodedSegment:
    encoder = _Encoder(provider, signatures, blobs)
    wire: list[JSONObject] = []
    for message in segment:
        role = cast(
            str,
            own_extra(message.extra, provider).get(ROLE_KEY) or ("model" if message.role == "assistant" else "user"),
        )
        blocks = encoder.system(message) if message.role == "system" else encoder.blocks(message)
        apart = cast(bool | None, own_extra(message.extra, provider).get(APART_KEY))
        begins = not wire
        append_parts(wire, role, blocks, apart=apart)
        if begins and wire and apart:
            wire[0] = {**wire[0], APART_KEY: True}  # for `join`, which removes it
        append_parts(wire, "user", encoder.moved)
        encoder.moved = []
    return EncodedSegment(tuple(wire), tuple(encoder.notes), bool(wire and wire[0].get(APART_KEY)))


def append_parts(
    wire: list[JSONObject],
    role: str,
    blocks: list[JSONObject],
    *,
    apart: bool | None = None,
    sealed: JSONObject | None = None,
) -> None:
    """Append parts to the last content if it has the same role, else as a new content.

    `apart` None: results are separated from other parts. The content `sealed` is not changed but replaced by a copy.
    """
    if not blocks:
        return
    if wire and wire[-1]["role"] == role:
        before = cast(list[JSONObject], wire[-1]["parts"])
        if not (_is_result(before[-1]) != _is_result(blocks[0]) if apart is None else apart):
            if wire[-1] is sealed:
                wire[-1] = {**wire[-1], "parts": [*before, *blocks]}
            else:
                before += blocks
            return
    wire.append({"role": role, "parts": [*blocks]})


def _is_result(block: JSONObject) -> bool:
    return "functionResponse" in block or "function_response" in block


def encode_part(part: AnyPart, provider: str, unnamed: set[str]) -> JSONObject:
    """Return the wire part of one part, or an empty object if nothing would be sent.

    The calls in `unnamed` have no id on the wire.
    """
    encoder = _Encoder(provider, True, {})
    encoder.unnamed = unnamed
    role = "tool" if isinstance(part, ToolResult) else "assistant"
    blocks = encoder.blocks(Message(role=role, parts=(part,)))
    return blocks[0] if blocks else {}


def encode_system(message: Message, provider: str) -> JSONObject | None:
    """Return the system prompt, or None if it is empty."""
    blocks = _Encoder(provider, False, {}).blocks(message)
    rest = {name: value for name, value in own_extra(message.extra, provider).items() if name != SPELLED_KEY}
    return merge_extra({"parts": blocks}, {provider: rest}, provider) if blocks else None


def encode_tool(tool: Tool) -> JSONObject:
    described: JSONObject = {"description": tool.description} if tool.description else {}
    taking: JSONObject = {"parametersJsonSchema": tool.parameters} if tool.parameters else {}
    return {"name": tool.name, **described, **taking}


def encode_tools(tools: Sequence[Tool | NativeTool], provider: str) -> list[JSONObject]:
    """Return all functions in one entry, unless they were read from several. Each native tool has its own entry."""
    found: list[JSONObject] = []
    functions: list[JSONObject] | None = None
    for tool in tools:
        if isinstance(tool, NativeTool):
            if tool.provider == provider:
                found.append(tool.data)
            continue
        rest = {name: value for name, value in own_extra(tool.extra, provider).items() if name != ALONE_KEY}
        beside, spelled = (
            cast(JSONObject | None, rest.pop(BESIDE_KEY, None)),
            cast(list[str], rest.pop(SPELLED_KEY, [])),
        )
        if functions is None or beside is not None:
            functions = []
            found.append(_restore_field_names({"functionDeclarations": functions, **(beside or {})}, spelled))
        functions.append(_restore_field_names(merge_extra(encode_tool(tool), {provider: rest}, provider), spelled))
    return found


class _Encoder(PartEncoder):
    def __init__(self, provider: str, signatures: bool, blobs: Mapping[str, bytes]) -> None:
        super().__init__(provider, blobs)
        self.signatures = signatures
        self.moved: list[JSONObject] = []
        self.unnamed: set[str] = set()

    def system(self, message: Message) -> list[JSONObject]:
        self.note_tagged_system()
        return tag_system_blocks(self.blocks(message))

    def blocks(self, message: Message) -> list[JSONObject]:
        found: list[JSONObject] = []
        unsigned = self.signatures
        for part in message.parts:
            block = self.block(part)
            if block is None:
                continue
            if isinstance(part, ToolCall) and unsigned:
                unsigned = False
                block = self.signed(part, block)
            found.append(block if isinstance(part, ProviderBlock) else self.with_rest(block, part))
        return found

    def block(self, part: AnyPart) -> JSONObject | None:
        match part:
            case Text():
                # An empty part may have a signature, and Google accepts again what it accepted before.
                return {"text": part.text} if part.text.strip() or own_extra(part.extra, self.provider) else None
            case Reasoning():
                return self.reasoning(part)
            case ToolCall():
                return self.call(part)
            case ToolResult():
                return self.result(part)
            case Media():
                return self.media(part)
            case ProviderBlock():
                return part.data if part.provider == self.provider else {"text": self.native_text(part)}
            case UserNotice():
                return None
            case _:
                assert_never(part)

    def reasoning(self, part: Reasoning) -> JSONObject | None:
        if not self.is_sendable(part, part.text or part.signature):
            return None
        thought: JSONObject = {"text": part.text, "thought": True}
        return {**thought, "thoughtSignature": part.signature} if part.signature else thought

    def call(self, part: ToolCall) -> JSONObject:
        if not own_extra(part.extra, self.provider).get("functionCall", {}).get("id", part.id):
            self.unnamed.add(part.id)
        named: JSONObject = {"id": part.id} if part.id else {}
        return {"functionCall": {**named, "name": part.name, "args": self.arguments_object(part)}}

    def signed(self, part: ToolCall, block: JSONObject) -> JSONObject:
        """Return the first call of a step with a signature: its own, or the placeholder for a call from another
        provider.
        """
        if "thoughtSignature" in own_extra(part.extra, self.provider):
            return block
        self.note("made up", f"a signature for the call of {part.name}, which came from elsewhere")
        return {**block, "thoughtSignature": PLACEHOLDER_SIGNATURE}

    def result(self, part: ToolResult) -> JSONObject:
        media = [] if isinstance(part.content, str) else [each for each in part.content if isinstance(each, Media)]
        shown = [self.with_rest(self.media(each), each) for each in media if each.mime_type in RESULT_MEDIA_TYPES]
        if others := [each for each in media if each.mime_type not in RESULT_MEDIA_TYPES]:
            self.note("moved", f"media of {part.name}, into a user content after the results")
            self.moved += [{"text": f"[media returned by {part.name}]"}]
            self.moved += [self.with_rest(self.media(each), each) for each in others]
        described = [cast(str, block["text"]) for block in shown if "text" in block]
        said = "\n".join([part.text, *described] if part.text else described)
        inside = [block for block in shown if "text" not in block]
        answer: JSONObject = {"name": part.name, "response": {"error" if part.is_error else "output": said}}
        if part.call_id and part.call_id not in self.unnamed:
            answer["id"] = part.call_id
        if inside:
            answer["parts"] = inside
        return {"functionResponse": answer}

    def media(self, part: Media) -> JSONObject:
        if (data := encode_base64(part, self.blobs)) is not None:
            return {"inlineData": {"mimeType": part.mime_type, "data": data}}
        uri = part.url or (part.file_id if part.provider == self.provider else None)
        if uri is not None:
            return {"fileData": {"mimeType": part.mime_type, "fileUri": uri}}
        return {"text": self.media_text(part)}

    def with_rest(self, block: JSONObject, part: AnyPart) -> JSONObject:
        """Return the part with Google's own data restored. This reverses the decoder's `with_rest`."""
        rest = dict(own_extra(part.extra, self.provider))
        if not rest or (isinstance(part, Media) and "text" in block):
            return block
        spelled, urlsafe = cast(list[str], rest.pop(SPELLED_KEY, [])), rest.pop(URLSAFE_KEY, False)
        for name in PART_DATA_FIELDS:
            if name in block and name in rest:
                inside = {self.provider: cast(JSONObject, rest.pop(name))}
                block = {**block, name: merge_extra(block[name], inside, self.provider)}
        if urlsafe:
            inline = cast(JSONObject, block["inlineData"])
            block = {**block, "inlineData": {**inline, "data": to_urlsafe(inline["data"])}}
        return _restore_field_names(merge_extra(block, {self.provider: rest}, self.provider), spelled)


def is_same_model(wrote: str, asked: str) -> bool:
    """Return True if two names are of the same model, or of a version of it."""
    longer, shorter = (wrote, asked) if len(wrote) >= len(asked) else (asked, wrote)
    rest = longer.removeprefix(shorter)
    return longer.startswith(shorter) and (not rest or re.match(r"-(preview|exp|latest|\d)", rest) is not None)


def without_signature(part: AnyPart, provider: str) -> AnyPart:
    """Return a part without its signature."""
    if isinstance(part, Reasoning):
        return replace(part, provider=None) if part.provider == provider else part
    rest = own_extra(part.extra, provider)
    if "thoughtSignature" not in rest:
        return part
    left = {name: value for name, value in rest.items() if name != "thoughtSignature"}
    return replace(part, extra={**(part.extra or {}), provider: left})


def to_urlsafe(data: str) -> str:
    """Return base64 in the alphabet that Google's SDK writes."""
    return data.replace("+", "-").replace("/", "_")


def _restore_field_names(block: JSONObject, spelled: list[str]) -> JSONObject:
    """Return a part and its data field with the field names of the original request."""
    if not spelled:
        return block
    names = {SNAKE_CASE_NAMES[name]: name for name in spelled}
    inside = {
        name: _restore_field_names(cast(JSONObject, value), spelled)
        if name in PART_DATA_FIELDS and isinstance(value, dict)
        else value
        for name, value in block.items()
    }
    return {names.get(name, name): value for name, value in inside.items()}


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Decoding of Google's requests, replies and streams into messages.
#
# Each wire part becomes a part. Data that encoding this part would not reproduce is kept in its `extra`. A wire part
# without a matching part type becomes a `ProviderBlock`. Google's calls may have no id: such a call gets an id derived
# from its content, and is sent back without one. A content with results and other parts becomes a tool message and a
# user message.


FINISH_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "pause",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
}
TIERS = {
    "traffic_type_unspecified": "",
    "on_demand_priority": "priority",
    "on_demand_flex": "flex",
    "on_demand_offpeak": "offpeak",
    "provisioned_throughput": "provisioned",
}
"""Types of traffic, as the tiers that they are."""
CONTINUATION_TOKEN = "continuationToken"
CANDIDATE_FIELDS = (
    "finishReason",
    CONTINUATION_TOKEN,
    "finishMessage",
    "safetyRatings",
    "citationMetadata",
    "groundingMetadata",
    "urlContextMetadata",
)
OUTPUT_NAMES = ("output", "result", "return_value")  # as in Google's documentation, its SDK, and a popular framework
GOOGLE_FILE_URLS = ("https://generativelanguage.googleapis.com/", "gs://")
UNKNOWN_CALL, UNKNOWN_TYPE = "unknown", "application/octet-stream"
HEAD_FIELDS = ("contents", "systemInstruction", "system_instruction", "tools")


def decode_request(body: JSONObject, provider: str) -> Request:
    decoder = _Decoder(provider)
    messages: list[Message] = []
    before = None
    for wire in _as_list(body.get("contents")):
        role = wire.get("role") or "user"
        if role == "model" != before:
            decoder.waiting = OpenCalls[ToolCall]()
        decoded = list(decoder.content(wire))
        if decoded and role == "model" and not messages:
            decoded[0] = mark_apart(decoded[0], provider)
        if decoded and role == before and messages and bool(messages[-1].tool_results) == bool(decoded[0].tool_results):
            decoded[0] = mark_apart(decoded[0], provider)
        before = role if decoded else before
        messages += decoded
    return Request(
        messages=tuple(messages),
        system=decoder.system(body),
        tools=tuple(decoder.tools(_as_list(body.get("tools")), alone=isinstance(body.get("tools"), dict))),
        settings=other_fields(body, *HEAD_FIELDS),
    )


def decode_reply(reply: JSONObject, provider: str) -> Message:
    candidate = cast(JSONObject, (reply.get("candidates") or [{}])[0])
    content = cast(JSONObject, candidate.get("content") or {})
    decoder = _Decoder(provider, model=reply.get("modelVersion"))
    parts = tuple(decoder.part(block) for block in _as_list(content.get("parts")) if block != {"text": ""})
    usage = as_object(reply.get("usageMetadata"))
    thoughts = usage.get("thoughtsTokenCount") or 0
    searches = as_object(candidate.get("groundingMetadata")).get("webSearchQueries")
    count = len(cast(list[JSON], searches)) if isinstance(searches, list) and usage else 0
    rest = {name: reply[name] for name in ("responseId", "modelVersion", "promptFeedback") if reply.get(name)}
    rest |= {name: candidate[name] for name in CANDIDATE_FIELDS if candidate.get(name)}
    error = cast(JSONObject, reply.get("error") or {})
    return Message(
        role="assistant",
        parts=parts,
        status="error" if error else "sent",
        error=str(error.get("message")) if error else None,
        finish="error" if error else _finish(reply, candidate, parts),
        usage=Usage(
            input=(usage.get("promptTokenCount") or 0) + (usage.get("toolUsePromptTokenCount") or 0),
            output=(usage.get("candidatesTokenCount") or 0) + thoughts,
            cache_read=usage.get("cachedContentTokenCount") or 0,
            reasoning=thoughts,
            tier=billing_word(usage.get("serviceTier") or usage.get("trafficType"), TIERS),
            # Google bills searches beside the tokens, after a number of free ones.
            calls=(BilledCall(kind="google_search", count=count),) if count else (),
        ),
        extra={provider: rest} if rest else None,
    )


def _finish(reply: JSONObject, candidate: JSONObject, parts: tuple[AnyPart, ...]) -> str | None:
    reason = cast(str | None, candidate.get("finishReason"))
    if reason is None:
        blocked = cast(JSONObject, reply.get("promptFeedback") or {}).get("blockReason")
        return "content_filter" if blocked else None
    if reason == "STOP" and any(isinstance(part, ToolCall) for part in parts):
        return "tool_calls"
    return FINISH_REASONS.get(reason, reason)


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Return a reply from the chunks of its stream. A chunk is a reply with new parts and the usage so far."""
    reply: JSONObject = {}
    candidate: JSONObject = {}
    parts: list[JSONObject] = []
    for event in events:
        usage = {**as_object(reply.get("usageMetadata")), **as_object(event.get("usageMetadata"))}
        reply |= {**event, "usageMetadata": usage}
        for choice in cast(list[JSONObject], event.get("candidates") or []):
            if choice.get("index", 0) != 0:
                continue
            candidate |= {name: value for name, value in choice.items() if value is not None}
            for part in _as_list(cast(JSONObject, choice.get("content") or {}).get("parts")):
                _gather_part(parts, part)
    return {**reply, "candidates": [{**candidate, "content": {"role": "model", "parts": parts}}]}


def _gather_part(parts: list[JSONObject], part: JSONObject) -> None:
    """Append a part. Texts are joined, but a part with a signature is neither continued nor joined to another."""
    if part == {"text": ""}:
        return
    plain = part.keys() <= {"text", "thought"} and "text" in part
    if plain and parts and parts[-1].keys() == part.keys() and parts[-1].get("thought") == part.get("thought"):
        append_text(parts[-1], "text", part["text"])
    else:
        parts.append({**part})


def part_decoder(provider: str, model: str | None) -> Callable[[JSONObject], AnyPart]:
    """Return a decoder for the parts of one reply, in order. The id of an unnamed call depends on earlier parts."""
    return _Decoder(provider, model).part


class _Decoder:
    def __init__(self, provider: str, model: str | None = None) -> None:
        self.provider, self.model = provider, model
        self.waiting = OpenCalls[ToolCall]()  # calls of the last model content without results
        self.unnamed: set[str] = set()
        self.near: set[str] = set()  # ids in the last model content, with which its results are encoded

    def system(self, body: JSONObject) -> Message | None:
        snake = body.get("systemInstruction") is None
        content: JSON = body.get("system_instruction") if snake else body["systemInstruction"]
        if not content:
            return None
        wire: JSONObject = {"parts": [{"text": content}]} if isinstance(content, str) else cast(JSONObject, content)
        rest: JSONObject = {name: value for name, value in wire.items() if name != "parts" and value is not None}
        if snake:
            rest[SPELLED_KEY] = ["system_instruction"]
        parts = tuple(self.part(block) for block in _as_list(wire.get("parts")))
        return Message(role="system", parts=parts, extra={self.provider: rest} if rest else None)

    def content(self, wire: JSONObject) -> Iterator[Message]:
        """Yield the messages of one content. All but the first are marked as not separate."""
        role: Role = "assistant" if wire.get("role") == "model" else "user"
        if role == "assistant":
            self.near = set()
        decoded = [self.part(block) for block in _as_list(wire.get("parts"))]
        for number, parts in enumerate(split_at_results(decoded)):
            message = Message(role="tool" if isinstance(parts[0], ToolResult) else role, parts=tuple(parts))
            # A content with calls always gets the role "model": Google refuses any other.
            if wire.get("role") not in (None, "", "user", "model") and not message.tool_calls:
                message = replace(message, extra={self.provider: {ROLE_KEY: wire["role"]}})
            yield mark_apart(message, self.provider, False) if number else message

    def part(self, wire: JSONObject) -> AnyPart:
        block, spelled = _canonical_part(wire)
        part = self._part(block) or ProviderBlock(provider=self.provider, data=wire)
        return part if isinstance(part, ProviderBlock) else self.with_rest(part, block, spelled)

    def _part(self, block: JSONObject) -> AnyPart | None:
        """Return the part, or None if no type matches."""
        match block:
            case {"text": str(text), "thought": True}:
                signature = block.get("thoughtSignature")
                return Reasoning(text=text, signature=signature, provider=self.provider, model=self.model)
            case {"functionCall": {"name": str(name)} as call}:
                return self.call(name, cast(JSONObject, call), block.get("thoughtSignature"))
            case {"functionResponse": {"name": str(name)} as answer}:
                return self.result(name, cast(JSONObject, answer))
            case {"thought": True}:
                return None
            case {"text": str(text)}:
                return Text(text)
            case {"inlineData": {"data": str(text), "mimeType": str(mime_type)}}:
                data = decode_base64(text, urlsafe=True)
                return Media(mime_type=mime_type, data=data) if data else None
            case {"fileData": {"fileUri": str(uri)} as file}:
                return self.file(uri, cast(JSONObject, file).get("mimeType") or UNKNOWN_TYPE)
            case _:
                return None

    def call(self, name: str, call: JSONObject, signature: JSON) -> ToolCall | None:
        arguments = cast(object, call.get("args") or {})
        if not isinstance(arguments, dict):
            return None
        call_id = cast(str | None, call.get("id"))
        if not call_id:
            said = encode_canonical([len(self.waiting), name, arguments, signature])
            call_id = f"call_{sha256(said).hexdigest()[:24]}"
            self.unnamed.add(call_id)
            self.near.add(call_id)
        made = ToolCall(id=call_id, name=name, arguments=cast(JSONObject, arguments))
        kinds = ("name", "unnamed") if call_id in self.unnamed else ("name",)
        self.waiting.add(made, ("id", call_id), *[(kind, name) for kind in kinds])
        return made

    def result(self, name: str, answer: JSONObject) -> ToolResult:
        response = cast(JSONObject, answer.get("response") or {})
        text, is_error = _response_text(response)
        inner = [self.part(block) for block in _as_list(answer.get("parts"))]
        media = [part for part in inner if isinstance(part, Media) and part.mime_type in RESULT_MEDIA_TYPES]
        return ToolResult(
            call_id=self.answered(name, answer.get("id")),
            name=name,
            content=((Text(text), *media) if text else tuple(media)) if media else text,
            is_error=is_error,
        )

    def answered(self, name: str, call_id: str | None) -> str:
        """Return the id of the call that a result answers: its own, or that of the first open call of its name."""
        call = self.waiting.pop(("id", call_id)) or self.waiting.pop(("unnamed" if call_id else "name", name))
        return call.id if call is not None else call_id or UNKNOWN_CALL

    def file(self, uri: str, mime_type: str) -> Media:
        if uri.startswith(GOOGLE_FILE_URLS):
            return Media(mime_type=mime_type, file_id=uri, provider=self.provider)
        return Media(mime_type=mime_type, url=uri)

    def with_rest(self, part: AnyPart, block: JSONObject, spelled: list[str]) -> AnyPart:
        """Return the part, with data of its wire part that our encoding would not reproduce."""
        ours = encode_part(part, self.provider, self.near)
        rest = dict(own_extra(extra_of(block, ours, self.provider), self.provider))
        for name in PART_DATA_FIELDS:
            if isinstance(rest.get(name), dict) and name in ours:
                rest[name] = own_extra(extra_of(rest[name], ours[name], self.provider), self.provider)
        if "inlineData" in rest and rest["inlineData"].get("data") == to_urlsafe(ours["inlineData"]["data"]):
            rest["inlineData"] = {name: value for name, value in rest["inlineData"].items() if name != "data"}
            rest[URLSAFE_KEY] = True
        rest = {name: value for name, value in rest.items() if name not in PART_DATA_FIELDS or value != {}}
        if spelled:
            rest[SPELLED_KEY] = spelled
        return replace(part, extra={self.provider: rest}) if rest else part

    def tools(self, entries: list[JSONObject], *, alone: bool) -> Iterator[Tool | NativeTool]:
        """Yield the tools. `alone`: the request has a single entry in place of a list."""
        for tool in self._tools(entries):
            rest = own_extra(tool.extra, self.provider)
            yield replace(tool, extra={self.provider: {**rest, ALONE_KEY: True}}) if alone else tool

    def _tools(self, entries: list[JSONObject]) -> Iterator[Tool | NativeTool]:
        begun = False
        for wire in entries:
            entry, spelled = _canonical_part(wire)
            functions = _as_list(entry.pop("functionDeclarations", None))
            if not functions:
                yield NativeTool(provider=self.provider, data=wire)
                continue
            for number, function in enumerate(functions):
                beside = entry if number == 0 and (begun or entry) else None
                yield self.tool(function, beside, spelled if number == 0 else [])
            begun = True

    def tool(self, wire: JSONObject, beside: JSONObject | None, spelled: list[str]) -> Tool:
        function, names = _canonical_part(wire, ("parameters",))
        schema = object_or_empty(function.get("parametersJsonSchema"))
        made = Tool(
            name=function["name"],
            description=function.get("description") or "",
            parameters=json_schema(schema) if "parameters" in names else schema,
        )
        rest = dict(own_extra(extra_of(function, encode_tool(made), self.provider), self.provider))
        if beside is not None:
            rest[BESIDE_KEY] = beside
        if spelled or names:
            rest[SPELLED_KEY] = [*spelled, *names]
        return replace(made, extra={self.provider: rest}) if rest else made


def _canonical_part(wire: JSONObject, also: tuple[str, ...] = ()) -> tuple[JSONObject, list[str]]:
    """Return a part with canonical field names and without nulls, and those of its names that were different."""
    found: JSONObject = {}
    spelled: list[str] = []
    for name, value in wire.items():
        ours = SNAKE_CASE_NAMES.get(name, name) if "_" in name or name in also else name
        if value is None or (ours != name and wire.get(ours) is not None):
            ours = name
        elif ours != name:
            spelled.append(name)
        inside: JSON = value
        if ours in PART_DATA_FIELDS and isinstance(value, dict):
            inside, more = _canonical_part(cast(JSONObject, value))
            spelled += more
        if value is not None:
            found[ours] = inside
    return found, spelled


def _response_text(response: JSONObject) -> tuple[str, bool]:
    """Return the text of a response, and True if it is an error."""
    if len(response) == 1:
        name, value = next(iter(response.items()))
        if name == "error" or name in OUTPUT_NAMES:
            return value if isinstance(value, str) else encode(value).decode(), name == "error"
    return encode(response).decode() if response else "", False


def _as_list(value: JSON) -> list[JSONObject]:
    """Return a list. The API also accepts one object in place of a list of one."""
    return [cast(JSONObject, value)] if isinstance(value, dict) else cast(list[JSONObject], value or [])


def json_schema(schema: JSON) -> JSON:
    """Return a schema of Google, whose types are in capitals, as JSON Schema."""
    if isinstance(schema, list):
        return [json_schema(each) for each in cast(list[JSON], schema)]
    if not isinstance(schema, dict):
        return schema
    given = cast(JSONObject, schema)
    made: JSONObject = {
        name: {key: json_schema(each) for key, each in cast(JSONObject, value).items()}
        if name == "properties" and isinstance(value, dict)
        else json_schema(value)
        for name, value in given.items()
        if name not in ("nullable", "propertyOrdering", "example", "enum")
    }
    if isinstance(kind := given.get("type"), str):
        made["type"] = [kind.lower(), "null"] if given.get("nullable") is True else kind.lower()
    return {**made, "enum": given["enum"]} if "enum" in given else made
