"""Rules of OpenAI's Responses API that can be checked without calling the API.

Other vendors offer this API too, and accept more. What only OpenAI rejects is checked only for OpenAI models.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_objects, encode
from contextc.formats.lint_engine import (
    TYPED,
    Fault,
    FieldTypes,
    JSONPath,
    PairingErrors,
    ParsedRequest,
    PartKind,
    Problem,
    RequestMessage,
    RequestPart,
    RequestReader,
    RuleFinding,
    RuleSet,
    first_field,
    format_path,
    make_finding,
    remove_fields,
    schema_error,
    tagged_error,
    unknown_field_findings,
)
from contextc.formats.message_preparation import (
    FERNET_FRAME,
    MIN_LENGTH,
    IdentifierCodec,
    decode_base64,
    is_fernet_token,
)
from contextc.formats.openai_chat.rules import wrong_type_text
from contextc.formats.openai_responses.codec import (
    BLOCKS,
    CODEX_METADATA,
    FERNET_PREFIX,
    ITEMS,
    STORED_HISTORY,
    is_reference,
    requires_following_item,
)
from contextc.formats.openai_responses.request_settings import LEAST_COMPACT_AT, MIN_OUTPUT_TOKENS
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty
from contextc.formats.rule_library import (
    SAMPLING_SETTINGS,
    PairingChecks,
    StrictSchema,
    as_list,
    as_text,
    insert_first_message,
    iter_calls,
    iter_parts,
    long_cache_keys,
    malformed_values,
    no_messages,
    open_strict_schemas,
    part_finding,
    remove_settings,
    sampling_settings,
    set_setting,
    text_message,
    unknown_cache_options,
    with_lenient_schemas,
    with_short_cache_key,
    without_fields,
    without_unknown_cache_options,
)
from contextc.messages import SYNTHETIC_RESULTS

# ── reading a request ─────────────────────────────────────────────────────────────────────────────────────────────────
# Parse requests to the Responses API for the rules: required fields of items, and their positions.
#
# A request consists of items, and each item is parsed as one turn. A field is required only if every endpoint of this
# API rejects an item without it. Items of tools that OpenAI runs itself are sent back unchanged.


ROLES = ("user", "assistant", "system", "developer")
ALIASES = {"human": "user", "model": "assistant", "ai": "assistant"}
OTHER_VENDOR_SCHEMAS = {**ITEMS.schemas, "reasoning": {"summary?": list, "content?": list, "encrypted_content?": str}}
"""Required fields of items at other vendors, which require fewer."""
FOREIGN_FIELDS = ("tool_calls", "tool_call_id", "function_call", "toolCalls", "toolCallId")
BLOCK_SCHEMAS = {kind: fields for kind, fields in BLOCKS.schemas.items() if kind != "text"}
BLOCK_KINDS: dict[str, PartKind] = {kind: part for kind, part in BLOCKS.part_kinds.items() if kind in BLOCK_SCHEMAS}
REASONING_BLOCKS = {kind: BLOCK_SCHEMAS[kind] for kind in ("summary_text", "reasoning_text", "output_text")}
PAIRS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
}
RESULTS = {result: call for call, result in PAIRS.items()}
ALSO_ANSWERS = {"function_call_output": ("tool_search_call",)}
"""Further types of calls that a type of result may answer."""
UNKNOWN_TOOL_ITEM = re.compile(r".+(?:_call|_output)|mcp_.+|[^:\n]*+:.*")
"""Type names of tool items. An unknown type of this form may be a new one, and is accepted."""
OPENAI_MODEL = re.compile(r"(ft:)?(gpt-(?!oss)|o\d|chatgpt-|codex-|computer-use-)")
CLIENT_RESULTS = ("function_call_output", "local_shell_call_output", "mcp_approval_response")
CLIENT_TOOLS = ("function", "custom")
CONTROL_ITEMS = ("configuration_update", "compaction_trigger")
INPUT_BLOCKS = ("input_text", "input_image", "input_file", "input_audio", "input_video")
OUTPUT_BLOCKS = ("output_text", "refusal")
RESULT_BLOCKS = {kind: BLOCK_SCHEMAS[kind] for kind in INPUT_BLOCKS}
BODY_FIELDS = frozenset(
    (
        *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_tool_calls", "include"),
        *("max_output_tokens", "temperature", "top_p", "top_logprobs", "reasoning", "text", "truncation", "prompt"),
        *("previous_response_id", "conversation", "context_management", "multi_agent", "background", "store"),
        *("stream", "stream_options", "generate", "type", "stream_id", "image", "moderation", "access_programs"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "service_tier", "safety_identifier"),
        *("user", "metadata", "client_metadata"),  # the last is Codex's
    )
)
"""Fields of a request, with those of betas and of requests over a WebSocket: openai.types.responses."""
MESSAGE_FIELDS = frozenset(("type", "role", "content", "id", "status", "phase", CODEX_METADATA))
CLIENT_ITEMS = ("function_call", "function_call_output", "reasoning")
CLIENT_BLOCKS = ("input_text", "input_image", "input_file", "output_text", "refusal")
"""Types of items and blocks that a client writes. Those that OpenAI created are sent back unchanged."""


def is_openai_model(body: JSONObject) -> bool:
    """Return True if OpenAI serves a model of exactly this name."""
    model: JSON = body.get("model")
    return isinstance(model, str) and OPENAI_MODEL.match(model) is not None


def is_other_vendor_model(body: JSONObject) -> bool:
    """Return True if a model is named that OpenAI does not serve under this name."""
    return isinstance(body.get("model"), str) and not is_openai_model(body)


def find_unknown_settings(request: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of a request that OpenAI does not have. The flags of betas belong into a header."""
    yield from unknown_field_findings(request.body, BODY_FIELDS, ())


