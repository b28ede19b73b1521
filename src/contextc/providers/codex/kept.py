"""Tools of a Codex thread, which cannot change after its start.

They are in the first line of the thread's rollout file, so that any process can compare them with those of a request.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from contextc._json import JSONObject, encode_canonical, parse_object
from contextc._threads import run_in_thread

MAX_LINE_BYTES = 1 << 24


async def load_thread_tools(thread: JSONObject) -> list[JSONObject] | None:
    """Return the tools that a thread was started with, or None if its rollout file does not contain them."""
    path = thread.get("path")
    return await run_in_thread(_read, Path(path)) if isinstance(path, str) else None


def same_tools(tools: Sequence[JSONObject] | None, others: Sequence[JSONObject] | None) -> bool:
    """Return True if both lists have the same tools, or if one of them is unknown (None)."""
    return tools is None or others is None or _said(tools) == _said(others)


def _read(path: Path) -> list[JSONObject] | None:
    try:
        with path.open("rb") as file:
            first = parse_object(file.readline(MAX_LINE_BYTES).decode("utf-8", "replace")) or {}
    except OSError:
        return None
    if first.get("type") != "session_meta":
        return None
    return cast(list[JSONObject], first["payload"].get("dynamic_tools") or [])


def _said(tools: Sequence[JSONObject]) -> list[bytes]:
    """Return the tools without empty and false fields, in sorted order."""
    bare = [{name: value for name, value in tool.items() if value not in (None, False)} for tool in tools]
    return sorted(encode_canonical(tool) for tool in bare)
