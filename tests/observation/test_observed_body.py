"""Bodies are split and joined to the byte, and cache breakpoints are set aside."""

import json

import pytest

from contextc.compiler.past_requests import (
    comparable_bytes,
    insert_marks,
    join_body,
    split_at_conversation,
    split_elements,
    strip_marks,
)

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": 'a "quoted" text, with [brackets] and ü'}
REPLY = {"role": "assistant", "content": "b"}
MARK = {"type": "ephemeral"}
OPENAI_MARK = {"mode": "explicit"}


@pytest.mark.parametrize("messages", [[], [USER], [SYSTEM], [SYSTEM, USER, REPLY, USER], [SYSTEM, SYSTEM, USER]])
@pytest.mark.parametrize("style", [{}, {"separators": (",", ":")}, {"indent": 2}, {"separators": (" ,\t", " : ")}])
def test_joining_gives_the_same_bytes(messages: list[object], style: dict[str, object]) -> None:
    request = {"model": "m", "messages": messages, "max_tokens": 3}
    body = json.dumps(request, **style).encode()  # pyright: ignore[reportArgumentType]
    parts = split_at_conversation(body, "messages")
    assert parts is not None
    assert join_body(parts.head, parts.elements, parts.gaps) == body
    assert [json.loads(each) for each in parts.elements] == [each for each in messages if each != SYSTEM]
    assert json.loads(parts.head)["max_tokens"] == 3


def test_irregular_spacing() -> None:
    rows = [f'{{"role":"user","content":"{number}"}}' for number in range(3)]
    body = f'{{"messages":[ {rows[0]} ,{rows[1]},\n  {rows[2]}]}}'.encode()
    parts = split_at_conversation(body, "messages")
    assert parts is not None
    assert len(parts.gaps) == 2
    assert join_body(parts.head, parts.elements, parts.gaps) == body


def test_a_text_in_place_of_a_list_is_one_element() -> None:
    body = b'{"model": "m", "input": "hello", "store": false}'
    parts = split_at_conversation(body, "input")
    assert parts is not None
    assert parts.elements == [b'"hello"']
    assert join_body(parts.head, parts.elements, parts.gaps) == body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[1]",
        b'{"other": []}',
        b'{"messages": [{"role": "user"}], "messages": []}',
        b'{"messages": [}',
    ],
)
def test_what_cannot_be_split(body: bytes) -> None:
    assert split_at_conversation(body, "messages") is None


def test_cache_breakpoints_are_set_aside_and_restored() -> None:
    block = {"type": "text", "text": "a"}
    plain = json.dumps({"role": "user", "content": [block, block]}).encode()
    for marked in (
        {"role": "user", "content": [block, {**block, "cache_control": MARK}]},
        {
            "role": "user",
            "content": [{"cache_control": MARK, **block}, {**block, "cache_control": {**MARK, "ttl": "1h"}}],
        },
    ):
        raw = json.dumps(marked).encode()
        element = strip_marks(raw)
        assert element.base == plain
        assert insert_marks(element.base, element.marks) == raw


def test_a_mark_in_the_arguments_of_a_call_is_content() -> None:
    call = {"type": "tool_use", "id": "t", "name": "n", "input": {"x": 1, "cache_control": MARK}}
    raw = json.dumps({"role": "assistant", "content": [call]}).encode()
    assert strip_marks(raw).marks == ()


def test_bedrock_cache_points() -> None:
    plain = json.dumps({"role": "user", "content": [{"text": "a"}]}).encode()
    raw = json.dumps({"role": "user", "content": [{"text": "a"}, {"cachePoint": {"type": "default"}}]}).encode()
    element = strip_marks(raw)
    assert element.base == plain
    assert insert_marks(element.base, element.marks) == raw


@pytest.mark.parametrize(
    ("plain", "marked"),
    [
        (
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "a", "prompt_cache_breakpoint": OPENAI_MARK}]},
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"}]},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"prompt_cache_breakpoint": OPENAI_MARK, "type": "input_text", "text": "a"}],
            },
        ),
    ],
)
def test_cache_breakpoints_of_openai_are_set_aside(plain: dict[str, object], marked: dict[str, object]) -> None:
    raw = json.dumps(marked).encode()
    element = strip_marks(raw)
    assert element.base == json.dumps(plain).encode()
    assert insert_marks(element.base, element.marks) == raw
    assert comparable_bytes(raw) == comparable_bytes(json.dumps(plain).encode())


def test_a_text_equals_a_list_of_one_text() -> None:
    listed = {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": MARK}]}
    assert comparable_bytes(json.dumps(listed).encode()) == comparable_bytes(b'{"role": "user",  "content": "a"}')

    listed = {"role": "user", "content": [{"type": "input_text", "text": "a", "prompt_cache_breakpoint": OPENAI_MARK}]}
    assert comparable_bytes(json.dumps(listed).encode()) == comparable_bytes(b'{"role": "user",  "content": "a"}')


def test_split_elements() -> None:
    assert split_elements(b'{"a": [1, 2]},"x",{}') == [b'{"a": [1, 2]}', b'"x"', b"{}"]
