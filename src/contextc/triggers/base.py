"""What a trigger is: something that may speak between two steps, what it may look at, and what it says.

A trigger is a frozen value with a pure, synchronous `check`: it gets a moment and its own state, and returns what it
says and its new state. It reads no clock and writes nothing. Time comes with the moment, and whoever asks stores the
state together with the message. So the same moments give the same words, in another process too. Whether it may
speak now (`once`, cooldown, others of its group) is decided by `evaluate`, not by the trigger.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from contextc._json import JSONObject
from contextc.errors import InvalidInput
from contextc.messages import Message
from contextc.todos import Todo

When: TypeAlias = Literal["session_start", "before_step", "mid_step", "after_compaction"]
Kind: TypeAlias = Literal["system", "hint"]
Scope: TypeAlias = Literal["agent", "channel"]
WHEN: tuple[When, ...] = get_args(When)
MAX_NAME = 128


class Resources(Struct, frozen=True, kw_only=True):
    """How much of the machine, or of the container, is in use: shares from 0 to 1."""

    memory: float
    cpu: float


def _no_resources() -> Resources:
    raise InvalidInput(
        "This moment says nothing about memory and CPU. Make it with "
        "Moment(resources=contextc.triggers.read_resources, …)."
    )


class Moment(Struct, frozen=True, kw_only=True):
    """A moment of a turn, as a trigger sees it.

    `step` is the one about to be made and counts from 1. `mid_step` is the moment after a tool's result, while others
    of the same step may still run; only triggers of kind `hint` are asked then. `used` is measured before any cut; for
    triggers of scope `channel` it is what the request takes after the cut. `share` is `used / available`. A limit that
    is None is not set.
    """

    when: When = "before_step"
    conversation: str = ""
    agent: str = "assistant"
    turn: int = 1
    step: int = 1
    used: int = 0
    available: int = 0
    share: float = 0.0
    steps: int = 0
    """Steps that this turn has made; the four after it count within the turn too."""
    tool_calls: int = 0
    cost: float | None = None
    """US dollars; None where the model's price is not known."""
    seconds: float = 0.0
    last: tuple[Message, ...] = ()
    """Replies and results of the last steps of this turn, newest last."""
    finish: str | None = None
    """How the last reply ended: `tool_calls`, `length`, …"""
    now: float = 0.0
    """Seconds since 1970."""
    step_limit: int | None = None
    tool_call_limit: int | None = None
    cost_limit: float | None = None
    seconds_limit: float | None = None
    todos: tuple[Todo, ...] = ()
    resources: Callable[[], Resources] = _no_resources


class Say(Struct, frozen=True, kw_only=True):
    """What a trigger says: to the model (`system`), or to people alone (`hint`).

    Of one group the highest `level` speaks; 0 stands for the trigger's own level. `stop` ends the turn with this finish
    reason. `closes` marks the end of what an earlier Say began: it is said only if that one was, and then whatever
    the cooldown. `title` is a few words for people.
    """

    text: str
    level: int = 0
    stop: str | None = None
    kind: Kind = "system"
    title: str = ""
    closes: bool = False


