"""Lint rules: each reports its own example only and fixes it; valid requests are unchanged."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats import format_names, formatter
from contextc.formats.base import Request
from contextc.formats.rules_docs import render_rules
from tests.conftest import often
from tests.formats.traffic import accepted

RULES = [(name, rule) for name in format_names() for rule in formatter(name).rules.rules]
ODD: list[JSON] = [None, True, 3, "words", [], {}, [None], {"role": "user"}, {"type": "text"}, {"": 1}, -0.5, [[]]]


@pytest.mark.parametrize("name", format_names())
def test_the_example_of_a_rule_breaks_that_rule_alone_and_is_clean_after_fix(name: str) -> None:
    """Guarantee 10.6: the page of a rule in the docs is true."""
    for rule in formatter(name).rules.rules:
        assert rule.title.endswith("."), rule.code
        assert rule.repair, rule.code
        body = cast(JSONObject, json.loads(rule.example))
        found = cc.lint(body, format=name)
        assert [each.code for each in found] == [rule.code]
        assert found[0].message[0].islower() or not found[0].message[0].isalpha()
        assert found[0].message.endswith(".")
        assert found[0].error or not rule.provider_message, rule.code
        fixed, repairs = cc.fix(body, format=name)
        assert cc.lint(fixed, format=name) == []
        assert repairs[0].code == rule.code
        assert body == json.loads(rule.example), rule.code
        assert type(fixed) is type(body), rule.code


def test_codes_are_stable_and_unique() -> None:
    codes = [rule.code for _, rule in RULES]
    assert len(set(codes)) == len(codes)
    for name in format_names():
        numbers = [int(rule.code[3:]) for rule in formatter(name).rules.rules]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("name", format_names())
def test_what_a_provider_accepted_breaks_no_rule(name: str) -> None:
    """Guarantee 10.5, and `fix` gives it back as it is."""
    for exchange in accepted(name):
        assert cc.lint(exchange.request, format=name) == [], exchange.case
        assert cc.fix(exchange.request, format=name) == (exchange.request, []), exchange.case


def places(value: JSON, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of everything inside a JSON value."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, each in cast(JSONObject, value).items():
            yield from places(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(cast(list[JSON], value)):
            yield from places(each, (*path, index))


@st.composite
def damaged(draw: st.DrawFn, name: str) -> JSONObject:
    """A small sound request in which up to three places hold something else, or nothing."""
    body = cast(JSONObject, json.loads(json.dumps(SOUND[name])))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(sorted(places(body), key=str) or [("nothing",)]))
        parent: JSON = body
        for step in path[:-1]:
            parent = parent[step]
        if draw(st.booleans()):
            parent[path[-1]] = json.loads(json.dumps(draw(st.sampled_from(ODD))))
        elif path[-1] in (parent if isinstance(parent, dict) else range(len(cast(list[JSON], parent)))):
            del parent[path[-1]]
    return body


HISTORY = [
    cc.user(["Look at this:", cc.Media(mime_type="image/png", data=b"\x89PNG")]),
    cc.assistant("Let me see.", tool_calls=[cc.tool_call("a", "look", '{"at": 1}'), cc.tool_call("b", "find", "{}")]),
    cc.tool_result("a", "look", "a ship"),
    cc.tool_result("b", "find", [cc.Text("two"), cc.Media(mime_type="image/png", data=b"\x89PNG")], is_error=True),
    cc.assistant("A ship."),
    cc.user("Thanks."),
]
WHOLE = Request(messages=tuple(HISTORY), system=cc.system("Be brief."), tools=(cc.Tool(name="look"),))
SOUND = {name: formatter(name).encode_request(WHOLE) for name in format_names()}


@pytest.mark.parametrize("name", format_names())
@settings(max_examples=often(8, 300), deadline=None)
@given(data=st.data())
def test_nothing_crashes_and_everything_can_be_fixed(name: str, data: st.DataObject) -> None:
    """Whatever a request looks like, it is read, and what is made of it breaks no rule."""
    body = data.draw(damaged(name))
    before = json.dumps(body)
    cc.lint(body, format=name)
    fixed, _ = cc.fix(body, format=name)
    assert cc.lint(fixed, format=name) == []
    assert json.dumps(body) == before


@pytest.mark.parametrize("name", format_names())
def test_anything_can_be_held_against_the_rules(name: str) -> None:
    """Invalid requests are reported as such."""
    odd_ones: list[JSON] = [*ODD, {"messages": 1}, {"input": 1}, {"contents": {}}]
    for odd in odd_ones:
        assert all(each.code.startswith(formatter(name).rules.prefix) for each in cc.lint(odd, format=name)), odd
        if not isinstance(odd, dict | list):
            with pytest.raises(cc.errors.InvalidRequest, match="a request must be an object or a list of messages"):
                cc.fix(odd, format=name)


def test_the_page_of_rules_matches_the_rules() -> None:
    """Guarantee 10.6: `make rules` writes it."""
    page = Path(__file__).parent.parent.parent / "docs" / "rules.md"
    assert page.read_text() == render_rules()


HI: JSONObject = {"role": "user", "content": "hi"}
CALL: JSONObject = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
OPENAI: list[JSONObject] = [
    {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "42"},
]
ANTHROPIC: list[JSONObject] = [
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "42"}]},
]


@pytest.mark.parametrize("name", format_names())
@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
def test_messages_in_the_format_of_another_provider_are_converted(name: str, dialect: list[JSONObject]) -> None:
    """Guarantee 10.6: a history that went through several programs keeps its calls and their results."""
    form = formatter(name)
    mixed = [*form.format([cc.user("hi")]), *dialect]
    fixed, _ = cc.fix(mixed, format=name)
    assert cc.lint(fixed, format=name) == []
    (said, asked, answered) = form.decode_request(fixed).messages
    assert (said.text, asked.text, asked.tool_calls[0].arguments) == ("hi", "Let me see.", {"x": 1})
    assert answered.tool_results[0].text == "42"


@pytest.mark.parametrize(
    ("name", "key"), [("gemini", "messages"), ("openai_responses", "messages"), ("anthropic", "contents")]
)
def test_a_request_of_another_format_is_not_read_as_empty(name: str, key: str) -> None:
    """Guarantee 15.1: the error says what it probably is."""
    with pytest.raises(cc.errors.InvalidRequest, match=f", got `{key}`. Use the format of this request, one of "):
        cc.fix({key: [HI]}, format=name)
    with pytest.raises(cc.errors.InvalidRequest, match=f", got `{key}`. Use the format of this request, one of "):
        cc.convert({key: [HI]}, source=name, target="vercel")
