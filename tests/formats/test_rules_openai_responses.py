"""Rules of the Responses API: requests that OpenAI refuses, and valid ones that look broken."""

import json

import pytest

from contextc._json import JSON, JSONObject
from contextc.formats.openai_responses.codec import ITEMS
from contextc.formats.openai_responses.rules import RULES
from tests.formats.traffic import FILES

HI: JSONObject = {"role": "user", "content": "hi"}
ODD: list[JSON] = [None, 5, "hi", True, [[]], [None], {}, {"input": 5}, {"input": [{}], "tools": "x"}]


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in RULES.lint(body)]


@pytest.mark.parametrize("kind", ITEMS.schemas)
def test_every_kind_of_item_is_known_and_missed_when_it_is_empty(kind: str) -> None:
    """Guarantee 10.6: what the vendor's SDK lists is never called unknown; what an item must have is asked for."""
    made: dict[object, JSON] = {str: "a", list: [], dict: {}, bool: True}
    item: JSONObject = {"type": kind, "role": "developer"} if kind == "additional_tools" else {"type": kind}
    for name, kinds in ITEMS.schemas[kind].items():
        if kinds is object:
            continue
        item[name.removesuffix("?")] = made[kinds[0] if isinstance(kinds, tuple) else kinds]
    assert "OAR001" not in codes([HI, item])
    if any(not name.endswith("?") for name in ITEMS.schemas[kind]):
        assert "OAR001" in codes([HI, {"type": kind}])


def test_the_finding_equals_the_recorded_refusal() -> None:
    """Guarantee 10.6: each violation with the provider's own error."""
    recorded = [json.loads(line) for line in FILES[0].read_text().splitlines()]
    (refused,) = [each for each in recorded if each["status"] == 400 and "modified_history" in each["case"]]
    assert [found.error for found in RULES.lint(refused["request"])] == [refused["reply"]["error"]["message"]]


@pytest.mark.parametrize("body", ODD)
def test_nothing_is_too_odd_to_be_judged(body: JSON) -> None:
    """Guarantee 10.6: a request comes from anywhere, and may be broken in any way."""
    assert codes(body)
