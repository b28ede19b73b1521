"""Damaged requests: refused with an error of contextc, or repaired and converted to valid ones."""

import sys
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject, encode
from contextc.formats import format_names
from contextc.interchange.open_any import detect_format, open_text
from contextc.linting.request_reading import read_requests
from tests.conftest import often
from tests.stress.fuzz_formats import Case, failures, fuzz, samples

HUGE = 10**5_000
DEEP = "[" * 100_000 + "]" * 100_000
FOUND: list[Case] = [
    Case("anthropic", {"tool_choice": {"type": {}}}),
    Case("anthropic", {"max_tokens": "x", "messages": [{"role": "user", "content": "hi"}]}),
    Case("anthropic", {"messages": [{"role": "assistant", "unknown": []}, {"role": "user", "content": "hi"}]}),
    Case("anthropic", {"messages": [{"role": "assistant", "unknown": []}]}),
    Case("anthropic", [{"role": "system", "content": "x", "unknown": True}, {"role": "user", "content": "hi"}]),
    Case("anthropic", {"messages": [{"role": "user", "content": "hi"}], "tools": [{"name": "a"}, {"name": "a"}]}),
    Case("bedrock", {"messages": [[]], "text": {}}),
    Case("bedrock", {"messages": [{"role": "user", "content": [{}]}], "inferenceConfig": {"maxTokens": "x"}}),
    Case("bedrock", [{}, {"role": "system", "content": [{"video": {"format": "mp4", "source": {"bytes": "AAAA"}}}]}]),
    Case("gemini", {"tools": [{"functionDeclarations": [{"name": "x", "parametersJsonSchema": [2]}]}]}),
    Case("gemini", {"toolConfig": {"functionCallingConfig": {"mode": [], "allowedFunctionNames": 3}}}),
    Case("mistral", {"messages": [{"role": {}, "type": "x"}]}),
    Case("mistral", [{"role": "user", "content": [{"type": "text", "text": "", "unknown": []}]}]),
    Case("mistral", {"model": [], "messages": [{"role": "user", "content": "hi"}]}),
    Case("ollama", {"options": {"temperature": {}, "stop": "x"}, "messages": [{"role": "user", "content": "hi"}]}),
    Case("ollama", [{"role": "system", "tool_calls": [{"function": {"name": "look"}}]}]),
    Case("openai_chat", {"messages": [{"role": "assistant", "unknown": "x"}]}),
    Case("openai_chat", {"model": "llama-3", "messages": [{"role": "assistant", "unknown": "x"}]}),
    Case("openai_chat", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "annotations": []}]),
    Case("openai_chat", {"messages": [{"role": "user", "content": "\ud83d"}, {"role": "tool", "content": "\udc00"}]}),
    Case("openai_chat", {"messages": [{"role": "user", "content": [{"\ud800": 1}]}]}),
    Case("openai_responses", {"temperature": "x", "input": "hi"}),
    Case("vercel", {"stopSequences": 1.0, "messages": [{"role": "user", "content": "hi"}]}),
    Case("vercel_legacy", {"max_tokens": [], "messages": [{"role": "user", "content": "hi"}]}),
]


@pytest.mark.parametrize("case", FOUND, ids=lambda case: f"{case.format} {ascii(case.body)[:60]}")
def test_what_a_fuzzer_found_is_handled(case: Case) -> None:
    """Each of these once raised a foreign exception, or still broke a rule after `fix` or `convert`."""
    assert list(failures(case, format_names())) == []


def test_damaged_requests_raise_nothing_foreign_and_break_no_rule_afterwards() -> None:
    """A request comes from anywhere; `python -m tests.stress.fuzz_formats` tries hundreds of thousands."""
    _, found = fuzz(seed=17, first=0, count=often(40, 1_000), targets=2, source=samples(2))
    assert found == {}


@pytest.mark.parametrize(
    "value", [HUGE, -HUGE, float("nan"), float("inf"), b"x", ("x",), {1: 2}], ids=lambda value: type(value).__name__
)
def test_what_json_cannot_hold_is_refused_by_all_three(value: JSON) -> None:
    """The error names the place, so that a caller finds the value that cannot be sent."""
    body: JSONObject = {"messages": [{"role": "user", "content": "hi"}], "metadata": {"a": value}}
    for work in (
        lambda: cc.lint(body, format="openai_chat"),
        lambda: cc.fix(body, format="openai_chat"),
        lambda: cc.convert(body, source="openai_chat", target="anthropic"),
        lambda: detect_format(body),
    ):
        with pytest.raises(cc.errors.InvalidRequest) as caught:
            work()
        assert caught.value.path == ".metadata.a"


