"""Conversion of AG-UI messages: decode a client's messages, and encode stored messages as a snapshot."""

from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Iterator
from typing import cast

from contextc._json import JSON, JSONObject, encode
from contextc.errors import InvalidRequest
from contextc.messages import AnyPart, Media, Message, Reasoning, Text
from contextc.store.history_comparison import original_uid

OPTIONAL_TEXTS = ("role", "name", "toolCallId", "error")
DEFAULT_MIME_TYPES = {
    "image": "image/png",
    "audio": "audio/mpeg",
    "video": "video/mp4",
    "document": "application/octet-stream",
}


def decode_messages(client_messages: list[JSONObject]) -> list[Message]:
    """Decode a client's messages. Only the content of user messages is decoded."""
    found: list[Message] = []
    for index, each in enumerate(client_messages):
        role, uid, content = each.get("role"), each.get("id"), each.get("content")
        if not isinstance(uid, str):
            raise InvalidRequest("must be a string", path=f"messages[{index}].id", got=type(uid).__name__)
        for name in OPTIONAL_TEXTS:
            if not isinstance(value := each.get(name), str | None):
                raise InvalidRequest("must be a string", path=f"messages[{index}].{name}", got=type(value).__name__)
        if role == "user":
            found.append(Message(role="user", uid=uid, parts=_parts(content, f"messages[{index}].content")))
        elif role in ("assistant", "tool"):
            found.append(Message(role="assistant", uid=uid, parts=(Text("…"),)))
    return found


def encode_messages(messages: list[Message]) -> list[JSONObject]:
    """Encode stored messages as AG-UI messages. Media are URLs."""
    return [each for message in messages for each in _encode_message(message)]


def _parts(content: JSON, path: str) -> tuple[AnyPart, ...]:
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list):
        raise InvalidRequest("must be a string or a list of parts", path=path, got=type(content).__name__)
    parts = cast(list[JSON], content)
    return tuple([_part(each, f"{path}[{number}]") for number, each in enumerate(parts)])


def _part(part: JSON, path: str) -> AnyPart:
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image" | "audio" | "video" | "document" as kind, "source": {"value": str(value), **source}}:
            mime, provider = str(source.get("mimeType") or DEFAULT_MIME_TYPES[kind]), source.get("provider")
            match source.get("type"):
                case "data":
                    return Media(mime_type=mime, data=_bytes(value, path))
                case "url":
                    return Media(mime_type=mime, url=value)
                case "file":
                    return Media(mime_type=mime, file_id=value, provider=str(provider) if provider else None)
                case _:
                    pass
        case _:
            pass
    raise InvalidRequest("must be a text, image, audio, video or document part of AG-UI.", path=path)


def _bytes(value: str, path: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except NoBase64 as error:
        raise InvalidRequest(f"invalid base64: {error}.", path=path) from None


def _encode_message(message: Message) -> Iterator[JSONObject]:
    uid = original_uid(message.uid)
    match message.role:
        case "user":
            yield {"id": uid, "role": "user", "content": _content(message)}
        case "system":
            yield {"id": uid, "role": "system", "content": message.text}
        case "tool":
            for number, result in enumerate(message.tool_results):
                error = {"error": result.text} if result.is_error else {}
                name = f"{uid}-{number}" if number else uid
                yield {"id": name, "role": "tool", "toolCallId": result.call_id, "content": result.text, **error}
        case "assistant":
            thought = "".join([part.text for part in message.parts if isinstance(part, Reasoning)])
            if thought:
                yield {"id": f"{uid}-reasoning", "role": "reasoning", "content": thought}
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.raw or encode(call.arguments).decode()},
                }
                for call in message.tool_calls
            ]
            yield {
                "id": uid,
                "role": "assistant",
                "content": message.text,
                **({"toolCalls": calls} if calls else {}),
            }


def _content(message: Message) -> JSON:
    media = [part for part in message.parts if isinstance(part, Media)]
    if not media:
        return message.text
    pictures = [
        {
            "type": part.kind,
            "source": {"type": "url", "value": part.url or f"/api/blobs/{part.blob}", "mimeType": part.mime_type},
        }
        for part in media
    ]
    return [*([{"type": "text", "text": message.text}] if message.text else []), *pictures]
