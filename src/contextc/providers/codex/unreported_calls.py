"""Calls that Codex does not report, read from the rollout file of the thread; and the tools of the thread.

The file contains all calls with their results. Calls that the sandbox denied, unknown tools and plan updates are not
reported as items. The file is read whenever a new item starts, and a call without an item gets a synthetic one.

The tools of a thread cannot change after its start. They are in the first line of the file, so that any process can
compare them with those of a request.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import cast

from contextc._json import JSON, JSONObject, encode_canonical, parse_object
from contextc._worker_threads import run_in_thread

CALLS, RESULTS = ("function_call", "custom_tool_call"), ("function_call_output", "custom_tool_call_output")
TRIGGERING_METHODS = ("thread/tokenUsage/updated", "item/started", "turn/completed")
"""Messages before which the file is read. It then contains all results so far, unless the API answered at once. Such
results are reported before the next message."""


class UnreportedCalls:
    """Reader of a thread's rollout file, from its current end. `known` are the ids of calls in the injected history."""

    def __init__(self, path: str, known: Collection[str]) -> None:
        self._path, self._known = Path(path) if path else None, known
        self._end = self._path.stat().st_size if self._path is not None and self._path.exists() else 0
        self._asked: dict[str, JSONObject] = {}

    def messages_before(self, message: JSONObject, reported: Collection[str]) -> Iterator[JSONObject]:
        """Yield messages for unreported calls that precede this message. `reported` are the ids of the items so far."""
        if message["method"] not in TRIGGERING_METHODS:
            return
        place = {name: message["params"].get(name) for name in ("threadId", "turnId")}
        for item in self._new():
            name = str(item.get("call_id"))
            if item["type"] in CALLS:
                self._asked[name] = item
            elif name not in reported and name not in self._known and (asked := self._asked.pop(name, None)):
                made = {"type": "dynamicToolCall", "id": name, "tool": asked["name"], "arguments": _arguments_of(asked)}
                content = {"contentItems": [{"type": "inputText", "text": _text(item.get("output"))}]}
                yield {"method": "item/started", "params": {**place, "item": {**made, "status": "inProgress"}}}
                yield {
                    "method": "item/completed",
                    "params": {**place, "item": {**made, "status": "completed", **content}},
                }

    def _new(self) -> Iterator[JSONObject]:
        """Yield the calls and results that were written since the last read."""
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                file.seek(self._end)
                written = file.read()
        except OSError:
            return
        whole = written[: written.rfind(b"\n") + 1]
        self._end += len(whole)
        for line in whole.splitlines():
            entry = (parse_object(line.decode("utf-8", "replace")) or {}) if b"_call" in line else {}
            item: JSON = entry.get("payload")
            if entry.get("type") == "response_item" and isinstance(item, dict):
                found = cast(JSONObject, item)
                if found.get("type") in (*CALLS, *RESULTS):
                    yield found


def _arguments_of(asked: JSONObject) -> JSONObject:
    if "input" in asked:
        return {"input": asked["input"]}
    written = str(asked.get("arguments") or "{}")
    return parse_object(written) or {"arguments": written}


def _text(output: JSON) -> str:
    if isinstance(output, list):
        blocks = [cast(JSONObject, block) for block in cast(list[JSON], output) if isinstance(block, dict)]
        return "\n".join(str(block.get("text") or "") for block in blocks)
    return output if isinstance(output, str) else ""


MAX_LINE_BYTES = 1 << 24


async def load_thread_tools(thread: JSONObject) -> list[JSONObject] | None:
    """Return the tools that a thread was started with, or None if its rollout file does not contain them."""
    path = thread.get("path")
    return await run_in_thread(_read, Path(path)) if isinstance(path, str) else None


def same_tools(tools: Sequence[JSONObject] | None, others: Sequence[JSONObject] | None) -> bool:
    """Return True if both lists have the same tools, or if one of them is unknown (None)."""
    return tools is None or others is None or _definitions(tools) == _definitions(others)


def _read(path: Path) -> list[JSONObject] | None:
    try:
        with path.open("rb") as file:
            first = parse_object(file.readline(MAX_LINE_BYTES).decode("utf-8", "replace")) or {}
    except OSError:
        return None
    if first.get("type") != "session_meta":
        return None
    return cast(list[JSONObject], first["payload"].get("dynamic_tools") or [])


def _definitions(tools: Sequence[JSONObject]) -> list[bytes]:
    """Return the tools without empty and false fields, in sorted order."""
    bare = [{name: value for name, value in tool.items() if value not in (None, False)} for tool in tools]
    return sorted(encode_canonical(tool) for tool in bare)
