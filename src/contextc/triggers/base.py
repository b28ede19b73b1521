"""Base types of triggers: the trigger, its input (`TriggerContext`) and its output (`TriggerMessage`).

A trigger is a frozen value with a pure, synchronous `check`: it gets a moment and its own state, and returns a message
and its new state. It reads no clock and writes nothing. The moment contains the time, and the caller stores the state
together with the message. Equal moments therefore give equal messages, in another process too. `evaluation` decides
whether a message is allowed (`once`, cooldown, other triggers of the group).
"""

from collections.abc import Callable, Iterable
from inspect import Parameter, iscoroutine, iscoroutinefunction, signature
from typing import Literal, TypeAlias, TypedDict, Unpack, cast, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from contextc._json import JSONObject, fix_surrogates, hash_blob
from contextc.errors import InvalidInput
from contextc.messages import Message, system
from contextc.tools.todos import Todo

TriggerTime: TypeAlias = Literal["session_start", "before_step", "mid_step", "after_compaction"]
TriggerKind: TypeAlias = Literal["system", "hint"]
TriggerScope: TypeAlias = Literal["agent", "channel"]
TRIGGER_TIMES: tuple[TriggerTime, ...] = get_args(TriggerTime)
MAX_NAME_CHARACTERS = 128


class ResourceUsage(Struct, frozen=True, kw_only=True):
    """The used share of the memory and CPU of the machine or container, from 0 to 1."""

    memory: float
    cpu: float


def _no_resources() -> ResourceUsage:
    raise InvalidInput(
        "TriggerContext: resources are not set",
        fix="Pass TriggerContext(resources=contextc.triggers.read_resources, …).",
    )


class TriggerContext(Struct, frozen=True, kw_only=True):
    """The state of a turn at one point in time, as input of a trigger.

    `step` is the next step, counted from 1. `mid_step` is the time after a tool result, while other tools of the step
    may still run; only triggers of kind `hint` are evaluated then. `used` is measured before trimming; for triggers of
    scope `channel` it is the size of the trimmed request. `share` is `used / available`. A limit of None is not set.
    """

    when: TriggerTime = "before_step"
    conversation: str = ""
    agent: str = "assistant"
    turn: int = 1
    step: int = 1
    used: int = 0
    available: int = 0
    share: float = 0.0
    steps: int = 0
    """Steps made in this turn. The next three fields count within the turn too."""
    tool_calls: int = 0
    cost: float | None = None
    """US dollars; None if the model's price is unknown."""
    seconds: float = 0.0
    last: tuple[Message, ...] = ()
    """Replies and tool results of the last steps of this turn, newest last."""
    finish: str | None = None
    """The finish reason of the last reply: `tool_calls`, `length`, …"""
    within_reply: bool = False
    """True between two calls of a provider that runs its own loop, such as Claude Code."""
    now: float = 0.0
    """Unix timestamp in seconds."""
    step_limit: int | None = None
    tool_call_limit: int | None = None
    cost_limit: float | None = None
    seconds_limit: float | None = None
    todos: tuple[Todo, ...] = ()
    resources: Callable[[], ResourceUsage] = _no_resources


class TriggerMessage(Struct, frozen=True, kw_only=True):
    """The message of a trigger: for the model (`system`), or for people only (`hint`).

    Only the highest `level` of a group is used; 0 means the trigger's own level. `stop` ends the turn with this finish
    reason. `closes` marks the end of an earlier warning: it is sent only if that warning was, regardless of a cooldown.
    `title` is a short heading for people.
    """

    text: str
    level: int = 0
    stop: str | None = None
    kind: TriggerKind = "system"
    title: str = ""
    closes: bool = False

    def as_message(self, trigger: str, *, audience: str, turn: int, step: int | None) -> Message:
        """Return the text as a system message from the trigger of this name."""
        meta = {"trigger": trigger, **({"closes": True} if self.closes else {})}
        return system(self.text, audience=audience, turn=turn, step=step, meta=meta)


