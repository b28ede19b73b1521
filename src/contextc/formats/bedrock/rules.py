"""The rules of Bedrock's Converse API.

The model id is in the URL, so rules for single models are checked only where the body shows the model.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any, cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.base import text_of
from contextc.formats.bedrock.codec import (
    CHANGE_BLOCKS,
    DOCUMENT_NAME,
    FORMATS,
    MAX_DOCUMENTS,
    MAX_IMAGES,
    USER_ONLY_BLOCKS,
    describe_block,
    find_documents,
    is_blank,
    is_client_tool,
    is_separator,
    vendor_of,
    with_unique_name,
)
from contextc.formats.bedrock.schema import (
    BLOCK,
    BODY,
    MESSAGE,
    RESULT_CONTENT,
    SYSTEM_CONTENT,
    TOOL,
    Schema,
    SchemaFault,
    find_schema_faults,
)
from contextc.formats.lint_engine import (
    ROLES,
    Fault,
    JSONPath,
    ParsedRequest,
    PartKind,
    RequestMessage,
    RequestPart,
    RequestReader,
    RuleFinding,
    RuleSet,
    block_message_error,
    format_dotted_path,
    make_finding,
    results_in_next_message,
    schema_error,
)
from contextc.formats.message_preparation import decode_base64, is_valid_signature
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty
from contextc.formats.rule_library import (
    ROLE_ALIASES,
    PairingChecks,
    ToolChange,
    as_arguments,
    as_text,
    change_messages,
    duplicate_ids,
    duplicate_tools,
    find_invalid_tool_changes,
    inner_tool,
    insert_first_message,
    iter_parts,
    late_results,
    malformed_values,
    messages_where,
    misplaced_blocks,
    no_messages,
    part_finding,
    tool_schema,
    without_blocks,
    without_fields,
    without_nulls,
)

# ── reading a request ─────────────────────────────────────────────────────────────────────────────────────────────────
# The parser of Converse requests for lint rules.
#
# A block is an object with one member. `shapes` defines the types of blocks and their required fields. Every block
# with a valid shape becomes a part, whatever its values are.


PART_KINDS: dict[str, PartKind] = {
    "text": "text",
    "reasoningContent": "reasoning",
    "toolUse": "call",
    "toolResult": "result",
    "image": "media",
    "document": "media",
    "video": "media",
    "audio": "media",
}


class _Reader(RequestReader):
    messages_error = tools_error = "expected a list."
    tools_key = "toolConfig"

    def message_error(self, wire: JSON) -> Fault | None:
        return block_message_error(wire, list)

    def parts(self, wire: JSONObject, path: JSONPath) -> Iterator[RequestPart]:
        return self.pieces(wire["content"], (*path, "content"), BLOCK)

    def pieces(self, content: JSON, path: JSONPath, shape: Schema) -> Iterator[RequestPart]:
        if not is_list(content):
            self.refuse(path, Fault("", "expected a list."))
        for index, block in enumerate(list_or_empty(content)):
            here = (*path, index)
            if wrong := _schema_error(block, shape):
                self.refuse(here, wrong)
                continue
            yield _piece(block, here)
            if "toolResult" in block:
                list(self.pieces(block["toolResult"]["content"], (*here, "toolResult", "content"), RESULT_CONTENT))

    def system(self) -> Iterable[RequestPart]:
        return self.pieces(self.body["system"], ("system",), SYSTEM_CONTENT) if "system" in self.body else ()

    def tools(self, given: JSON) -> Iterator[RequestPart]:
        if "toolConfig" in self.body and (wrong := schema_error(given, {"tools": list})):
            self.refuse(("toolConfig",), wrong)
        elif "toolConfig" in self.body:
            yield from self.listed_tools(given["tools"], ("toolConfig", "tools"))
        self.settings()

    def tool_error(self, tool: JSON) -> Fault | None:
        return _schema_error(tool, TOOL)

    def tool_name(self, tool: JSONObject) -> str | None:
        return None if "cachePoint" in tool else next(iter(tool.values()))["name"]

    def settings(self) -> None:
        """Check all fields other than messages. A fault deep inside a setting is reported for its member."""
        places: set[JSONPath] = {finding.path for finding in self.misshapen}
        for each in find_schema_faults(self.body, BODY):
            if each.fault == "shape" and each.path[:2] not in places and each.path[:1] not in places:
                places.add(each.path[:2])
                self.refuse(each.path[:2], Fault(".".join(map(str, each.path[2:])), each.message))


parse_request = _Reader.parse


def _schema_error(block: JSON, shape: Schema) -> Fault | None:
    """Return the path and message of the first shape fault in a block, or None."""
    found = next((each for each in find_schema_faults(block, shape) if each.fault == "shape"), None)
    return None if found is None else Fault(".".join(map(str, found.path)), found.message)


def find_faults(request: ParsedRequest) -> Iterator[SchemaFault]:
    """Yield invalid names and values in everything that has a valid shape."""
    yield from _name_and_value_faults(request.body, BODY, ())
    tools = list_or_empty(object_or_empty(request.body.get("toolConfig")).get("tools"))
    for index, tool in enumerate(tools):
        yield from _name_and_value_faults(tool, TOOL, ("toolConfig", "tools", index))
    for piece in request.system:
        yield from _name_and_value_faults(piece.wire, SYSTEM_CONTENT, piece.path)
    for turn in request.messages:
        yield from _name_and_value_faults(turn.wire, MESSAGE, turn.path)
        for piece in turn.parts:
            yield from _name_and_value_faults(piece.wire, BLOCK, piece.path)
            for index, each in enumerate(piece.wire["toolResult"]["content"] if "toolResult" in piece.wire else []):
                yield from _name_and_value_faults(each, RESULT_CONTENT, (*piece.path, "toolResult", "content", index))


def _name_and_value_faults(value: JSON, shape: Schema, path: JSONPath) -> Iterator[SchemaFault]:
    found = list(find_schema_faults(value, shape, path))
    if shape is BODY or all(each.fault != "shape" for each in found):
        yield from (each for each in found if each.fault != "shape")


def _piece(block: JSONObject, path: JSONPath) -> RequestPart:
    name = next(iter(block))
    inside: JSON = block[name]
    kind = PART_KINDS.get(name, "other")
    if kind in ("call", "result") and not is_client_tool(inside):
        kind = "other"
    if kind in ("call", "result"):
        return RequestPart(kind=kind, path=path, wire=block, id=inside["toolUseId"], name=inside.get("name") or "")
    return RequestPart(kind=kind, path=path, wire=block, text=inside if kind == "text" else "")


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Return an almost valid message or block in a valid shape, such as text arguments or a foreign role or tool."""
    if path == ("inferenceConfig", "stopSequences") and isinstance(value, str):
        return [value]
    if path[:1] not in ((), ("messages",), ("system",), ("toolConfig",)) or path == ("toolConfig", "toolChoice"):
        return value
    if path == ("system",):
        return [text_block(as_text(value))] if value else []
    if isinstance(value, str):
        return text_block(value) if "content" in path or path[0] == "system" else text_message(value)
    if not is_object(value):
        return value
    if path == ("toolConfig",):
        choice = {"toolChoice": value["toolChoice"]} if is_object(value.get("toolChoice")) else {}
        return {"tools": list_or_empty(value.get("tools")), **choice}
    if path[0] == "toolConfig":
        return _tool(value)
    if isinstance(value.get("role"), str) and "content" not in path:
        role, content = value["role"], value.get("content")
        blocks = content if is_list(content) else [text_block(content)] if isinstance(content, str) else []
        return {**value, "role": role if role in ROLES else ROLE_ALIASES.get(role.lower(), "user"), "content": blocks}
    if is_object(use := value.get("toolUse")):
        return {"toolUse": {**use, "input": as_arguments(use.get("input"))}}
    if is_object(result := value.get("toolResult")):
        said: JSON = result.get("content")
        listed = without_nulls(result) if is_list(said) else {**result, "content": [text_block(as_text(said))]}
        return {"toolResult": listed}
    if isinstance(value.get("text"), str) and value.get("type") in (None, "text"):
        return text_block(value["text"])
    return value


