"""Random histories in every format: each request follows the provider's rules and loses no text.

What they are made of is said in histories.py.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from hypothesis import HealthCheck, given, note, settings

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter, Request, split_segments
from contextc.formats.lint_engine import RequestPart
from tests.conftest import often
from tests.formats.histories import TOOLS, History, histories, marks
from tests.formats.known import having, known, problems

NAMES = format_names()
PROMPT_MARK = "«t0»"
PROMPT = f"Be brief. {PROMPT_MARK}"
FORMATTERS: dict[str, Formatter] = {
    **{name: formatter(name) for name in NAMES},
    **{f"{name}, {word}": form for name in having("VARIANTS") for word, form in known(name).VARIANTS.items()},
}


def examples(number: int) -> settings:
    """So many examples, and ten times as many in `make prove`."""
    return settings(
        max_examples=often(number // 2, 10 * number), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


class Sent(NamedTuple):
    """A history as one formatter writes it: bare messages, and a request with a system prompt, tools and settings."""

    form: Formatter
    history: History
    paired: list[cc.Message]
    messages: list[JSONObject]
    request: Request
    body: JSONObject


def sent(form: Formatter, history: History) -> Sent:
    messages = tuple(history.messages)
    request = Request(messages=messages, system=cc.system(PROMPT), tools=TOOLS, settings=known(form.name).SETTINGS)
    paired = form.pair_calls([form.with_text_files(message)[0] for message in messages]).messages
    return Sent(form, history, paired, form.format(messages), request, form.encode_request(request))


def sent_everywhere(history: History) -> Iterator[Sent]:
    for name, form in FORMATTERS.items():
        note(f"written as {name}")  # shown with the example that fails, where the last one is the culprit
        yield sent(form, history)


def text_of(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)


def words(messages: Sequence[cc.Message]) -> list[str]:
    """Return the marks of all texts and results that a model gets, in order."""
    parts = [part for message in messages for part in message.parts if isinstance(part, cc.Text | cc.ToolResult)]
    return [mark for part in parts for mark in marks(part.text, "tr")]


def pieces(made: Sent, kind: str) -> list[RequestPart]:
    return [
        piece for turn in made.form.rules.parse(made.messages).messages for piece in turn.parts if piece.kind == kind
    ]


def keeps_the_rules(made: Sent) -> None:
    """Guarantees 5.1, 10.4, 10.5: by our rules, as a whole request and as bare messages."""
    if made.messages:
        assert cc.lint(made.messages, format=made.form.name) == []
        assert cc.lint(made.body, format=made.form.name) == []


def has_the_vendors_types(made: Sent) -> None:
    """Guarantee 10.5: by the types of the vendor's SDK. They do not know what others said in a recording of this
    format.
    """
    if made.messages and made.history.recorded != made.form.name:
        assert problems(made.form.name, made.body) == []


def tells_every_word_once(made: Sent) -> None:
    """Guarantees 5.2, 5.3, 10.3: texts and results in the order of the paired history; no hint, no result without a
    call.
    """
    told, expected = text_of(made.messages), words(made.paired)
    assert marks(told, "tr") == expected
    whole = text_of(made.body)
    assert Counter(marks(whole, "tr")) == Counter([PROMPT_MARK, *expected])
    assert marks(whole, "h") == []


def keeps_every_call(made: Sent) -> None:
    """Guarantees 2.3, 5.1, 10.3: each call once, with its name and arguments, and its result under its id."""
    names = made.form.name_codec.names
    asked = [call for message in made.paired for call in message.tool_calls]
    found = [piece for piece in pieces(made, "call") if piece.name]  # OpenAI's own kinds of calls have none
    assert [call.name for call in found] == [names.encode(call.name) if names else call.name for call in asked]
    for call, piece in zip(asked, found, strict=True):
        given = known(made.form.name).arguments(piece.wire)
        if call.malformed:
            assert given in (call.raw, {"malformed_arguments": call.raw})
        else:
            assert (json.loads(given.strip() or "{}") if isinstance(given, str) else given) == call.arguments
    ids = [call.id for call in found]
    assert [result.id for result in pieces(made, "result") if result.id in ids] == ids


def keeps_reasoning_apart(made: Sent) -> None:
    """Guarantees 2.4, 2.5: reasoning and native blocks go to their own provider only, once."""
    found = marks(text_of(made.messages), "gn")
    assert len(found) == len(set(found))
    for part in [part for message in made.history.messages for part in message.parts]:
        own = getattr(part, "provider", None) == made.form.provider
        if isinstance(part, cc.messages.ProviderBlock):
            said = marks(text_of(part.data), "n")
            if "refusal" in part.data and not own:  # everybody understands one
                assert set(said) <= set(found)
                continue
            assert [mark for mark in said if mark in found] == (said if own else [])
        elif isinstance(part, cc.Reasoning):
            said = set(marks(part.text, "g"))
            passed_on = part.provider in known(made.form.name).PASSES_ON
            assert own or passed_on or said.isdisjoint(found)
            assert not (own and part.signature) or said <= set(found)


def is_encoded_segment_by_segment(made: Sent) -> None:
    """Guarantee 10.1: encoding as it grew equals encoding at once, and no segment is changed by joining it."""
    encoded = [made.form.encode(segment) for segment in split_segments(made.paired)]
    before = text_of([each.messages for each in encoded])
    assert made.form.join(encoded) == made.messages
    assert text_of([each.messages for each in encoded]) == before


def changes_nothing_given(made: Sent) -> None:
    """Guarantee 10.1: a formatter is pure, and says the same twice."""
    before = msgspec.json.encode(made.request)
    assert text_of(made.form.encode_request(made.request)) == text_of(made.body)
    assert msgspec.json.encode(made.request) == before


def comes_back_the_same(made: Sent) -> None:
    """Guarantee 10.5: wire → messages → the same wire; and what is decoded is not changed."""
    body, before = made.body, text_of(made.body)
    again = made.form.encode_request(made.form.decode_request(body))
    assert text_of(body) == before
    assert again == body


def can_be_converted(made: Sent) -> None:
    """Guarantees 10.3, 10.5: valid in every format, with the same texts in the same order, and every call."""
    said, asked = words(made.paired), Counter(marks(text_of(made.body), "am"))
    for target in NAMES:
        body = cc.convert(made.body, source=made.form.name, target=target)
        key = formatter(target).messages_key
        messages = body.get(key)
        told = [value for name, value in body.items() if name != key] + [messages]
        assert [mark for mark in marks(text_of(told), "tr") if mark != PROMPT_MARK] == said, target
        assert marks(text_of(body), "t").count(PROMPT_MARK) == 1, target
        assert Counter(marks(text_of(body), "am")) == asked, target
        assert not messages or cc.lint(body, format=target) == [], target


@examples(50)
@given(history=histories())
def test_every_request_of_any_log_is_valid(history: History) -> None:
    """Guarantees 2.3 to 2.5, 5.1 to 5.3, 10.1, 10.3 to 10.5: each check says which."""
    for made in sent_everywhere(history):
        keeps_the_rules(made)
        tells_every_word_once(made)
        keeps_every_call(made)
        keeps_reasoning_apart(made)
        is_encoded_segment_by_segment(made)


@examples(25)
@given(history=histories())
def test_every_request_is_taken_by_the_vendors_types(history: History) -> None:
    """Guarantee 10.5: fewer examples, because a JSON Schema takes its time."""
    for made in sent_everywhere(history):
        has_the_vendors_types(made)


@examples(25)
@given(history=histories())
def test_every_request_is_decoded_and_encoded_again_without_a_trace(history: History) -> None:
    """Guarantees 10.1, 10.5."""
    for made in sent_everywhere(history):
        changes_nothing_given(made)
        comes_back_the_same(made)


@examples(12)
@given(history=histories())
def test_every_request_can_be_converted(history: History) -> None:
    """Guarantees 10.3, 10.5: from every format to every format, itself too."""
    for made in sent_everywhere(history):
        can_be_converted(made)
