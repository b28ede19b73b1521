"""Repairs that decoding and encoding does not make: item ids, native calls and results, settings."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.fix_builders import without_fields
from contextc.formats.identifiers import IdentifierCodec
from contextc.formats.lint_engine import ParsedRequest, RequestMessage, RequestPart, remove_fields
from contextc.formats.media_encoding import decode_base64
from contextc.formats.openai_responses import lint_parser
from contextc.formats.openai_responses.encode import (
    FERNET_PREFIX,
    STORED_HISTORY,
    is_reference,
    requires_following_item,
)
from contextc.formats.signature_check import FERNET_FRAME, MIN_LENGTH, is_fernet_token
from contextc.messages.pairing import SYNTHETIC_RESULTS

CALL_ID_CODEC, TOOL_NAME_CODEC = IdentifierCodec("a-zA-Z0-9_-", 64), IdentifierCodec("a-zA-Z0-9_-", 128)
PREFIXES = {"function_call": "fc", "message": "msg", "reasoning": "rs"}
OPENAI_ID = re.compile("(rs|cmp)_[0-9a-f]{48,}")
BEDROCK_PREFIX = "rsn_"


class UnpairedItems(NamedTuple):
    unanswered: list[RequestPart]
    orphans: list[RequestPart]
    duplicates: list[RequestPart]


def find_unpaired(request: ParsedRequest) -> UnpairedItems:
    """Return unmatched calls and results. A call may reuse an id once the earlier call is answered."""
    found = UnpairedItems([], [], [])
    waiting: dict[tuple[str, str], RequestPart] = {}
    answered: set[tuple[str, str]] = set()
    held = refers_to_stored_items(request)
    for piece in [piece for turn in request.messages for piece in turn.parts]:
        kind = cast(str, piece.wire.get("type") or "")
        key = lint_parser.RESULTS.get(kind, kind), piece.id
        if piece.kind == "result" and key not in waiting:
            others = [(other, piece.id) for other in lint_parser.ALSO_ANSWERS.get(kind, ())]
            key = next((other for other in others if other in waiting), key)
        if piece.kind == "call":
            waiting.setdefault(key, piece)
            answered.discard(key)
        elif piece.kind == "result" and (waiting.pop(key, None) or (held and key not in answered)):
            answered.add(key)
        elif piece.kind == "result":
            (found.duplicates if key in answered else found.orphans).append(piece)
    found.unanswered.extend(call for call in waiting.values() if not call.wire.get("async"))
    return found


def refers_to_stored_items(request: ParsedRequest) -> bool:
    """Return True if the provider stores items that are not in the request."""
    return any(is_reference(turn.wire) for turn in request.messages) or any(
        request.body.get(name) for name in STORED_HISTORY
    )


def find_lone_reasoning(turns: Iterable[RequestMessage]) -> Iterator[RequestMessage]:
    """Return OpenAI's reasoning items that are not followed by the item they came with.

    OpenAI treats a message without its id as another message. Readable reasoning, and that of other vendors, may be
    alone.
    """
    after: RequestMessage | None = None
    for turn in reversed(list(turns)):
        if not turn.parts_of("reasoning"):
            after = turn if turn.wire.get("type") not in lint_parser.CONTROL_ITEMS else after
        elif requires_following_item(turn.wire) and (after is None or after.role != "assistant" or _is_new(after.wire)):
            yield turn


def is_unstored(item: JSONObject) -> bool:
    """Return True if an item's content is only in OpenAI's store."""
    if item.get("type") == "reasoning":
        return str(item.get("id") or "").startswith("rs_") and not (
            item.get("encrypted_content") or item.get("content")
        )
    return is_reference(item)


def is_intact(item: JSONObject) -> bool:
    """Return True if encrypted content may be intact. OpenAI's is a Fernet token, that of others is base64."""
    content: JSON = item.get("encrypted_content")
    if not isinstance(content, str) or len(content) < MIN_LENGTH:
        return True
    if content.startswith(FERNET_PREFIX) or OPENAI_ID.fullmatch(str(item.get("id"))):
        whole = content.startswith(FERNET_PREFIX) and len(content) % 4 == 0
        data = decode_base64(content, urlsafe=True) if whole else None
        return data is not None and len(data) > FERNET_FRAME and is_fernet_token(data)
    if content.startswith(BEDROCK_PREFIX):
        return decode_base64(content.removeprefix(BEDROCK_PREFIX)) is not None
    letters = content.rstrip("=")
    return letters.isascii() and letters.translate({ord(letter): "x" for letter in "+/-_.:|~"}).isalnum()


