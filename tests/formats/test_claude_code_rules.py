"""Lint rules for Claude Code's lines. Each was tried with the real program."""

import json
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contextc as cc
from contextc._json import JSON, JSONObject
from tests.conftest import often
from tests.formats.claude_code_samples import STREAMS, TRANSCRIPTS, sample


def codes(body: JSON) -> list[tuple[str, str]]:
    return [(each.code, each.path) for each in cc.lint(body, format="claude_code")]


@pytest.mark.parametrize("name", [name for name in STREAMS if name not in ("stdout-overloaded", "stdout-unauthorized")])
def test_what_the_program_wrote_breaks_no_rule(name: str) -> None:
    """Guarantee 10.6: with all lines that are not messages."""
    assert codes(sample(name)) == []


ODD: list[JSON] = [None, True, 3, "words", [], {}, [None], {"type": "text"}, [[]]]


@settings(max_examples=often(15, 150), deadline=None)
@given(data=st.data(), name=st.sampled_from(TRANSCRIPTS))
def test_a_damaged_transcript_is_read_and_can_be_fixed(data: st.DataObject, name: str) -> None:
    """Guarantee 15.1: with any values in up to three fields."""
    lines = sample(name)
    for _ in range(data.draw(st.integers(1, 3))):
        held: JSON = data.draw(st.sampled_from(lines))
        while True:
            inside = cast(JSONObject, dict(enumerate(cast(list[JSON], held))) if isinstance(held, list) else held)
            key = data.draw(st.sampled_from(list(inside)))
            if not isinstance(inside[key], dict | list) or not inside[key] or data.draw(st.booleans()):
                break
            held = inside[key]
        cast(JSONObject, held)[key] = json.loads(json.dumps(data.draw(st.sampled_from(ODD))))
    fixed, _ = cc.fix(lines, format="claude_code")
    assert codes(fixed) == []
