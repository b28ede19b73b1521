"""Decode the AI SDK's messages, `ModelMessage` and `UIMessage`.

Each part of the SDK becomes one part. Fields that encoding would not reproduce, such as `providerOptions`, are kept in
its `extra`. Parts without a corresponding type become `ProviderBlock`: provider-executed calls, approval requests,
`data-*`,
`source-*`.
"""

from collections.abc import Iterator
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode
from contextc.formats.base import Request, extra_of
from contextc.formats.encoder_decoder_base import (
    as_text,
    decode_definition,
    encode_definition,
    split_at_results,
    with_extra,
)
from contextc.formats.media_encoding import decode_base64
from contextc.formats.vercel import ui_messages
from contextc.formats.vercel.decode_ui_messages import decode_ui_message, message_metadata
from contextc.formats.vercel.encode import (
    CARRIED_FIELDS,
    DENIED,
    DENIED_BECAUSE,
    ORIGINAL_FORM,
    PROOF_FIELDS,
    encode_instructions,
    encode_segment,
    is_approval_response,
)
from contextc.messages import (
    AnyPart,
    Extra,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Role,
    Text,
    ToolResult,
    tool_call,
)
from contextc.tools.spec import NativeTool, Tool

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