def find_repeated_items(turns: Iterable[RequestMessage]) -> Iterator[RequestMessage]:
    """Return the items whose id an earlier item has."""
    seen: set[str] = set()
    for turn in turns:
        name = turn.wire.get("id")
        if not name or turn.wire.get("type") == "local_shell_call_output":
            continue
        if name in seen:
            yield turn
        seen.add(name)


def with_correct_block_types(body: JSONObject) -> JSONObject:
    return _changed(body, _with_correct_blocks)


def with_paired_items(body: JSONObject) -> JSONObject:
    """Add a result to unanswered calls, or turn them into text if no result can be made up; turn strays into text."""
    found = find_unpaired(lint_parser.parse_request(body))
    calls = {id(piece.wire) for piece in found.unanswered}
    strays = {id(piece.wire) for piece in (*found.orphans, *found.duplicates)}

    def paired(item: JSONObject) -> list[JSONObject]:
        if id(item) in strays:
            words = item["output"] if isinstance(item.get("output"), str) else encode(item).decode()
            return [lint_parser.text_message(f"[{item['type']}, whose call is not here:]\n{words}")]
        if id(item) not in calls:
            return [item]
        if item["type"] in ("function_call", "custom_tool_call"):
            kind = lint_parser.PAIRS[item["type"]]
            return [item, {"type": kind, "call_id": item["call_id"], "output": SYNTHETIC_RESULTS["interrupted"]}]
        words = f"[{item['type']}, whose result is not here:] {encode(item).decode()}"
        return [{"role": "assistant", "content": words}]

    return _changed(body, paired)


def with_short_ids(body: JSONObject) -> JSONObject:
    def renamed(item: JSONObject) -> list[JSONObject]:
        name: JSON = item.get("call_id")
        return [
            item
            if not isinstance(name, str) or 1 <= len(name) <= 64
            else {**item, "call_id": CALL_ID_CODEC.encode(name)}
        ]

    return _changed(body, renamed)


def without_lone_reasoning(body: JSONObject) -> JSONObject:
    gone = {id(turn.wire) for turn in find_lone_reasoning(lint_parser.parse_request(body).messages)}
    return _without(body, lambda item: id(item) in gone)


def without_unstored_items(body: JSONObject) -> JSONObject:
    return _without(body, is_unstored)


def without_damaged_items(body: JSONObject) -> JSONObject:
    return _without(body, lambda item: not is_intact(item))


def without_repeated_ids(body: JSONObject) -> JSONObject:
    again = {id(turn.wire) for turn in find_repeated_items(lint_parser.parse_request(body).messages)}

    def once(item: JSONObject) -> list[JSONObject]:
        if id(item) not in again:
            return [item]
        return [without_fields(item, "id")] if _is_valid_without_id(item) else []

    return _changed(body, once)


def without_foreign_ids(body: JSONObject) -> JSONObject:
    def own(item: JSONObject) -> list[JSONObject]:
        if not expected_prefix(item):
            return [item]
        return [without_fields(item, "id")] if item.get("type") != "reasoning" else []  # only OpenAI can read it

    return _changed(body, own)


def without_unknown_fields(body: JSONObject) -> JSONObject:
    return remove_fields(body, lint_parser.find_unknown_fields(lint_parser.parse_request(body)))


def expected_prefix(item: JSONObject) -> str | None:
    """Return the prefix that the id of this item should have; empty if it has it."""
    prefix, name = PREFIXES.get(item.get("type") or "message", ""), item.get("id")
    if not isinstance(name, str) or item.get("role", "assistant") != "assistant" or name.startswith(prefix):
        return None
    if is_reference(item):
        return None
    return prefix


