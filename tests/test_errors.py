"""The texts and attributes of contextc's exceptions."""

import copy
import inspect
import pickle
from typing import Any, cast

import pytest

from contextc import errors
from contextc.errors import (
    ContextcError,
    InvalidInput,
    InvalidMessage,
    InvalidRequest,
    InvalidSetting,
    LeaseLost,
    ProviderFailed,
)

CLASSES = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, ContextcError)]
VALUES: dict[str, Any] = {"reply": {"id": "m"}, "kind": "rate", "seconds": 1.5, "retry_after": 1.5, "close": ("a", "b")}
"""Arguments of errors that are not strings or integers."""


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


def example(kind: type[ContextcError]) -> ContextcError:
    """Create an error with a value for each parameter."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        value = VALUES.get(name, 3 if "int" in str(parameter.annotation) else f"some {name}")
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            named[name] = value
        else:
            given.append(value)
    return kind(*given, **named)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_pickling_and_copying(kind: type[ContextcError]) -> None:
    error = example(kind)
    error.add_note("a note")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))


def test_a_lost_lease_is_described() -> None:
    error = LeaseLost("demo", "bot", number=3)
    assert str(error) == (
        "Conversation 'demo', agent 'bot': expected the current lease, got lease 3, which was released or taken over, "
        "or whose conversation was deleted. Nothing was written. Acquire a new lease, load the conversation again, "
        "and retry."
    )


def test_a_failure_of_an_unknown_kind_names_the_kinds() -> None:
    """Tests make these errors themselves, and `kind` is a text."""
    with pytest.raises(InvalidSetting, match=r"unknown kind 'refused'\. Pass one of transient, rate, auth, .*, abort"):
        ProviderFailed("fake", cast(Any, "refused"), "no")
