"""Triggers made from plain functions: `@trigger("friday", once=True)` over `def friday(moment): …`.

The function gets the moment and returns a text, a `TriggerMessage`, or None for no message. A function with a second
parameter also gets its state, and returns a pair: the message and the new state. Any other return value is a failure,
which `evaluation` reports. An async function is rejected when it is defined.

If a function without state returns the same text step after step, the message is sent once. It is sent again after the
function returned something else, or after trimming has removed it from the request. With a cooldown it is sent again
whenever the cooldown is over.
"""

from collections.abc import Callable, Iterable
from inspect import Parameter, iscoroutine, iscoroutinefunction, signature
from typing import TypeAlias, TypedDict, Unpack, cast

from contextc._json import JSONObject, fix_surrogates, hash_blob
from contextc.errors import InvalidInput
from contextc.triggers.base import Trigger, TriggerContext, TriggerKind, TriggerMessage, TriggerScope, TriggerTime

TriggerReturn: TypeAlias = str | TriggerMessage | None
StatelessFunction: TypeAlias = Callable[[TriggerContext], TriggerReturn]
StatefulFunction: TypeAlias = Callable[[TriggerContext, JSONObject], tuple[TriggerReturn, JSONObject]]


class TriggerOptions(TypedDict, total=False):
    """The fields of a `Trigger` except `name` and `at`."""

    group: str
    priority: int
    level: int
    kind: TriggerKind
    once: bool
    cooldown_steps: int
    cooldown_seconds: float
    scope: TriggerScope


class FunctionTrigger(Trigger, frozen=True, kw_only=True):
    """A trigger made from a function. Calling it calls the function."""

    function: Callable[..., object]
    has_state: bool

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        if not self.has_state:
            return self._unless_repeated(_as_message(self.function(moment)), moment, state)
        returned = self.function(moment, state)
        if iscoroutine(returned):
            returned.close()
        if not isinstance(returned, tuple) or len(cast(tuple[object, ...], returned)) != 2:
            raise InvalidInput(
                "a trigger with two parameters must return a pair of a message and its new state, "
                f"got {type(cast(object, returned)).__name__}."
            )
        message, kept = cast(tuple[object, JSONObject], returned)
        return _as_message(message), kept

    def _unless_repeated(
        self, message: TriggerMessage | None, moment: TriggerContext, state: JSONObject
    ) -> tuple[TriggerMessage | None, JSONObject]:
        """Return the message unless it equals that of the previous step, and a hash of its text as the state."""
        if message is None or message.stop is not None or self.cooldown_steps or self.cooldown_seconds:
            return message, {}
        mark = hash_blob(fix_surrogates(message.text).encode())[:16]
        is_same = moment.when in ("before_step", "mid_step") and state.get("text") == mark
        return None if is_same else message, {"text": mark}

    def active(self, state: JSONObject) -> bool:
        return not self.has_state and "text" in state

    def repeat(self, moment: TriggerContext, state: JSONObject) -> TriggerMessage | None:
        is_repeated = self.active(state) and not self.once and "before_step" in self.at
        return _as_message(self.function(moment)) if is_repeated else None

    def __call__(self, *arguments: object) -> object:
        return self.function(*arguments)


def trigger(
    name: str, *, at: TriggerTime | Iterable[TriggerTime] = ("before_step",), **options: Unpack[TriggerOptions]
) -> Callable[[StatelessFunction | StatefulFunction], FunctionTrigger]:
    """Make a trigger from a function: `@trigger("friday", once=True)`."""
    if not isinstance(name, str):
        raise InvalidInput(f"Trigger: name must be a string, got {type(name).__name__}", fix='Write @trigger("name").')
    moments = (at,) if isinstance(at, str) else tuple(at)

    def made(function: StatelessFunction | StatefulFunction) -> FunctionTrigger:
        if iscoroutinefunction(function):
            raise InvalidInput(
                f"Trigger {name!r} must be a synchronous function, got an async one", fix="Define it with `def`."
            )
        return FunctionTrigger(
            name=name, function=function, has_state=_parameter_count(name, function) == 2, at=moments, **options
        )

    return made


def _parameter_count(name: str, function: Callable[..., object]) -> int:
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    given = [each for each in signature(function).parameters.values() if each.kind in kinds]
    needed = sum(each.default is Parameter.empty for each in given)
    if needed not in (1, 2):
        raise InvalidInput(
            f"Trigger {name!r}: the function must take 1 or 2 arguments",
            got=needed,
            fix="Define it as f(moment), or f(moment, state).",
        )
    return needed


def _as_message(returned: object) -> TriggerMessage | None:
    if returned is None or isinstance(returned, TriggerMessage):
        return returned
    if isinstance(returned, str):
        return TriggerMessage(text=returned) if returned.strip() else None
    if iscoroutine(returned):
        returned.close()
        raise InvalidInput("a trigger must be a synchronous function, got an async one", fix="Define it with `def`.")
    raise InvalidInput(f"a trigger must return a string, a TriggerMessage or None, got {type(returned).__name__}.")
