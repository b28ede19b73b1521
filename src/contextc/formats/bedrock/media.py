"""Images, audio, video and documents in Converse: a short format name, with bytes or an S3 location.

Each document has a name that is unique in the request: its original name and a hash.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.media_encoding import decode_base64, encode_base64
from contextc.messages import Media

FORMATS: dict[str, dict[str, str]] = {
    "image": {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"},
    "document": {
        "application/pdf": "pdf",
        "text/csv": "csv",
        "application/msword": "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
        "application/vnd.ms-excel": "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
        "text/html": "html",
        "text/plain": "txt",
        "text/markdown": "md",
    },
    "video": {
        "video/mp4": "mp4",
        "video/x-matroska": "mkv",
        "video/quicktime": "mov",
        "video/webm": "webm",
        "video/x-flv": "flv",
        "video/mpeg": "mpeg",
        "video/x-ms-wmv": "wmv",
        "video/3gpp": "three_gp",
    },
    "audio": {
        "audio/mpeg": "mp3",
        "audio/wav": "wav",
        "audio/x-wav": "wav",
        "audio/aac": "aac",
        "audio/flac": "flac",
        "audio/ogg": "ogg",
        "audio/opus": "opus",
        "audio/mp4": "m4a",
        "audio/webm": "webm",
    },
}
MEDIA_TYPES = {kind: {short: mime for mime, short in reversed(formats.items())} for kind, formats in FORMATS.items()}
DEFAULT_TYPES = {"image": "image/png", "document": "application/pdf", "video": "video/mp4", "audio": "audio/mpeg"}
S3_URI = re.compile(r"s3://[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9](/.*)?", re.DOTALL)
DOCUMENT_NAME = re.compile(r"(?!.*\s\s)(?:[^\W_]|[\s\-()\[\]]){1,200}", re.DOTALL)
INVALID_NAME_CHARACTERS, MAX_NAME_LENGTH = re.compile(r"[^a-zA-Z0-9\-()\[\]]+"), 160


MAX_DOCUMENTS, MAX_IMAGES = 5, 20
"""The limit of documents per request, and of images per message."""


def encode_media(part: Media, blobs: Mapping[str, bytes], owner: str) -> JSONObject | None:
    """Return the block of a part, or None if Bedrock does not support its type or location.

    `owner` is the id of its message.
    """
    short, source = FORMATS[part.kind].get(part.mime_type), encode_source(part, blobs)
    if short is None or source is None:
        return None
    named: JSONObject = {"name": document_name(part, owner, source)} if part.kind == "document" else {}
    return {part.kind: {"format": short, **named, "source": source}}


def encode_source(part: Media, blobs: Mapping[str, bytes]) -> JSONObject | None:
    if (data := encode_base64(part, blobs)) is not None:
        return {"bytes": data}
    if part.url is not None and S3_URI.fullmatch(part.url) and len(part.url) <= 1024:
        return {"s3Location": {"uri": part.url}}
    return None


def document_name(part: Media, owner: str, source: JSONObject) -> str:
    return _unique_name(part.name or "", owner, str(source.get("bytes") or part.url))


def _unique_name(given: str, owner: str, source: str) -> str:
    stem = INVALID_NAME_CHARACTERS.sub(" ", given).strip()[:MAX_NAME_LENGTH].strip() or "document"
    return f"{stem} {blake2b(f'{owner} {source}'.encode(), digest_size=4).hexdigest()}"


def with_unique_name(block: JSONObject, owner: str, made: Container[str] = ()) -> JSONObject:
    """Return a block whose documents have names unique among stored messages.

    Names in `made` are unique already.
    """
    if "toolResult" in block:
        inside = cast(JSONObject, block["toolResult"])
        return {
            "toolResult": {**inside, "content": [with_unique_name(each, owner, made) for each in inside["content"]]}
        }
    if "document" not in block or block["document"].get("name") in made:
        return block
    document = cast(JSONObject, block["document"])
    source = encode(document.get("source")).decode()
    return {"document": {**document, "name": _unique_name(str(document.get("name") or ""), owner, source)}}


def describe_block(block: JSONObject) -> JSONObject:
    """Return one line of text that replaces media, or the text of a document that is plain text."""
    kind, inside = next(iter(block.items()))
    source: object = inside.get("source")
    words = cast(JSONObject, source).get("text") if isinstance(source, dict) else None
    if isinstance(words, str) and words.strip():
        return {"text": words}
    name = f" {inside['name']!r}" if inside.get("name") else ""
    return {"text": f"[{kind}{name}: {inside.get('format') or 'of no known type'}; not shown]"}


def decode_media(kind: str, block: JSONObject) -> Media | None:
    """Return the part of a media block, or None if only Bedrock can read it."""
    short = block.get("format")
    if not isinstance(block.get("source"), dict):
        return None
    source = cast(JSONObject, block["source"])
    plain = "text/plain" if "text" in source else DEFAULT_TYPES[kind]
    mime_type = MEDIA_TYPES[kind].get(str(short).removeprefix(f"{kind}/"), plain)
    name = block.get("name") if kind == "document" else None
    if isinstance(source.get("bytes"), str):
        data = decode_base64(source["bytes"])
        return None if not data else Media(mime_type=mime_type, data=data, name=name)
    if isinstance(source.get("text"), str) and source["text"]:
        return Media(mime_type=mime_type, data=source["text"].encode(), name=name)
    location = source.get("s3Location")
    uri = cast(JSONObject, location).get("uri") if isinstance(location, dict) else None
    if isinstance(uri, str) and S3_URI.fullmatch(uri):
        return Media(mime_type=mime_type, url=uri, name=name)
    return None


def with_unique_document_names(messages: list[JSONObject]) -> list[JSONObject]:
    """Return the messages with duplicate document names replaced."""
    taken: dict[str, int] = {}
    for index, message in enumerate(messages):
        names = (
            [each["document"]["name"] for each in find_documents(message["content"])] if "content" in message else []
        )
        if not taken.keys().isdisjoint(names) or len(set(names)) < len(names):
            messages[index] = {**message, "content": _rename_duplicates(message["content"], taken)}
        else:
            taken.update(dict.fromkeys(names, 1))
    return messages


def find_documents(content: Iterable[JSONObject]) -> Iterator[JSONObject]:
    """Yield the document blocks, including those in results."""
    for block in content:
        if "document" in block:
            yield block
        elif "toolResult" in block:
            inside = cast(list[object], block["toolResult"]["content"])
            yield from (cast(JSONObject, each) for each in inside if isinstance(each, dict) and "document" in each)


def _rename_duplicates(content: list[JSONObject], taken: dict[str, int]) -> list[JSONObject]:
    """Return the blocks with duplicate document names replaced. `taken` counts the uses of each name."""
    found: list[JSONObject] = []
    for block in content:
        if "document" in block:
            given: str = block["document"]["name"]
            name = given
            while name in taken:
                taken[given] += 1
                name = f"{given[:190]} {taken[given]}"
            taken[name] = 1
            block = {"document": {**block["document"], "name": name}}
        elif "toolResult" in block:
            block = {
                "toolResult": {
                    **block["toolResult"],
                    "content": _rename_duplicates(block["toolResult"]["content"], taken),
                }
            }
        found.append(block)
    return found


def with_bytes(body: JSONObject) -> JSONObject:
    """Return a request as boto3 takes it: base64 of media as bytes. Tool inputs and results as JSON are not changed."""
    messages = [{**message, "content": _blocks_with_bytes(message["content"])} for message in body["messages"]]
    prompt: JSONObject = {"system": _blocks_with_bytes(body["system"])} if body.get("system") else {}
    return {**body, **prompt, "messages": messages}


def _blocks_with_bytes(content: list[JSONObject]) -> list[JSONObject]:
    return [{kind: _block_with_bytes(kind, inside) for kind, inside in block.items()} for block in content]


def _block_with_bytes(kind: str, inside: JSON) -> JSON:
    if kind in FORMATS:
        return {**inside, "source": _as_bytes(inside["source"], "bytes")}
    if kind == "toolResult":
        return {**inside, "content": _blocks_with_bytes(inside["content"])}
    if kind == "guardContent" and "image" in inside:
        return {"image": _block_with_bytes("image", inside["image"])}
    return _as_bytes(inside, "redactedContent") if kind == "reasoningContent" else inside


def _as_bytes(inside: JSONObject, name: str) -> JSONObject:
    data = decode_base64(inside[name]) if isinstance(inside.get(name), str) else None
    return inside if data is None else {**inside, name: data}
