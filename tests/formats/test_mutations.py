"""Accepted requests, broken in the usual ways: lint reports them, and fix repairs them without loss.

A mutation works on the sketch of a request, so that one is written once for every format.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias, cast

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats import format_names, formatter
from contextc.formats.lint_engine import JSONPath, ParsedRequest, RequestMessage, RequestPart
from contextc.messages import pair_tool_calls
from tests.conftest import some
from tests.formats.known import having, known
from tests.formats.traffic import accepted, transcripts

SIGNATURES = ("signature", "thoughtSignature", "thought_signature", "encrypted_content")


class Case(NamedTuple):
    format: str
    body: JSONObject

    @property
    def key(self) -> str:
        return formatter(self.format).messages_key

    @property
    def sketch(self) -> ParsedRequest:
        return formatter(self.format).rules.parse(self.body)

    def copy(self) -> "Case":
        return Case(self.format, json.loads(json.dumps(self.body)))

    def at(self, path: JSONPath) -> JSON:
        found: JSON = self.body
        for step in path:
            found = found[step]
        return found

    def holder(self, path: JSONPath) -> list[JSON]:
        return cast(list[JSON], self.at(path[:-1]))

    def remove(self, path: JSONPath) -> None:
        """Take a piece out, and its message where nothing else is in it."""
        messages, holder = cast(list[JSONObject], self.body[self.key]), self.holder(path)
        del holder[cast(int, path[-1])]
        if len(path) == 2:
            return
        message = messages[cast(int, path[:2][-1])]
        if not message.get("tool_calls", 1):
            del message["tool_calls"]
        if not holder and not message.get("content") and not message.get("tool_calls"):
            messages.remove(message)

    def codes(self) -> set[str]:
        return {each.code for each in cc.lint(self.body, format=self.format)}


def pieces(case: Case, kind: str) -> Iterator[tuple[int, RequestMessage, RequestPart]]:
    for index, turn in enumerate(case.sketch.messages):
        for piece in turn.parts:
            if piece.kind == kind and isinstance(piece.path[-1], int):
                yield index, turn, piece


def result_dropped(case: Case) -> Iterator[Case]:
    for _, _, piece in pieces(case, "result"):
        broken = case.copy()
        broken.remove(piece.path)
        yield broken


def call_dropped(case: Case) -> Iterator[Case]:
    for _, _, piece in pieces(case, "call"):
        broken = case.copy()
        broken.remove(piece.path)
        yield broken


def result_doubled(case: Case) -> Iterator[Case]:
    for _, _, piece in pieces(case, "result"):
        broken = case.copy()
        broken.holder(piece.path).insert(cast(int, piece.path[-1]), json.loads(json.dumps(broken.at(piece.path))))
        yield broken


def result_first(case: Case) -> Iterator[Case]:
    """The message with a result, moved to the front."""
    for _, turn, _ in pieces(case, "result"):
        broken = case.copy()
        messages = cast(list[JSON], broken.body[case.key])
        messages.insert(0, messages.pop(cast(int, turn.path[1])))
        yield broken


def text_between(case: Case) -> Iterator[Case]:
    if known(case.format).RESULTS_ANYWHERE:
        return
    for _, turn, _ in pieces(case, "result"):
        broken = case.copy()
        words = formatter(case.format).rules.message("and hurry")
        cast(list[JSON], broken.body[case.key]).insert(cast(int, turn.path[1]), words)
        yield broken


def id_changed(case: Case) -> Iterator[Case]:
    for _, _, piece in pieces(case, "result"):
        broken = case.copy()
        if replaced(broken.at(piece.path), piece.id, f"{piece.id}x"):
            yield broken


def signature_damaged(case: Case) -> Iterator[Case]:
    for _, turn in enumerate(case.sketch.messages):
        for piece in turn.parts:
            for name in SIGNATURES:
                if isinstance(value := piece.wire.get(name), str) and len(value) >= 64:
                    broken = case.copy()
                    broken.at(piece.path)[name] = value[:-3]
                    yield broken


def roles_swapped(case: Case) -> Iterator[Case]:
    """A message with calls and its neighbour, each with the other's role."""
    for index, turn, _ in pieces(case, "call"):
        if "role" not in turn.wire or index == 0:
            continue
        broken = case.copy()
        messages = cast(list[JSONObject], broken.body[case.key])
        here = cast(int, turn.path[1])
        if "role" not in messages[here - 1] or messages[here - 1]["role"] == messages[here]["role"]:
            continue
        messages[here]["role"], messages[here - 1]["role"] = messages[here - 1]["role"], messages[here]["role"]
        yield broken


