"""Our messages in the shape of Bedrock's Converse.

Roles alternate: what stands between two replies becomes one user message, results first. A block is an object with one
member, which says what it is. A cache point is a block of its own, so it is kept with the part it stood behind. A
document has a name that no other in the request has, and never stands without a text. Blank text is left out, and a
system message between others keeps its role where the model takes one, as in Anthropic's own API.
"""

import re
from collections.abc import Mapping, Sequence
from typing import assert_never, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.anthropic.encode import tag
from contextc.formats.base import (
    Encoded,
    Note,
    arguments_wrapped,
    describe_media,
    describe_native,
    is_foreign,
    kept,
    restored,
    text_of,
)
from contextc.formats.bedrock.media import described, documents, encode_media, told_apart
from contextc.formats.grouping import APART
from contextc.messages import AnyPart, Media, Message, Native, Reasoning, Text, ToolCall, ToolResult
from contextc.messages.parts import Hint
from contextc.tools import NativeTool, Tool

BETWEEN, AS_IT_CAME, POINT = "between", "as it came", "cachePoint"
TEXTS = ("citationsContent", "guardContent")
"""Blocks that are text to everybody else."""
SHOWN = frozenset(("image", "document"))
"""What only a user's message may hold."""
HOUSE = re.compile(r"(?:(?:[a-z]{2}(?:-gov)?|apac|global)\.)?([a-z][a-z0-9-]{2,})\.")
BESIDE = "(The document above.)"
FAILED = "(It failed, and said nothing.)"
STUB = Tool(name="no_tools", description="There are no tools now. Do not call this.", parameters={"type": "object"})
"""In the place of tools, where earlier messages hold calls and there are no tools any more: Bedrock wants some."""


def encode_segment(
    segment: Sequence[Message],
    *,
    provider: str,
    system_between: bool,
    blobs: Mapping[str, bytes],
    model: str | None = None,
) -> Encoded:
    """`model` is the one that is asked: what a model of another house signed is not for it."""
    encoder = _Encoder(provider, blobs, model)
    wire: list[JSONObject] = []
    asked = ""
    end = max((index for index, message in enumerate(segment) if message.role != "system"), default=-1)
    for index, message in enumerate(segment):
        role = "assistant" if message.role == "assistant" else "user"
        if message.role == "system":
            between = system_between or kept(message.extra, provider).get(BETWEEN)
            if between and index > end and wire and wire[-1]["role"] in ("user", "system"):
                role = "system"
            blocks = encoder.system(message, tagged=role == "user")
        else:
            asked = message.uid if message.role == "assistant" else asked
            # Results were brought to their calls, and have lost whose they were.
            blocks = encoder.blocks(message, role, message.uid or (asked if message.role == "tool" else ""))
        if blocks and wire and wire[-1]["role"] == role:
            wire[-1]["content"] += blocks
        elif blocks:
            wire.append({"role": role, "content": blocks})
    for message in wire:
        encoder.with_a_text(message)
    apart = bool(segment) and bool(kept(segment[0].extra, provider).get(APART))
    return Encoded(tuple(wire), tuple(encoder.notes), apart)


def encode_part(part: AnyPart, provider: str) -> JSONObject:
    """One part by itself; empty where nothing would be sent."""
    role = "assistant" if isinstance(part, Reasoning | ToolCall) else "user"
    blocks = _Encoder(provider, {}).blocks(Message(role=role, parts=(part,)), role)
    return blocks[0] if blocks else {}


def encode_system(message: Message, provider: str) -> list[JSONObject]:
    """The blocks of the system prompt."""
    return _Encoder(provider, {}).words(message)


def encode_tool(tool: Tool) -> JSONObject:
    described: JSONObject = {"description": tool.description} if tool.description else {}
    strict: JSONObject = {} if tool.strict is None else {"strict": tool.strict}
    schema = {"json": tool.parameters or {"type": "object"}}
    return {"toolSpec": {"name": tool.name, **described, "inputSchema": schema, **strict}}


def encode_tools(tools: Sequence[Tool | NativeTool], provider: str) -> list[JSONObject]:
    found: list[JSONObject] = []
    for tool in tools:
        if isinstance(tool, Tool):
            found += with_rest(encode_tool(tool), kept(tool.extra, provider))
        elif tool.provider == provider:
            found.append(tool.data)
    return found


def with_rest(block: JSONObject, rest: JSONObject) -> list[JSONObject]:
    """Our block with what its provider had said inside it, and the cache point behind it."""
    if not rest:
        return [block]
    ((kind, inside),) = block.items()
    if isinstance(rest.get(kind), dict) and isinstance(inside, dict):
        block = {kind: restored(cast(JSONObject, inside), {kind: rest[kind]}, kind)}
    return [block, {POINT: rest[POINT]}] if rest.get(POINT) else [block]


def house(model: str | None) -> str:
    """Whose a model is, as far as its name says: `us.anthropic.claude-…`, or the full name of such a one."""
    found = HOUSE.match((model or "").rpartition("/")[2])
    return found[1] if found else ""


def is_for(part: Reasoning, model: str | None) -> bool:
    """Whether a model may be given this: not if a model of another house signed it."""
    return len({house(part.model), house(model)} - {""}) < 2


def texts_in(block: JSONObject) -> str:
    """The words of a block that is text to everybody else."""
    if "guardContent" in block:
        return block["guardContent"]["text"]["text"]
    return "".join(each["text"] for each in cast(list[JSONObject], block["citationsContent"].get("content") or []))