def _tool(wire: JSONObject) -> JSONObject:
    """Return a tool without a schema, or in another provider's shape, as a valid tool."""
    if (given := inner_tool(wire, ("toolSpec", "function"))) is None:
        return wire
    schema = tool_schema(given, {"type": "object"})
    plain = schema["json"] if is_object(schema.get("json")) else schema
    made: JSONObject = {"name": given["name"], "inputSchema": {"json": plain}}
    described = given.get("description")
    return {"toolSpec": {**made, "description": described} if isinstance(described, str) and described else made}


def text_message(text: str) -> JSONObject:
    return {"role": "user", "content": [text_block(text)]}


def text_block(text: str) -> JSONObject:
    return {"text": text}


# ── fixes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Fixes that decoding and encoding a request do not make: cache breakpoints, settings, tools, reasoning.


SHORT_ID, SHORT_NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,64}"), re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_BREAKPOINTS = 4
ERROR_STATUS = re.compile("fail|err", re.IGNORECASE)
RANGES = {"temperature": (0, 1), "topP": (0, 1), "maxTokens": (1, None)}


def find_late_lifetimes(body: JSONObject) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of cache points with a lifetime of an hour that come after one with five minutes."""
    is_short = False
    for path in find_breakpoints(body):
        lasts_long = object_or_empty(_at(body, path)["cachePoint"]).get("ttl") == "1h"
        if lasts_long and is_short:
            yield path
        is_short = is_short or not lasts_long


def with_ordered_lifetimes(body: JSONObject) -> JSONObject:
    copy = deepcopy(body)
    for path in list(find_late_lifetimes(copy)):
        _at(copy, path)["cachePoint"]["ttl"] = "5m"
    return copy


def with_last_breakpoints(body: JSONObject) -> JSONObject:
    """Return the body with only its last cache breakpoints, up to the limit."""
    left = len(list(find_breakpoints(body))) - MAX_BREAKPOINTS

    def stays(before: list[JSONObject], block: JSONObject) -> bool:
        nonlocal left
        if "cachePoint" not in block:
            return True
        left -= 1
        return left < 0

    return _filter_blocks(body, stays)


def without_misplaced_breakpoints(body: JSONObject) -> JSONObject:
    return _filter_blocks(
        body, lambda before, block: not ("cachePoint" in block and before and "reasoningContent" in before[-1])
    )


def without_blank_texts(body: JSONObject) -> JSONObject:
    """Return the body without blank texts."""
    return _filter_blocks(body, lambda before, block: not is_blank(block))


def with_valid_thinking(body: JSONObject) -> JSONObject:
    """Return the body without reasoning that the model could not verify.

    A message that contained nothing else is left out.
    """
    return _filter_blocks(
        body, lambda before, block: "reasoningContent" not in block or is_valid_reasoning(block, is_for_claude(body))
    )


def without_claude_thinking(body: JSONObject) -> JSONObject:
    """Return the body without reasoning that Claude signed, for a model of another vendor."""
    return _filter_blocks(body, lambda before, block: not has_signature(block))


def with_valid_document_names(body: JSONObject) -> JSONObject:
    """Return the body with valid names for documents that only Bedrock can read.

    Other documents get their names from the encoder.
    """

    def is_sound(block: JSONObject) -> bool:
        return all(DOCUMENT_NAME.fullmatch(each["document"]["name"]) for each in find_documents([block]))

    def named(blocks: list[JSONObject]) -> list[JSONObject]:
        return [block if is_sound(block) else with_unique_name(block, "") for block in blocks]

    return change_messages(body, lambda message: {**message, "content": named(message["content"])})


def with_valid_calls(body: JSONObject) -> JSONObject:
    """Return the body with invalid calls of Bedrock's own tools as text.

    A call is invalid if its id or name does not match the pattern. Such a tool is left out.
    """

    def told(block: JSONObject) -> JSONObject:
        inside = cast(JSONObject, block.get("toolUse") or block.get("toolResult") or {})
        sound = SHORT_ID.fullmatch(inside.get("toolUseId", "-")) and SHORT_NAME.fullmatch(inside.get("name", "-"))
        return block if sound else {"text": encode(block).decode()}

    def is_sound(tool: JSONObject) -> bool:
        return bool(SHORT_NAME.fullmatch(cast(JSONObject, next(iter(tool.values()))).get("name", "-")))

    messages = [{**each, "content": [told(block) for block in each["content"]]} for each in body["messages"]]
    if not body.get("toolConfig"):
        return {**body, "messages": messages}
    config = cast(JSONObject, body["toolConfig"])
    tools = [tool for tool in config["tools"] if is_sound(tool)]
    return {**body, "messages": messages, "toolConfig": {**config, "tools": tools}}


def with_last_documents(body: JSONObject) -> JSONObject:
    """Return the body with only its last documents, up to the limit. A line of text replaces each earlier one."""
    left = len(list(find_documents(_all_blocks(body)))) - MAX_DOCUMENTS

    def shown(blocks: list[JSONObject]) -> list[JSONObject]:
        nonlocal left
        found: list[JSONObject] = []
        for block in blocks:
            if "document" in block and left > 0:
                left -= 1
                block = describe_block(block)
            elif "toolResult" in block:
                inside = cast(JSONObject, block["toolResult"])
                block = {"toolResult": {**inside, "content": shown(inside["content"])}}
            found.append(block)
        return found

    return {**body, "messages": [{**each, "content": shown(each["content"])} for each in body["messages"]]}


def with_text_system_messages(body: JSONObject) -> JSONObject:
    """Return the body with a line of text for each video or audio block in a system message."""

    def told(message: JSONObject) -> JSONObject:
        if message["role"] != "system":
            return message
        blocks = cast(list[JSONObject], message["content"])
        media = [PART_KINDS.get(next(iter(block), "")) == "media" for block in blocks]
        return {**message, "content": [describe_block(b) if m else b for b, m in zip(blocks, media, strict=True)]}

    return change_messages(body, told)


def with_last_images(body: JSONObject) -> JSONObject:
    """Return the body with only the last images of each message, up to the limit. A line replaces each earlier one."""

    def shown(blocks: list[JSONObject]) -> list[JSONObject]:
        places = {*[index for index, block in enumerate(blocks) if "image" in block][:-MAX_IMAGES]}
        return [describe_block(block) if index in places else block for index, block in enumerate(blocks)]

    return {**body, "messages": [{**each, "content": shown(each["content"])} for each in body["messages"]]}


def without_unknown_fields(body: JSONObject) -> JSONObject:
    body = deepcopy(body)
    for problem in list(find_faults(parse_request(body))):
        if problem.fault == "name":
            *before, last = problem.path
            _at(body, before).pop(last)
    return body


def with_valid_values(body: JSONObject) -> JSONObject:
    """Return the body with invalid values corrected, if the intended value is clear.

    Other invalid values are left out, and media become a line of text.
    """
    body = deepcopy(body)
    for problem in reversed(list(find_faults(parse_request(body)))):
        if problem.fault == "value":
            _fix_value(body, problem.path)
    return body


def _fix_value(body: JSONObject, path: JSONPath) -> None:
    *before, last = path
    shown = next(
        (end for end in range(len(path) - 1, 0, -1) if path[end] in FORMATS and isinstance(path[end - 1], int)), 0
    )
    if shown:
        holder, place = _at(body, path[: shown - 1]), path[shown - 1]
        if path[shown] in holder[place]:  # it may have two violations
            holder[place] = describe_block(holder[place])
    elif last == "status" and ERROR_STATUS.search(_at(body, path)):
        _at(body, before)["status"] = "error"
    elif before[-1:] == ["cachePoint"] and last == "type":
        _at(body, before)["type"] = "default"
    else:
        del _at(body, before)[last]


def _at(body: JSONObject, path: Iterable[str | int]) -> Any:  # Any: a list or an object
    found: Any = body
    for step in path:
        found = found[step]
    return found


def _all_blocks(body: JSONObject) -> list[JSONObject]:
    return [block for message in cast(list[JSONObject], body["messages"]) for block in message["content"]]


def with_unique_tools(body: JSONObject) -> JSONObject:
    seen: set[str] = set()

    def is_new(tool: JSONObject) -> bool:
        name = cast(JSONObject, next(iter(tool.values()))).get("name")
        return name is None or (name not in seen and not seen.add(name))

    config = cast(JSONObject, body["toolConfig"])
    return {**body, "toolConfig": {**config, "tools": [tool for tool in config["tools"] if is_new(tool)]}}


def without_tool_choice(body: JSONObject) -> JSONObject:
    return {**body, "toolConfig": without_fields(body["toolConfig"], "toolChoice")}


def with_settings_in_range(body: JSONObject) -> JSONObject:
    config = dict(cast(JSONObject, body["inferenceConfig"]))
    for name, _, _ in find_out_of_range(body):
        low, high = RANGES[name]
        number = config[name]
        if isinstance(number, int | float) and not isinstance(number, bool):
            within = max(low, number if high is None else min(high, number))
            config[name] = int(within) if name == "maxTokens" else within
        else:
            del config[name]
    return {**body, "inferenceConfig": config}


def find_out_of_range(body: JSONObject) -> Iterator[tuple[str, JSON, str]]:
    """Yield settings that are no number or out of range, with the constraint."""
    config = cast(JSONObject, body.get("inferenceConfig") or {})
    for name, (low, high) in RANGES.items():
        given = cast(object, config.get(name))
        if name not in config:
            continue
        if name == "maxTokens" and isinstance(given, float):
            yield name, given, "Member must be a whole number"
        elif not isinstance(given, int | float) or isinstance(given, bool):
            yield name, given, "Member must be a number"
        elif high is not None and given > high:
            yield name, given, f"Member must have value less than or equal to {high}"
        elif given < low:
            yield name, given, f"Member must have value greater than or equal to {low}"


def has_signature(block: JSONObject) -> bool:
    inside: object = block.get("reasoningContent")
    thought = cast(JSONObject, inside) if isinstance(inside, dict) else {}
    return "redactedContent" in thought or bool(cast(JSONObject, thought.get("reasoningText") or {}).get("signature"))


def is_valid_reasoning(block: JSONObject, claude: bool) -> bool:
    """Return True if this may be valid reasoning. Only Claude signs reasoning, and it requires a signature."""
    thought = cast(JSONObject, block["reasoningContent"].get("reasoningText") or {})
    if not thought:
        return bool(decode_base64(block["reasoningContent"].get("redactedContent") or ""))
    signature = thought.get("signature")
    return not claude if signature is None else is_valid_signature(signature)


def is_for_claude(body: JSONObject) -> bool:
    """Return True if a request has settings that only Claude has."""
    fields: object = body.get("additionalModelRequestFields")
    return isinstance(fields, dict) and not cast(JSONObject, fields).keys().isdisjoint(("thinking", "anthropic_beta"))


def find_breakpoints(body: JSONObject) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of cache breakpoints in the order of the prompt: tools, system, messages."""
    config = body.get("toolConfig")
    tools: JSON = cast(JSONObject, config).get("tools") if isinstance(config, dict) else None
    for path, blocks in ((("toolConfig", "tools"), tools), (("system",), body.get("system"))):
        yield from ((*path, index) for index in _breakpoint_indexes(blocks))
    messages: JSON = body.get("messages")
    for number, message in enumerate(cast(list[JSON], messages) if isinstance(messages, list) else []):
        content: JSON = cast(JSONObject, message).get("content") if isinstance(message, dict) else None
        yield from (("messages", number, "content", index) for index in _breakpoint_indexes(content))


