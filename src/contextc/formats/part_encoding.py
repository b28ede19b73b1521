"""The base class of encoders: notes on changes, and text in place of parts that a format cannot express."""

from collections.abc import Mapping
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode
from contextc.formats.base import ConversionNote, NoteAction, describe_media
from contextc.messages import Media, Message, ProviderBlock, Reasoning, Text, ToolCall, ToolResult


class PartEncoder:
    """Encodes the parts of messages for one provider. `notes` are the changes made so far."""

    def __init__(self, provider: str, blobs: Mapping[str, bytes]) -> None:
        self.provider, self.blobs = provider, blobs
        self.notes: list[ConversionNote] = []

    def note(self, done: NoteAction, text: str) -> None:
        self.notes.append(ConversionNote(done, text))

    def note_tagged_system(self) -> None:
        self.note("tagged", "a system message, as user text in <system-reminder>")

    def note_moved_media(self, result: ToolResult) -> None:
        self.note("moved", f"media of {result.name}, into a user message after the results")

    def note_error_flag(self, result: ToolResult) -> None:
        """Add a note if a result is an error, for formats without an error flag. Only its text can state the error."""
        if result.is_error:
            self.note("left out", f"that the result of {result.name} is an error")

    def media_text(self, part: Media) -> str:
        """Return one line of text that replaces media."""
        self.note("described", f"{part.kind} of type {part.mime_type}")
        return describe_media(part)

    def native_text(self, part: ProviderBlock) -> str:
        """Return one line of text that replaces another provider's block."""
        self.note("described", f"a block of {part.provider}")
        return describe_native(part)

    def with_media_as_text(self, message: Message) -> Message:
        """Return a message that may contain only text."""
        parts = [Text(self.media_text(part)) if isinstance(part, Media) else part for part in message.parts]
        return replace(message, parts=tuple(parts))

    def arguments_object(self, call: ToolCall) -> JSON:
        """Return the arguments of a call as an object, for formats that accept no text. Malformed ones are wrapped."""
        if not call.malformed:
            return call.arguments
        self.note("changed", f"the malformed arguments of {call.name}, into an object that holds their text")
        return {"malformed_arguments": call.raw}

    def is_own(self, part: Reasoning) -> bool:
        """Return True if this provider wrote the reasoning. No other can read it."""
        return part.provider == self.provider

    def is_sendable(self, part: Reasoning, content: object) -> bool:
        """Return True if reasoning is this provider's and has `content`. Otherwise note that it is left out."""
        if self.is_own(part) and content:
            return True
        self.note("left out", f"reasoning of {part.provider or 'nobody known'}")
        return False

    def is_own_file(self, part: Media) -> bool:
        """Return True if media is a file that this provider stores."""
        return part.file_id is not None and part.provider == self.provider


def describe_native(native: ProviderBlock) -> str:
    """Return one line of text that replaces another provider's block. A refusal keeps its text."""
    data = cast(JSONObject, native.data) if isinstance(native.data, dict) else {}
    if isinstance(data.get("refusal"), str) and data["refusal"].strip():
        return data["refusal"]
    kind = data.get("type") or next(iter(data), "block")
    return f"[{native.provider} {kind}; not shown]"


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as the text that the model wrote."""
    return call.raw if call.raw is not None else encode(call.arguments).decode()


def simplify_content(blocks: list[JSONObject], kind: str | None = None) -> JSON:
    """Return a single plain text as a string. `kind` is the type of its block; None accepts any."""
    if len(blocks) == 1 and blocks[0].keys() == {"type", "text"} and kind in (None, blocks[0]["type"]):
        return blocks[0]["text"]
    return blocks


def tag_system_blocks(blocks: list[JSONObject]) -> list[JSONObject]:
    """Return the blocks of a system message as tagged user text."""
    return [
        {**block, "text": f"<system-reminder>\n{block['text']}\n</system-reminder>"} if "text" in block else block
        for block in blocks
    ]
