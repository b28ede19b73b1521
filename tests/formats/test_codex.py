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
from contextc.messages import SYNTHETIC_RESULTS, SYSTEM_CONTEXT, ProviderBlock
from tests.conftest import often
from tests.formats.codex_samples import FORM, SAMPLES, TURNS, answer, called, lines, ran, said
from tests.formats.histories import History, histories
from tests.formats.known import problems

DESCRIBED = re.compile(r"\[[^\[\]]*not shown\]")
PNG = cc.Media(mime_type="image/png", data=b"\x89PNG")
HISTORY = [
    cc.user(["What is this?", PNG]),
    cc.assistant("Let me see.", tool_calls=[cc.tool_call("a", "look", {"at": 1}), cc.tool_call("b", "find", "{}")]),
    cc.tool_result("a", "look", "a ship"),
    cc.tool_result("b", "find", [cc.Text("two"), PNG], is_error=True),
    cc.system("It is late."),
    cc.assistant("A ship."),
    cc.user("Thanks."),
]


def bare(item: JSONObject) -> JSONObject:
    """An item without the id that was made of what it says."""
    assert item["id"]
    return {name: value for name, value in item.items() if name != "id" or item["type"] == "dynamicToolCall"}


def back(items: list[JSONObject]) -> list[JSONObject]:
    """Items as they are written again after they were read."""
    return FORM.encode_request(FORM.decode_request(items))["items"]


def without_nulls(value: JSON) -> JSON:
    if isinstance(value, dict):
        found = cast(JSONObject, value).items()
        return {name: without_nulls(each) for name, each in found if each is not None}
    return [without_nulls(each) for each in cast(list[JSON], value)] if isinstance(value, list) else value


def test_a_whole_request_has_items_instructions_and_tools() -> None:
    """Guarantee 10.1: every call holds its result, and what a thread has no place for is marked."""
    tool = cc.Tool(name="look", description="Looks.", parameters={"type": "object"})
    settings: JSONObject = {"model": "gpt-5.2-codex", "effort": "low"}
    request = Request(messages=tuple(HISTORY), system=cc.system("Be brief."), tools=(tool,), settings=settings)
    written = FORM.encode_with_notes(request)
    body = written.body
    assert {name: value for name, value in body.items() if name != "items"} == {
        "model": "gpt-5.2-codex",
        "effort": "low",
        "developerInstructions": "Be brief.",
        "dynamicTools": [
            {"type": "function", "name": "look", "description": "Looks.", "inputSchema": {"type": "object"}}
        ],
    }
    url = "data:image/png;base64,iVBORw=="
    assert [bare(item) for item in body["items"]] == [
        {
            "type": "userMessage",
            "content": [
                {"type": "text", "text": "What is this?", "text_elements": []},
                {"type": "image", "url": url},
            ],
        },
        {"type": "agentMessage", "text": "Let me see."},
        {
            "type": "dynamicToolCall",
            "id": "a",
            "tool": "look",
            "arguments": {"at": 1},
            "status": "completed",
            "contentItems": [{"type": "inputText", "text": "a ship"}],
            "success": True,
        },
        {
            "type": "dynamicToolCall",
            "id": "b",
            "tool": "find",
            "arguments": {},
            "status": "failed",
            "contentItems": [{"type": "inputText", "text": "two"}, {"type": "inputImage", "imageUrl": url}],
            "success": False,
        },
        bare(said(f"{SYSTEM_CONTEXT}It is late.")),
        {"type": "agentMessage", "text": "A ship."},
        bare(said("Thanks.")),
    ]
    assert [str(note) for note in written.notes] == [
        "changed: a system message, into text of the user that is marked as context"
    ]
    assert problems("codex", body) == []
    assert cc.lint(body, format="codex") == []