def _breakpoint_indexes(blocks: JSON) -> Iterator[int]:
    for index, block in enumerate(cast(list[JSON], blocks) if isinstance(blocks, list) else []):
        if isinstance(block, dict) and "cachePoint" in block:
            yield index


def _filter_blocks(body: JSONObject, stays: Callable[[list[JSONObject], JSONObject], bool]) -> JSONObject:
    """Return the body with only the blocks for which `stays` is true. Lists that become empty are left out."""

    def left(blocks: list[JSONObject]) -> list[JSONObject]:
        found: list[JSONObject] = []
        for block in blocks:
            if stays(found, block):
                found.append(block)
        return found

    body = dict(body)
    if body.get("toolConfig"):
        body["toolConfig"] = {**body["toolConfig"], "tools": left(body["toolConfig"]["tools"])}
    if body.get("system"):
        body["system"] = left(body["system"])
    messages = [{**message, "content": left(message["content"])} for message in body["messages"]]
    return {**body, "messages": [message for message in messages if message["content"]]}


# ── rules of messages, calls and results ──────────────────────────────────────────────────────────────────────────────
# The rules of Bedrock's Converse API for messages, and for tool calls with their results.


RULES = RuleSet(
    "BED", "bedrock", parse_request, coerce=coerce_value, message=text_message, block=text_block, vendor="bedrock"
)
rule = RULES.register
PAIRING = PairingChecks.within(
    results_in_next_message, lambda message, part: {"where": format_dotted_path((*message.path, "content"))}
)


