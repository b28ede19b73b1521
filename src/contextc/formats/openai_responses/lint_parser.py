"""Parse requests to the Responses API for the rules: required fields of items, and their positions.

A request consists of items, and each item is parsed as one turn. A field is required only if every endpoint of this API
rejects an item without it. Items of tools that OpenAI runs itself are sent back unchanged.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.coercion import as_list, as_text, text_message
from contextc.formats.lint_engine import (
    Fault,
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    Problem,
    RequestMessage,
    RequestPart,
    RuleFinding,
    field_names,
    format_path,
    schema_error,
    unknown_field_findings,
)
from contextc.formats.openai_chat.lint_parser import wrong_type_text
from contextc.formats.request_parser import TYPED, RequestReader, first_field, tagged_error
from contextc.formats.request_settings import is_list, is_object, list_or_empty, object_or_empty

ROLES = ("user", "assistant", "system", "developer")
ALIASES = {"human": "user", "model": "assistant", "ai": "assistant"}
ITEMS: dict[str, FieldTypes] = {
    "reasoning": {"summary": list, "content?": list, "encrypted_content?": str},
    "compaction": {"encrypted_content": str},
    "compaction_trigger": {},
    "item_reference": {"id": str},
    "function_call": {"call_id": str, "name": str, "arguments": str},
    "function_call_output": {"call_id?": str, "output": (str, list)},
    "custom_tool_call": {"call_id": str, "name": str, "input": str},
    "custom_tool_call_output": {"call_id": str, "output": (str, list)},
    "computer_call": {"call_id": str},
    "computer_call_output": {"call_id": str, "output": dict},
    "shell_call": {"call_id": str, "action": dict},
    "shell_call_output": {"call_id": str, "output": list},
    "apply_patch_call": {"call_id": str, "operation": dict},
    "apply_patch_call_output": {"call_id": str, "output?": str},
    "local_shell_call": {"call_id": str, "action": dict},
    "local_shell_call_output": {"output": str},
    "tool_search_call": {"call_id?": str},
    "tool_search_output": {"call_id?": str, "tools": list},
    "multi_agent_call": {"call_id": str, "arguments": str},
    "multi_agent_call_output": {"call_id": str, "output": list},
    "agent_message": {"content": list},
    "additional_tools": {"tools": list},
    "configuration_update": {"reasoning?": dict, "text?": dict},
    "mcp_approval_request": {"id": str, "name": str, "arguments": str, "server_label": str},
    "mcp_approval_response": {"approval_request_id": str, "approve": bool},
    "mcp_list_tools": {"server_label": str, "tools": list},
    "mcp_call": {"name": str, "arguments": str, "server_label": str},
    "program": {"call_id": str, "code": str, "fingerprint": str},
    "program_output": {"call_id": str, "result": str},
    "web_search_call": {"action?": dict},
    "file_search_call": {"queries": list},
    "code_interpreter_call": {"code?": str, "container_id": str},
    "image_generation_call": {},
}
OTHER_VENDOR_ITEMS: dict[str, FieldTypes] = {
    **ITEMS,
    "reasoning": {"summary?": list, "content?": list, "encrypted_content?": str},
}
"""Required fields of items at other vendors, which require fewer."""
FOREIGN_FIELDS = ("tool_calls", "tool_call_id", "function_call", "toolCalls", "toolCallId")
BLOCKS: dict[str, FieldTypes] = {
    "input_text": {"text": str},
    "input_image": {"image_url?": str, "file_id?": str},
    "input_file": {"file_data?": str, "file_id?": str, "file_url?": str, "filename?": str},
    "input_audio": {"input_audio": dict},
    "input_video": {},
    "output_text": {"text": str, "annotations?": list},
    "refusal": {"refusal": str},
    "reasoning_text": {"text": str},
    "summary_text": {"text": str},
    "computer_screenshot": {"image_url?": str, "file_id?": str},
    "encrypted_content": {"encrypted_content": str},
}
REASONING_BLOCKS = {kind: BLOCKS[kind] for kind in ("summary_text", "reasoning_text", "output_text")}
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
RESULT_BLOCKS = {kind: BLOCKS[kind] for kind in INPUT_BLOCKS}
CODEX_METADATA = "internal_chat_message_metadata_passthrough"
"""A field that Codex sends in every item, and that OpenAI accepts."""
MESSAGE_FIELDS = frozenset(("type", "role", "content", "id", "status", "phase", CODEX_METADATA))
ITEM_FIELDS = {
    kind: field_names(ITEMS[kind], "type", "id", "status", CODEX_METADATA, *more)
    for kind, more in {
        "function_call": ("namespace", "caller", "async"),
        "function_call_output": ("namespace", "caller", "async", "name"),
        "reasoning": (),
    }.items()
}
BLOCK_FIELDS = {
    kind: field_names(BLOCKS[kind], "type", "prompt_cache_breakpoint", *more)
    for kind, more in {
        "input_text": (),
        "input_image": ("detail",),
        "input_file": ("detail",),
        "output_text": ("logprobs",),
        "refusal": (),
    }.items()
}
"""Fields of items and blocks that a client writes. Those that OpenAI created are sent back unchanged."""
KINDS: dict[str, PartKind] = {
    "input_text": "text",
    "output_text": "text",
    "input_image": "media",
    "input_file": "media",
}


def is_openai_model(body: JSONObject) -> bool:
    """Return True if OpenAI serves a model of exactly this name."""
    model: JSON = body.get("model")
    return isinstance(model, str) and OPENAI_MODEL.match(model) is not None


def is_other_vendor_model(body: JSONObject) -> bool:
    """Return True if a model is named that OpenAI does not serve under this name."""
    return isinstance(body.get("model"), str) and not is_openai_model(body)


def find_unknown_fields(sketch: ParsedRequest) -> Iterator[RuleFinding]:
    """Yield the fields of messages, calls and results that this API does not define."""
    for turn in sketch.messages:
        kind = str(turn.wire.get("type") or "message")
        fields = MESSAGE_FIELDS if kind == "message" else ITEM_FIELDS.get(kind)
        if fields is not None:
            yield from unknown_field_findings(turn.wire, fields, turn.path)
        for piece in turn.parts if kind == "message" else ():
            if (fields := BLOCK_FIELDS.get(str(piece.wire.get("type")))) is not None:
                yield from unknown_field_findings(piece.wire, fields, piece.path)


def vendor_path(path: JSONPath) -> str:
    """Return a path as OpenAI writes it: `input[1].content`."""
    return format_path(path if path and isinstance(path[0], str) else ("input", *path))


class _Reader(RequestReader):
    messages_key, messages_error = "input", "the input must be a string or a list of items."
    part_kinds = KINDS

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
        if kind not in ITEMS and not self.lenient and not UNKNOWN_TOOL_ITEM.fullmatch(kind):
            return Fault("type", f"unknown item type {kind!r}.", detail=kind)
        if wrong := schema_error(item, (OTHER_VENDOR_ITEMS if self.lenient else ITEMS).get(kind, {})):
            return wrong
        if kind == "additional_tools" and item.get("role") != "developer":
            return Fault("role", "`role` must be developer for an item that adds tools.", detail=item.get("role"))
        return _reasoning_error(item) if kind == "reasoning" and not self.lenient else None

    def block_error(self, block: JSON, shapes: Mapping[str, FieldTypes] | None) -> Fault | None:
        wrong = tagged_error(block, BLOCKS if shapes is None else shapes)
        if wrong is None or wrong.field != "type":
            return wrong
        kind: JSON = block.get("type")
        return None if self.lenient and isinstance(kind, str) and kind not in BLOCKS else wrong._replace(detail=kind)

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


def _reasoning_error(item: JSONObject) -> Fault | None:
    for name in ("summary", "content"):
        for thought in list_or_empty(item.get(name)):
            if wrong := tagged_error(thought, REASONING_BLOCKS):
                return Fault(name, f"`{name}` has an invalid block: {wrong.message}")
    return None


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
