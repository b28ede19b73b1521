"""Codex: pydantic models, one for each kind of item. A call and its result are one item there."""

from functools import cache
from importlib import import_module
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic import ValidationError as Refusal

from contextc._json import JSON, JSONObject
from tests.formats.judging import Problem
from tests.formats.known import PARTIAL

SETTINGS: JSONObject = {"model": "gpt-5.2-codex", "effort": "high"}
MODEL = ""
UNANSWERED, ORPHAN = "", ""
MALFORMED: JSONObject = {"type": "dynamicToolCall", "id": "a", "tool": "look", "arguments": PARTIAL}


def arguments(wire: JSONObject) -> JSON:
    return wire["arguments"]


def problems(body: JSONObject) -> list[Problem]:
    items, tools = _types()
    found: list[Problem] = []
    for key, adapter in (("items", items), ("dynamicTools", tools)):
        for index, item in enumerate(cast(list[JSON], body.get(key) or [])):
            try:
                adapter.validate_python(item)
            except Refusal as refusal:
                found += [((key, index, *error["loc"][1:]), error["msg"]) for error in refusal.errors()[:1]]
    return found


@cache
def _types() -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:  # Any: what they validate is not used
    types = import_module("openai_codex.generated.v2_all")
    return TypeAdapter(types.ThreadItem), TypeAdapter(types.DynamicToolSpec)