class Trigger(Struct, frozen=True, kw_only=True):
    """Something that may speak at the moments named in `at`. Its name is the key under which its state is stored.

    A lower `priority` speaks first; equals stay in the order given. `once` is for a conversation and agent. A cooldown
    counts from the last time it spoke, in steps or in seconds; where both are given, both must be over. `scope` is
    `channel` for a trigger about the context's usage: its state and its messages belong to one provider and model.
    """

    name: str
    group: str = ""
    priority: int = 100
    level: int = 0
    kind: Kind = "system"
    at: tuple[When, ...] = ("before_step",)
    once: bool = False
    cooldown_steps: int = 0
    cooldown_seconds: float = 0.0
    scope: Scope = "agent"

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or not name.isprintable():
            raise InvalidInput(f"{name!r} cannot name a trigger: use 1 to {MAX_NAME} printable characters.")
        at = (self.at,) if isinstance(self.at, str) else tuple(self.at)
        if unknown := [each for each in at if each not in WHEN]:
            raise InvalidInput(f"Trigger {name!r}: {unknown[0]!r} is no moment. There are {', '.join(WHEN)}.")
        force_setattr(self, "at", at)
        if self.kind not in get_args(Kind):
            raise InvalidInput(f"Trigger {name!r}: {self.kind!r} is no kind. Use system, or hint for people alone.")
        if self.scope not in get_args(Scope):
            raise InvalidInput(f'Trigger {name!r}: scope must be "agent" or "channel", got {self.scope!r}.')
        if self.kind != "hint" and "mid_step" in at:
            raise InvalidInput(
                f"Trigger {name!r}: in the middle of a step only people can be spoken to. Use kind='hint', or at="
                "'before_step'."
            )
        if self.cooldown_steps < 0 or self.cooldown_seconds < 0:
            raise InvalidInput(f"Trigger {name!r}: a cooldown cannot be negative.")

    def check(self, moment: Moment, state: JSONObject) -> tuple[Say | None, JSONObject]:
        """What there is to say, and what to remember; `state` is what was returned last, at first {}."""
        raise NotImplementedError(f"{type(self).__name__} has no method `check`")

    def active(self, state: JSONObject) -> bool:
        """Whether it stands where it last spoke, so that lower levels of its group have nothing to add."""
        return False

    def repeat(self, moment: Moment, state: JSONObject) -> Say | None:
        """Return what still holds of what it said, to be said again where a request no longer shows it."""
        return None

    def take_back(self, moment: Moment, state: JSONObject) -> Say | None:
        """Return what says that a warning is over which a request still shows; None where it is not over."""
        return None


Words: TypeAlias = str | Callable[[Moment], str]


class Threshold(Trigger, frozen=True, kw_only=True):
    """Speaks when a value rises to `enter`, and again only after it fell below `exit`.

    In between it is silent, so that a value that swings around one mark does not speak at every step. `exit_text`, if
    given, is said when it falls. At the moments of `resets` it never enters and always leaves: what the value meant
    before no longer holds. A value of None is unknown: it leaves without a word.
    """

    value: Callable[[Moment], float | None]
    enter: float
    exit: float
    text: Words
    exit_text: Words = ""
    title: str = ""
    exit_title: str = ""
    resets: tuple[When, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.exit <= self.enter:
            raise InvalidInput(
                f"Trigger {self.name!r}: it enters at {self.enter} and leaves below {self.exit}, which is higher. Give "
                "an `exit` that is not above `enter`."
            )

    def check(self, moment: Moment, state: JSONObject) -> tuple[Say | None, JSONObject]:
        value, reset, inside = self.value(moment), moment.when in self.resets, self.active(state)
        if not inside:
            if reset or value is None or not value >= self.enter:
                return None, {}
            return Say(text=_written(self.text, moment), title=self.title), {"inside": True}
        if value is not None and value < self.exit:
            text = _written(self.exit_text, moment)
            return Say(text=text, title=self.exit_title, closes=True) if text else None, {}
        return None, {} if reset or value is None else state

    def active(self, state: JSONObject) -> bool:
        return state.get("inside") is True

    def repeat(self, moment: Moment, state: JSONObject) -> Say | None:
        value = self.value(moment) if self.active(state) else None
        holds = value is not None and value >= self.exit
        return Say(text=_written(self.text, moment), title=self.title) if holds else None

    def take_back(self, moment: Moment, state: JSONObject) -> Say | None:
        value = None if self.active(state) else self.value(moment)
        if value is None or value >= self.enter or not (text := _written(self.exit_text, moment)):
            return None
        return Say(text=text, title=self.exit_title, closes=True)


def _written(words: Words, moment: Moment) -> str:
    return words if isinstance(words, str) else words(moment)


def percent(share: float) -> str:
    """A share as whole per cent, rounded down: what is just under a mark does not read as if it had reached it."""
    return f"{int(share * 100 + 1e-9)} %"