rule(1)(malformed_values)
rule(2, fix=insert_first_message(RULES))(no_messages())
rule(3)(messages_where(lambda turn: not turn.wire["content"]))


@rule(4, fix=without_blank_texts)
def check_no_blank_text(request: ParsedRequest) -> Iterable[RuleFinding]:
    for piece in request.system:
        if piece.kind == "text" and not piece.text.strip():
            yield make_finding(piece.path, "this text is blank.")
    for turn in request.messages:
        wires = [piece.wire for piece in turn.parts]
        for index, piece in enumerate(turn.parts):
            if is_blank(piece.wire) and not is_separator(wires, index, turn.role):
                yield make_finding(piece.path, "this text is blank.")


@rule(5)
def check_roles_alternate(request: ParsedRequest) -> Iterable[RuleFinding]:
    for before, turn in zip(request.messages, request.messages[1:], strict=False):
        if turn.role == before.role != "system" and not request.malformed:
            yield make_finding(turn.path, f"two messages with role {turn.role} in a row.")


@rule(6)
def check_calls_answered(request: ParsedRequest) -> Iterable[RuleFinding]:
    places = {turn.path: number for number, turn in enumerate(request.messages)}
    for turn, call in request.match_results(results_in_next_message).unanswered_calls:
        yield part_finding(turn, call, where=f"messages.{places[turn.path] + 1}.content")


