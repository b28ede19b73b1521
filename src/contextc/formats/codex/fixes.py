"""Fixes that decoding and encoding a request do not make: the thread id, and the tools."""

import re
from collections.abc import Callable, Sequence
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.codex.encode import item_id
from contextc.formats.codex.items import CALL_TYPES, is_running
from contextc.formats.codex.names_and_ids import NAMES
from contextc.formats.lint_engine import RequestMessage

UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")


def find_unfinished_calls(turns: Sequence[RequestMessage]) -> list[RequestMessage]:
    """Return calls that are still running although later items exist. Parallel calls are exempt."""
    found: list[RequestMessage] = []
    gone_on = False
    for turn in reversed(turns):
        if turn.wire.get("type") not in CALL_TYPES:
            gone_on = gone_on or turn.role != "record"
        elif is_running(turn.wire) and gone_on:
            found.append(turn)
    return found[::-1]


def is_thread_id(name: JSON) -> bool:
    return isinstance(name, str) and UUID.fullmatch(name) is not None


def with_item_ids(body: JSONObject) -> JSONObject:
    def named(item: JSONObject) -> JSONObject:
        return item if item.get("id") else {**item, "id": item_id(item)}

    return {**body, "items": [named(item) for item in cast(list[JSONObject], body["items"])]}


def with_encoded_names(body: JSONObject) -> JSONObject:
    return _with_tools(body, lambda tool: {**tool, "name": NAMES.encode(tool["name"])})


def with_unique_names(body: JSONObject) -> JSONObject:
    seen: set[str] = set()

    def once(tool: JSONObject) -> JSONObject | None:
        if tool["name"] in seen:
            return None
        seen.add(tool["name"])
        return tool

    return _with_tools(body, once)


def _with_tools(body: JSONObject, change: Callable[[JSONObject], JSONObject | None]) -> JSONObject:
    tools = [change(tool) for tool in cast(list[JSONObject], body["dynamicTools"])]
    return {**body, "dynamicTools": [tool for tool in tools if tool is not None]}
