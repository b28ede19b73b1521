"""What a thread keeps from its beginning to its end: its tools. Codex has no way to give it others.

They stand in the first line of the thread's own record, so that another process can tell whether they are still those
that are asked for.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from contextc._json import JSONObject, canonical, parse_object
from contextc._threads import in_thread

LONGEST = 1 << 24


async def tools_of(thread: JSONObject) -> list[JSONObject] | None:
    """The tools that a thread began with; None where its record does not say."""
    path = thread.get("path")
    return await in_thread(_read, Path(path)) if isinstance(path, str) else None


def are_the_same(tools: Sequence[JSONObject] | None, others: Sequence[JSONObject] | None) -> bool:
    """Whether these are the same tools; what is not said is as it was."""
    return tools is None or others is None or _said(tools) == _said(others)


def _read(path: Path) -> list[JSONObject] | None:
    try:
        with path.open("rb") as file:
            first = parse_object(file.readline(LONGEST).decode("utf-8", "replace")) or {}
    except OSError:
        return None
    if first.get("type") != "session_meta":
        return None
    return cast(list[JSONObject], first["payload"].get("dynamic_tools") or [])


def _said(tools: Sequence[JSONObject]) -> list[bytes]:
    """Without what is not so, and in one order."""
    bare = [{name: value for name, value in tool.items() if value not in (None, False)} for tool in tools]
    return sorted(canonical(tool) for tool in bare)
