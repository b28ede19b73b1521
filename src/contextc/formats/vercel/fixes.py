"""Repairs that decoding and encoding does not make: settings, empty messages and misplaced parts."""

from copy import deepcopy
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.coercion import as_text as text_of_value
from contextc.formats.coercion import text_block, text_message
from contextc.formats.fix_builders import keep_messages, without_fields
from contextc.formats.lint_engine import JSONPath, RequestMessage, RequestPart
from contextc.formats.media_encoding import decode_base64
from contextc.formats.request_settings import object_or_empty
from contextc.formats.signature_check import MIN_LENGTH, is_protobuf_message
from contextc.formats.vercel import lint_parser
from contextc.formats.vercel.coerce import list_objects
from contextc.formats.vercel.schema import PART_ROLES

NON_EMPTY_ROLES = ("user", "assistant")


def without_empty(body: JSONObject) -> JSONObject:
    return keep_messages(body, lambda message: message["role"] not in NON_EMPTY_ROLES or not is_empty(message))


def with_one_system_prompt(body: JSONObject) -> JSONObject:
    one, other = body["instructions"], body["system"]
    if isinstance(one, str) and isinstance(other, str):
        joined: JSON = one if one == other else f"{one}\n\n{other}"
    else:
        listed = [cast(list[JSON], each) if isinstance(each, list) else [each] for each in (one, other)]
        joined = [
            {"role": "system", "content": each} if isinstance(each, str) else each for given in listed for each in given
        ]
    return {**without_fields(body, "system"), "instructions": joined}


def with_prompt_among_messages(body: JSONObject) -> JSONObject:
    given: JSON = body["prompt"]
    asked = cast(list[JSON], given) if isinstance(given, list) else [text_message(text_of_value(given))]
    return {**without_fields(body, "prompt"), "messages": [*cast(list[JSON], body["messages"]), *asked]}


def with_orphans_as_text(body: JSONObject) -> JSONObject:
    return _with_text(
        body, [piece for _, piece in lint_parser.match_pairs(lint_parser.parse_request(body).messages).orphan_results]
    )


def with_misplaced_as_text(body: JSONObject) -> JSONObject:
    turns = lint_parser.parse_request(body).messages
    ran = lint_parser.provider_executed_calls(turns)
    return _with_text(body, [piece for turn in turns for piece in misplaced_parts(turn, ran)])


def without_unknown_approvals(body: JSONObject) -> JSONObject:
    unasked = [
        piece
        for piece, call_id in lint_parser.find_approval_responses(lint_parser.parse_request(body).messages)
        if call_id is None
    ]
    return _with_text(body, unasked)


def without_invalid_signatures(body: JSONObject) -> JSONObject:
    """Remove the invalid proof of reasoning, and the reasoning itself if it has no other content."""
    copy = deepcopy(body)
    for given in cast(list[JSONObject], copy["messages"]):
        broken = [part for part in list_objects(given["content"]) if not has_valid_signature(part)]
        for part in broken:
            del part["providerOptions"]["anthropic"]
        if broken:
            empty = {id(part) for part in broken if not part["text"]}
            given["content"] = [part for part in given["content"] if id(part) not in empty]
    return copy


def is_empty(wire: JSONObject) -> bool:
    """Return True if a message is empty after the SDK has removed its empty parts."""
    content: JSON = wire["content"]
    if isinstance(content, str):
        return not content
    return all(object_or_empty(part).get("text") == "" and not _stays(part, wire) for part in cast(list[JSON], content))


def misplaced_parts(turn: RequestMessage, ran: set[str]) -> list[RequestPart]:
    """Return the parts of a message that its role cannot have. `ran`: ids of provider-executed calls."""
    found: list[RequestPart] = []
    for piece in turn.parts:
        kind = cast(str, piece.wire.get("type"))
        home = turn.role in PART_ROLES.get(kind, (turn.role,))
        if not home or (turn.role == "assistant" and piece.kind == "result" and piece.id not in ran):
            found.append(piece)
    return found


def has_valid_signature(part: JSONObject) -> bool:
    """Return True if reasoning signed by Anthropic may still have its original signature."""
    options: JSON = part.get("providerOptions")
    given = object_or_empty(object_or_empty(options).get("anthropic"))
    for name in ("signature", "redactedData") if part.get("type") == "reasoning" else ():
        proof: JSON = given.get(name)
        if (
            isinstance(proof, str)
            and len(proof) >= MIN_LENGTH
            and not is_protobuf_message(decode_base64(proof) or b"\0")
        ):
            return False
    return True


def _stays(part: JSONObject, wire: JSONObject) -> bool:
    return part.get("type") != "text" or (wire["role"] == "assistant" and part.get("providerOptions") is not None)


def _with_text(body: JSONObject, strays: list[RequestPart]) -> JSONObject:
    """Return the request with text in place of misplaced parts. Text cannot be in a tool message, so it follows it."""
    places = {piece.path for piece in strays}
    holders = {path[:3] for path in places}
    messages: list[JSONObject] = []
    for number, wire in enumerate(cast(list[JSONObject], body["messages"])):
        own: JSONPath = ("messages", number, "content")
        if own not in holders:
            messages.append(wire)
            continue
        parts = list(enumerate(cast(list[JSONObject], wire["content"])))
        said = [told for place, part in parts if (*own, place) in places for told in _as_text(part)]
        if wire["role"] == "tool":
            left = [part for place, part in parts if (*own, place) not in places]
            messages += [{**wire, "content": left}] if left else []
            messages += [{"role": "user", "content": said}] if said else []
            continue
        kept = [each for place, part in parts for each in (_as_text(part) if (*own, place) in places else [part])]
        messages += [{**wire, "content": kept}] if kept else []
    return {**body, "messages": messages}


def _as_text(part: JSONObject) -> list[JSONObject]:
    match part.get("type"):
        case "text" | "file":
            return [part]
        case "image":
            return [{"mediaType": "image", **without_fields(part, "image"), "type": "file", "data": part["image"]}]
        case "tool-result":
            output = cast(JSONObject, part["output"])
            value = text_of_value(output.get("value", output.get("reason") or ""))
            return [
                text_block(f"[a result of {part['toolName']}, whose call is not here:]"),
                *([text_block(value)] if value else []),
            ]
        case "tool-approval-response":
            return [text_block(part["reason"])] if part.get("reason") else []
        case _:
            return [text_block(text_of_value(part))]