@pytest.mark.parametrize("path", ["error", "message", "error.message", "id"])
def test_an_error_reply_that_json_cannot_hold_is_refused(path: str) -> None:
    """Python does not print such an integer, and the text of an error is printed."""
    reply: JSON = HUGE
    for key in reversed(path.split(".")):
        reply = {key: reply}
    request: JSONObject = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
    with cc.open_store("memory:") as store, pytest.raises(cc.errors.InvalidInput, match=r"^reply[^:]*: an integer"):
        cc.observe(store, request=request, reply=reply, status=500, format="openai_chat")


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    """A model cut an emoji in two; no HTTP client could send the request as it is."""
    body: JSONObject = {"messages": [{"role": "user", "content": "well \ud83d"}]}
    assert cc.lint(body, format="openai_chat") == []
    fixed, repairs = cc.fix(body, format="openai_chat")
    assert (fixed["messages"][0]["content"], repairs) == ("well \ufffd", [])
    made = cc.convert(body, source="openai_chat", target="anthropic")
    assert encode(made).decode().count("\ufffd") == 1
    assert body["messages"][0]["content"] == "well \ud83d"


def test_a_request_nested_too_deep_is_refused() -> None:
    """The bound is the same for every caller, however much of the stack is in use."""
    value: JSON = "deep"
    for _ in range(5 * sys.getrecursionlimit()):
        value = [value]
    body = cast(JSONObject, {"messages": [{"role": "user", "content": value}]})
    for name in format_names():
        with pytest.raises(cc.errors.InvalidRequest, match="nested deeper than 100 levels"):
            cc.lint(body, format=name)
        with pytest.raises(cc.errors.InvalidRequest, match="nested deeper than 100 levels"):
            cc.fix(body, format=name)


@pytest.mark.parametrize(
    "text",
    [DEEP, '{"messages": [1' + "0" * 5_000 + "]}", '{"a": 1e999}', '{"messages": [NaN]}'],
    ids=["deep", "huge integer", "huge float", "NaN"],
)
def test_text_that_holds_no_request_is_refused(text: str) -> None:
    """Files and pasted text go through a decoder first, which has limits of its own."""
    with pytest.raises(cc.errors.InvalidRequest):
        read_requests(text.encode())
    with pytest.raises(cc.errors.InvalidRequest):
        open_text(text)


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    """The error says that it is the encoding, and not that the request is broken."""
    with pytest.raises(cc.errors.InvalidRequest, match=r"(?i)utf-8"):
        read_requests(b'{"messages": ["\xff"]}')


def test_the_last_of_two_equal_keys_counts() -> None:
    """As in every common JSON decoder."""
    (body,) = read_requests(b'{"messages": 1, "messages": [{"role": "user", "content": "hi"}]}').bodies
    assert cc.lint(body, format="openai_chat") == []


@pytest.mark.parametrize("given", ["{}", b"{}", 5, None])
def test_text_and_bytes_are_not_taken_for_a_request(given: JSON) -> None:
    """`lint` takes what a decoder returned; JSON text is read with `json.loads` first."""
    for name in format_names():
        with pytest.raises(cc.errors.InvalidRequest):
            cc.fix(cast(JSONObject, given), format=name)
        with pytest.raises(cc.errors.InvalidRequest):
            cc.convert(cast(JSONObject, given), source=name, target="anthropic")
        if isinstance(given, bytes):
            with pytest.raises(cc.errors.InvalidRequest):
                cc.lint(given, format=name)
        else:
            assert cc.lint(given, format=name)


@pytest.mark.parametrize("name", format_names())
def test_decoding_an_invalid_request_raises_invalid_request(name: str) -> None:
    """`decode_request` expects a sound request; the error says how to get one."""
    form = cc.formatter(name)
    with pytest.raises(cc.errors.InvalidRequest, match=f"not a {name} request"):
        form.decode_request({form.messages_key: 5})