def without_unknown_settings(body: JSONObject) -> JSONObject:
    return remove_fields(body, find_unknown_settings(parse_request(body)))


def find_low_thresholds(body: JSONObject) -> Iterator[tuple[int, JSONObject]]:
    """Yield the entries of `context_management` that compact too early."""
    for index, entry in enumerate(as_objects(body.get("context_management"))):
        threshold: JSON = entry.get("compact_threshold")
        if isinstance(threshold, int) and threshold < LEAST_COMPACT_AT:
            yield index, entry


def with_valid_threshold(body: JSONObject) -> JSONObject:
    copy = deepcopy(body)
    for _, entry in list(find_low_thresholds(copy)):
        entry["compact_threshold"] = LEAST_COMPACT_AT
    return copy


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of messages, calls and results that this API does not define."""
    for turn in sketch.messages:
        kind = str(turn.wire.get("type") or "message")
        if kind in CLIENT_ITEMS:
            yield from ITEMS.unknown_fields(turn.wire, turn.path)
        elif kind == "message":
            yield from unknown_field_findings(turn.wire, MESSAGE_FIELDS, turn.path)
            for piece in turn.parts:
                if piece.wire.get("type") in CLIENT_BLOCKS:
                    yield from BLOCKS.unknown_fields(piece.wire, piece.path)


def vendor_path(path: JSONPath) -> str:
    """Return a path as OpenAI writes it: `input[1].content`."""
    return format_path(path if path and isinstance(path[0], str) else ("input", *path))


class _Reader(RequestReader):
    messages_key, messages_error = "input", "the input must be a string or a list of items."
    part_kinds = BLOCK_KINDS

    def __init__(self, body: JSONObject) -> None:
        super().__init__(body)
        self.lenient = is_other_vendor_model(body)
        """True if the request is for another vendor, which may accept more types of items and blocks and require fewer
        fields.
        """

    def messages(self, given: JSON, base: JSONPath) -> Iterator[RequestMessage]:
        if base and isinstance(given, str):
            yield RequestMessage(role="user", path=base, wire={}, parts=tuple(self.blocks(given, base)))
        elif given is not None or not base:
            yield from super().messages(given, base)
        instructions: JSON = self.body.get("instructions")
        if instructions is not None and not isinstance(instructions, str):
            fault = Fault("", "the instructions must be a string.", Problem.TYPE, (str,), instructions)
            self.refuse(("instructions",), fault)

    def message(self, wire: JSON, path: JSONPath) -> Iterator[RequestMessage]:
        if wrong := schema_error(wire, {"type?": str, "role?": str, "id?": str, "name?": str}):
            self.refuse(path, wrong)
            return
        kind = wire.get("type") or ("message" if "role" in wire else "item_reference")
        if kind == "message":
            yield from super().message(wire, path)
        elif wrong := self.item_error(wire, kind):
            self.refuse_typed(wire, path, wrong)
            yield from _half(wire, kind, path)
        else:
            output = wire.get("output") if kind in ("function_call_output", "custom_tool_call_output") else None
            list(self.blocks(list_or_empty(output), (*path, "output"), RESULT_BLOCKS))
            call_id, name = wire.get("call_id") or "", wire.get("name") or ""
            piece = RequestPart(kind=_kind(wire, kind), path=path, wire=wire, id=call_id, name=name)
            yield RequestMessage(role=_role(wire, kind, piece.kind), path=path, wire=wire, parts=(piece,))

    def message_error(self, wire: JSONObject) -> Fault | None:
        if wrong := schema_error(wire, {"role": str, "content": (str, list)}):
            return wrong
        if (role := wire["role"]) not in ROLES:
            return Fault("role", f"invalid role {role!r}: expected user, assistant, system or developer.", detail=role)
        name = first_field(wire, FOREIGN_FIELDS)
        return Fault(name, f"a message cannot have `{name}`: calls and results are separate items.") if name else None

    def item_error(self, item: JSONObject, kind: str) -> Fault | None:
        if kind not in ITEMS.schemas and not self.lenient and not UNKNOWN_TOOL_ITEM.fullmatch(kind):
            return Fault("type", f"unknown item type {kind!r}.", detail=kind)
        if wrong := schema_error(item, (OTHER_VENDOR_SCHEMAS if self.lenient else ITEMS.schemas).get(kind, {})):
            return wrong
        if kind == "additional_tools" and item.get("role") != "developer":
            return Fault("role", "`role` must be developer for an item that adds tools.", detail=item.get("role"))
        for name in ("summary", "content") if kind == "reasoning" and not self.lenient else ():
            for thought in list_or_empty(item.get(name)):
                if wrong := tagged_error(thought, REASONING_BLOCKS):
                    return Fault(name, f"`{name}` has an invalid block: {wrong.message}")
        return None

    def block_error(self, block: JSON, shapes: Mapping[str, FieldTypes] | None) -> Fault | None:
        wrong = tagged_error(block, BLOCK_SCHEMAS if shapes is None else shapes)
        if wrong is None or wrong.field != "type":
            return wrong
        is_foreign = self.lenient and isinstance(kind := block.get("type"), str) and kind not in BLOCK_SCHEMAS
        return None if is_foreign else wrong._replace(detail=block.get("type"))

    def tools(self, given: JSON) -> Iterator[RequestPart]:
        return (replace(tool, name=tool.id) for tool in super().tools(given))

    def tool_error(self, tool: JSON) -> Fault | None:
        client = object_or_empty(tool).get("type") in CLIENT_TOOLS
        return schema_error(tool, {"name": str, "description?": str, "parameters?": dict} if client else TYPED)

    def tool_name(self, tool: JSONObject) -> str | None:
        return tool["name"] if tool["type"] in CLIENT_TOOLS else None

    def provider_text(self, path: JSONPath, fault: Fault) -> str:
        if fault.detail is not None:
            return f"Invalid value: '{fault.detail}'."
        where = vendor_path((*path, fault.field) if fault.field else path)
        if fault.problem is Problem.MISSING:
            return f"Missing required parameter: '{where}'."
        return wrong_type_text(where, fault) or f"Invalid '{where}'."


parse_request = _Reader.parse


def _half(item: JSONObject, kind: str, path: JSONPath) -> Iterator[RequestMessage]:
    """Parse a malformed call or result, so that it still counts for pairing."""
    paired = _kind(item, kind)
    if paired in ("call", "result") and isinstance(item.get("call_id"), str):
        piece = RequestPart(kind=paired, path=path, wire={"type": kind}, id=item["call_id"])
        yield RequestMessage(role=_role({}, kind, paired), path=path, wire=piece.wire, parts=(piece,))


def _kind(item: JSONObject, kind: str) -> PartKind:
    """Return the kind of an item. Calls that the server ran itself, and items without a `call_id`, are not paired."""
    if kind == "reasoning":
        return "reasoning"
    if item.get("call_id") is None or item.get("execution") == "server":
        return "other"
    return "call" if kind in PAIRS else "result" if kind in RESULTS else "other"


def _role(item: JSONObject, kind: str, piece: PartKind) -> str:
    if piece == "result" or kind in CLIENT_RESULTS:
        return "tool"
    return "developer" if kind in CONTROL_ITEMS else item.get("role") or "assistant"


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Coerce an almost valid item, block or tool: arguments as an object, shapes of Chat Completions."""
    if path == ("input",):
        return [value] if is_object(value) else as_text(value)
    if path[0] == "instructions":
        return "\n\n".join(_text(block) for block in (value if is_list(value) else [value]))
    if isinstance(value, str):
        return text_block(value) if len(path) > 2 else text_message(value)
    if not is_object(value):
        return value
    if path[0] == "tools":
        inner: JSON = value.get("function")
        return {"type": "function", **inner} if is_object(inner) else value
    return _block(value) if len(path) > 2 else _item(value)


