"""The validators themselves: they accept what vendors accept, and report the rest in one sentence."""

import copy

import pytest

from contextc._json import JSON, JSONObject
from tests.formats.known import anthropic, gemini, having, known, problems
from tests.formats.traffic import accepted


def changed(format: str, path: str, value: JSON) -> list[JSONObject]:
    """The good conversation with one thing set; `...` takes it away."""
    messages = copy.deepcopy(list(known(format).GOOD))
    *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
    place: JSON = messages
    for step in way:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return messages


@pytest.mark.parametrize("format", having("GOOD"))
def test_a_conversation_with_tools_is_accepted(format: str) -> None:
    """A judge that refuses what is right would be of no use; nor one that asks for a model, which we do not choose."""
    assert problems(format, known(format).GOOD) == []


REFUSED = [(name, *each) for name in having("REFUSED") for each in known(name).REFUSED]


@pytest.mark.parametrize(("format", "path", "value", "sentence"), REFUSED, ids=[f"{f} {p}" for f, p, _, _ in REFUSED])
def test_one_wrong_thing_is_one_sentence(format: str, path: str, value: JSON, sentence: str) -> None:
    """Naive validation lets most of these pass, and says the rest a hundred times."""
    found = problems(format, changed(format, path, value))
    assert [each[: len(sentence)] for each in found] == [sentence]


def test_the_rest_of_a_body_is_judged_too() -> None:
    assert problems("anthropic", {"messages": anthropic.GOOD, "stream": True, "system": "Be brief."}) == []
    assert problems("anthropic", {"messages": anthropic.GOOD, "temperature": 1}) == [
        "temperature: Extra inputs are not permitted"
    ]
    assert problems("gemini", {"contents": gemini.GOOD, "systemInstruction": "Be brief."}) == [
        "systemInstruction: Input should be an object"
    ]
    snake: JSONObject = {"role": "model", "parts": [{"function_call": {"name": "f"}, "thought_signature": "c2ln"}]}
    assert problems("gemini", [snake]) == []  # Vertex was sent, and took, both spellings
    mode = {"functionCallingConfig": {"mode": "SOMETIMES"}}
    assert problems("gemini", {"contents": gemini.GOOD, "toolConfig": mode}) == [
        "SOMETIMES is not a valid FunctionCallingConfigMode"
    ]


def test_a_block_of_a_beta_is_accepted_where_only_the_beta_knows_it() -> None:
    block: JSONObject = {"type": "compaction", "content": "So far: nothing."}
    assert problems("anthropic", [{"role": "assistant", "content": [block]}]) == []
    assert problems("anthropic", [{"role": "assistant", "content": [block | {"colour": "red"}]}]) != []


@pytest.mark.parametrize("api", having("VENDOR"))
def test_what_a_vendor_accepted_its_types_accept(api: str) -> None:
    """Recorded requests: the judge is no stricter than the service. Other vendors' requests have keys of their own."""
    requests = [exchange for exchange in accepted(api) if exchange.vendor == known(api).VENDOR]
    assert requests
    refused = {exchange.case: found for exchange in requests if (found := problems(api, exchange.request))}
    assert refused == {}