class Trigger(Struct, frozen=True, kw_only=True):
    """A rule that may add a message at the times named in `at`. Its name is the key under which its state is stored.

    Triggers run in order of `priority`, lowest first, then in the order given. `once` applies per conversation and
    agent. A cooldown counts from the trigger's last message, in steps or in seconds; if both are set, both must be
    over. `scope` is `channel` for a trigger about context usage: its state and messages belong to one channel.
    """

    name: str
    group: str = ""
    priority: int = 100
    level: int = 0
    kind: TriggerKind = "system"
    at: tuple[TriggerTime, ...] = ("before_step",)
    once: bool = False
    cooldown_steps: int = 0
    cooldown_seconds: float = 0.0
    scope: TriggerScope = "agent"

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
            raise InvalidInput(f"Trigger: name must have 1 to {MAX_NAME_CHARACTERS} printable characters", got=name)
        at = (self.at,) if isinstance(self.at, str) else tuple(self.at)
        if unknown := [each for each in at if each not in TRIGGER_TIMES]:
            raise InvalidInput(f"Trigger {name!r}: at must be one of {', '.join(TRIGGER_TIMES)}", got=unknown[0])
        force_setattr(self, "at", at)
        if self.kind not in get_args(TriggerKind):
            raise InvalidInput(f'Trigger {name!r}: kind must be "system" or "hint"', got=self.kind)
        if self.scope not in get_args(TriggerScope):
            raise InvalidInput(f'Trigger {name!r}: scope must be "agent" or "channel"', got=self.scope)
        if self.kind != "hint" and "mid_step" in at:
            raise InvalidInput(
                f"Trigger {name!r}: at='mid_step' requires kind='hint'",
                got=self.kind,
                fix="Use kind='hint', or at='before_step'.",
            )
        if self.cooldown_steps < 0 or self.cooldown_seconds < 0:
            raise InvalidInput(
                f"Trigger {name!r}: cooldowns must be 0 or more",
                got=self.cooldown_steps if self.cooldown_steps < 0 else self.cooldown_seconds,
            )

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        """Return a message or None, and the new state. `state` is the state returned last, initially {}."""
        raise NotImplementedError(f"{type(self).__name__} must implement `check`")

    def active(self, state: JSONObject) -> bool:
        """Return True if the condition of the last message still holds. Lower levels of the group are then silent."""
        return False

    def repeat(self, moment: TriggerContext, state: JSONObject) -> TriggerMessage | None:
        """Return the message to repeat if a warning still holds that the request no longer contains."""
        return None

    def take_back(self, moment: TriggerContext, state: JSONObject) -> TriggerMessage | None:
        """Return the message that ends a warning that the request still contains, None if it is not over."""
        return None


MessageText: TypeAlias = str | Callable[[TriggerContext], str]


class ThresholdTrigger(Trigger, frozen=True, kw_only=True):
    """A trigger that sends a message when a value rises to `enter`, and again only after it fell below `exit`.

    This hysteresis avoids a message at every step for a value that oscillates around one threshold. `exit_text`, if
    given, is sent when the value falls. At the times in `reset_at` the trigger never enters and always leaves, because
    the earlier value no longer applies. A value of None is unknown: the trigger leaves without a message.
    """

    value: Callable[[TriggerContext], float | None]
    enter: float
    exit: float
    text: MessageText
    exit_text: MessageText = ""
    title: str = ""
    exit_title: str = ""
    reset_at: tuple[TriggerTime, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.exit <= self.enter:
            raise InvalidInput(
                f"Trigger {self.name!r}: require exit <= enter, got exit={self.exit}, enter={self.enter}",
                fix="Lower `exit`, or raise `enter`.",
            )

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        value, reset, inside = self.value(moment), moment.when in self.reset_at, self.active(state)
        if not inside:
            if reset or value is None or not value >= self.enter:
                return None, {}
            return TriggerMessage(text=_text(self.text, moment), title=self.title), {"inside": True}
        if value is not None and value < self.exit:
            text = _text(self.exit_text, moment)
            return TriggerMessage(text=text, title=self.exit_title, closes=True) if text else None, {}
        return None, {} if reset or value is None else state

    def active(self, state: JSONObject) -> bool:
        return state.get("inside") is True

    def repeat(self, moment: TriggerContext, state: JSONObject) -> TriggerMessage | None:
        value = self.value(moment) if self.active(state) else None
        holds = value is not None and value >= self.exit
        return TriggerMessage(text=_text(self.text, moment), title=self.title) if holds else None

    def take_back(self, moment: TriggerContext, state: JSONObject) -> TriggerMessage | None:
        value = None if self.active(state) else self.value(moment)
        if value is None or value >= self.enter or not (text := _text(self.exit_text, moment)):
            return None
        return TriggerMessage(text=text, title=self.exit_title, closes=True)


def _text(text: MessageText, moment: TriggerContext) -> str:
    return text if isinstance(text, str) else text(moment)


def percent(share: float) -> str:
    """Return a share as an integer percentage, rounded down, so that a value below a threshold is shown below it."""
    return f"{int(share * 100 + 1e-9)} %"


# ── triggers from functions ───────────────────────────────────────────────────────────────────────────────────────────
# Triggers made from plain functions: `@trigger("friday", once=True)` over `def friday(moment): …`.
#
# The function gets the moment and returns a text, a `TriggerMessage`, or None for no message. A function with a second
# parameter also gets its state, and returns a pair: the message and the new state. Any other return value is a
# failure, which `evaluation` reports. An async function is rejected when it is defined.
#
# If a function without state returns the same text step after step, the message is sent once. It is sent again after
# the function returned something else, or after trimming has removed it from the request. With a cooldown it is sent
# again whenever the cooldown is over.


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