def test_a_history_comes_back_with_its_roles_calls_results_and_pictures() -> None:
    """Guarantee 10.5: results are gathered behind their calls; system text is the user's from then on, marked."""
    found = FORM.decode_request(FORM.format(HISTORY)).messages
    assert [message.role for message in found] == ["user", "assistant", "tool", "user", "assistant", "user"]
    assert found[0].parts == HISTORY[0].parts
    assert (found[1].text, found[1].tool_calls[1].arguments) == ("Let me see.", {})
    assert found[2].tool_results == (*HISTORY[2].tool_results, *HISTORY[3].tool_results)
    assert found[3].text == f"{SYSTEM_CONTEXT}It is late."


def test_text_that_is_marked_already_is_not_marked_twice() -> None:
    """Guarantee 9.4."""
    (item,) = FORM.format([cc.system(f"{SYSTEM_CONTEXT}It is late.")])
    assert item["content"][0]["text"] == f"{SYSTEM_CONTEXT}It is late."


def test_a_call_without_a_result_is_in_progress_and_gets_one_where_a_request_is_made() -> None:
    """Guarantee 5.3."""
    history = [cc.assistant(tool_calls=[cc.tool_call("a", "look", {})])]
    (_, item) = FORM.encode(history).messages
    assert (item["status"], "contentItems" in item) == ("inProgress", False)
    assert problems("codex", [item]) == []
    (_, item) = FORM.format(history)
    assert (item["status"], item["contentItems"][0]["text"]) == ("failed", SYNTHETIC_RESULTS["interrupted"])


def test_text_after_a_call_moves_before_it_and_results_follow_the_order_of_calls() -> None:
    """Guarantee 10.3: an item holds a call and its result, so nothing can be between them."""
    calls = [cc.tool_call("a", "look", {}), cc.tool_call("b", "look", {})]
    history = [
        cc.assistant([calls[0], cc.Text("And:"), calls[1]]),
        cc.Message(
            role="tool", parts=(*cc.tool_result("b", "look", "2").parts, *cc.tool_result("a", "look", "1").parts)
        ),
    ]
    written = FORM.encode_with_notes(Request(messages=tuple(history)))
    assert [(item.get("text"), item.get("tool"), item["id"]) for item in written.body["items"]][1:] == [
        (None, "look", "a"),
        (None, "look", "b"),
    ]
    assert "moved: words that stood behind a call, before the calls of their reply" in map(str, written.notes)
    assert [item["contentItems"][0]["text"] for item in written.body["items"][1:]] == ["1", "2"]


def test_sequential_calls_are_distinguished_from_parallel_calls() -> None:
    """Guarantee 10.5: the second may be about what the first returned."""
    asked = [cc.assistant(tool_calls=[cc.tool_call(name, "look", {})]) for name in "ab"]
    history = [asked[0], cc.tool_result("a", "look", "1"), asked[1], cc.tool_result("b", "look", "2")]
    items = FORM.format(history)
    assert [item["type"] for item in items] == ["reasoning", "dynamicToolCall"] * 2
    assert problems("codex", items) == []
    found = FORM.decode_request(items).messages
    assert [message.role for message in found] == ["assistant", "tool", "assistant", "tool"]
    assert not any(isinstance(part, cc.Reasoning) for message in found for part in message.parts)
    beside = FORM.decode_request([called(id="a"), called(id="b")]).messages
    assert [len(message.parts) for message in beside] == [2, 2]


def test_what_only_others_can_read_is_left_out_and_named() -> None:
    """Guarantee 2.4: reasoning of others, and what proves Codex's own."""
    thoughts = [
        cc.Reasoning(text="Hm.", provider="anthropic", signature="s"),
        cc.Reasoning(text="So.", id="rs_1", data="gAAA", provider="codex"),
    ]
    written = FORM.encode_with_notes(Request(messages=(cc.assistant([*thoughts, cc.Text("Yes.")]),)))
    assert written.body["items"][0] == {"type": "reasoning", "id": "rs_1", "summary": ["So."], "content": []}
    assert [str(note) for note in written.notes] == [
        "left out: reasoning of anthropic",
        "left out: what proves the reasoning of Codex, which only its own thread holds",
    ]


