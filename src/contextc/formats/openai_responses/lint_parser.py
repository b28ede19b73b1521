"""Parse requests to the Responses API for the rules: required fields of items, and their positions.

A request consists of items, and each item is parsed as one turn. A field is required only if every endpoint of this API
rejects an item without it. Items of tools that OpenAI runs itself are sent back unchanged.
"""

import re
from collections.abc import Iterator
from typing import cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.lint_engine import (
    FieldTypes,
    JSONPath,
    ParsedRequest,
    PartKind,
    RequestMessage,
    RequestPart,
    RuleFinding,
    field_names,
    format_path,
    make_finding,
    schema_error,
    unknown_field_findings,
)

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
    "reasoning": {"summary?": list, "content?": list, "encrypted_content?": str}
}
"""Required fields of items where other vendors require fewer."""
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
UNKNOWN_TOOL_ITEM = re.compile(r".+(_call|_call_output|_output)|mcp_.+|.*:.*")
"""Type names of tool items. An unknown type of this form may be a new one, and is accepted."""
OPENAI_MODEL = re.compile(r"(ft:)?(gpt-(?!oss)|o\d|chatgpt-|codex-|computer-use-)")
CLIENT_RESULTS = ("function_call_output", "local_shell_call_output", "mcp_approval_response")
CONTROL_ITEMS = ("configuration_update", "compaction_trigger")
INPUT_BLOCKS = ("input_text", "input_image", "input_file", "input_audio", "input_video")
OUTPUT_BLOCKS = ("output_text", "refusal")
RESULT_BLOCKS = {kind: BLOCKS[kind] for kind in INPUT_BLOCKS}
MESSAGE_FIELDS = frozenset(("type", "role", "content", "id", "status", "phase"))
ITEM_FIELDS = {
    "function_call": field_names(ITEMS["function_call"], "type", "id", "status", "namespace", "caller", "async"),
    "function_call_output": field_names(
        ITEMS["function_call_output"], "type", "id", "status", "namespace", "caller", "async", "name"
    ),
    "reasoning": field_names(ITEMS["reasoning"], "type", "id", "status"),
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


def parse_request(body: JSON) -> ParsedRequest:
    """Parse any JSON value as a request, or as the input of one."""
    whole = cast(JSONObject, body) if isinstance(body, dict) else {}
    reader = _Reader(lenient=is_other_vendor_model(whole))
    given: JSON = whole.get("input") if isinstance(body, dict) else body
    base: JSONPath = ("input",) if isinstance(body, dict) else ()
    turns: list[RequestMessage] = []
    if base and isinstance(given, str):
        turns = [
            RequestMessage(
                role="user", path=base, wire={}, parts=(RequestPart(kind="text", path=base, wire={}, text=given),)
            )
        ]
    elif isinstance(given, list):
        items = enumerate(cast(list[JSON], given))
        turns = [turn for index, item in items for turn in reader.turn(item, (*base, index))]
    elif given is not None or not base:
        reader.refuse(base, "", "the input must be a string or a list of items.")
    instructions: JSON = whole.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        reader.refuse(("instructions",), "", "the instructions must be a string.")
    tools = tuple(reader.tools(whole.get("tools")))
    return ParsedRequest(messages=tuple(turns), body=whole, tools=tools, malformed=tuple(reader.misshapen))


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


class _Reader:
    def __init__(self, *, lenient: bool) -> None:
        self.misshapen: list[RuleFinding] = []
        self.lenient = lenient
        """True if the request is for another vendor, which may accept more types of items and blocks and require fewer
        fields.
        """

    def turn(self, wire: JSON, path: JSONPath) -> Iterator[RequestMessage]:
        if wrong := schema_error(wire, {"type?": str, "role?": str, "id?": str, "name?": str}):
            self.refuse(path, *wrong)
            return
        item = cast(JSONObject, wire)
        kind = item.get("type") or ("message" if "role" in item else "item_reference")
        if kind == "message":
            yield from self.message(item, path)
        elif kind not in ITEMS and not self.lenient and not UNKNOWN_TOOL_ITEM.fullmatch(kind):
            self.refuse(path, "type", f"unknown item type {kind!r}.", kind)
        elif wrong := schema_error(
            item, OTHER_VENDOR_ITEMS.get(kind, ITEMS.get(kind, {})) if self.lenient else ITEMS.get(kind, {})
        ):
            self.refuse(path, *wrong)
            yield from self.half(item, kind, path)
        elif kind == "additional_tools" and item.get("role") != "developer":
            self.refuse(path, "role", "`role` must be developer for an item that adds tools.", item.get("role"))
        else:
            yield from self.item(item, kind, path)

    def message(self, item: JSONObject, path: JSONPath) -> Iterator[RequestMessage]:
        if wrong := schema_error(item, {"role": str, "content": (str, list)}):
            self.refuse(path, *wrong)
            return
        if item["role"] not in ROLES:
            message = f"invalid role {item['role']!r}: expected user, assistant, system or developer."
            self.refuse(path, "role", message, item["role"])
            return
        for name in ("tool_calls", "tool_call_id", "function_call", "toolCalls", "toolCallId"):
            if item.get(name):
                self.refuse(path, name, f"a message cannot have `{name}`: calls and results are separate items.")
                return
        content: JSON = item["content"]
        here = (*path, "content")
        pieces = [RequestPart(kind="text", path=here, wire={}, text=content)] if isinstance(content, str) else []
        if isinstance(content, list):
            pieces = list(self.blocks(cast(list[JSON], content), here, BLOCKS))
        yield RequestMessage(role=item["role"], path=path, wire=item, parts=tuple(pieces))

    def item(self, item: JSONObject, kind: str, path: JSONPath) -> Iterator[RequestMessage]:
        if kind == "reasoning" and not self.lenient and (wrong := _reasoning_error(item)):
            self.refuse(path, *wrong)
            return
        output: JSON = item.get("output")
        if isinstance(output, list) and kind in ("function_call_output", "custom_tool_call_output"):
            list(self.blocks(cast(list[JSON], output), (*path, "output"), RESULT_BLOCKS))
        piece = RequestPart(
            kind=_kind(item, kind), path=path, wire=item, id=item.get("call_id") or "", name=item.get("name") or ""
        )
        yield RequestMessage(role=_role(item, kind, piece.kind), path=path, wire=item, parts=(piece,))

    def half(self, item: JSONObject, kind: str, path: JSONPath) -> Iterator[RequestMessage]:
        """Parse a malformed call or result, so that it still counts for pairing."""
        paired = _kind(item, kind)
        if paired in ("call", "result") and isinstance(item.get("call_id"), str):
            piece = RequestPart(kind=paired, path=path, wire={"type": kind}, id=item["call_id"])
            yield RequestMessage(role=_role({}, kind, paired), path=path, wire=piece.wire, parts=(piece,))

    def blocks(self, blocks: list[JSON], path: JSONPath, shapes: dict[str, FieldTypes]) -> Iterator[RequestPart]:
        for index, block in enumerate(blocks):
            here = (*path, index)
            if wrong := schema_error(block, {"type": str}) or self.unfit(cast(JSONObject, block), shapes):
                given = cast(JSONObject, block).get("type") if wrong[0] == "type" and isinstance(block, dict) else None
                self.refuse(here, *wrong, given)
                continue
            wire = cast(JSONObject, block)
            kind = KINDS.get(wire["type"], "other")
            yield RequestPart(kind=kind, path=here, wire=wire, text=wire["text"] if kind == "text" else "")

    def unfit(self, block: JSONObject, shapes: dict[str, FieldTypes]) -> tuple[str, str] | None:
        return None if self.lenient and block["type"] not in BLOCKS else _block_error(block, shapes)

    def tools(self, tools: JSON) -> Iterator[RequestPart]:
        if tools is not None and not isinstance(tools, list):
            self.refuse(("tools",), "", "the tools must be a list.")
        for index, tool in enumerate(cast(list[JSON], tools) if isinstance(tools, list) else []):
            path: JSONPath = ("tools", index)
            kind = cast(JSONObject, tool).get("type") if isinstance(tool, dict) else None
            fields: FieldTypes = {"type": str}
            if kind in ("function", "custom"):
                fields = {"name": str, "description?": str, "parameters?": dict}
            if wrong := schema_error(cast(object, tool), fields):
                self.refuse(path, *wrong)
            elif kind in ("function", "custom"):
                wire = cast(JSONObject, tool)
                yield RequestPart(kind="other", path=path, wire=wire, id=wire["name"], name=wire["name"])

    def refuse(self, path: JSONPath, field: str, message: str, value: JSON = None) -> None:
        where = vendor_path((*path, field) if field else path)
        what = f"Missing required parameter: '{where}'." if message.endswith("missing.") else f"Invalid '{where}'."
        self.misshapen.append(
            make_finding(path, message, what=f"Invalid value: '{value}'." if value is not None else what)
        )


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
    return "developer" if kind in CONTROL_ITEMS else cast(str, item.get("role") or "assistant")


def _reasoning_error(item: JSONObject) -> tuple[str, str] | None:
    for name in ("summary", "content"):
        for thought in cast(list[JSON], item.get(name) or []):
            if wrong := schema_error(thought, {"type": str}) or _block_error(
                cast(JSONObject, thought), REASONING_BLOCKS
            ):
                return name, f"`{name}` has an invalid block: {wrong[1]}"
    return None


def _block_error(block: JSONObject, shapes: dict[str, FieldTypes]) -> tuple[str, str] | None:
    kind = block["type"]
    if kind not in shapes:
        return "type", f"unknown block type {kind!r}."
    return schema_error(block, shapes[kind])


def coerce_value(value: JSON, path: JSONPath) -> JSON:
    """Coerce an almost valid item, block or tool: arguments as an object, shapes of Chat Completions."""
    if path == ("input",):
        return [value] if isinstance(value, dict) else _as_text(value)
    if path[0] == "instructions":
        blocks = cast(list[JSON], value) if isinstance(value, list) else [value]
        return "\n\n".join(_as_text(_text(block)) for block in blocks)
    if isinstance(value, str):
        return text_block(value) if len(path) > 2 else text_message(value)
    if not isinstance(value, dict):
        return value
    wire = cast(JSONObject, value)
    if path[0] == "tools":
        inner: JSON = wire.get("function")
        return {"type": "function", **cast(JSONObject, inner)} if isinstance(inner, dict) else wire
    return _block(wire) if len(path) > 2 else _item(wire)


def _item(wire: JSONObject) -> JSONObject:
    match wire.get("type"):
        case "function_call":
            arguments = wire.get("arguments")
            return {**wire, "arguments": "{}" if arguments is None else _as_text(arguments)}
        case "function_call_output" | "custom_tool_call_output":
            output = wire.get("output")
            return wire if isinstance(output, list) else {**wire, "output": "" if output is None else _as_text(output)}
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
        url: JSON = cast(JSONObject, inner).get("url") if isinstance(inner, dict) else inner
        return {"type": "input_image", "detail": "auto", "image_url": url} if isinstance(url, str) else wire
    if wire.get("type") == "file" and isinstance(inner, dict):
        return {"type": "input_file", **cast(JSONObject, inner)}
    return wire


def _thoughts(value: JSON, kind: str) -> list[JSONObject]:
    given = cast(list[JSON], value) if isinstance(value, list) else [value] if value else []
    return [{"type": kind, "text": _as_text(_text(each))} for each in given]


def _text(value: JSON) -> JSON:
    """Return the text of an almost valid text block."""
    text: JSON = cast(JSONObject, value).get("text") if isinstance(value, dict) else None
    return text if isinstance(text, str) else cast(JSON, value)


def _as_text(value: JSON) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def text_message(text: str) -> JSONObject:
    return {"role": "user", "content": text}


def text_block(text: str) -> JSONObject:
    return {"type": "input_text", "text": text}
