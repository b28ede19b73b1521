"""Questions of servers while a tool runs: rows like approvals, answered by any process (guarantee 24.8)."""

import asyncio
import json
import math
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequests,
    InputRequiredResult,
)

import contextc as cc
from contextc.doctor import scan_store
from contextc.errors import AlreadyAnswered, InvalidInput, TurnWaits
from contextc.events import ApprovalRequest
from contextc.mcp.questions import read_question
from contextc.testing import Answer, FakeModel
from contextc.tools.questions import Choice, FormField, Question, check_answer
from tests.mcp.servers import asking, plain

PATIENCE = 60
ORDER = cc.tool_call("c1", "asking__order", {"drink": "tea"})


class Cafe:
    """An agent of the asking server on a store, with one event loop and one server, as in a process."""

    def __init__(self, store: cc.Store, *answers: Answer, env: dict[str, str] | None = None, **options: Any) -> None:
        declared: dict[str, Any] = options.pop("server", {})
        server = plain() if declared.pop("old", False) else asking(env=env or {}, **declared)
        options.setdefault("approve", cc.Suspend())
        self.store, self._runner = store, asyncio.Runner()
        self._executor = cc.AgentExecutor(
            store, FakeModel(*answers, "Done."), mcp_servers=[server], triggers=(), **options
        )

    def run(self, given: str | None = "Go.") -> cc.TurnResult:
        async def work() -> cc.TurnResult:
            turn = self._executor.resume("demo") if given is None else self._executor.start("demo", given)
            return await asyncio.wait_for(turn.wait(), PATIENCE)

        return self._runner.run(work())

    def resume(self) -> cc.TurnResult:
        return self.run(None)

    def close(self) -> None:
        self._runner.run(self._executor.close())
        self._runner.close()

    @property
    def asked(self) -> cc.store.Approval:
        (found,) = self.store.approvals("demo")
        return found

    @property
    def results(self) -> list[tuple[str, bool]]:
        found = [each for message in self.store.load("demo") for each in message.tool_results]
        return [(each.text, each.is_error) for each in found]

    def is_sound(self) -> bool:
        return [each for each in scan_store(self.store) if each.kind == "fault"] == []


MakeCafe: TypeAlias = Callable[..., Cafe]


@pytest.fixture
def memory() -> Generator[cc.Store]:
    with cc.open_store("memory:") as store:
        yield store


