"""Repairs that decoding and encoding does not make: settings, empty messages and misplaced parts."""

from copy import deepcopy
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.checking import Path, Piece, Turn
from contextc.formats.media import unpacked
from contextc.formats.settings import inner
from contextc.formats.signatures import SHORTEST, is_message
from contextc.formats.vercel import sketch
from contextc.formats.vercel.reshape import block, message, objects, words
from contextc.formats.vercel.shapes import HOMES

NOTHING_SAID = "(Nothing has been said yet.)"
WHO_SPEAKS = ("user", "assistant")


def with_a_message(body: JSONObject) -> JSONObject:
    return {**body, "messages": [message(NOTHING_SAID)]}


def without_empty(body: JSONObject) -> JSONObject:
    messages = cast(list[JSONObject], body["messages"])
    return {**body, "messages": [each for each in messages if each["role"] not in WHO_SPEAKS or not is_empty(each)]}


def with_system_allowed(body: JSONObject) -> JSONObject:
    return {**body, "allowSystemInMessages": True}


def with_one_system_prompt(body: JSONObject) -> JSONObject:
    one, other = body["instructions"], body["system"]
    if isinstance(one, str) and isinstance(other, str):
        joined: JSON = one if one == other else f"{one}\n\n{other}"
    else:
        listed = [cast(list[JSON], each) if isinstance(each, list) else [each] for each in (one, other)]
        joined = [
            {"role": "system", "content": each} if isinstance(each, str) else each for given in listed for each in given
        ]
    return {**{name: value for name, value in body.items() if name != "system"}, "instructions": joined}


def with_prompt_among_messages(body: JSONObject) -> JSONObject:
    given: JSON = body["prompt"]
    asked = cast(list[JSON], given) if isinstance(given, list) else [message(words(given))]
    rest = {name: value for name, value in body.items() if name != "prompt"}
    return {**rest, "messages": [*cast(list[JSON], body["messages"]), *asked]}


def with_orphans_as_text(body: JSONObject) -> JSONObject:
    return _with_text(body, [piece for _, piece in sketch.pairs(sketch.read(body).turns).orphans])


def with_strangers_as_text(body: JSONObject) -> JSONObject:
    turns = sketch.read(body).turns
    ran = sketch.ran_by_provider(turns)
    return _with_text(body, [piece for turn in turns for piece in strangers(turn, ran)])


def without_unasked_answers(body: JSONObject) -> JSONObject:
    unasked = [piece for piece, call_id in sketch.approvals(sketch.read(body).turns) if call_id is None]
    return _with_text(body, unasked)


def without_broken_proof(body: JSONObject) -> JSONObject:
    """Remove the invalid proof of reasoning, and the reasoning itself if it has no other content."""
    copy = deepcopy(body)
    for given in cast(list[JSONObject], copy["messages"]):
        broken = [part for part in objects(given["content"]) if not is_sound(part)]
        for part in broken:
            del part["providerOptions"]["anthropic"]
        if broken:
            empty = {id(part) for part in broken if not part["text"]}
            given["content"] = [part for part in given["content"] if id(part) not in empty]
    return copy


def without_choice(body: JSONObject) -> JSONObject:
    return {name: value for name, value in body.items() if name != "toolChoice"}


def is_empty(wire: JSONObject) -> bool:
    """Return True if a message is empty after the SDK has removed its empty parts."""
    content: JSON = wire["content"]
    if isinstance(content, str):
        return not content
    return all(inner(part).get("text") == "" and not _stays(part, wire) for part in cast(list[JSON], content))


def strangers(turn: Turn, ran: set[str]) -> list[Piece]:
    """Return the parts of a message that its role cannot have. `ran`: ids of provider-executed calls."""
    found: list[Piece] = []
    for piece in turn.pieces:
        kind = cast(str, piece.wire.get("type"))
        home = turn.role in HOMES.get(kind, (turn.role,))
        if not home or (turn.role == "assistant" and piece.kind == "result" and piece.id not in ran):
            found.append(piece)
    return found


def is_sound(part: JSONObject) -> bool:
    """Return True if reasoning signed by Anthropic may still have its original signature."""
    options: JSON = part.get("providerOptions")
    given = inner(inner(options).get("anthropic"))
    for name in ("signature", "redactedData") if part.get("type") == "reasoning" else ():
        proof: JSON = given.get(name)
        if isinstance(proof, str) and len(proof) >= SHORTEST and not is_message(unpacked(proof) or b"\0"):
            return False
    return True


def _stays(part: JSONObject, wire: JSONObject) -> bool:
    return part.get("type") != "text" or (wire["role"] == "assistant" and part.get("providerOptions") is not None)


def _with_text(body: JSONObject, strays: list[Piece]) -> JSONObject:
    """Return the request with text in place of misplaced parts. Text cannot be in a tool message, so it follows it."""
    places = {piece.path for piece in strays}
    holders = {path[:3] for path in places}
    messages: list[JSONObject] = []
    for number, wire in enumerate(cast(list[JSONObject], body["messages"])):
        own: Path = ("messages", number, "content")
        if own not in holders:
            messages.append(wire)
            continue
        parts = list(enumerate(cast(list[JSONObject], wire["content"])))
        said = [told for place, part in parts if (*own, place) in places for told in _told(part)]
        if wire["role"] == "tool":
            left = [part for place, part in parts if (*own, place) not in places]
            messages += [{**wire, "content": left}] if left else []
            messages += [{"role": "user", "content": said}] if said else []
            continue
        kept = [each for place, part in parts for each in (_told(part) if (*own, place) in places else [part])]
        messages += [{**wire, "content": kept}] if kept else []
    return {**body, "messages": messages}


def _told(part: JSONObject) -> list[JSONObject]:
    match part.get("type"):
        case "text" | "file":
            return [part]
        case "image":
            rest = {name: each for name, each in part.items() if name != "image"}
            return [{"mediaType": "image", **rest, "type": "file", "data": part["image"]}]
        case "tool-result":
            output = cast(JSONObject, part["output"])
            value = words(output.get("value", output.get("reason") or ""))
            return [
                block(f"[a result of {part['toolName']}, whose call is not here:]"),
                *([block(value)] if value else []),
            ]
        case "tool-approval-response":
            return [block(part["reason"])] if part.get("reason") else []
        case _:
            return [block(words(part))]