rule(7)(late_results(lambda turn: [piece for piece in turn.parts if "cachePoint" not in piece.wire]))
rule(8)(PAIRING.orphans)
rule(9)(PAIRING.duplicates)
rule(10)(duplicate_ids(facts=PAIRING.facts))
rule(11, fix=with_text_system_messages)(
    misplaced_blocks(
        lambda block: next(iter(block.wire)),
        lambda message, media: message.role == "system" or not USER_ONLY_BLOCKS.isdisjoint(media.wire),
    )
)


# ── rules of tools, media and settings ────────────────────────────────────────────────────────────────────────────────


ID, NAME = re.compile(r"[a-zA-Z0-9_.:-]+"), re.compile(r"[a-zA-Z0-9_-]+")
MAX_LENGTH = 64
CLAUDE_VENDOR = "anthropic"


@rule(12, fix=with_valid_calls)
def check_call_id_format(request: ParsedRequest) -> Iterable[RuleFinding]:
    for _, piece in iter_parts(request):
        kind = next(iter(piece.wire))
        if kind == "toolUse" or (kind == "toolResult" and piece.kind == "other"):
            yield from _check_constraint(piece.wire[kind]["toolUseId"], ID, (*piece.path, kind, "toolUseId"), piece)


@rule(13, fix=with_valid_calls)
def check_tool_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    for tool in request.tools:
        yield from _check_constraint(tool.id, NAME, (*tool.path, next(iter(tool.wire)), "name"), tool)
    for _, piece in iter_parts(request):
        if "toolUse" in piece.wire:
            yield from _check_constraint(piece.wire["toolUse"]["name"], NAME, (*piece.path, "toolUse", "name"), piece)


