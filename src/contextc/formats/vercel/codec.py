"""The Vercel AI SDK's model messages, encoded and decoded, also from UI messages."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, assert_never, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, decode, encode
from contextc.formats.base import (
    EncodedSegment,
    PartEncoder,
    Request,
    as_text,
    decode_definition,
    encode_definition,
    extra_of,
    merge_extra,
    own_extra,
    simplify_content,
    split_at_results,
    with_extra,
)
from contextc.formats.message_preparation import decode_base64, describe_media, encode_base64
from contextc.formats.vercel import ui_messages
from contextc.messages import (
    AnyPart,
    Extra,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    UserNotice,
    tool_call,
)
from contextc.tools.definitions import NativeTool, Tool

# ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Encode messages as `ModelMessage`s of the Vercel AI SDK, version 7.
#
# Each message stays one message, with its parts in order; a single plain text is a string. The SDK calls many
# providers. So signed reasoning is sent under the name of the provider that signed it (`providerOptions`), and other
# providers ignore it. A system message keeps its role anywhere, which the SDK accepts with `allowSystemInMessages`. A
# response to an approval request comes from a person, so it is a user message in contextc. The SDK has it in the tool
# message, before the result of its call.


ORIGINAL_FORM = "shape"
"""Key in `extra`: the original form of an object, where the SDK accepts several forms."""
DENIED = "Tool execution denied."
DENIED_BECAUSE = "Tool execution denied: "
PROOF_FIELDS: dict[str, dict[str, str]] = {
    "anthropic": {"signature": "signature", "data": "redactedData"},
    "bedrock": {"signature": "signature", "data": "redactedContent"},
    "openai": {"id": "itemId", "data": "reasoningEncryptedContent"},
    "google": {"signature": "thoughtSignature"},
}
"""Fields that prove reasoning, by provider: the field of `Reasoning` and the SDK's."""
CARRIED_FIELDS = {"google": ("thoughtSignature",)}
"""Further fields of a part that the SDK passes to its provider."""