@pytest.fixture
def cafe_on() -> Generator[MakeCafe]:
    """Return a function that makes an agent on a store; all of them are closed at the end."""
    made: list[Cafe] = []

    def make(*given: Any, **options: Any) -> Cafe:
        made.append(Cafe(*given, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_question_suspends_the_turn_and_another_server_gets_the_answer(
    store: cc.Store, tmp_path: Path, cafe_on: MakeCafe
) -> None:
    env = {"NOTES": str(tmp_path / "notes"), "KEY": "k" * 32}
    first = cafe_on(store, ORDER, env=env)
    assert first.run().finish == "waiting"
    assert [turn.state for turn in store.turns("demo")] == ["waiting"]
    store.release(store.acquire("demo"))  # it is free
    question = first.asked.question
    assert question is not None
    (request,) = question.requests
    assert (question.server, question.round, request.message) == ("asking", 1, "Which size of tea?")
    assert [(each.name, each.kind, each.required) for each in request.fields] == [
        ("size", "choice", True),
        ("cups", "integer", False),
        ("gift", "boolean", False),
        ("mail", "string", False),
    ]
    (event,) = [each for each in store.events("demo") if isinstance(each, ApprovalRequest)]
    assert event.question == "The server asking asks: Which size of tea?"
    assert isinstance(first.resume().error, TurnWaits)
    with pytest.raises(InvalidInput, match="the field 'size' must be one of its values"):
        store.answer_approval(first.asked.id, True, content={"size": "huge"})
    with pytest.raises(InvalidInput, match="allow and cancel cannot both be True"):
        store.answer_approval(first.asked.id, True, cancel=True)

    asked = store.answer_approval(first.asked.id, True, content={"size": "small", "cups": 2}, who="ann")
    with pytest.raises(AlreadyAnswered, match="ann"):
        store.answer_approval(asked.id, True, content={"size": "large"}, who="bob")
    second = cafe_on(store, env=env)
    assert second.resume().finish == "stop"
    assert second.results == [('One tea, {"size": "small", "cups": 2}.', False)]
    rounds = [json.loads(each)[0] for each in (tmp_path / "notes").read_text().splitlines()]
    assert rounds == [None, "tea"]  # the call, and the same with the answer
    (kept,) = store.turn_approvals("demo", 1)
    assert (kept.state, kept.who, kept.answer, kept.question and kept.question.state) == ("allowed", "ann", {}, None)
    assert second.is_sound()


def test_a_server_that_has_lost_its_state_is_asked_from_the_start(
    memory: cc.Store, tmp_path: Path, cafe_on: MakeCafe
) -> None:
    """Servers of the package seal their state with a key of their process. The person is not asked twice."""
    env = {"NOTES": str(tmp_path / "notes")}
    first = cafe_on(memory, ORDER, env=env)
    first.run()
    memory.answer_approval(first.asked.id, True, content={"size": "small"})
    assert cafe_on(memory, env=env).resume().finish == "stop"
    assert first.results == [('One tea, {"size": "small"}.', False)]
    rounds = [json.loads(each)[0] for each in (tmp_path / "notes").read_text().splitlines()]
    assert rounds == [None, None, "tea"]


def test_a_server_may_ask_again(memory: cc.Store, cafe_on: MakeCafe) -> None:
    cafe = cafe_on(memory, ORDER)
    cafe.run()
    memory.answer_approval(cafe.asked.id, True, content={"size": "large"})
    assert cafe.resume().finish == "waiting"
    question = cafe.asked.question
    assert question is not None
    assert (question.round, question.requests[0].message) == (2, "Sure?")
    memory.answer_approval(cafe.asked.id, True, content={"sure": True})
    assert cafe.resume().finish == "stop"
    assert cafe.results == [("One large tea, True.", False)]
    assert cafe.is_sound()


@pytest.mark.parametrize(("cancel", "told"), [(False, "decline"), (True, "cancel")])
def test_a_refusal_is_passed_on(memory: cc.Store, cafe_on: MakeCafe, cancel: bool, told: str) -> None:
    cafe = cafe_on(memory, ORDER)
    cafe.run()
    memory.answer_approval(cafe.asked.id, False, cancel=cancel)
    assert cafe.resume().finish == "stop"
    assert cafe.results == [(f"No tea: {told}.", False)]


def test_links_and_several_forms_are_answered(memory: cc.Store, cafe_on: MakeCafe) -> None:
    cafe = cafe_on(memory, cc.tool_call("c1", "asking__visit", {}), cc.tool_call("c2", "asking__several", {}))
    cafe.run()
    question = cafe.asked.question
    assert question is not None
    assert question.requests[0].url == "https://shop.example/login?a=1"
    assert question.text == "The server asking asks: Sign in. https://shop.example/login?a=1"
    memory.answer_approval(cafe.asked.id, True)
    assert cafe.resume().finish == "waiting"
    for wrong in ({"size": "small"}, {"one": 1}, {"one": {"size": "small"}}):
        with pytest.raises(InvalidInput):
            memory.answer_approval(cafe.asked.id, True, content=wrong)
    memory.answer_approval(cafe.asked.id, True, content={"one": {"size": "small"}, "two": {"sure": False}})
    assert cafe.resume().finish == "stop"
    assert [json.loads(text) for text, _ in cafe.results] == [
        {"action": "accept"},
        {
            "one": {"action": "accept", "content": {"size": "small"}},
            "two": {"action": "accept", "content": {"sure": False}},
        },
    ]


def test_other_calls_of_the_reply_run_and_new_input_is_queued(store: cc.Store, cafe_on: MakeCafe) -> None:
    later = cc.tool_call("c2", "asking__later", {})
    cafe = cafe_on(store, [ORDER, later, cc.tool_call("c3", "asking__order", {"drink": "milk"})], "Hurried.")
    assert cafe.run().finish == "waiting"
    assert cafe.results == [("ready", False)]
    first, second = sorted(store.approvals("demo"), key=lambda each: each.call)  # the calls run at the same time
    assert cafe.run("Hurry.").finish == "waiting"
    assert [each.message.text for each in store.queued("demo")] == ["Hurry."]
    store.answer_approval(second.id, True, content={"size": "small"})
    assert cafe.resume().finish == "waiting"
    assert [each.id for each in store.approvals("demo")] == [first.id]
    store.answer_approval(first.id, False)
    assert cafe.resume().finish == "stop"
    assert [text for text, _ in cafe.results] == ["ready", 'One milk, {"size": "small"}.', "No tea: decline."]
    assert store.queued("demo") == []
    assert cafe.is_sound()


def test_a_question_that_expires_is_closed(memory: cc.Store, cafe_on: MakeCafe) -> None:
    """The default answer of approvals is not one to a question."""
    cafe = cafe_on(memory, ORDER, approve=cc.Suspend(seconds=1e-3, default=True))
    if (result := cafe.run()).finish == "waiting":
        result = cafe.resume()
    assert result.finish == "stop"
    assert cafe.results == [("No tea: cancel.", False)]


def test_a_cancelled_turn_says_what_is_left_open(memory: cc.Store, cafe_on: MakeCafe) -> None:
    cafe = cafe_on(memory, ORDER)
    cafe.run()
    memory.cancel_turn("demo")
    (only,) = cafe.results
    assert only == (
        "Not completed: the turn ended (it was cancelled) before the question of the server was answered. What the "
        "call had done by then stays done.",
        True,
    )
    assert memory.approvals("demo") == []
    assert cafe.is_sound()


def test_approval_comes_before_the_question(memory: cc.Store, cafe_on: MakeCafe) -> None:
    cafe = cafe_on(memory, ORDER, server={"needs_approval": True})
    assert cafe.run().finish == "waiting"
    assert cafe.asked.question is None
    with pytest.raises(InvalidInput, match="it is not a question"):
        memory.answer_approval(cafe.asked.id, True, content={})
    memory.answer_approval(cafe.asked.id, True)
    assert cafe.resume().finish == "waiting"
    memory.answer_approval(cafe.asked.id, True, content={"size": "small"})
    assert cafe.resume().finish == "stop"
    assert cafe.results == [('One tea, {"size": "small"}.', False)]


def allow(*_: object) -> bool:
    return True


@pytest.mark.parametrize("approve", [None, allow])
def test_without_a_person_the_server_is_told_so(memory: cc.Store, cafe_on: MakeCafe, approve: Any) -> None:
    cafe = cafe_on(memory, ORDER, cc.tool_call("c2", "asking__greet", {}), approve=approve)
    assert cafe.run().finish == "stop"
    (asked, is_error), (greeted, _) = cafe.results
    assert asked == "Not completed: nobody is there to answer a question. The server asking asks: Which size of tea?"
    assert is_error
    assert "did not declare the form elicitation capability" in greeted


def test_a_question_of_the_older_protocol_is_refused_with_the_reason(memory: cc.Store, cafe_on: MakeCafe) -> None:
    cafe = cafe_on(memory, cc.tool_call("c1", "plain__asks", {}), server={"old": True})
    assert cafe.run().finish == "stop"
    assert "with this version of the protocol it would end with the connection" in cafe.results[0][0]


# ── hostile servers ───────────────────────────────────────────────────────────────────────────────────────────────────


def with_field(schema: dict[str, Any], name: str = "field", **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: schema}, **more}


def asked_with(schema: dict[str, Any], message: str = "Hi.", copies: int = 1, state: str = "") -> Question:
    params = ElicitRequestFormParams(message=message, requested_schema=schema)
    requests: InputRequests = {f"form{number}": ElicitRequest(params=params) for number in range(copies)}
    return read_question("asking", InputRequiredResult(input_requests=requests, request_state=state), 1)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"schema": with_field({"type": "object", "properties": {}})},
            "is not a text, a number, a boolean or a choice",
        ),
        ({"schema": with_field({"type": "array", "items": {"type": "object"}})}, "is not a text, a number"),
        ({"schema": with_field({"$ref": "#"})}, "is not a text, a number"),
        ({"schema": with_field({"anyOf": [{"type": "null"}, {"type": "null"}]})}, "is not a text, a number"),
        ({"schema": {"type": "array"}}, "its form is not the schema of an object"),
        ({"schema": with_field({"type": "string", "enum": []})}, "must have 1 to 200 values"),
        ({"schema": with_field({"type": "string", "enum": [1]})}, "is not a short text"),
        ({"schema": with_field({"type": "string", "enum": ["x"] * 201})}, "must have 1 to 200 values"),
        ({"schema": with_field({"type": "string"}, "a\u200bb")}, "has no valid name"),
        ({"schema": with_field({"type": "string"}, required=["other"])}, "requires a field that it does not have"),
        (
            {"schema": {"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(51)}}},
            "its form has more than 50 fields",
        ),
        ({"schema": with_field({"type": "string"}), "copies": 11}, "it asks for more than 10 things at once"),
        ({"schema": with_field({"type": "string"}), "state": "x" * 1_000_001}, "its state has more than 1,000,000"),
    ],
)
def test_a_form_that_is_not_flat_or_too_large_is_no_question(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        asked_with(**given)


def test_texts_of_a_question_are_visible_and_short() -> None:
    schema = with_field({"type": "string", "title": "T\u202ex" + "y" * 900}, "password")
    question = asked_with(schema, "a\u200b" + "b" * 9_000)
    (request,) = question.requests
    assert request.message == "a" + "b" * 3_999 + "…"
    assert request.fields[0].title == "Tx" + "y" * 498 + "…"
    assert question.text.startswith("The server asking asks: ")  # whoever types a password knows for whom


@pytest.mark.parametrize(
    "page",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://",
        "https://[",
        "https://a.example/\u200bb",
        "https://bank.example@evil.example/",
        "https://ann:secret@bank.example/",
        "https://evil.example\\.bank.example/",
        "https://bank.example%2fevil.example/",
        "https://bank.example:x/",
    ],
)
def test_only_links_to_web_pages_are_shown(page: str) -> None:
    request = ElicitRequest(params=ElicitRequestURLParams(message="Sign in.", url=page))
    with pytest.raises(InvalidInput, match="its link"):
        read_question("asking", InputRequiredResult(input_requests={"page": request}), 1)


