"""The real AI SDK sends the same request as contextc, except for the listed differences."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import cast

import pytest
from hypothesis import HealthCheck, given, note, settings

import contextc as cc
from contextc._json import JSON, JSONObject
from tests.conftest import often
from tests.formats.histories import TOOLS, History, histories
from tests.sdk_comparison.ai_sdk_process import HERE, Refused, Sdk
from tests.sdk_comparison.compare import agrees, compared, expressible
from tests.sdk_comparison.docs_page import PAGE, oracle_page
from tests.sdk_comparison.known_differences import DIFFERENCES, Difference, apply_known_differences
from tests.sdk_comparison.request_pairs import TARGETS, Conversation, bodies
from tests.sdk_comparison.rewrites.bodies import RewriteContext
from tests.sdk_comparison.sample_conversations import CASES
from tests.sdk_comparison.sdk_limits import LIMITS, Limit

EXAMPLES = often(15, 300)
FORMATS = tuple(TARGETS)
FUNCTIONS = tuple(tool for tool in TOOLS if isinstance(tool, cc.Tool))


@pytest.mark.parametrize("case", CASES)
def test_handwritten_cases_agree(sdk: Sdk, case: str) -> None:
    """Guarantees 10.3, 10.4: one thing at a time, as the SDK writes it."""
    for format in FORMATS:
        agrees(sdk, format, CASES[case])


@pytest.mark.parametrize("format", FORMATS)
def test_a_streamed_request_has_the_same_content(sdk: Sdk, format: str) -> None:
    """Guarantee 10.1: streaming does not change the content."""
    for case in ("parallel calls", "a picture", "three turns"):
        result = expressible(CASES[case], format)
        whole, streamed = (bodies(sdk, format, result, stream=stream).theirs for stream in (False, True))
        for place in (TARGETS[format].form.messages_key, "system", "systemInstruction", "instructions"):
            assert streamed.get(place) == whole.get(place)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=histories())
def test_random_histories_agree(sdk: Sdk, history: History) -> None:
    """Guarantees 10.3, 10.5: whatever a log may hold, as far as the SDK can say it too."""
    for format in FORMATS:
        note(f"sent to {format}")
        agrees(sdk, format, Conversation(messages=tuple(written(history.messages, format)), tools=FUNCTIONS))


def written(messages: Sequence[cc.Message], format: str) -> Iterator[cc.Message]:
    """Leave out what Anthropic is not sent: our system messages in front of it are written as if it were."""
    form = TARGETS[format].form
    for message in messages:
        if format != "anthropic" or form.encode([message]).messages:
            yield message


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda each: each.name)
def test_every_listed_difference_is_there(sdk: Sdk, difference: Difference) -> None:
    """A row that explains nothing any more has to go."""
    others = [each for each in DIFFERENCES if each is not difference]
    for format in difference.formats:
        found = compared(sdk, format, CASES[difference.example])
        without = compared(sdk, format, CASES[difference.example], differences=others)
        assert found is not None
        assert without is not None
        assert difference.name in found.met
        assert without.theirs != without.ours


@pytest.mark.parametrize("limit", LIMITS, ids=lambda each: each.name)
def test_every_limit_is_needed(sdk: Sdk, limit: Limit) -> None:
    """A limit that could be lifted must be removed; the SDK refuses with the listed messages."""
    others = [each for each in LIMITS if each is not limit]
    for format, refusal in limit.seen.items():
        assert format in limit.formats
        if refusal:
            with pytest.raises(Refused) as refused:
                compared(sdk, format, CASES[limit.example], limits=others)
            assert refusal in str(refused.value)
        else:
            found = compared(sdk, format, CASES[limit.example], limits=others)
            assert found is not None
            assert found.theirs != found.ours


def test_differences_and_limits_have_names_and_reasons_of_their_own() -> None:
    for table in (DIFFERENCES, LIMITS):
        assert len({each.name for each in table}) == len(table)
        assert all(each.reason for each in table)


@pytest.mark.parametrize("format", FORMATS)
def test_a_change_that_is_not_listed_is_noticed(sdk: Sdk, format: str) -> None:
    """No rewrite is so general that it would hide lost text, a result under another id, or another order."""
    result = expressible(CASES["parallel calls"], format)
    ours, theirs = bodies(sdk, format, result)
    known = RewriteContext(result, TARGETS[format].form)
    changes = list(changed(theirs, TARGETS[format].form.messages_key))
    assert len(changes) > 20
    for change in changes:
        assert apply_known_differences(change, ours, known, DIFFERENCES).body != ours


def changed(body: JSONObject, key: str) -> Iterator[JSONObject]:
    """The body with one thing wrong: a message gone, doubled or moved, or another letter in one of the texts."""
    for index in range(len(body[key])):
        for change in (_gone, _doubled, _moved):
            other = deepcopy(body)
            if change(other[key], index):
                yield other
    for number in range(sum(1 for _ in _texts(deepcopy(body[key])))):
        other = deepcopy(body)
        holder, place = list(_texts(other[key]))[number]
        holder[place] += "!"
        yield other


def _gone(messages: list[JSON], index: int) -> bool:
    del messages[index]
    return True


def _doubled(messages: list[JSON], index: int) -> bool:
    messages.insert(index, deepcopy(messages[index]))
    return True


def _moved(messages: list[JSON], index: int) -> bool:
    if not index:
        return False
    messages[index - 1], messages[index] = messages[index], messages[index - 1]
    return messages[index - 1] != messages[index]


def _texts(value: JSON) -> Iterator[tuple[JSONObject, str]]:
    if isinstance(value, list):
        for each in cast(list[JSON], value):
            yield from _texts(each)
    elif isinstance(value, dict):
        thing = cast(JSONObject, value)
        for name, each in thing.items():
            if isinstance(each, str):
                yield thing, name
            else:
                yield from _texts(each)


def test_the_lock_names_no_registry() -> None:
    """A lock must install from whatever registry its reader has."""
    assert '"resolved"' not in (HERE / "package-lock.json").read_text()


def test_the_page_of_differences_is_up_to_date() -> None:
    """`python -m tests.sdk_comparison.docs_page` writes it."""
    assert PAGE.read_text() == oracle_page()