def _item(wire: JSONObject) -> JSONObject:
    match wire.get("type"):
        case "function_call":
            arguments = wire.get("arguments")
            return {**wire, "arguments": "{}" if arguments is None else as_text(arguments)}
        case "function_call_output" | "custom_tool_call_output":
            output = wire.get("output")
            return wire if is_list(output) else {**wire, "output": "" if output is None else as_text(output)}
        case "reasoning":
            made: JSONObject = {**wire, "summary": _thoughts(wire.get("summary"), "summary_text")}
            return {**made, "content": _thoughts(made["content"], "reasoning_text")} if made.get("content") else made
        case "additional_tools":
            return {**wire, "role": "developer"}
        case _:
            pass
    role, content = wire.get("role"), wire.get("content")
    if role == "tool" and isinstance(wire.get("tool_call_id"), str) and isinstance(content, str):
        return {"type": "function_call_output", "call_id": wire["tool_call_id"], "output": content}
    if isinstance(role, str) and isinstance(content, str | list) and wire.get("type") in (None, "message"):
        known = role if role in ROLES else ALIASES.get(role.lower(), "user")
        return {**wire, "role": known}
    if role in ROLES and content is None and not wire.get("tool_calls"):
        return {**wire, "content": ""}
    return wire


def _block(wire: JSONObject) -> JSONObject:
    if isinstance(text := wire.get("text"), str):
        return text_block(text)
    inner: JSON = wire.get(str(wire.get("type")))
    if wire.get("type") == "image_url":
        url: JSON = inner.get("url") if is_object(inner) else inner
        return {"type": "input_image", "detail": "auto", "image_url": url} if isinstance(url, str) else wire
    return {"type": "input_file", **inner} if wire.get("type") == "file" and is_object(inner) else wire