def with_valid_tool_names(body: JSONObject) -> JSONObject:
    def spelled(item: JSONObject) -> JSONObject:
        kind, name = item.get("type"), item.get("name")
        named = kind in ("function", "custom", "function_call", "custom_tool_call") and isinstance(name, str)
        return {**item, "name": TOOL_NAME_CODEC.encode(cast(str, name))} if named else item

    body = _changed(body, lambda item: [spelled(item)])
    tools: JSON = body.get("tools")
    return {**body, "tools": [spelled(tool) for tool in cast(list[JSONObject], tools)]} if tools else body


def with_known_choice(body: JSONObject) -> JSONObject:
    choice = cast(JSONObject, body["tool_choice"])
    name = TOOL_NAME_CODEC.encode(choice["name"])
    if name in tool_names(lint_parser.parse_request(body)):
        return {**body, "tool_choice": {**choice, "name": name}}
    return without_fields(body, "tool_choice")


def tool_names(request: ParsedRequest) -> set[str]:
    """Return the names of all tools in the request, wherever they are defined."""
    given: list[JSON] = [tool.wire for tool in request.tools]
    given += cast(list[JSON], request.body.get("tools") or [])
    given += [tool for turn in request.messages for tool in cast(list[JSON], turn.wire.get("tools") or [])]
    names: set[str] = set()
    while given:
        tool = given.pop()
        if isinstance(tool, dict):
            wire = cast(JSONObject, tool)
            names.add(str(wire.get("name")))
            given += cast(list[JSON], wire["tools"]) if isinstance(wire.get("tools"), list) else []
    return names


def with_trigger_last(body: JSONObject) -> JSONObject:
    items = cast(list[JSONObject], body["input"])
    triggers = [item for item in items if item.get("type") == "compaction_trigger"]
    return {**body, "input": [*(item for item in items if item.get("type") != "compaction_trigger"), *triggers[-1:]]}


def _is_shown(block: JSONObject) -> bool:
    return block["type"] in lint_parser.INPUT_BLOCKS and "text" not in block


def _with_correct_blocks(item: JSONObject) -> list[JSONObject]:
    content: JSON = item.get("content")
    if item.get("role") not in lint_parser.ROLES or not isinstance(content, list):
        return [item]
    blocks = cast(list[JSONObject], content)
    if item["role"] != "assistant":
        return [
            {**item, "content": [_convert_block(block, "input_text", lint_parser.OUTPUT_BLOCKS) for block in blocks]}
        ]
    shown = [block for block in blocks if _is_shown(block)]
    said = [_convert_block(block, "output_text", lint_parser.INPUT_BLOCKS) for block in blocks if not _is_shown(block)]
    own = [{**item, "content": said}] if said or not shown else []
    return [*own, *([{"role": "user", "content": shown}] if shown else [])]


def _convert_block(block: JSONObject, kind: str, others: tuple[str, ...]) -> JSONObject:
    text = block.get("text", block.get("refusal"))
    return {"type": kind, "text": text} if block["type"] in others and isinstance(text, str) else block


def _changed(body: JSONObject, change: Callable[[JSONObject], list[JSONObject]]) -> JSONObject:
    if not isinstance(body.get("input"), list):
        return body
    return {**body, "input": [made for item in cast(list[JSONObject], body["input"]) for made in change(item)]}


def _without(body: JSONObject, gone: Callable[[JSONObject], bool]) -> JSONObject:
    """Return the request without some items. The item after a removed reasoning item loses its id.

    OpenAI would otherwise reject it: "Item 'fc_…' of type 'function_call' was provided without its required 'reasoning'
    item".
    """
    loose = False

    def left(item: JSONObject) -> list[JSONObject]:
        nonlocal loose
        if gone(item):
            loose = item.get("type") == "reasoning"
            return []
        loose = loose and item.get("role", "assistant") == "assistant" and item.get("type") not in lint_parser.RESULTS
        return [without_fields(item, "id") if loose and _is_valid_without_id(item) else item]

    return _changed(body, left)


def _is_valid_without_id(item: JSONObject) -> bool:
    """Return True if an item has the same meaning without its id."""
    return (
        item.get("role") in lint_parser.ROLES
        or item.get("type") in lint_parser.PAIRS
        or item.get("type") in lint_parser.RESULTS
    )


def _is_new(item: JSONObject) -> bool:
    return item.get("role") == "assistant" and not item.get("id")