def text_blanked(case: Case) -> Iterator[Case]:
    if not known(case.format).BLANK_REFUSED:
        return
    for _, _, piece in pieces(case, "text"):
        broken = case.copy()
        broken.at(piece.path)["text"] = " "
        yield broken


def replaced(value: JSON, before: str, after: str) -> bool:
    """Replace one id by another everywhere in a part; return whether it was found."""
    found = False
    for key, each in list(cast(JSONObject, value).items()):
        if each == before and "id" in key.lower():
            value[key], found = after, True
        elif isinstance(each, dict):
            found |= replaced(cast(JSON, each), before, after)
    return found


def strings(value: JSON, key: str = "") -> Iterator[str]:
    """Yield every text of a message or a tool result in a request."""
    if isinstance(value, dict):
        if cast(JSONObject, value).get("type") == "reasoning":  # it goes with its signature
            return
        for name, each in cast(JSONObject, value).items():
            yield from strings(each, name)
    elif isinstance(value, list):
        for each in cast(list[JSON], value):
            yield from strings(each, key)
    elif isinstance(value, str) and key in ("text", "content", "output", "value") and value.strip():
        yield value


def check(broken: Case) -> None:
    """It is clean after `fix`, and everything that was said is still there, as often as it was."""
    before = json.dumps(broken.body)
    fixed, repairs = cc.fix(broken.body, format=broken.format)
    assert repairs
    assert cc.lint(fixed, format=broken.format) == []
    assert json.dumps(broken.body) == before
    said = "\n".join(strings(fixed[broken.key]))
    for text in strings(broken.body[broken.key]):
        assert text.strip() in said or json.dumps(text.strip())[1:-1] in said


HELD = ("previous_response_id", "conversation")  # the provider has more than the request shows


def cases(format: str) -> Iterator[Case]:
    """Everything recorded, and transcripts in every format; the formats that have no recordings borrow some."""
    yield from (Case(format, exchange.request) for exchange in accepted(format))
    for messages in transcripts()[:12]:
        yield Case(format, dict(cc.convert({"messages": messages}, source="openai_chat", target=format)))
    for source in known(format).BORROWS if format in having("BORROWS") else ():
        for exchange in accepted(source):
            yield Case(format, dict(cc.convert(exchange.request, source=source, target=format)))


@cache
def cases_of(format: str) -> Sequence[Case]:
    """The cases of one format whose whole history is in the request."""
    return some(
        [
            case
            for case in cases(format)
            if isinstance(case.body.get(case.key), list) and not any(case.body.get(name) for name in HELD)
        ],
        3,
    )


Mutation: TypeAlias = Callable[[Case], Iterator[Case]]
MUTATIONS: list[Mutation] = [
    result_dropped,
    result_doubled,
    result_first,
    call_dropped,
    text_between,
    id_changed,
    signature_damaged,
    roles_swapped,
    text_blanked,
]


@pytest.mark.parametrize("format", format_names())
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_broken_request_is_flagged_and_whole_after_fix(
    mutation: Callable[[Case], Iterator[Case]], format: str
) -> None:
    """Guarantees 10.6, 5.3: each way in which histories break, on everything recorded."""
    for case in cases_of(format):
        for broken in mutation(case):
            assert broken.codes(), json.dumps(broken.body)[:3000]
            check(broken)


@pytest.mark.parametrize("format", format_names())
def test_a_cut_at_any_place_is_flagged_if_and_only_if_it_splits_something(format: str) -> None:
    """litellm#10696, langchain#29637, langchain#38352, openai-agents-python#4322."""
    form = formatter(format)
    for case in cases_of(format):
        messages = cast(list[JSON], case.body[case.key])
        for place in range(1, len(messages)):
            for part in (messages[place:], messages[:place]):
                cut = Case(format, {**case.body, case.key: part})
                request = form.decode_request(cut.body)
                if [
                    each for each in pair_tool_calls(form.with_session_results(request)).repairs if each.kind != "moved"
                ]:
                    assert cut.codes(), json.dumps(part)[:2000]
                if cut.codes():
                    check(cut)