def _check_constraint(
    value: str, pattern: re.Pattern[str], path: JSONPath, piece: RequestPart
) -> Iterator[RuleFinding]:
    """Yield a finding if a value breaks the pattern or length limit in the vendor's API description."""
    what = ""
    if len(value) > MAX_LENGTH:
        what = f"Member must have length less than or equal to {MAX_LENGTH}"
    elif not pattern.fullmatch(value):
        what = f"Member must satisfy regular expression pattern: {pattern.pattern}"
    if what:
        message = f"invalid value {value!r}: it has more than {MAX_LENGTH} characters, or some that are not allowed."
        yield make_finding(piece.path, message, value=value, where=_format_member_path(path), what=what)


def _format_member_path(path: JSONPath) -> str:
    """Return a path as Bedrock writes it, such as `messages.1.member.content.1.member.toolUse.name`."""
    whole = path if isinstance(path[0], str) else ("messages", *path)
    return ".".join(f"{step + 1}.member" if isinstance(step, int) else step for step in whole)


@rule(14)
def check_has_tools(request: ParsedRequest) -> Iterable[RuleFinding]:
    if not request.body or request.body.get("toolConfig"):
        return
    used = next((piece for turn in request.messages for piece in turn.parts if piece.kind in ("call", "result")), None)
    if used is not None:
        yield make_finding((), "messages contain calls or results, but `toolConfig` is missing.")


