"""The requests of a conversation as elements in cache order."""

from typing import Any

import contextc as cc
from contextc.analysis import load_conversation_view

USAGE = {"input_tokens": 12, "output_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
TOOL: dict[str, Any] = {
    "name": "read",
    "description": "Read a file.",
    "input_schema": {"type": "object", "properties": {}},
}
MARK = {"type": "ephemeral"}


def reply(*content: object) -> dict[str, object]:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": list(content), "stop_reason": "end_turn", "usage": USAGE,
    }  # fmt: skip


def test_the_elements_of_an_anthropic_request_are_in_cache_order() -> None:
    store = cc.open_store("memory:")
    call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}
    first: dict[str, Any] = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "You help."}, {"type": "text", "text": "Be brief.", "cache_control": MARK}],
        "tools": [TOOL],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Read a.", "cache_control": MARK}]}],
    }
    said = [{"type": "text", "text": "I read."}, call]
    seen = cc.observe(store, request=first, reply=reply(*said), time=1_000, ended=2_000)
    result = {
        "type": "tool_result", "tool_use_id": "toolu_1", "content": "1\n2", "cache_control": {**MARK, "ttl": "1h"},
    }  # fmt: skip
    second = first | {
        "messages": [
            {"role": "user", "content": "Read a."},
            {"role": "assistant", "content": said},
            {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
        ]
    }
    cc.observe(store, request=second, reply=reply({"type": "text", "text": "Done."}), time=3_000, ended=4_000)

    view = load_conversation_view(store, seen.conversation)
    assert view.source is not None
    assert [each.number for each in view.requests] == [1, 2]
    one, two = view.requests
    assert [(each.path, each.element.type) for each in two.placed()] == [
        ("tools[0]", "tool"),
        ("system[0]", "text"),
        ("system[1]", "text"),
        ("messages[0].content", "text"),
        ("messages[1].content[0]", "text"),
        ("messages[1].content[1]", "tool_call"),
        ("messages[2].content[0]", "tool_result"),
        ("messages[2].content[1]", "text"),
    ]
    assert [each.key for each in one.elements()] == [each.key for each in two.elements()[:4]]
    assert one.marks == {2: "", 3: ""}
    assert two.marks == {2: "", 6: "1h"}
    assert two.at(5).element.name == two.at(0).element.name == "read"
    assert two.at(5).element.call == two.at(6).element.call == "toolu_1"
    assert two.at(6).element.text == "1\n2"
    assert two.settings == {"model": "claude-sonnet-4-5", "max_tokens": 100}
    assert (two.began, two.ended, two.status, two.input) == (3_000, 4_000, "ok", 132)
    assert sum(each.tokens for each in two.placed()) == sum(two.listed_tokens) == 132
    assert two.price is not None
    placed = list(two.placed())
    assert all(list(two.placed(start)) == placed[start:] for start in range(9))
    assert [two.message_of(index) for index in range(9)] == [-1, -1, -1, 0, 1, 1, 2, 2, -1]
    assert two.message_count == 3
    assert all(two.elements(start) == [each.element for each in placed[start:]] for start in range(9))
    assert all(two.tokens_before(index) == sum(two.tokens()[:index]) for index in range(9))


def test_a_chat_request_has_system_messages_calls_and_results() -> None:
    store = cc.open_store("memory:")
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
    body: dict[str, Any] = {
        "model": "gpt-5.2",
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "Read a."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "1"},
        ],
        "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
    }
    seen = cc.observe(store, request=body, format="openai_chat")
    request = load_conversation_view(store, seen.conversation).requests[0]
    assert [(each.path, each.element.kind, each.element.type, each.element.role) for each in request.placed()] == [
        ("tools[0]", "tool", "tool", ""),
        ("messages[0].content", "system", "text", "system"),
        ("messages[1].content", "message", "text", "user"),
        ("messages[2].tool_calls[0]", "message", "tool_call", "assistant"),
        ("messages[3].content", "message", "tool_result", "tool"),
    ]
    assert request.at(3).element.name == "read"
    assert request.at(4).element.call == request.at(3).element.call == "call_1"
    assert request.marks == {}


def test_formats_of_other_vendors() -> None:
    store = cc.open_store("memory:")
    gemini: dict[str, Any] = {
        "systemInstruction": {"parts": [{"text": "You help."}]},
        "tools": [{"functionDeclarations": [{"name": "read"}, {"name": "write"}]}],
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "generationConfig": {"temperature": 0},
    }
    bedrock: dict[str, Any] = {
        "system": [{"text": "You help."}, {"cachePoint": {"type": "default"}}],
        "toolConfig": {"tools": [{"toolSpec": {"name": "read", "inputSchema": {"json": {}}}}]},
        "messages": [{"role": "user", "content": [{"text": "Hi"}, {"cachePoint": {"type": "default", "ttl": "1h"}}]}],
    }
    responses: dict[str, Any] = {
        "model": "gpt-5.2",
        "instructions": "You help.",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
        ],
    }
    found = [
        [
            (each.path, each.element.type, each.element.name)
            for each in load_conversation_view(
                store, cc.observe(store, request=body, format=format, model=model).conversation
            ).requests[0].placed()
        ]
        for body, format, model in (
            (gemini, "gemini", "gemini-2.5-pro"),
            (bedrock, "bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
            (responses, "openai_responses", ""),
        )
    ]  # fmt: skip
    assert found == [
        [
            ("systemInstruction.parts[0]", "text", ""),
            ("tools[0].functionDeclarations[0]", "tool", "read"),
            ("tools[0].functionDeclarations[1]", "tool", "write"),
            ("contents[0].parts[0]", "text", ""),
        ],
        [
            ("toolConfig.tools[0]", "tool", "read"),
            ("system[0]", "text", ""),
            ("messages[0].content[0]", "text", ""),
        ],
        [
            ("instructions", "text", ""),
            ("input[0].content[0]", "text", ""),
            ("input[1]", "reasoning", ""),
            ("input[2]", "tool_call", "read"),
            ("input[3]", "tool_result", ""),
        ],
    ]
    names = [each.name for each in store.conversations()]
    marked = next(each for each in names if load_conversation_view(store, each).requests[0].format == "bedrock")
    assert load_conversation_view(store, marked).requests[0].marks == {1: "", 2: "1h"}


def test_own_requests_have_elements_and_breakpoints() -> None:
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, "anthropic:claude-sonnet-4-5")
    text = "Follow the rules of this project closely. " * 300
    for number in range(3):
        store.append("c", cc.user(f"Question {number}"))
        compiled = compiler.compile("c", instructions=text)
        usage = cc.Usage(input=3_000, cache_read=2_900)
        compiler.commit(compiled, cc.assistant(f"Answer {number}"), usage=usage)
    requests = load_conversation_view(store, "c").requests
    assert [each.number for each in requests] == [1, 2, 3]
    assert [each.path for each in requests[2].placed()] == [
        "system[0]",
        *(f"messages[{index}].content[0]" for index in range(5)),
    ]
    assert requests[2].marks == {0: "", 3: "", 5: ""}
    assert requests[0].rows.sections[0] is requests[2].rows.sections[0]
    assert requests[1].usage == cc.Usage(input=3_000, cache_read=2_900)