def _thoughts(value: JSON, kind: str) -> list[JSONObject]:
    return [{"type": kind, "text": _text(each)} for each in as_list(value or None)]


def _text(value: JSON) -> str:
    """Return the text of an almost valid text block."""
    text: JSON = object_or_empty(value).get("text")
    return text if isinstance(text, str) else as_text(value)


def text_block(text: str) -> JSONObject:
    return {"type": "input_text", "text": text}


# ── fixes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Repairs that decoding and encoding does not make: item ids, native calls and results, settings.


CALL_ID_CODEC, TOOL_NAME_CODEC = IdentifierCodec("a-zA-Z0-9_-", 64), IdentifierCodec("a-zA-Z0-9_-", 128)
PREFIXES = {"function_call": "fc", "message": "msg", "reasoning": "rs"}
OPENAI_ID = re.compile("(rs|cmp)_[0-9a-f]{48,}")
BEDROCK_PREFIX = "rsn_"


def find_unpaired(request: ParsedRequest) -> PairingErrors:
    """Return unmatched calls and results. A call may reuse an id once the earlier call is answered."""
    found = PairingErrors([], [], [])
    waiting: dict[tuple[str, str], tuple[RequestMessage, RequestPart]] = {}
    answered: set[tuple[str, str]] = set()
    held = refers_to_stored_items(request)
    for turn, piece in iter_parts(request):
        kind = cast(str, piece.wire.get("type") or "")
        key = RESULTS.get(kind, kind), piece.id
        if piece.kind == "result" and key not in waiting:
            others = [(other, piece.id) for other in ALSO_ANSWERS.get(kind, ())]
            key = next((other for other in others if other in waiting), key)
        if piece.kind == "call":
            waiting.setdefault(key, (turn, piece))
            answered.discard(key)
        elif piece.kind == "result" and (waiting.pop(key, None) or (held and key not in answered)):
            answered.add(key)
        elif piece.kind == "result":
            (found.duplicate_results if key in answered else found.orphan_results).append((turn, piece))
    found.unanswered_calls.extend(each for each in waiting.values() if not each[1].wire.get("async"))
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
            after = turn if turn.wire.get("type") not in CONTROL_ITEMS else after
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
    found = find_unpaired(parse_request(body))
    calls = {id(piece.wire) for _, piece in found.unanswered_calls}
    strays = {id(piece.wire) for _, piece in (*found.orphan_results, *found.duplicate_results)}

    def paired(item: JSONObject) -> list[JSONObject]:
        if id(item) in strays:
            words = item["output"] if isinstance(item.get("output"), str) else encode(item).decode()
            return [text_message(f"[{item['type']}, whose call is not here:]\n{words}")]
        if id(item) not in calls:
            return [item]
        if item["type"] in ("function_call", "custom_tool_call"):
            kind = PAIRS[item["type"]]
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
    gone = {id(turn.wire) for turn in find_lone_reasoning(parse_request(body).messages)}
    return _without(body, lambda item: id(item) in gone)