def encode_segment(segment: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> EncodedSegment:
    encoder = _Encoder(provider, blobs)
    wire: list[JSONObject] = []
    for message in _separate_user_parts(segment, provider):
        if message.role == "tool":
            wire += encoder.tool(message)
        elif is_approval_response(message, provider):
            _add_approval_responses(wire, message, provider)
        elif (encoded := encoder.message(message)) is not None:
            wire.append(encoded)
    return EncodedSegment(tuple(wire), tuple(encoder.notes))


def encode_instructions(message: Message, provider: str) -> JSONObject:
    """Return the system prompt as the SDK's `instructions`; nothing if it is blank."""
    text = _Encoder(provider, {}).plain(message)
    return merge_extra({"instructions": text}, message.extra, provider) if text else {}


def original_form(extra: Extra | None, provider: str) -> JSONObject:
    return cast(JSONObject, own_extra(extra, provider).get(ORIGINAL_FORM) or {})


def carried_options(part: AnyPart) -> JSONObject:
    """Return the fields for other providers that the SDK passes on, as `providerOptions`."""
    found: JSONObject = {}
    for provider, names in CARRIED_FIELDS.items():
        said = {name: value for name, value in own_extra(part.extra, provider).items() if name in names}
        if said and not isinstance(part, Reasoning):
            found[provider] = said
    return found


def restore_original(ours: JSONObject, extra: Extra | None, provider: str) -> JSONObject:
    """Return `merge_extra` without the key that records the original form."""
    return {name: value for name, value in merge_extra(ours, extra, provider).items() if name != ORIGINAL_FORM}


class _Encoder(PartEncoder):
    def message(self, message: Message) -> JSONObject | None:
        """Encode a system, user or assistant message; return None if none of it can be sent."""
        if message.role == "system":
            content: JSON = self.plain(message)
            self.note("made up", "allowSystemInMessages, because a system message stands among others")
        else:
            blocks = self.blocks(message.parts)
            listed = bool(original_form(message.extra, self.provider).get("list"))
            content = blocks if listed else simplify_content(blocks, "text")
        if not content and "content" not in own_extra(message.extra, self.provider):
            return None
        return restore_original({"role": message.role, "content": content}, message.extra, self.provider)

    def tool(self, message: Message) -> list[JSONObject]:
        """Encode a tool message, and a user message for the parts that a tool message cannot hold."""
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        wire: list[JSONObject] = []
        if results:
            rest: JSONObject = {}
            for result in results:
                rest |= cast(JSONObject, original_form(result.extra, self.provider).get("message") or {})
            wire.append({"role": "tool", "content": self.blocks(results), **rest})
        if others := self.blocks([part for part in message.parts if not isinstance(part, ToolResult)]):
            self.note("moved", "what is no result, from a tool message into a user message")
            wire.append({"role": "user", "content": simplify_content(others, "text")})
        return wire

    def plain(self, message: Message) -> str:
        """Return the text of a message that may hold nothing else."""
        texts: list[str] = []
        for part in message.parts:
            match part:
                case Text():
                    texts.append(part.text)
                case Media():
                    self.note("described", f"{part.kind} in a system message")
                    texts.append(describe_media(part))
                case ProviderBlock():
                    texts.append(self.native_text(part))
                case Reasoning() | ToolCall() | ToolResult() | UserNotice():
                    pass
                case _:
                    assert_never(part)
        return "\n\n".join(text for text in texts if text)

    def blocks(self, parts: Iterable[AnyPart]) -> list[JSONObject]:
        found: list[JSONObject] = []
        for part in parts:
            if _is_steering(part, self.provider):
                found += ui_messages.steering_content(cast(JSONObject, cast(ProviderBlock, part).data))
                continue
            block = self.block(part)
            if block is not None and not isinstance(part, ProviderBlock):
                options = {"providerOptions": also} if part.extra and block and (also := carried_options(part)) else {}
                block = restore_original({**block, **options}, part.extra, self.provider)
            if block:
                found.append(block)
        return found

    def block(self, part: AnyPart) -> JSONObject | None:
        match part:
            case Text():
                return {"type": "text", "text": part.text} if part.text else {}
            case Reasoning():
                return self.reasoning(part)
            case ToolCall():
                given = self.arguments_object(part)
                return {"type": "tool-call", "toolCallId": part.id, "toolName": part.name, "input": given}
            case ToolResult():
                output = self.output(part)
                return {"type": "tool-result", "toolCallId": part.call_id, "toolName": part.name, "output": output}
            case Media():
                return self.media(part)
            case ProviderBlock():
                return self.native(part)
            case UserNotice():
                return None
            case _:
                assert_never(part)

    def reasoning(self, part: Reasoning) -> JSONObject | None:
        fields = PROOF_FIELDS.get(part.provider or "", {})
        proof = {theirs: value for ours, theirs in fields.items() if (value := getattr(part, ours)) is not None}
        options = {part.provider or "": proof} if proof else {}
        if not options and part.provider != self.provider:
            self.note("left out", f"unsigned reasoning of {part.provider or 'an unknown provider'}")
            return None
        said: JSONObject = {"type": "reasoning", "text": part.text}
        return {**said, "providerOptions": options} if options else said

    def native(self, part: ProviderBlock) -> JSONObject | None:
        if part.provider != self.provider:
            return {"type": "text", "text": self.native_text(part)}
        data = cast(JSONObject, part.data)
        if str(data.get("type")).startswith(("data-", "source-")):
            self.note("left out", f"{data['type']}, which only a user interface is shown")
            return None
        return data

    def output(self, part: ToolResult) -> JSONObject:
        match original_form(part.extra, self.provider).get("output"):
            case "json" | "error-json" as kind if isinstance(part.content, str):
                return {"type": kind, "value": decode(part.content)}
            case "execution-denied" if isinstance(part.content, str):
                reason = {} if part.content == DENIED else {"reason": part.content.removeprefix(DENIED_BECAUSE)}
                return {"type": "execution-denied", **reason}
            case _:
                pass
        if isinstance(part.content, str):
            return {"type": "error-text" if part.is_error else "text", "value": part.content}
        if part.is_error and all(isinstance(each, Text) for each in part.content):
            return {"type": "error-text", "value": part.text}
        if part.is_error:
            self.note("left out", f"that the result of {part.name}, which holds media, is an error")
        return {"type": "content", "value": [self.returned(each) for each in part.content]}

    def returned(self, part: Text | Media) -> JSONObject:
        """Encode text or media inside a result."""
        if isinstance(part, Text):
            return restore_original({"type": "text", "text": part.text}, part.extra, self.provider)
        name = {"filename": part.name} if part.name else {}
        if original_form(part.extra, self.provider).get("tag"):
            block = self.media(part)
        elif (text := encode_base64(part, self.blobs)) is not None:
            block = {"type": "file-data", "data": text, "mediaType": part.mime_type, **name}
        elif part.url is not None:
            block = {"type": "file-url", "url": part.url, "mediaType": part.mime_type}
        else:
            block = self.described(part)
        return restore_original(block, part.extra, self.provider)

    def media(self, part: Media) -> JSONObject:
        spelling = original_form(part.extra, self.provider)
        text = encode_base64(part, self.blobs)
        data: JSON = part.url
        if text is not None:
            data = f"data:{part.mime_type};base64,{text}" if spelling.get("data_url") else text
        elif part.file_id is not None and (
            part.provider == self.provider or "data" in own_extra(part.extra, self.provider)
        ):
            data = {part.provider or self.provider: part.file_id}
        if data is None:
            return self.described(part)
        if tag := spelling.get("tag"):
            data = {"type": tag, tag: data}
        name = {"filename": part.name} if part.name else {}
        if spelling.get("image"):
            return {"type": "image", "image": data, "mediaType": part.mime_type}
        return {"type": "file", "mediaType": part.mime_type, "data": data, **name}

    def described(self, part: Media) -> JSONObject:
        return {"type": "text", "text": self.media_text(part)}


def is_approval_response(message: Message, provider: str) -> bool:
    """Return True if a message holds only approval responses, which belong in the tool message."""
    return bool(message.parts) and all(_is_approval_part(part, provider) for part in message.parts)


def _is_approval_part(part: AnyPart, provider: str) -> bool:
    return (
        type(part) is ProviderBlock
        and part.provider == provider
        and original_form(part.extra, provider).get("role") == "tool"
    )


def _separate_user_parts(segment: Sequence[Message], provider: str) -> Iterator[Message]:
    """Yield the segment. Approval responses and steering messages inside a reply follow its results."""
    later: list[Message] = []
    for message in segment:
        if message.role != "tool":
            yield from later
            later = []
        if message.role == "assistant":
            aside = [_is_approval_part(part, provider) or _is_steering(part, provider) for part in message.parts]
            if any(aside):
                parts = list(zip(message.parts, aside, strict=True))
                later = [Message(role="user", parts=(part,)) for part, is_aside in parts if is_aside]
                message = replace(message, parts=tuple([part for part, is_aside in parts if not is_aside]))
        yield message
    yield from later


def _is_steering(part: AnyPart, provider: str) -> bool:
    return (
        type(part) is ProviderBlock
        and part.provider == provider
        and isinstance(part.data, dict)
        and ui_messages.is_steering_message(cast(JSONObject, part.data))
    )


def _add_approval_responses(wire: list[JSONObject], message: Message, provider: str) -> None:
    """Add approval responses to the preceding tool message, or as a separate one if they came so and still may."""
    answers = [cast(JSONObject, part.data) for part in message.parts if isinstance(part, ProviderBlock)]
    alone = restore_original({"role": "tool", "content": answers}, message.extra, provider)
    if not wire or wire[-1]["role"] != "tool":
        wire.append(alone)
        return
    asked = {
        block.get("approvalId"): block.get("toolCallId")
        for message in wire
        if isinstance(message["content"], list)
        for block in cast(list[JSONObject], message["content"])
        if block.get("type") == "tool-approval-request"
    }
    content = list(cast(list[JSONObject], wire[-1]["content"]))
    if original_form(message.extra, provider).get("apart"):
        here = {block.get("toolCallId") for block in content if block.get("type") == "tool-result"}
        mine = {asked.get(answer.get("approvalId")) for answer in answers}
        if not here & mine or here <= mine:
            wire.insert(len(wire) - 1 if here & mine else len(wire), alone)
            return
    before: dict[JSON, list[JSONObject]] = {}
    for answer in answers:
        before.setdefault(asked.get(answer.get("approvalId")), []).append(answer)
    ids = {block.get("toolCallId") for block in content} - {None}
    last = [answer for answer in answers if asked.get(answer.get("approvalId")) not in ids]
    content = [each for block in content for each in (*before.pop(block.get("toolCallId") or 0, ()), block)]
    wire[-1] = {**wire[-1], "content": [*content, *last]}


# ── decided calls ─────────────────────────────────────────────────────────────────────────────────────────────────────
# Send back calls that a person has just approved or denied.
#
# The SDK runs approved calls, and reports denied ones, before it calls the model. So these calls are sent without a
# result. Pairing would insert a result, which the SDK would take for the tool's. To prevent that, the calls become
# native parts.
#
#     Before                                     After
#     assistant  call a, Native request          assistant  Native call a, Native request
#     user       Native answer                   user       Native answer


def seal_decided_calls(messages: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> Sequence[Message]:
    """Return the messages; calls decided by the approval responses at their end become native parts."""
    end = len(messages)
    while end and (messages[end - 1].role == "tool" or is_approval_response(messages[end - 1], provider)):
        end -= 1
    answers = [part for message in messages[end:] if message.role != "tool" for part in message.parts]
    if not answers:
        return messages
    begin = end
    while begin and (
        messages[begin - 1].role in ("assistant", "tool") or is_approval_response(messages[begin - 1], provider)
    ):
        begin -= 1
    turn = messages[begin:]
    answered = {_get(part, "approvalId") for part in answers}
    decided = {
        _get(part, "toolCallId")
        for message in turn
        for part in message.parts
        if _get(part, "type") == "tool-approval-request" and _get(part, "approvalId") in answered
    }
    results = Counter(result.call_id for message in turn for result in message.tool_results)

    def sealed(part: AnyPart) -> AnyPart:
        if not isinstance(part, ToolCall) or part.id not in decided:
            return part
        if results[part.id]:  # an earlier call of this id that already has its result
            results[part.id] -= 1
            return part
        alone = Message(role="assistant", parts=(part,), extra={provider: {ORIGINAL_FORM: {"list": True}}})
        (wire,) = encode_segment([alone], provider=provider, blobs=blobs).messages
        return ProviderBlock(provider=provider, data=wire["content"][0])

    seal = [replace(message, parts=tuple([sealed(part) for part in message.parts])) for message in turn]
    return [*messages[:begin], *seal]


def _get(part: AnyPart, name: str) -> str | None:
    data = cast(JSONObject, part.data) if isinstance(part, ProviderBlock) and isinstance(part.data, dict) else {}
    value = data.get(name)
    return value if isinstance(value, str) else None


# ── decoding UI messages ──────────────────────────────────────────────────────────────────────────────────────────────
# Decode the AI SDK's `UIMessage`.
#
# It holds a whole turn. Each step becomes an assistant message and a tool message. User messages sent meanwhile become
# user messages between them, as in `convertToModelMessages`. Unlike there, nothing is left out.


PartDecoder: TypeAlias = Callable[[JSONObject, Role], AnyPart]
"""Decode a part of a `ModelMessage`, given the role of its message."""
URL_SCHEMES = ("https:", "http:", "data:")


def decode_ui_message(
    wire: JSONObject, decode: PartDecoder, provider: str, *, as_one_message: bool
) -> Iterator[Message]:
    """Decode one `UIMessage`. Its id becomes the uid of the first message; steering messages have their own.

    With `as_one_message`, steering messages stay in the message that they steered.
    """
    uid, role, about = cast(str, wire.get("id") or ""), cast(Role, wire["role"]), message_metadata(wire)
    parts = _Parts(decode, provider)
    for step in ui_messages.split_steps(cast(list[JSONObject], wire["parts"])):
        if step and ui_messages.is_steering_message(step[0]) and not as_one_message:
            heard = tuple(parts.part(each, "user") for each in cast(list[JSONObject], step[0]["parts"]))
            yield Message(role="user", parts=heard, uid=cast(str, step[0].get("id") or ""))
            continue
        said: list[AnyPart] = []
        results: list[AnyPart] = []
        answers: list[AnyPart] = []
        for part in step:
            if ui_messages.is_tool_part(part):
                parts.tool(part, said, results, answers)
            else:
                said.append(parts.part(part, role))
        if said:
            yield Message(role=role, parts=tuple(said), uid=uid, meta=about)
            uid, about = "", None
        if answers:
            yield Message(role="user", parts=tuple(answers))
        if results:
            yield Message(role="tool", parts=tuple(results))


def message_metadata(wire: JSONObject) -> JSONObject | None:
    return cast(JSONObject, wire["metadata"]) if isinstance(wire.get("metadata"), dict) else None


class _Parts(NamedTuple):
    decode: PartDecoder
    provider: str

    def part(self, part: JSONObject, role: Role) -> AnyPart:
        block = ui_messages.to_model_part(part)
        made = self.decode(block, role)
        if part.get("type") != "file" or part.get("providerReference") is None:
            return made
        shown = self.decode({**block, "data": part.get("url")}, role)  # other providers get the content of its URL
        if not isinstance(shown, Media) or not str(part["url"]).startswith(URL_SCHEMES):
            return made
        rest = (shown.extra or {}).get(self.provider, {})
        return replace(shown, extra={self.provider: {**rest, "data": block["data"]}})

    def tool(self, part: JSONObject, said: list[AnyPart], results: list[AnyPart], answers: list[AnyPart]) -> None:
        """Decode a tool part, which holds a call, its result and the approval request and response in between."""
        call_id, name = part["toolCallId"], part.get("toolName") or part["type"].removeprefix("tool-")
        given = part.get("input") if part.get("input") is not None else part.get("rawInput")
        call: JSONObject = {"type": "tool-call", "toolCallId": call_id, "toolName": name, "input": given}
        result: JSONObject = {
            "type": "tool-result",
            "toolCallId": call_id,
            "toolName": name,
            "output": ui_messages.tool_output(part),
        }
        if part.get("callProviderMetadata"):
            call["providerOptions"] = result["providerOptions"] = part["callProviderMetadata"]
        if part.get("resultProviderMetadata"):
            result["providerOptions"] = part["resultProviderMetadata"]
        by_provider = part.get("providerExecuted") is True
        if part.get("state") == "input-streaming":
            said.append(ToolCall(id=call_id, name=name, arguments={}, raw=as_text(given), malformed=True))
        else:
            said.append(self.decode({**call, "providerExecuted": True} if by_provider else call, "assistant"))
        if (asked := ui_messages.approval_request(part)) is not None:
            said.append(self.decode(asked, "assistant"))
        if (told := ui_messages.approval_response(part)) is not None:
            answers.append(self.decode(told, "tool"))
        if result["output"] is None:
            return
        if not by_provider:
            results.append(self.decode(result, "tool"))
        elif part.get("state") == "approval-responded":  # beside the response, although its call is not open
            answers.append(
                ProviderBlock(
                    provider=self.provider, data=result, extra={self.provider: {ORIGINAL_FORM: {"role": "tool"}}}
                )
            )
        else:
            said.append(self.decode(result, "assistant"))


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Decode the AI SDK's messages, `ModelMessage` and `UIMessage`.
#
# Each part of the SDK becomes one part. Fields that encoding would not reproduce, such as `providerOptions`, are kept
# in its `extra`. Parts without a corresponding type become `ProviderBlock`: provider-executed calls, approval
# requests, `data-*`, `source-*`.


FINISH = {"tool-calls": "tool_calls", "content-filter": "content_filter"}
REQUEST_FIELDS = ("messages", "instructions", "system", "tools")


def decode_request(body: JSONObject, provider: str) -> Request:
    decoder = _Decoder(provider)
    return Request(
        messages=tuple(decoder.messages(cast(list[JSONObject], body.get("messages") or []))),
        system=decoder.instructions(body),
        tools=tuple(decoder.tools(body.get("tools") or [])),
        settings={
            name: value
            for name, value in body.items()
            if name not in REQUEST_FIELDS or (name == "tools" and not value and value is not None)
        },
    )


def decode_reply(reply: JSONObject, provider: str) -> Message:
    """Decode all steps of an assistant message, a `ModelMessage` or a `UIMessage`, as one message.

    Tool results are left out: they belong to tool messages, as in `decode_request`. User messages
    and approval responses sent meanwhile stay in place, for the SDK alone.
    """
    decoded = _Decoder(provider, in_one=True).messages([reply])
    messages = [
        message for message in decoded if message.role == "assistant" or is_approval_response(message, provider)
    ]
    first = (
        messages[0] if messages else Message(role="assistant", uid=reply.get("id") or "", meta=message_metadata(reply))
    )
    reason = cast(str | None, reply.get("finishReason"))
    error = cast(str | None, reply.get("errorText"))
    return replace(
        first,
        parts=tuple(part for message in messages for part in message.parts),
        finish=FINISH.get(reason, reason) if reason else None,
        status="error" if error is not None else "cancelled" if reply.get("aborted") else "sent",
        error=error,
    )


class _Decoder:
    def __init__(self, provider: str, *, in_one: bool = False) -> None:
        self.provider, self.in_one = provider, in_one
        self.names: dict[str, str] = {}

    def messages(self, wire: list[JSONObject]) -> Iterator[Message]:
        for each in wire:
            message = ui_messages.with_content_in_parts(each) if "parts" in each else each
            if ui_messages.is_ui_message(message):
                yield from decode_ui_message(message, self.part, self.provider, as_one_message=self.in_one)
            else:
                yield from self.message(message)

    def instructions(self, body: JSONObject) -> Message | None:
        """Decode the system prompt: text, or one or several system messages. Before version 6 it was in `system`."""
        given = {name: body[name] for name in ("instructions", "system") if body.get(name)}
        said = next(iter(given.values()), None)
        if said is None:
            return None
        texts = cast(list[JSON], said if isinstance(said, list) else [said])
        parts = [Text(cast(str, each if isinstance(each, str) else each["content"])) for each in texts]
        message = Message(role="system", parts=tuple(parts))
        return replace(message, extra=extra_of(given, encode_instructions(message, self.provider), self.provider))

    def message(self, wire: JSONObject) -> Iterator[Message]:
        """Decode a `ModelMessage`. Tool results, and the parts before and after them, become separate messages."""
        role, content = cast(Role, wire["role"]), wire.get("content")
        rest = {name: value for name, value in wire.items() if name not in ("role", "content") and value is not None}
        if not content:
            rest["content"] = content if content is not None else []
        if isinstance(content, str):
            parts: list[AnyPart] = [Text(content)] if content else []
        else:
            blocks = cast(list[JSONObject], content or [])
            parts = [self.part(block, role) for block in blocks]
            if len(blocks) == 1 and blocks[0].keys() == {"type", "text"} and blocks[0]["text"]:
                rest[ORIGINAL_FORM] = {"list": True}
        groups = split_at_results(parts)
        if role == "tool" and len(groups) == 1 and all(isinstance(part, ProviderBlock) for part in parts):
            rest[ORIGINAL_FORM] = {"apart": True}
        for group in groups or ([[]] if role != "tool" else []):
            yield self.made(role, group, rest)
            rest = {}

    def made(self, role: Role, parts: list[AnyPart], rest: JSONObject) -> Message:
        if parts and isinstance(parts[0], ToolResult):
            if rest:  # on a result, because pairing rebuilds the tool message
                parts[0] = replace(parts[0], extra=_with_shape(parts[0].extra, self.provider, {"message": rest}))
            return Message(role="tool", parts=tuple(parts))
        extra: Extra | None = {self.provider: rest} if rest else None
        return Message(role="user" if role == "tool" else role, parts=tuple(parts), extra=extra)

    def part(self, block: JSONObject, role: Role = "assistant") -> AnyPart:
        match block.get("type"):
            case "text":
                part: AnyPart = Text(block["text"])
            case "reasoning":
                return self.reasoning(block)
            case "tool-call" if not block.get("providerExecuted"):
                return self.call(block)
            case "tool-result" if role == "tool" or block["toolCallId"] in self.names:
                return self.result(block)
            case "file":
                part = self.media(block, block["data"])
            case "image":
                part = self.media(block, block["image"], {"image": True})
            case _:
                part = ProviderBlock(provider=self.provider, data=block)
        if isinstance(part, ProviderBlock):
            return replace(part, extra={self.provider: {ORIGINAL_FORM: {"role": "tool"}}}) if role == "tool" else part
        return self.with_rest(part, block)

    def with_rest(self, part: AnyPart, block: JSONObject) -> AnyPart:
        """Return the part with the fields that encoding would not reproduce, and those for other providers."""
        if not isinstance(part, Reasoning) and (said := _other_provider_fields(block)):
            part = replace(part, extra=said)
        role: Role = "tool" if isinstance(part, ToolResult) else "assistant"
        alone = Message(role=role, parts=(part,), extra={self.provider: {ORIGINAL_FORM: {"list": True}}})
        wire = encode_segment([alone], provider=self.provider, blobs={}).messages
        ours = cast(JSONObject, wire[0]["content"][0]) if wire else {}
        return self.and_rest(part, extra_of(block, ours, self.provider))

    def and_rest(self, part: AnyPart, extra: Extra | None) -> AnyPart:
        if not extra:
            return part
        before = part.extra or {}
        return replace(part, extra={**before, self.provider: {**before.get(self.provider, {}), **extra[self.provider]}})

    def reasoning(self, block: JSONObject) -> AnyPart:
        options = cast(JSONObject, block.get("providerOptions") or {})
        signers = [name for name in options if name in PROOF_FIELDS and isinstance(options[name], dict)]
        made = Reasoning(text=block["text"], provider=self.provider)
        if len(signers) == 1:
            provider = signers[0]
            given = cast(JSONObject, options[provider])
            proof: JSONObject = {ours: given.get(theirs) for ours, theirs in PROOF_FIELDS[provider].items()}
            if any(isinstance(value, str) for value in proof.values()):
                known = {ours: value for ours, value in proof.items() if isinstance(value, str)}
                made = replace(made, provider=provider, **known)
        return self.with_rest(made, block)

    def call(self, block: JSONObject) -> AnyPart:
        given = block.get("input")
        self.names[block["toolCallId"]] = block["toolName"]
        arguments = cast(JSONObject, given) if isinstance(given, dict) else as_text(given)
        made = tool_call(block["toolCallId"], block["toolName"], arguments)
        return self.with_rest(made, {**block, "input": {} if given is None else given})

    def result(self, block: JSONObject) -> AnyPart:
        output = cast(JSONObject, block["output"])
        content: str | tuple[Text | Media, ...] | None = None
        spelling: JSONObject = {}
        match output.get("type"):
            case "text" | "error-text":
                content = output["value"]
            case "execution-denied":
                content = f"{DENIED_BECAUSE}{output['reason']}" if output.get("reason") else DENIED
                spelling = {"output": "execution-denied"}
            case "content":
                content = self.returned(cast(list[JSONObject], output["value"]))
            case "json" | "error-json" as kind:
                content = encode(output.get("value")).decode()
                spelling = {"output": kind}
            case _:
                pass
        made = ToolResult(
            call_id=block["toolCallId"],
            name=block["toolName"],
            content=content if content is not None else as_text(output.get("value", output)),
            is_error=output.get("type") in ("error-text", "error-json", "execution-denied"),
            extra=_with_shape(None, self.provider, spelling),
        )
        return self.with_rest(made, block)

    def returned(self, value: list[JSONObject]) -> tuple[Text | Media, ...] | None:
        """Decode the content of a result if it is text and media only."""
        found: list[Text | Media] = []
        for block in value:
            match block.get("type"):
                case "text":
                    part: AnyPart = Text(block["text"])
                case "file-data" | "image-data" | "media" | "file":
                    part = self.media(block, block["data"])
                case "file-url" | "image-url":
                    part = self.media(block, block["url"])
                case _:
                    return None
            if not isinstance(part, Text | Media):
                return None
            inside = ToolResult(call_id="-", name="-", content=(part,))
            wire = encode_segment([Message(role="tool", parts=(inside,))], provider=self.provider, blobs={}).messages
            ours = cast(JSONObject, wire[0]["content"][0]["output"]["value"][0])
            found.append(cast(Text | Media, self.and_rest(part, extra_of(block, ours, self.provider))))
        return tuple(found) or None

    def media(self, block: JSONObject, data: JSON, spelling: JSONObject | None = None) -> Media | ProviderBlock:
        """Decode a file: base64, a data URL, a URL, or a provider's file id; each may be tagged."""
        spelling = dict(spelling or {})
        image = "image" in cast(str, block["type"])
        mime_type = cast(str, block.get("mediaType") or ("image/png" if image else "application/octet-stream"))
        mime_type = mime_type if "/" in mime_type else f"{mime_type}/*"
        name = cast(str | None, block.get("filename"))
        if isinstance(data, dict):
            tagged = cast(JSONObject, data)
            tag = tagged.get("type")
            if tag == "text" and isinstance(tagged.get("text"), str):
                return Media(mime_type=mime_type, data=tagged["text"].encode(), name=name)
            if tag in ("data", "url", "reference") and tag in tagged:
                data, spelling["tag"] = tagged[tag], tag
        found: JSONObject = {}
        if isinstance(data, dict):
            whose, file_id = next(iter(cast(JSONObject, data).items()), ("", None))
            found = {"file_id": file_id, "provider": whose} if isinstance(file_id, str) else {}
        elif isinstance(data, str) and data.startswith("data:"):
            head, _, text = data.partition(",")
            found = {"data": decode_base64(text)} if head.endswith(";base64") else {"url": data}
            spelling["data_url"] = True
        elif isinstance(data, str):
            found = {"url": data} if "://" in data else {"data": decode_base64(data)}
        if not found or None in found.values():
            return ProviderBlock(provider=self.provider, data=block)
        return Media(mime_type=mime_type, name=name, extra=_with_shape(None, self.provider, spelling), **found)

    def tools(self, given: JSON) -> Iterator[Tool | NativeTool]:
        """Decode the tools, keyed by name or in a list. A key is the name that the model sees."""
        if not isinstance(given, dict):
            yield from (self.tool(tool) for tool in cast(list[JSONObject], given))
            return
        for name, tool in cast(dict[str, JSONObject], given).items():
            made = self.tool({**tool, "name": name})
            if "name" in tool and isinstance(made, Tool):
                extra = _with_shape(made.extra, self.provider, {"name": tool["name"]})
                made = replace(made, extra=extra)
            yield made

    def tool(self, tool: JSONObject) -> Tool | NativeTool:
        if tool.get("type") not in (None, "function", "dynamic"):
            return NativeTool(provider=self.provider, data=tool)
        made = decode_definition(tool, "inputSchema")
        return with_extra(made, tool, encode_tool(made), self.provider)


def encode_tool(tool: Tool) -> JSONObject:
    return encode_definition(tool, "inputSchema")


def _with_shape(extra: Extra | None, provider: str, spelling: JSONObject) -> Extra | None:
    if not spelling:
        return extra
    rest = (extra or {}).get(provider, {})
    return {provider: {**rest, ORIGINAL_FORM: {**rest.get(ORIGINAL_FORM, {}), **spelling}}}


def _other_provider_fields(block: JSONObject) -> Extra:
    """Return the fields of a block that are for other providers, by provider name."""
    options = cast(JSONObject, block["providerOptions"] if isinstance(block.get("providerOptions"), dict) else {})
    found: Extra = {}
    for provider, names in CARRIED_FIELDS.items():
        given = cast(JSONObject, options[provider] if isinstance(options.get(provider), dict) else {})
        if said := {name: given[name] for name in names if isinstance(given.get(name), str)}:
            found[provider] = said
    return found
