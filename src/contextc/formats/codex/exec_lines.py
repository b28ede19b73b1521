"""Conversion of `codex exec --json` lines into the equivalent notifications of the app-server."""

from collections.abc import Callable
from typing import NamedTuple, cast

from contextc._json import JSON, JSONObject
from contextc.formats.base import text_of

ITEM_TYPE_NAMES = {
    "agent_message": "agentMessage",
    "reasoning": "reasoning",
    "command_execution": "commandExecution",
    "file_change": "fileChange",
    "mcp_tool_call": "mcpToolCall",
    "collab_tool_call": "collabAgentToolCall",
    "web_search": "webSearch",
    "todo_list": "plan",
}
ITEM_METHODS = {"item.started": "item/started", "item.updated": "item/started", "item.completed": "item/completed"}
LINE_PREFIXES = ("thread.", "turn.", "item.")
TURN_STATUSES = {"turn.completed": "completed", "turn.failed": "failed"}
WARNING_TYPE = "error"
"""An item that is not part of the thread: a warning for the user."""


class Notification(NamedTuple):
    method: str
    params: JSONObject


def is_exec_line(event: JSONObject) -> bool:
    """Return True if this is a line, of a known or a new type."""
    kind = text_of(event.get("type"))
    return (kind == "error" or kind.startswith(LINE_PREFIXES)) and "id" not in event


def to_notification(event: JSONObject) -> Notification:
    """Return a line as a notification. Its usage is that of the whole thread so far, and is ignored."""
    kind = text_of(event.get("type"))
    if kind in ITEM_METHODS:
        item = event.get("item")
        return Notification(
            ITEM_METHODS[kind], {"item": to_thread_item(cast(JSONObject, item) if isinstance(item, dict) else {})}
        )
    if kind == "thread.started":
        return Notification("thread/started", {"thread": {"id": event.get("thread_id")}})
    if kind == "error":  # it may retry; `turn.failed` reports the final failure
        return Notification("error", {"error": {"message": event.get("message")}, "willRetry": True})
    if kind == "turn.started":
        return Notification("turn/started", {})
    if kind not in TURN_STATUSES:
        return Notification("", {})
    ended: JSONObject = {"status": TURN_STATUSES[kind], "error": event.get("error")}
    return Notification("turn/completed", {"turn": ended})


def to_thread_item(item: JSONObject) -> JSONObject:
    """Return an item of `codex exec --json` as an item of a thread, and any other unchanged."""
    kind = text_of(item.get("type"))
    if kind not in ITEM_TYPE_NAMES or (kind == "reasoning" and "text" not in item):
        return item
    made = {_camel(name): value for name, value in item.items()} | {"type": ITEM_TYPE_NAMES[kind]}
    if isinstance(status := made.get("status"), str):
        made["status"] = _camel(status)
    return ITEM_CONVERTERS[kind](made) if kind in ITEM_CONVERTERS else made


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _command(item: JSONObject) -> JSONObject:
    return {"cwd": "", "commandActions": [], **item}


def _reasoning(item: JSONObject) -> JSONObject:
    return {"type": "reasoning", "id": item.get("id"), "summary": [text_of(item.get("text"))], "content": []}


def _change(item: JSONObject) -> JSONObject:
    def shaped(change: JSONObject) -> JSONObject:
        kind: JSON = change.get("kind")
        return {"diff": "", **change, "kind": {"type": kind} if isinstance(kind, str) else kind}

    return {**item, "changes": [shaped(change) for change in cast(list[JSONObject], item.get("changes") or [])]}


def _plan(item: JSONObject) -> JSONObject:
    todos = cast(list[JSONObject], item.get("items") or [])
    lines = [f"- [{'x' if todo.get('completed') else ' '}] {text_of(todo.get('text'))}" for todo in todos]
    return {"type": "plan", "id": item.get("id"), "text": "\n".join(lines)}


ITEM_CONVERTERS: dict[str, Callable[[JSONObject], JSONObject]] = {
    "command_execution": _command,
    "reasoning": _reasoning,
    "file_change": _change,
    "todo_list": _plan,
}