rule(15, fix=with_unique_tools)(duplicate_tools)


@rule(16, fix=without_tool_choice)
def check_tool_choice(request: ParsedRequest) -> Iterable[RuleFinding]:
    config: JSON = request.body.get("toolConfig")
    choice: JSON = cast(JSONObject, config).get("toolChoice") if isinstance(config, dict) else None
    chosen: JSON = cast(JSONObject, choice).get("tool") if isinstance(choice, dict) else None
    name = cast(JSONObject, chosen).get("name") if isinstance(chosen, dict) else None
    if name is not None and name not in [tool.id for tool in request.tools]:
        yield make_finding(("toolConfig", "toolChoice"), f"tool {name!r} not found in `toolConfig`.", name=name)


@rule(17)
def check_error_results(request: ParsedRequest) -> Iterable[RuleFinding]:
    for _, result in iter_parts(request, "result"):
        inside = cast(JSONObject, result.wire["toolResult"])
        if inside.get("status") == "error" and inside["content"] in ([], [{"text": ""}]):
            where = format_dotted_path((*result.path, "toolResult"))
            yield make_finding(result.path, "this result has status `error` and no content.", where=where)


@rule(18)
def check_json_results(request: ParsedRequest) -> Iterable[RuleFinding]:
    for _, result in iter_parts(request, "result"):
        for index, each in enumerate(cast(list[JSON], result.wire["toolResult"]["content"])):
            if isinstance(each, dict) and "json" in each and not isinstance(each["json"], dict):
                path = (*result.path, "toolResult", "content", index)
                yield make_finding(path, "expected an object in `json`.", where=format_dotted_path((*path, "json")))


