"""The texts and attributes of contextc's exceptions."""

import pickle

from contextc.errors import InvalidInput, InvalidMessage, InvalidRequest


def test_an_error_states_the_problem_the_value_and_the_fix() -> None:
    error = InvalidInput("time must be an integer", got=5.0, fix="Pass milliseconds.")
    assert str(error) == "time must be an integer, got 5.0. Pass milliseconds."
    assert (error.problem, error.fix) == ("time must be an integer, got 5.0", "Pass milliseconds.")
    assert str(InvalidInput("a name is missing", got=None)) == "a name is missing, got None."
    assert str(InvalidInput("A whole sentence. And another.")) == "A whole sentence. And another."


def test_a_long_value_is_shortened() -> None:
    assert len(str(InvalidInput("too long", got="x" * 10_000))) < 300


def test_the_place_comes_first_and_can_be_named_later() -> None:
    error = InvalidMessage("must be text", field="parts[0]", got=5, fix="Pass a string.")
    assert str(error.within("demo", 2)) == (
        "conversation 'demo', messages[2], parts[0]: must be text, got 5. Pass a string."
    )
    assert str(InvalidRequest("not a list", path="messages", got={})) == "messages: not a list, got {}."


def test_an_error_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(InvalidInput("no", got=1, fix="Yes.")))
    assert (str(copy), copy.problem, copy.fix) == ("no, got 1. Yes.", "no, got 1", "Yes.")