def without_unstored_items(body: JSONObject) -> JSONObject:
    return _without(body, is_unstored)


def without_damaged_items(body: JSONObject) -> JSONObject:
    return _without(body, lambda item: not is_intact(item))


def without_repeated_ids(body: JSONObject) -> JSONObject:
    again = {id(turn.wire) for turn in find_repeated_items(parse_request(body).messages)}

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
    return remove_fields(body, find_unknown_fields(parse_request(body)))


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
    if name in tool_names(parse_request(body)):
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
    return block["type"] in INPUT_BLOCKS and "text" not in block


def _with_correct_blocks(item: JSONObject) -> list[JSONObject]:
    content: JSON = item.get("content")
    if item.get("role") not in ROLES or not isinstance(content, list):
        return [item]
    blocks = cast(list[JSONObject], content)
    if item["role"] != "assistant":
        return [{**item, "content": [_convert_block(block, "input_text", OUTPUT_BLOCKS) for block in blocks]}]
    shown = [block for block in blocks if _is_shown(block)]
    said = [_convert_block(block, "output_text", INPUT_BLOCKS) for block in blocks if not _is_shown(block)]
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
        loose = loose and item.get("role", "assistant") == "assistant" and item.get("type") not in RESULTS
        return [without_fields(item, "id") if loose and _is_valid_without_id(item) else item]

    return _changed(body, left)


