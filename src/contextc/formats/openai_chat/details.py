"""`reasoning_details`: reasoning as OpenRouter and others hand it through, in blocks that the model's provider signed.

A block with words, or with what only its provider can read, is a `Reasoning` part, so that whoever compiles a history
knows what is signed. Whatever else a block says stands in the part's `extra`, and there its `type` says that it is a
block. A block that is no reasoning, such as a call that the gateway itself made, is `Native`. All of them go back in
their order, and as they came. In a stream a block comes in pieces: its words, and at the end its signature.
"""

from collections.abc import Iterable
from typing import TypeAlias, cast

from contextc._json import JSON, JSONObject
from contextc.formats.base import grow, kept
from contextc.messages import AnyPart, Native, Reasoning

DETAILS, FIELD = "reasoning_details", "field"
WORDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
SECRET = {"reasoning.encrypted": "data"}
SIGNED = ("reasoning.text", "anthropic")
"""Blocks of this type are refused without a signature, where their `format` begins so."""
Thought: TypeAlias = Reasoning | Native


def read(details: JSON, provider: str, model: str | None, *, replied: bool = False) -> list[Thought]:
    """The blocks as parts; none where one of them is no block.

    `replied`: they are of a reply, and one that broke off before it was signed is words alone: it could not go back.
    """
    if not isinstance(details, list) or not all(_is_block(each) for each in cast(list[JSON], details)):
        return []
    return [_part(each, provider, model, replied) for each in cast(list[JSONObject], details)]


def written(part: AnyPart, provider: str) -> JSONObject | None:
    """The block that a part was; None where it was none of this provider's."""
    rest = kept(part.extra, provider)
    if isinstance(part, Native):
        return cast(JSONObject, part.data) if rest.get(FIELD) == DETAILS else None
    if not isinstance(part, Reasoning) or part.provider != provider or "type" not in rest:
        return None
    words = WORDS.get(rest["type"], "text")
    ours = {words: part.text, "signature": part.signature, "data": part.data, "id": part.id}
    return {**rest, **{name: value for name, value in ours.items() if value}}


def is_for(part: AnyPart, model: str | None, provider: str) -> bool:
    """Whether a model may be given this block: not if that names another vendor's model (`anthropic/…`) as its author.

    Which model it will be is not known where the provider chooses one (`openrouter/auto`).
    """
    wrote = part.model if isinstance(part, Reasoning) else None
    vendors = {name.lstrip("~").partition("/")[0] for name in (wrote, model) if name and "/" in name}
    return len(vendors - {provider}) < 2


def said(details: JSON) -> str:
    """The words in these blocks, or in pieces of them."""
    return "".join(_words(_object(each)) for each in _listed(details))


def join(blocks: list[JSON], pieces: JSON) -> None:
    """Add to the blocks what the next chunk of a stream has of them.

    Some providers give all their blocks the index 0, so a piece also has to be of the type and the name of the last
    block. What comes after a signature is another block.
    """
    for piece in _listed(pieces):
        last, more = _object(blocks[-1] if blocks else None), _object(piece)
        if last and _continues(last, more):
            _grow(last, more)
        else:
            blocks.append({**more} if more else piece)


def _continues(block: JSONObject, piece: JSONObject) -> bool:
    words = WORDS.get(str(piece.get("type")))
    if words is None or block.get("type") != piece["type"]:
        return False
    if any(block.get(name) != piece[name] for name in ("index", "id") if _both(name, block, piece)):
        return False
    return not block.get("signature") or (not piece.get(words) and piece.get("signature") in (None, block["signature"]))


def _both(name: str, *blocks: JSONObject) -> bool:
    return all(each.get(name) is not None for each in blocks)


def _grow(block: JSONObject, piece: JSONObject) -> None:
    words = WORDS[piece["type"]]
    if isinstance(more := piece.get(words), str) and more:
        grow(block, words, more)
    block |= {name: value for name, value in piece.items() if name != words and value is not None}


def _part(detail: JSONObject, provider: str, model: str | None, replied: bool) -> Thought:
    kind = detail["type"]
    if kind not in WORDS and kind not in SECRET:
        return Native(provider=provider, data=detail, extra={provider: {FIELD: DETAILS}})
    ours = {"signature": "signature", "data": "data", "id": "id", WORDS.get(kind, "text"): "text"}
    held = {place: detail[name] for name, place in ours.items() if detail.get(name)}
    rest = {name: value for name, value in detail.items() if ours.get(name) not in held}
    lost = replied and kind == SIGNED[0] and "signature" not in held and str(rest.get("format")).startswith(SIGNED[1])
    return Reasoning(**held, provider=provider, model=model, extra=None if lost else {provider: rest})


def _is_block(detail: JSON) -> bool:
    block = _object(detail)
    fields = [block.get(name) for name in ("text", "summary", "data", "signature", "id")]
    return isinstance(block.get("type"), str) and all(value is None or isinstance(value, str) for value in fields)


def _words(detail: JSONObject) -> str:
    words: JSON = detail.get(WORDS.get(str(detail.get("type")), ""))
    return words if isinstance(words, str) else ""


def _listed(details: JSON) -> Iterable[JSON]:
    return cast(list[JSON], details) if isinstance(details, list) else ()


def _object(value: JSON) -> JSONObject:
    return cast(JSONObject, value) if isinstance(value, dict) else {}