@rule(19)
def check_document_text(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        shown = [piece for piece in turn.parts_of("media") if "document" in piece.wire]
        if shown and not any(piece.text.strip() for piece in turn.parts_of("text")):
            yield make_finding(shown[0].path, "this document has no text next to it.")


@rule(20, fix=with_valid_document_names)
def check_document_names(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn, block in _valid_documents(request):
        name = block["document"]["name"]
        if not DOCUMENT_NAME.fullmatch(name):
            yield make_finding(
                turn.path, f"invalid document name {name!r}: it is too long, or has characters that are not allowed."
            )


@rule(21)
def check_unique_documents(request: ParsedRequest) -> Iterable[RuleFinding]:
    seen: set[str] = set()
    for turn, block in _valid_documents(request):
        name = block["document"]["name"]
        if name in seen:
            yield make_finding(turn.path, f"duplicate document name {name!r}.")
        seen.add(name)


def _valid_documents(request: ParsedRequest) -> Iterator[tuple[RequestMessage, JSONObject]]:
    for turn in request.messages:
        sound = [piece.wire for piece in turn.parts]
        for block in find_documents(sound):
            if (
                schema_error(block, {"document": dict}) is None
                and schema_error(block["document"], {"name": str}) is None
            ):
                yield turn, block


@rule(22)
def check_system_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    turns = request.messages
    for index, turn in enumerate(turns):
        if turn.role != "system":
            continue
        before = next((turns[place] for place in range(index - 1, -1, -1) if turns[place].role != "system"), None)
        after = next((turns[place] for place in range(index, len(turns)) if turns[place].role != "system"), None)
        if before is None or before.role != "user" or (after is not None and after.role != "assistant"):
            yield make_finding(turn.path, "system message in an invalid position.")


@rule(23, fix=with_valid_thinking)
def check_reasoning_signatures(request: ParsedRequest) -> Iterable[RuleFinding]:
    claude = is_for_claude(request.body)
    for _, piece in iter_parts(request, "reasoning"):
        if not is_valid_reasoning(piece.wire, claude):
            yield make_finding(piece.path, "the signature of this block is missing or invalid.")


@rule(24, fix=with_last_breakpoints)
def check_breakpoint_count(request: ParsedRequest) -> Iterable[RuleFinding]:
    marked = list(find_breakpoints(request.body or {"messages": [turn.wire for turn in request.messages]}))
    if len(marked) > MAX_BREAKPOINTS:
        yield make_finding(marked[0], f"at most 4 cache points are allowed, got {len(marked)}.", count=len(marked))


@rule(25, fix=without_misplaced_breakpoints)
def check_breakpoint_position(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        for before, piece in zip(turn.parts, turn.parts[1:], strict=False):
            if before.kind == "reasoning" and "cachePoint" in piece.wire:
                yield make_finding(piece.path, "a cache point cannot follow reasoning.")


@rule(26, fix=with_settings_in_range)
def check_setting_ranges(request: ParsedRequest) -> Iterable[RuleFinding]:
    if isinstance(request.body.get("inferenceConfig"), dict):
        for name, value, what in find_out_of_range(request.body):
            path = ("inferenceConfig", name)
            yield make_finding(path, f"{value!r} is out of range.", value=value, where=".".join(path), what=what)


@rule(27, fix=without_claude_thinking)
def check_reasoning_vendor(request: ParsedRequest) -> Iterable[RuleFinding]:
    model: object = request.body.get("modelId")
    if not isinstance(model, str) or vendor_of(model) in ("", CLAUDE_VENDOR):
        return
    for _, piece in iter_parts(request, "reasoning"):
        if has_signature(piece.wire):
            yield make_finding(piece.path, f"this reasoning was signed by a model of another vendor, not by {model}.")


@rule(28, fix=with_valid_values)
def check_values(request: ParsedRequest) -> Iterable[RuleFinding]:
    for each in find_faults(request):
        if each.fault == "value":
            value = _value_at(request, each.path)
            yield make_finding(
                each.path, each.message, value=value, where=_format_member_path(each.path), what=each.what
            )


def _value_at(request: ParsedRequest, path: JSONPath) -> str:
    """Return the value at a path as text, cut to 100 characters."""
    found: JSON = request.body
    if not request.body:
        found = {turn.path[0]: turn.wire for turn in request.messages}
    for step in path:
        found = found[step]
    return str(found)[:100]


@rule(29, fix=without_unknown_fields, is_open=True)
def check_known_fields(request: ParsedRequest) -> Iterable[RuleFinding]:
    for each in find_faults(request):
        if each.fault == "name":
            where = format_dotted_path(each.path[:-1]) or "input"
            yield make_finding(each.path, each.message, where=where, name=each.path[-1], known=each.what)


RULES.unknown_fields = check_known_fields


@rule(30, fix=with_last_documents)
def check_document_count(request: ParsedRequest) -> Iterable[RuleFinding]:
    found = list(_valid_documents(request))
    if len(found) > MAX_DOCUMENTS:
        yield make_finding(found[MAX_DOCUMENTS][0].path, f"at most 5 documents are allowed, got {len(found)}.")


@rule(31, fix=with_last_images)
def check_image_count(request: ParsedRequest) -> Iterable[RuleFinding]:
    for turn in request.messages:
        count = sum("image" in piece.wire for piece in turn.parts)
        if count > MAX_IMAGES:
            yield make_finding(turn.path, f"at most 20 images are allowed in a message, got {count}.", count=count)


@rule(32, fix=with_ordered_lifetimes)
def check_lifetime_order(request: ParsedRequest) -> Iterable[RuleFinding]:
    body = request.body or {"messages": [turn.wire for turn in request.messages]}
    for path in find_late_lifetimes(body):
        yield make_finding((*path, "cachePoint", "ttl"))


def read_tool_changes(block: JSONObject) -> Iterator[ToolChange]:
    """Yield what a block says about tools. Those of MCP servers are not in the request."""
    for name in CHANGE_BLOCKS:
        if name in block:
            tool = object_or_empty(object_or_empty(block[name]).get("tool"))
            yield ToolChange(named="" if tool.get("serverName") else text_of(tool.get("name")))


def without_invalid_tool_changes(body: JSONObject) -> JSONObject:
    return without_blocks(body, check_tool_changes(parse_request(body)))


@rule(33, fix=without_invalid_tool_changes)
def check_tool_changes(request: ParsedRequest) -> Iterable[RuleFinding]:
    return find_invalid_tool_changes(request, read_tool_changes, [tool.id for tool in request.tools])