def _is_valid_without_id(item: JSONObject) -> bool:
    """Return True if an item has the same meaning without its id."""
    return item.get("role") in ROLES or item.get("type") in PAIRS or item.get("type") in RESULTS


def _is_new(item: JSONObject) -> bool:
    return item.get("role") == "assistant" and not item.get("id")


# ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MAX_ID_LENGTH = 64
HISTORIES = ("previous_response_id", "conversation", "prompt")


RULES = RuleSet(
    "OAR",
    "openai_responses",
    parse_request,
    coerce=coerce_value,
    message=text_message,
    block=text_block,
    messages_key="input",
    vendor="openai",
    format_path=vendor_path,
    unknown_fields=find_unknown_fields,
)
rule = RULES.register
CACHE_LIFETIMES = ("30m", "12h")
PAIRING = PairingChecks(find_unpaired, lambda turn, piece: {"kind": str(piece.wire["type"]).replace("_", " ")})
"""The types of calls and results are written as in OpenAI's error messages."""


def may_be_openai_model(body: JSONObject) -> bool:
    return not is_other_vendor_model(body)


rule(1)(malformed_values)
rule(2, fix=insert_first_message(RULES))(no_messages("input", HISTORIES))


@rule(3, fix=with_correct_block_types)
def check_block_roles(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn, piece in iter_parts(request) if may_be_openai_model(request.body) else ():
        is_reply, kind = turn.role == "assistant", piece.wire.get("type")
        if kind in (INPUT_BLOCKS if is_reply else OUTPUT_BLOCKS):
            supported = ", ".join(f"'{each}'" for each in (OUTPUT_BLOCKS if is_reply else INPUT_BLOCKS[:3]))
            yield part_finding(turn, piece, kind=kind, supported=supported)


rule(4, fix=with_paired_items)(PAIRING.unanswered)
rule(5, fix=with_paired_items)(PAIRING.orphans)
rule(6, fix=with_paired_items)(PAIRING.duplicates)


@rule(7, fix=with_short_ids)
def check_call_id_length(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn, call in iter_parts(request, "call"):
        count = len(call.id)
        if not count or (count > MAX_ID_LENGTH and may_be_openai_model(request.body)):
            problem, wanted = ("too long", "maximum length 64") if count else ("too short", "minimum length 1")
            length = f"a string with length {count}"
            yield part_finding(turn, call, problem=problem, wanted=wanted, length=length, count=count)


@rule(8, fix=without_lone_reasoning)
def check_reasoning_followed(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in find_lone_reasoning(request.messages) if may_be_openai_model(request.body) else ():
        yield make_finding(turn.path, id=turn.wire["id"])


@rule(9, fix=without_unstored_items)
def check_unstored_items(request: ParsedRequest) -> Iterable[RuleFinding]:
    if request.body.get("store") is False and may_be_openai_model(request.body):
        for turn in request.messages:
            if is_unstored(turn.wire):
                yield make_finding(turn.path, id=turn.wire["id"])


@rule(10, fix=without_damaged_items)
def check_encrypted_content(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        if not is_intact(turn.wire):
            yield make_finding(turn.path, content=f"{turn.wire['encrypted_content'][:4]}...")


@rule(11, fix=without_repeated_ids)
def check_unique_item_ids(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in find_repeated_items(request.messages) if may_be_openai_model(request.body) else ():
        yield make_finding(turn.path, id=turn.wire["id"])


@rule(12, fix=without_foreign_ids)
def check_item_id_prefix(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages if is_openai_model(request.body) else ():
        if prefix := expected_prefix(turn.wire):
            yield make_finding(turn.path, id=turn.wire["id"], prefix=prefix)


@rule(13, fix=with_valid_tool_names)
def check_tool_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    if may_be_openai_model(request.body):
        named = [(tool.path, tool.id) for tool in request.tools]
        named += [(call.path, call.name) for call in iter_calls(request) if "name" in call.wire]
        yield from (make_finding(path, name=name) for path, name in named if not TOOL_NAME.fullmatch(name))


@rule(14, fix=with_known_choice)
def check_tool_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    choice = object_or_empty(request.body.get("tool_choice"))
    kind, name = choice.get("type"), choice.get("name")
    elsewhere = request.body.get("prompt") or any(finding.path[:1] == ("tools",) for finding in request.malformed)
    if kind in CLIENT_TOOLS and isinstance(name, str) and not elsewhere and name not in tool_names(request):
        yield make_finding(("tool_choice",), kind=kind, name=name)


@rule(15, fix=remove_settings("previous_response_id"))
def check_single_history(request: ParsedRequest) -> Iterable[RuleFinding]:
    if all(request.body.get(name) for name in STORED_HISTORY):
        yield make_finding(("previous_response_id",))


@rule(16, fix=set_setting("max_output_tokens", MIN_OUTPUT_TOKENS))
def check_min_output_tokens(request: ParsedRequest) -> Iterable[RuleFinding]:
    limit: JSON = request.body.get("max_output_tokens")
    if isinstance(limit, int) and limit < MIN_OUTPUT_TOKENS and is_openai_model(request.body):
        yield make_finding(("max_output_tokens",), limit=limit)


@rule(17, fix=with_trigger_last)
def check_compaction_last(request: ParsedRequest) -> Iterable[RuleFinding]:
    triggers = [turn for turn in request.messages[:-1] if turn.wire.get("type") == "compaction_trigger"]
    return [make_finding(turn.path) for turn in triggers]


rule(18, fix=remove_settings(*SAMPLING_SETTINGS))(
    sampling_settings(lambda body: object_or_empty(body.get("reasoning")).get("effort"))
)


@rule(19, fix=without_unknown_fields, is_open=True)
def check_known_fields(request: ParsedRequest) -> Iterable[RuleFinding]:
    return find_unknown_fields(request) if may_be_openai_model(request.body) else ()


@rule(20, fix=with_short_cache_key)
def check_cache_key(request: ParsedRequest) -> Iterable[RuleFinding]:
    return long_cache_keys(request) if may_be_openai_model(request.body) else ()


@rule(21, fix=without_unknown_cache_options(CACHE_LIFETIMES))
def check_cache_options(request: ParsedRequest) -> Iterable[RuleFinding]:
    return unknown_cache_options(CACHE_LIFETIMES)(request) if may_be_openai_model(request.body) else ()


@rule(22, fix=without_unknown_settings, is_open=True)
def check_known_settings(request: ParsedRequest) -> Iterable[RuleFinding]:
    if is_openai_model(request.body):
        yield from find_unknown_settings(request)


@rule(23, fix=with_valid_threshold)
def check_compact_threshold(request: ParsedRequest) -> Iterable[RuleFinding]:
    if may_be_openai_model(request.body):
        for index, entry in find_low_thresholds(request.body):
            yield make_finding(("context_management", index, "compact_threshold"), got=entry["compact_threshold"])


def find_strict_schemas(body: JSONObject) -> Iterator[StrictSchema]:
    """Yield the strict schemas of functions, and the one of the answer."""
    for index, tool in enumerate(as_objects(body.get("tools"))):
        if tool.get("type") == "function" and tool.get("strict") is True:
            path = ("tools", index, "parameters")
            yield StrictSchema(path, f"function {str(tool.get('name'))!r}", tool.get("parameters"))
    described = object_or_empty(object_or_empty(body.get("text")).get("format"))
    if described.get("strict") is True:
        path = ("text", "format", "schema")
        yield StrictSchema(path, f"response_format {str(described.get('name'))!r}", described.get("schema"))


@rule(24, fix=lambda body: with_lenient_schemas(body, find_strict_schemas))
def check_strict_schemas(request: ParsedRequest) -> Iterable[RuleFinding]:
    return open_strict_schemas(find_strict_schemas)(request) if may_be_openai_model(request.body) else ()