OWN: list[JSONObject] = [
    ran(),
    ran("failed", "no\n"),
    {
        "type": "fileChange",
        "id": "f1",
        "status": "completed",
        "changes": [{"path": "a.txt", "kind": {"type": "add"}, "diff": "hello\n"}],
    },
    {
        "type": "mcpToolCall",
        "id": "m1",
        "server": "docs",
        "tool": "find",
        "arguments": {"q": "x"},
        "status": "completed",
        "result": {"content": [{"type": "text", "text": "found"}], "structuredContent": {"n": 1}},
    },
    {
        "type": "mcpToolCall",
        "id": "m2",
        "server": "my.docs",
        "tool": "find",
        "arguments": {"q": "x"},
        "status": "failed",
        "error": {"message": "no such page"},
    },
    {"type": "webSearch", "id": "w1", "query": "codex", "action": {"type": "search", "query": "codex"}},
    {"type": "imageView", "id": "i1", "path": "/project/a.png"},
    {"type": "imageGeneration", "id": "g1", "status": "completed", "result": "iVBORw==", "revisedPrompt": "A ship"},
    {"type": "functionCallOutput", "id": "o1", "name": "look", "output": "a ship"},
    {
        "type": "collabAgentToolCall",
        "id": "k1",
        "tool": "spawnAgent",
        "status": "completed",
        "prompt": "Look.",
        "senderThreadId": "t1",
        "receiverThreadIds": ["t2"],
        "agentsStates": {"t2": {"status": "running"}},
    },
    {**called(), "namespace": "files", "durationMs": 3},
    {"type": "plan", "id": "p1", "text": "First look."},
    {"type": "contextCompaction", "id": "cc1"},
    {"type": "sleep", "id": "s1", "durationMs": 5},
    {"type": "enteredReviewMode", "id": "r1", "review": "changes"},
    {"type": "hookPrompt", "id": "h1", "fragments": [{"hookRunId": "1", "text": "Mind the tests."}]},
    {"type": "reasoning", "id": "rs_1", "summary": ["One.", "Two."], "content": []},
    {**answer("Here."), "phase": "commentary"},
]


@pytest.mark.parametrize("item", OWN, ids=lambda item: f"{item['type']}-{item['id']}")
def test_every_kind_of_item_is_sound_and_goes_back_as_it_came(item: JSONObject) -> None:
    """Guarantee 10.5: by our rules, by the vendor's types, and to the byte."""
    items = [said("hi"), item, answer("Done.")]
    assert problems("codex", items) == []
    assert cc.lint(items, format="codex") == []
    assert back(items) == items
    body = cc.convert(items, source="codex", target="anthropic")
    assert cc.lint(body, format="anthropic") == []


def test_calls_of_codex_own_tools_are_calls_in_other_formats() -> None:
    """Guarantee 9.10: a provider that takes over sees what was run, and what came of it."""
    names = {
        item["type"]: (message.tool_calls[0].name, message.tool_calls[0].arguments)
        for item in OWN
        for message in FORM.decode_request([item]).messages
        if message.tool_calls
    }
    assert names["commandExecution"] == ("shell", {"command": "echo hello", "cwd": "/project"})
    assert names["fileChange"][0] == "apply_patch"
    assert names["mcpToolCall"] == ("mcp__my.docs__find", {"q": "x"})
    assert names["dynamicToolCall"] == ("files__weather", {"city": "Oslo"})
    (_, result) = FORM.decode_request([ran("failed", "no\n")]).messages
    assert result.tool_results == (cc.ToolResult(call_id="x1", name="shell", content="no\n", is_error=True),)


def test_a_shortened_result_of_codex_own_call_goes_back_shortened() -> None:
    """Guarantee 7.3: what a budget took out does not come back with the item it was in."""
    (asked, answered) = FORM.decode_request([ran()]).messages
    (item,) = FORM.format([asked, cc.tool_result("x1", "shell", "(left out)")])
    assert item == {**ran(), "aggregatedOutput": "(left out)"}
    assert answered.tool_results[0].text == "hello\n"


