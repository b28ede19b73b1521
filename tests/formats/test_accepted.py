"""Requests that a provider is known to accept break no rule, and lose nothing in conversion."""

import copy
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats import format_names
from tests.formats.test_cases import DATA, load
from tests.formats.traffic import accepted
from tests.formats.traffic import normal as plain

SAMPLES = load((DATA / "accepted.json").read_text(encoding="utf-8"))
"""Small requests in shapes that providers have been seen to accept, or that their own types allow. Each is the least
that shows its shape."""


def again(name: str, body: JSONObject) -> JSONObject:
    """A request after it was decoded and encoded for the same provider."""
    form = cc.formatter(name)
    return form.encode_request(form.decode_request(body))


def normal(value: JSON, key: str = "") -> JSON:
    """A body without what makes no difference to its provider: nulls, brackets around one thing, a role not named."""
    if key in ("parts", "contents", "function_declarations") and isinstance(value, dict):
        value = [value]
    if key == "contents":
        value = [{"role": "user", **cast(JSONObject, each)} for each in cast(list[JSON], value)]
    if key == "output" and isinstance(value, str):
        return normal(value, "content")
    if isinstance(value, dict):
        given = cast(JSONObject, value)
        if given.keys() == {"type", "text"} and given["type"] in ("input_text", "output_text"):
            return {**given, "type": "text"}
        return {name: normal(each, name) for name, each in given.items() if each is not None}
    if isinstance(value, list):
        return [normal(each) for each in cast(list[JSON], value)]
    return plain(value, key)


@pytest.mark.parametrize("name", SAMPLES)
def test_an_accepted_shape_breaks_no_rule_and_is_not_fixed(name: str) -> None:
    """A false alarm costs more trust than a missed error, and a repair of it would change a sound history."""
    for which, body in SAMPLES[name].items():
        before = copy.deepcopy(body)
        assert cc.lint(body, format=name) == [], which
        assert cc.fix(body, format=name) == (before, []), which


@pytest.mark.parametrize("name", SAMPLES)
def test_an_accepted_shape_comes_back_as_it_was(name: str) -> None:
    """A changed history misses the cache, and a provider that signs its replies refuses it."""
    for which, body in SAMPLES[name].items():
        assert normal(again(name, body)) == normal(body), which


@pytest.mark.parametrize("name", SAMPLES)
def test_an_accepted_shape_is_converted_to_its_own_format_as_it_was(name: str) -> None:
    """Guarantee 10.5: results stay behind the replies that they answer, and no block becomes text."""
    for which, body in SAMPLES[name].items():
        assert normal(cc.convert(body, source=name, target=name)) == normal(body), which


@pytest.mark.parametrize("name", SAMPLES)
def test_accepted_messages_come_back_without_their_request(name: str) -> None:
    """Guarantee 10.5: stored messages have no request, so each of them must know its position."""
    form = cc.formatter(name)
    for which, body in SAMPLES[name].items():
        messages = body[form.messages_key]
        if isinstance(messages, list):
            request = form.decode_request(cast(list[JSONObject], messages))
            system = [request.system] if request.system is not None else []
            back = form.format([*system, *request.messages])
            assert normal({form.messages_key: back}) == normal({form.messages_key: messages}), which


@pytest.mark.parametrize("name", format_names())
def test_an_accepted_request_comes_back_as_it_was(name: str) -> None:
    """The same of every recorded request."""
    for exchange in accepted(name):
        assert normal(again(name, exchange.request)) == normal(exchange.request), exchange.case