class _Encoder:
    def __init__(self, provider: str, blobs: Mapping[str, bytes], model: str | None = None) -> None:
        self.provider, self.blobs, self.model = provider, blobs, model
        self.notes: list[Note] = []
        self.named: set[str] = set()
        """Names of documents that were made here."""

    def system(self, message: Message, *, tagged: bool) -> list[JSONObject]:
        if not tagged:
            return self.words(message)
        self.notes.append(Note("tagged", "a system message, as user text in <system-reminder>"))
        return tag(self.blocks(message, "user", message.uid))

    def words(self, message: Message) -> list[JSONObject]:
        """The blocks of a message that may hold text alone; what it shows is described."""
        parts = [self.described(part) if isinstance(part, Media) else part for part in message.parts]
        return self.blocks(replace(message, parts=tuple(parts)), "system")

    def described(self, part: Media) -> Text:
        self.notes.append(Note("described", f"{part.kind} of type {part.mime_type}"))
        return Text(describe_media(part))

    def blocks(self, message: Message, role: str, owner: str = "") -> list[JSONObject]:
        """`owner` is the stored message that this is, or belongs to."""
        found: list[JSONObject] = []
        for part in message.parts:
            # What most parts are, without asking what they are not.
            if type(part) is Text and part.extra is None:
                if part.text and not part.text.isspace():
                    found.append({"text": part.text})
            elif type(part) is ToolCall and part.extra is None and not part.malformed:
                found.append({"toolUse": {"toolUseId": part.id, "name": part.name, "input": part.arguments}})
            elif (block := self.block(part, role, owner)) is not None:
                rest = {} if isinstance(part, Native) else kept(part.extra, self.provider)
                blocks = with_rest(block, rest)
                found += [told_apart(each, owner, self.named) for each in blocks] if owner else blocks
        return found

    def block(self, part: AnyPart, role: str, owner: str) -> JSONObject | None:
        match part:
            case Text():
                return self.text(part)
            case Reasoning():
                return self.reasoning(part)
            case ToolCall():
                given: JSON = {"malformed_arguments": part.raw} if part.malformed else part.arguments
                if part.malformed:
                    self.notes.append(arguments_wrapped(part))
                return {"toolUse": {"toolUseId": part.id, "name": part.name, "input": given}}
            case ToolResult():
                return self.result(part, owner)
            case Media():
                shown = self.shown(part, owner) if role == "user" else None
                return shown or {"text": self.described(part).text}
            case Native():
                if part.provider == self.provider:
                    return self.native(part.data, role)
                self.notes.append(Note("described", f"a block of {part.provider}"))
                return {"text": describe_native(part)}
            case Hint():
                return None
            case _:
                assert_never(part)

    def shown(self, part: Media, owner: str) -> JSONObject | None:
        block = encode_media(part, self.blobs, owner)
        self.named.update(each["document"]["name"] for each in documents([block] if block else []))
        return block

    def native(self, block: JSONObject, role: str) -> JSONObject:
        if role == "user" or SHOWN.isdisjoint(block):
            return block
        self.notes.append(Note("described", f"a block of {self.provider} that only a user may show"))
        return described(block)

    def text(self, part: Text) -> JSONObject | None:
        rest = kept(part.extra, self.provider)
        for kind in TEXTS:
            if kind in rest and texts_in(rest) == part.text:  # nobody has put anything before it
                return {kind: rest[kind]}
        blank = not part.text.strip()
        return None if not part.text or (blank and not rest.get(AS_IT_CAME)) else {"text": part.text}

    def reasoning(self, part: Reasoning) -> JSONObject | None:
        """What is not signed goes back only where it was sent so before: no model asks for it, and some refuse it."""
        sent = part.signature or part.data or kept(part.extra, self.provider).get(AS_IT_CAME)
        if is_foreign(part, self.provider) or not sent:
            self.notes.append(Note("left out", f"reasoning of {part.provider or 'nobody known'}"))
            return None
        if not is_for(part, self.model):
            self.notes.append(Note("left out", f"reasoning that {part.model} signed"))
            return None
        if part.data is not None:
            return {"reasoningContent": {"redactedContent": part.data}}
        signed: JSONObject = {} if part.signature is None else {"signature": part.signature}
        return {"reasoningContent": {"reasoningText": {"text": part.text, **signed}}}

    def result(self, part: ToolResult, owner: str) -> JSONObject:
        content = self.inside(part, owner)
        block: JSONObject = {"toolUseId": part.call_id, "content": content}
        if not part.is_error:
            return {"toolResult": block}
        if content == [{"text": ""}]:
            self.notes.append(Note("made up", f"words for the error of {part.name}, which had none"))
            block["content"] = [{"text": FAILED}]
        return {"toolResult": {**block, "status": "error"}}

    def inside(self, part: ToolResult, owner: str) -> list[JSONObject]:
        """What a result holds; never nothing, which some models refuse."""
        if isinstance(part.content, str):
            return [{"text": part.content}]
        found: list[JSONObject] = []
        for each in part.content:
            if isinstance(each, Text):
                found += [{"text": each.text}] if each.text.strip() else []
                continue
            shown = self.shown(each, owner) if each.kind != "audio" else None
            block = shown or {"text": self.described(each).text}
            found += with_rest(block, kept(each.extra, self.provider))
        return found or [{"text": part.text}]

    def with_a_text(self, message: JSONObject) -> None:
        """Put a line beside documents that stand alone."""
        content: list[JSONObject] = message["content"]
        if any("document" in block for block in content) and not any(
            text_of(block.get("text")).strip() for block in content
        ):
            self.notes.append(Note("made up", "a line of text beside a document, which may not stand alone"))
            content.append({"text": BESIDE})