def test_the_host_of_a_link_is_ascii() -> None:
    """A Cyrillic letter looks like a Latin one."""
    params = ElicitRequestURLParams(message="Sign in.", url="https://b\u0430nk.example:8443/a@b")
    asked = InputRequiredResult(input_requests={"page": ElicitRequest(params=params)})
    assert read_question("asking", asked, 1).requests[0].host == "xn--bnk-6cd.example"


FORM: dict[str, Any] = {"type": "object", "required": ["size"]}
FORM["properties"] = {
    "size": {"type": "string", "enum": ["small", "large"], "enumNames": ["S", "L"]},
    "cups": {"type": "integer", "minimum": 1, "maximum": 9},
    "gift": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": True},
    "mail": {"type": "string", "format": "email"},
    "day": {"type": "string", "format": "date"},
    "note": {"type": "string", "maxLength": 5},
    "extras": {
        "type": "array",
        "items": {"anyOf": [{"const": "milk", "title": "Milk"}, {"const": "ice", "title": "Ice"}]},
        "maxItems": 1,
    },
}


def test_a_form_has_the_fields_and_defaults_of_its_schema() -> None:
    (request,) = asked_with(FORM).requests
    size, cups, gift, *_, extras = request.fields
    assert size == FormField(
        name="size", kind="choice", required=True, choices=(Choice("small", "S"), Choice("large", "L"))
    )
    assert cups == FormField(name="cups", kind="integer", minimum=1, maximum=9)
    assert gift == FormField(name="gift", kind="boolean", default=True)
    assert extras == FormField(
        name="extras", kind="choices", maximum=1, choices=(Choice("milk", "Milk"), Choice("ice", "Ice"))
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "the field 'size' is missing. Pass one of: small, large"),
        ({"size": "huge"}, "the field 'size' must be one of its values. Pass one of: small, large"),
        ({"size": ["small"]}, "the field 'size' must be one of its values"),
        ({"size": "small", "cups": 2.5}, "the field 'cups' must be an integer"),
        ({"size": "small", "cups": True}, "the field 'cups' must be an integer"),
        ({"size": "small", "cups": math.nan}, "the field 'cups' must be an integer"),
        ({"size": "small", "cups": 10}, "outside of its limits. Pass an integer of at least 1 and at most 9"),
        ({"size": "small", "gift": "yes"}, "the field 'gift' must be true or false"),
        ({"size": "small", "mail": "ann"}, "must have the format 'email'"),
        ({"size": "small", "day": "2026-07-32"}, "must have the format 'date'"),
        ({"size": "small", "note": "longer"}, "outside of its limits. Pass a text of at most 5 characters"),
        ({"size": "small", "extras": ["milk", "ice"]}, "Pass a list of at most 1 of: milk, ice"),
        ({"size": "small", "extras": ["milk", "milk"]}, "has a value twice"),
        ({"size": "small", "extras": [["milk"]]}, "must be a list of its values"),
        ({"size": "small", "password": "x"}, "no field 'password'. The fields are: size, cups"),
        ([], "content must be an object, got list"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(content: Any, problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_answer(asked_with(FORM), content)
    assert problem in str(caught.value)


def test_an_answer_that_fits_is_taken_as_it_is() -> None:
    content = {
        "size": "small",
        "cups": 2,
        "gift": None,
        "mail": "ann@b.example",
        "day": "2026-07-28",
        "extras": ["ice"],
    }
    assert check_answer(asked_with(FORM), content) == {
        "form0": {name: value for name, value in content.items() if value is not None}
    }


def test_a_server_that_asks_forever_is_given_up(memory: cc.Store, cafe_on: MakeCafe) -> None:
    cafe = cafe_on(memory, cc.tool_call("c1", "asking__forever", {}))
    result = cafe.run()
    rounds = 0
    while result.finish == "waiting":
        rounds += 1
        memory.answer_approval(cafe.asked.id, True, content={"sure": True})
        result = cafe.resume()
    assert (rounds, result.finish) == (9, "stop")
    assert cafe.results == [("Not completed: the server asking has asked for more than 10 times.", True)]


def test_what_cannot_be_asked_is_an_error_result(memory: cc.Store, cafe_on: MakeCafe) -> None:
    nested = with_field({"type": "object"})
    calls: list[tuple[str, dict[str, Any]]] = [
        ("asking__never", {}),
        ("asking__roots", {}),
        ("asking__raw", {"message": "Hi.", "schema": nested}),
    ]
    cafe = cafe_on(memory, *[cc.tool_call(f"c{n}", *each) for n, each in enumerate(calls)])
    assert cafe.run().finish == "stop"
    assert all([is_error for _, is_error in cafe.results])
    never, roots, raw = [text for text, _ in cafe.results]
    assert never == "Not completed: the server asking has asked for more than 10 times."
    assert "something that cannot be asked a person: it asks for roots/list, which is not supported" in roots
    assert "the field 'field' of its form is not a text" in raw
