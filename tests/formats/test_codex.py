"""Codex's threads: our messages encoded as items and decoded again."""

import json
import re
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given, settings

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.base import Request
from contextc.formats.codex.codec import encode_result
from contextc.messages import SYSTEM_CONTEXT, ProviderBlock
from tests.conftest import often
from tests.formats.codex_samples import FORM, SAMPLES, TURNS, called, lines
from tests.formats.histories import History, histories
from tests.formats.known import problems

DESCRIBED = re.compile(r"\[[^\[\]]*not shown\]")
PNG = cc.Media(mime_type="image/png", data=b"\x89PNG")


def back(items: list[JSONObject]) -> list[JSONObject]:
    """Items as they are written again after they were read."""
    return FORM.encode_request(FORM.decode_request(items))["items"]


def without_nulls(value: JSON) -> JSON:
    if isinstance(value, dict):
        found = cast(JSONObject, value).items()
        return {name: without_nulls(each) for name, each in found if each is not None}
    return [without_nulls(each) for each in cast(list[JSON], value)] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["turn", "dynamic", "patch", "search", "parallel", "compact"])
def test_what_a_real_thread_holds_goes_back_as_it_came(name: str) -> None:
    """Guarantee 10.5."""
    told = [event["params"]["item"] for event in lines(name) if event["method"] == "item/completed"]
    assert without_nulls(back(told)) == without_nulls(told)
    assert problems("codex", told) == problems("codex", back(told)) == []


@pytest.mark.parametrize("name", ["mcp__docs__find", "mcp__", "files.read", "mcp__" + "x" * 130, "mcp__a.b"])
def test_names_that_codex_keeps_for_itself_are_spelled_and_read_back(name: str) -> None:
    """Guarantee 10.4: "dynamic tool name is reserved: mcp__x"."""
    body = FORM.encode_request(Request(messages=(cc.user("hi"),), tools=(cc.Tool(name=name),)))
    assert cc.lint(body, format="codex") == []
    (tool,) = body["dynamicTools"]
    assert tool["name"] != name
    event: JSONObject = {"method": "item/started", "params": {"item": {**called("inProgress"), "tool": tool["name"]}}}
    reader = FORM.create_reader()
    reader.read(event)
    reply = FORM.name_codec.restore_names(reader.message(), (cc.Tool(name=name),))
    assert reply.tool_calls[0].name == name


def test_a_result_answers_a_call_of_codex_as_it_wants_it() -> None:
    """What `item/tool/call` is answered with. Media that Codex does not take are described, as in a history."""
    pdf = cc.Media(mime_type="application/pdf", data=b"%PDF", name="a.pdf")
    (result,) = cc.tool_result("a", "look", [cc.Text("no"), PNG, pdf], is_error=True).tool_results
    assert encode_result(result) == {
        "contentItems": [
            {"type": "inputText", "text": "no"},
            {"type": "inputImage", "imageUrl": "data:image/png;base64,iVBORw=="},
            {"type": "inputText", "text": "[document 'a.pdf': application/pdf; not shown]"},
        ],
        "success": False,
    }
    (empty,) = cc.tool_result("a", "look", "").tool_results
    assert encode_result(empty) == {"contentItems": [{"type": "inputText", "text": ""}], "success": True}


def essence(messages: Sequence[cc.Message]) -> dict[str, list[tuple[str, ...]]]:
    """Return what the format can hold: texts, pictures, calls, results and whether they failed; each kind in order."""
    found: dict[str, list[tuple[str, ...]]] = {kind: [] for kind in ("words", "pictures", "calls", "results")}
    for message in messages:
        user = message.role in ("user", "tool")
        for part in message.parts:
            if isinstance(part, cc.Text) and message.role != "system" and (words := DESCRIBED.sub("", part.text)):
                found["words"] += [("user" if user else "assistant", words)] if SYSTEM_CONTEXT not in words else []
            elif isinstance(part, cc.Media) and user and part.kind == "image" and (part.data or part.url):
                found["pictures"].append((part.url or str(part.data),))
            elif isinstance(part, cc.ToolCall):
                found["calls"].append(
                    (part.id, part.name, json.dumps(part.arguments), str(part.malformed and part.raw))
                )
            elif isinstance(part, cc.ToolResult):
                found["results"].append((part.call_id, part.name, DESCRIBED.sub("", part.text), str(part.is_error)))
    return found


@settings(max_examples=often(15, 300), deadline=None)
@given(history=histories())
def test_any_log_survives_a_round_trip(history: History) -> None:
    """Guarantee 10.5: nothing is lost but what the format cannot hold, and the vendor's own types take all of it."""
    messages = [FORM.with_text_files(message)[0] for message in history.messages]
    paired = [FORM.name_codec.decode(message) for message in FORM.name_codec.encode(FORM.pair_calls(messages).messages)]
    items = FORM.format(history.messages)
    assert problems("codex", items) == []
    before, after = essence(paired), essence(FORM.decode_request(items).messages)
    refusals = [part for message in paired for part in message.parts if isinstance(part, ProviderBlock)]
    for kind, told in before.items():
        assert after[kind] == told or (kind == "words" and refusals and set(told) <= set(after[kind]))


def test_there_are_samples_of_everything() -> None:
    """The samples cover every kind of item."""
    assert len(TURNS) >= 9
    assert {"exec", "rollout", "compact", "failed", "interrupted"} <= set(SAMPLES)