def test_a_call_that_asks_for_something_else_by_now_is_no_longer_codex_own() -> None:
    """Guarantee 2.3: the log determines what is sent."""
    (asked, _) = FORM.decode_request([ran()]).messages
    call = cc.ToolCall(id="x1", name="shell", arguments={"command": "rm -r ."}, extra=asked.tool_calls[0].extra)
    (_, item) = FORM.encode([cc.assistant(tool_calls=[call])]).messages
    assert (item["type"], item["arguments"]) == ("dynamicToolCall", {"command": "rm -r ."})


@pytest.mark.parametrize("name", ["turn", "dynamic", "patch", "search", "parallel", "compact"])
def test_what_a_real_thread_holds_goes_back_as_it_came(name: str) -> None:
    """Guarantee 10.5."""
    told = [event["params"]["item"] for event in lines(name) if event["method"] == "item/completed"]
    assert without_nulls(back(told)) == without_nulls(told)
    assert problems("codex", told) == problems("codex", back(told)) == []


def test_the_users_files_and_mentions_stay_what_they_were() -> None:
    """Guarantee 2.5: only Codex understands them."""
    blocks = [
        {"type": "localImage", "path": "/project/a.png"},
        {"type": "mention", "name": "a.py", "path": "/project/a.py"},
        {"type": "skill", "name": "s", "path": "/project/SKILL.md"},
        {"type": "image", "url": "https://example.com/a.jpg", "detail": "high"},
        {"type": "image", "fileId": "file-1"},
        {"type": "audio", "url": "data:audio/wav;base64,UklGRg=="},
        {"type": "text", "text": "hi", "text_elements": [{"byteRange": {"start": 0, "end": 2}}]},
    ]
    item: JSONObject = {"type": "userMessage", "id": "u1", "content": blocks}
    assert back([item]) == [item]
    (message,) = FORM.decode_request([item]).messages
    assert [type(part) for part in message.parts] == [
        ProviderBlock,
        ProviderBlock,
        ProviderBlock,
        cc.Media,
        cc.Media,
        cc.Media,
        cc.Text,
    ]


def test_arguments_that_are_not_an_object_are_kept_unchanged() -> None:
    """Guarantee 2.3."""
    history = [cc.assistant(tool_calls=[cc.tool_call("a", "look", '{"cut": "of')]), cc.tool_result("a", "look", "?")]
    (_, item) = FORM.format(history)
    assert item["arguments"] == '{"cut": "of'
    assert FORM.decode_request([item]).messages[0].tool_calls[0].malformed


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


def test_settings_are_converted_to_every_format() -> None:
    """Guarantee 10.3."""
    body: JSONObject = {"model": "m", "effort": "low", "outputSchema": {"type": "object"}, "items": [said("hi")]}
    made = cc.convert({**body, "sandbox": "read-only"}, source="codex", target="openai_responses")
    assert made["reasoning"] == {"effort": "low"}
    assert made["text"]["format"]["schema"] == {"type": "object"}
    assert "left out: the setting `sandbox`, which only codex has" in made.warnings
    again = cc.convert(dict(made), source="openai_responses", target="codex")
    assert {name: again[name] for name in ("effort", "outputSchema")} == {
        "effort": "low",
        "outputSchema": {"type": "object"},
    }


def test_a_result_answers_a_call_of_codex_as_it_wants_it() -> None:
    """What `item/tool/call` is answered with."""
    (result,) = cc.tool_result("a", "look", [cc.Text("no"), PNG], is_error=True).tool_results
    assert encode_result(result) == {
        "contentItems": [
            {"type": "inputText", "text": "no"},
            {"type": "inputImage", "imageUrl": "data:image/png;base64,iVBORw=="},
        ],
        "success": False,
    }


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
    paired = [
        FORM.name_codec.decode(message)
        for message in FORM.name_codec.encode(FORM.pair_calls(history.messages).messages)
    ]
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
