"""Decode and encode `reasoning_details`, the reasoning blocks of OpenRouter and other gateways.

The blocks are signed by the model's provider. A block with text or encrypted data becomes a `Reasoning` part, so that
the compiler can see what is signed. Its other fields are kept in the part's `extra`; a `type` there marks the part as a
block. A block that is not reasoning, such as a call made by the gateway, becomes a `ProviderBlock` part. All blocks are
sent back unchanged and in order. In a stream a block arrives in fragments: its text, and at the end its signature.
"""

from collections.abc import Iterable
from typing import TypeAlias, cast

from contextc._json import JSON, JSONObject
from contextc.formats.base import append_text, own_extra
from contextc.messages import AnyPart, ProviderBlock, Reasoning

DETAILS, FIELD = "reasoning_details", "field"
TEXT_FIELDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
ENCRYPTED_FIELDS = {"reasoning.encrypted": "data"}
SIGNATURE_REQUIRED = ("reasoning.text", "anthropic")
"""Blocks of this type are rejected without a signature if their `format` begins with this prefix."""
ReasoningBlock: TypeAlias = Reasoning | ProviderBlock


def decode_blocks(details: JSON, provider: str, model: str | None, *, is_reply: bool = False) -> list[ReasoningBlock]:
    """Return the blocks as parts; empty if one of them is not a valid block.

    With `is_reply`, the blocks are from a reply. A block that was cut off before its signature then keeps only its
    text, because it could not be sent back.
    """
    if not isinstance(details, list) or not all(_is_block(each) for each in cast(list[JSON], details)):
        return []
    return [_part(each, provider, model, is_reply) for each in cast(list[JSONObject], details)]


def encode_block(part: AnyPart, provider: str) -> JSONObject | None:
    """Return the block that a part was decoded from; None if it is not a block of this provider."""
    rest = own_extra(part.extra, provider)
    if isinstance(part, ProviderBlock):
        return cast(JSONObject, part.data) if rest.get(FIELD) == DETAILS else None
    if not isinstance(part, Reasoning) or part.provider != provider or "type" not in rest:
        return None
    words = TEXT_FIELDS.get(rest["type"], "text")
    ours = {words: part.text, "signature": part.signature, "data": part.data, "id": part.id}
    return {**rest, **{name: value for name, value in ours.items() if value}}


def is_allowed_for(part: AnyPart, model: str | None, provider: str) -> bool:
    """Return True if the block may be sent to a model. It may not if another vendor's model (`anthropic/…`) wrote it.

    If the provider chooses the model (`openrouter/auto`), the vendor is unknown and the block is sent.
    """
    wrote = part.model if isinstance(part, Reasoning) else None
    vendors = {name.lstrip("~").partition("/")[0] for name in (wrote, model) if name and "/" in name}
    return len(vendors - {provider}) < 2


def blocks_text(details: JSON) -> str:
    """Return the text in these blocks or fragments."""
    return "".join(_block_text(_object(each)) for each in _listed(details))


def merge_fragments(blocks: list[JSON], fragments: JSON) -> None:
    """Merge the fragments in the next chunk of a stream into the blocks.

    Some providers give all blocks the index 0. So a fragment must also match the type and the id of the last block. A
    fragment after a signature begins a new block.
    """
    for piece in _listed(fragments):
        last, more = _object(blocks[-1] if blocks else None), _object(piece)
        if last and _continues(last, more):
            _grow(last, more)
        else:
            blocks.append({**more} if more else piece)


def _continues(block: JSONObject, piece: JSONObject) -> bool:
    words = TEXT_FIELDS.get(str(piece.get("type")))
    if words is None or block.get("type") != piece["type"]:
        return False
    if any(block.get(name) != piece[name] for name in ("index", "id") if _both(name, block, piece)):
        return False
    return not block.get("signature") or (not piece.get(words) and piece.get("signature") in (None, block["signature"]))


def _both(name: str, *blocks: JSONObject) -> bool:
    return all(each.get(name) is not None for each in blocks)


def _grow(block: JSONObject, piece: JSONObject) -> None:
    words = TEXT_FIELDS[piece["type"]]
    if isinstance(more := piece.get(words), str) and more:
        append_text(block, words, more)
    block |= {name: value for name, value in piece.items() if name != words and value is not None}


def _part(detail: JSONObject, provider: str, model: str | None, replied: bool) -> ReasoningBlock:
    kind = detail["type"]
    if kind not in TEXT_FIELDS and kind not in ENCRYPTED_FIELDS:
        return ProviderBlock(provider=provider, data=detail, extra={provider: {FIELD: DETAILS}})
    ours = {"signature": "signature", "data": "data", "id": "id", TEXT_FIELDS.get(kind, "text"): "text"}
    held = {place: detail[name] for name, place in ours.items() if detail.get(name)}
    rest = {name: value for name, value in detail.items() if ours.get(name) not in held}
    lost = (
        replied
        and kind == SIGNATURE_REQUIRED[0]
        and "signature" not in held
        and str(rest.get("format")).startswith(SIGNATURE_REQUIRED[1])
    )
    return Reasoning(**held, provider=provider, model=model, extra=None if lost else {provider: rest})


def _is_block(detail: JSON) -> bool:
    block = _object(detail)
    fields = [block.get(name) for name in ("text", "summary", "data", "signature", "id")]
    return isinstance(block.get("type"), str) and all(value is None or isinstance(value, str) for value in fields)


def _block_text(detail: JSONObject) -> str:
    words: JSON = detail.get(TEXT_FIELDS.get(str(detail.get("type")), ""))
    return words if isinstance(words, str) else ""


def _listed(details: JSON) -> Iterable[JSON]:
    return cast(list[JSON], details) if isinstance(details, list) else ()


def _object(value: JSON) -> JSONObject:
    return cast(JSONObject, value) if isinstance(value, dict) else {}
