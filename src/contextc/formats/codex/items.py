"""The item types of a Codex thread: the fields of each, and which of them are tool calls with results.

An item contains a call and its result, which are two parts in contextc. So each type of call defines how its tool name,
arguments and output are read, and where an output is written. The call keeps the rest of the item in `extra`, so that
it is sent back as the same item.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias, cast

from contextc._json import JSON, JSONObject, encode
from contextc.formats.base import text_of
from contextc.formats.lint_engine import FieldTypes
from contextc.formats.media_encoding import decode_base64, from_data_url, guess_media_type, to_data_url
from contextc.formats.request_settings import object_or_empty
from contextc.messages import Media, Text, ToolResult

Content: TypeAlias = str | tuple[Text | Media, ...]

RUNNING, COMPLETED, FAILED = "inProgress", "completed", "failed"
STATES = (RUNNING, COMPLETED, FAILED, "declined", "interrupted")
IMPLIED_STATES = (COMPLETED, RUNNING)
ITEM_TYPES: dict[str, FieldTypes] = {
    "userMessage": {"content": list, "clientId?": str},
    "hookPrompt": {"fragments": list},
    "agentMessage": {"text": str, "phase?": str, "questions?": list},
    "functionCallOutput": {"name": str, "output": (str, list), "namespace?": str},
    "plan": {"text": str},
    "reasoning": {"summary?": list, "content?": list},
    "commandExecution": {
        "command": str,
        "commandActions": list,
        "cwd": str,
        "status": str,
        "aggregatedOutput?": str,
        "exitCode?": int,
    },
    "fileChange": {"changes": list, "status": str},
    "mcpToolCall": {"server": str, "tool": str, "status": str, "result?": dict, "error?": dict},
    "dynamicToolCall": {"tool": str, "status": str, "contentItems?": list, "success?": bool, "namespace?": str},
    "collabAgentToolCall": {
        "agentsStates": dict,
        "receiverThreadIds": list,
        "senderThreadId": str,
        "status": str,
        "tool": str,
        "prompt?": str,
    },
    "subAgentActivity": {"agentPath": str, "agentThreadId": str, "kind": str},
    "webSearch": {"query": str, "action?": dict, "results?": list},
    "imageView": {"path": str},
    "sleep": {"durationMs": int},
    "imageGeneration": {"result": str, "status": str, "revisedPrompt?": str},
    "enteredReviewMode": {"review": str},
    "exitedReviewMode": {"review": str},
    "contextCompaction": {},
}
USER_BLOCKS: dict[str, FieldTypes] = {
    "text": {"text": str, "text_elements?": list},
    "image": {"url?": str, "fileId?": str, "detail?": str},
    "localImage": {"path": str, "detail?": str},
    "audio": {"url": str},
    "localAudio": {"path": str},
    "skill": {"name": str, "path": str},
    "mention": {"name": str, "path": str},
}
"""The blocks of a user message, which `turn/start` also takes."""
RESULT_BLOCKS: dict[str, FieldTypes] = {
    "inputText": {"text": str},
    "inputImage": {"imageUrl": str},
    "inputAudio": {"audioUrl": str},
}
"""The blocks that a client tool returns."""
USER_ITEMS = ("userMessage", "hookPrompt")


class CallType(NamedTuple):
    """The conversion of an item type to a call and its result.

    `field` is the field of its output, and `write` returns its new value. The arguments of a `arguments_late` type are
    known only when it is complete.
    """

    name: Callable[[JSONObject], str]
    arguments: Callable[[JSONObject], JSON]
    output: Callable[[JSONObject], Content]
    field: str = ""
    write: Callable[[JSONObject, ToolResult], JSON] | None = None
    arguments_late: bool = False


def is_running(item: JSONObject) -> bool:
    return item.get("status") == RUNNING


def is_error(item: JSONObject) -> bool:
    return (
        item.get("success") is False or item.get("status", COMPLETED) not in IMPLIED_STATES or bool(item.get("error"))
    )


def without_output(item: JSONObject, kind: CallType) -> JSONObject:
    return {name: value for name, value in item.items() if name != kind.field}


def with_result(item: JSONObject, kind: CallType, result: ToolResult) -> JSONObject:
    """Return the item with this result in place of any other."""
    state = item.get("status")
    if state is not None and (state == RUNNING or is_error(item) != result.is_error):
        item = {**item, "status": FAILED if result.is_error else COMPLETED}
    if kind.write is None or kind.output(item) == result.content:
        return item
    return {**item, kind.field: kind.write(item, result)}


def result_block(part: Text | Media) -> JSONObject | None:
    """Return a part of a result as a block of a client tool, or None if Codex does not support it."""
    if isinstance(part, Text):
        return {"type": "inputText", "text": part.text}
    url = to_data_url(part, {}) or part.url
    if url is None or part.kind not in ("image", "audio"):
        return None
    return {"type": "inputImage", "imageUrl": url} if part.kind == "image" else {"type": "inputAudio", "audioUrl": url}


def result_content(blocks: Iterable[JSONObject]) -> Content:
    """Return the content that a client tool returned: a single text as str, anything else as parts."""
    parts = [_part(block) for block in blocks]
    if not parts:
        return ""
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) and parts[0].text else tuple(parts)


def _part(block: JSONObject) -> Text | Media:
    url = text_of(block.get("imageUrl") or block.get("audioUrl"))
    if block.get("type") not in ("inputImage", "inputAudio") or not url:
        return Text(text_of(block.get("text")))
    default = "image/png" if block["type"] == "inputImage" else "audio/wav"
    return from_data_url(url) or Media(mime_type=guess_media_type(url, default), url=url)


def _write_blocks(item: JSONObject, result: ToolResult) -> JSON:
    parts = (Text(result.content),) if isinstance(result.content, str) and result.content else result.content
    return [block for part in cast(tuple[Text | Media, ...], parts or ()) if (block := result_block(part)) is not None]


def _read_blocks(item: JSONObject) -> Content:
    return result_content(cast(list[JSONObject], item.get("contentItems") or []))


def _read_mcp(item: JSONObject) -> Content:
    """Return the output of an MCP server from its blocks, or its error text."""
    error, result = object_or_empty(item.get("error")), object_or_empty(item.get("result"))
    parts: list[Text | Media] = []
    for block in cast(list[JSON], result.get("content") or []):
        said = object_or_empty(block)
        data = decode_base64(text_of(said.get("data"))) if said.get("type") in ("image", "audio") else None
        kind = text_of(said.get("mimeType"))
        if said.get("type") == "text":
            parts.append(Text(text_of(said.get("text"))))
        elif data and "/" in kind:
            parts.append(Media(mime_type=kind, data=data))
        else:
            parts.append(Text(encode(block).decode()))
    if error:
        parts.append(Text(text_of(error.get("message"))))
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else tuple(parts) or ""


def _write_mcp(item: JSONObject, result: ToolResult) -> JSON:
    return {**object_or_empty(item.get("result")), "content": [{"type": "text", "text": result.text}]}


def _read_image(item: JSONObject) -> Content:
    data = decode_base64(text_of(item.get("result")))
    return (Media(mime_type="image/png", data=data),) if data else text_of(item.get("status"))


def _read_list(name: str) -> Callable[[JSONObject], Content]:
    def output(item: JSONObject) -> Content:
        value: JSON = item.get(name)
        return value if isinstance(value, str) else encode(value).decode() if value else ""

    return output


def _select_fields(*names: str) -> Callable[[JSONObject], JSON]:
    """Return a function that reads these fields of an item as arguments."""
    return lambda item: {name: item[name] for name in names if item.get(name) is not None}


def _fixed_name(name: str) -> Callable[[JSONObject], str]:
    return lambda item: name


def _dynamic_name(item: JSONObject) -> str:
    space = item.get("namespace")
    return f"{space}__{item['tool']}" if space else text_of(item.get("tool"))


def _mcp_name(item: JSONObject) -> str:
    return f"mcp__{item.get('server')}__{item.get('tool')}"


def _read_arguments(item: JSONObject) -> JSON:
    return item.get("arguments")


def _write_nothing(item: JSONObject) -> JSON:
    return {}


def _write_text(item: JSONObject, result: ToolResult) -> JSON:
    return result.text


def _read_field(name: str) -> Callable[[JSONObject], str]:
    def text(item: JSONObject) -> str:
        return text_of(item.get(name))

    return text


CALL_TYPES: dict[str, CallType] = {
    "dynamicToolCall": CallType(_dynamic_name, _read_arguments, _read_blocks, "contentItems", _write_blocks),
    "commandExecution": CallType(
        _fixed_name("shell"),
        _select_fields("command", "cwd"),
        _read_list("aggregatedOutput"),
        "aggregatedOutput",
        _write_text,
    ),
    "fileChange": CallType(_fixed_name("apply_patch"), _select_fields("changes"), _read_field("status")),
    "mcpToolCall": CallType(_mcp_name, _read_arguments, _read_mcp, "result", _write_mcp),
    "collabAgentToolCall": CallType(
        _read_field("tool"), _select_fields("prompt", "receiverThreadIds", "model"), _read_list("agentsStates")
    ),
    "webSearch": CallType(
        _fixed_name("web_search"), _select_fields("query", "action"), _read_list("results"), arguments_late=True
    ),
    "imageView": CallType(_fixed_name("view_image"), _select_fields("path"), _read_list("")),
    "imageGeneration": CallType(
        _fixed_name("image_generation"), _select_fields("revisedPrompt"), _read_image, arguments_late=True
    ),
    "functionCallOutput": CallType(
        _read_field("name"), _write_nothing, _read_list("output"), "output", _write_text, arguments_late=True
    ),
}
