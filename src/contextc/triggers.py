"""Triggers: rules that add messages between the steps of a turn.

Pure and synchronous. The executor creates the context, calls `evaluate_triggers`, and stores the messages and the
changed states in one transaction.

A trigger is a frozen value with a pure, synchronous `check`: it gets a moment and its own state, and returns a message
and its new state. It reads no clock and writes nothing. The moment contains the time, and the caller stores the state
together with the message. Equal moments therefore give equal messages, in another process too. The evaluation decides
whether a message is allowed (`once`, cooldown, other triggers of the group).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter, iscoroutine, iscoroutinefunction, signature
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, cast, get_args

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from contextc._credential_mask import mask_secrets
from contextc._json import (
    JSON,
    JSONObject,
    decode,
    encode,
    encode_canonical,
    find_json_problem,
    fix_surrogates,
    hash_blob,
)
from contextc.errors import ContextcError, InvalidInput, InvalidSetting, describe_error, is_interrupt
from contextc.messages import Media, Message, Text, ToolCall, ToolResult, system
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
    deps: Any = None
    """The dependencies of the run: what the program passed as `deps`."""


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
# failure, which the evaluation reports. An async function is rejected when it is defined.
#
# If a function without state returns the same text step after step, the message is sent once. It is sent again after
# the function returned something else, or after trimming has removed it from the request. With a cooldown it is sent
# again whenever the cooldown is over.


TriggerReturn: TypeAlias = str | TriggerMessage | None
StatelessFunction: TypeAlias = Callable[[TriggerContext], TriggerReturn]
StatefulFunction: TypeAlias = Callable[[TriggerContext, JSONObject], tuple[TriggerReturn, JSONObject]]


def reads_only_its_context(trigger: Trigger) -> bool:
    """Return True if a trigger and its functions are defined here. Those of a program may read the store, too."""
    fields = [getattr(trigger, name) for name in trigger.__struct_fields__]
    return all([each.__module__ == __name__ for each in (type(trigger), *fields) if callable(each)])


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


# ── evaluation ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Evaluate triggers at a moment, and select the messages to send.
#
# Pure: states come in and changed states go out. The caller stores them with the messages in one transaction. A stored
# state holds the trigger's own state (`state`), the time of its last message (`said`), whether that warning is still
# open (`heard`), and the last reported failure (`failed`).
#
# Invariants: a trigger sends at most one message per moment, so a turn resumed after a crash repeats nothing. A
# trigger suppressed by a higher level of its group counts as having sent its message. A trigger that fails keeps its
# state and does not affect others.


MAX_STATE_BYTES = 16_384
MAX_FAILURE_CHARACTERS = 500


class Evaluation(Struct, frozen=True, kw_only=True):
    """The messages at a moment, in order; the changed states; and the failed triggers with the reasons.

    A repeated failure is reported once, until the trigger works again or fails in another way.
    """

    messages: tuple[tuple[Trigger, TriggerMessage], ...] = ()
    states: dict[str, JSONObject] = {}
    failures: tuple[tuple[str, str], ...] = ()

    @property
    def stop(self) -> str | None:
        """The finish reason with which the turn must end, or None."""
        return next((message.stop for _, message in self.messages if message.stop is not None), None)


def check_triggers(triggers: Iterable[Trigger]) -> list[Trigger]:
    """Return the triggers as a list. Raises `InvalidInput` for other values, or if two have the same name."""
    found: dict[str, Trigger] = {}
    if not isinstance(triggers, Iterable):
        way_out = "Call it" if callable(triggers) else "Pass a list of triggers"
        raise InvalidInput(
            f"triggers must be a list of triggers, got {type(triggers).__name__}",
            fix=f"{way_out}, such as cc.default_triggers().",
        )
    for each in cast(Iterable[object], triggers):
        if not isinstance(each, Trigger):
            raise InvalidInput(
                f"triggers must contain only triggers, got {type(each).__name__}",
                fix='Decorate the function with @contextc.trigger("name").',
            )
        if each.name in found:
            raise InvalidInput(f"Two triggers are named {each.name!r}", fix="Rename one: the name is the state's key.")
        found[each.name] = each
    return list(found.values())


TriggerMessagesInRequest: TypeAlias = Sequence[tuple[str, bool]]
"""The trigger messages in a request, oldest first: the trigger's name, and True if the message ends a warning."""


def evaluate_triggers(
    triggers: Iterable[Trigger],
    context: TriggerContext,
    states: Mapping[str, JSONObject],
    in_request: TriggerMessagesInRequest | None = None,
) -> Evaluation:
    """Evaluate triggers by priority, and keep only the highest level of each group.

    `in_request` is given if an epoch starts: a warning is then ended only if the request still contains it.
    """
    triggers = check_triggers(triggers)
    messages: list[tuple[Trigger, TriggerMessage]] = []
    active: dict[tuple[str, TriggerKind], int] = {}
    changed: dict[str, JSONObject] = {}
    failures: list[tuple[str, str]] = []
    for trigger in sorted(triggers, key=lambda each: each.priority):
        before = states.get(trigger.name, {})
        message, after, is_active = None, before, False
        try:
            if context.when in trigger.at:
                message, after = _evaluate_one(trigger, context, before)
            is_active = bool(trigger.group) and trigger.active(_own_state(after))
        except BaseException as error:
            if is_interrupt(error):
                raise
            message, after = None, {**before, "failed": _failure_text(error)}
            if after != before:
                failures.append((trigger.name, after["failed"]))
        if after != before:
            changed[trigger.name] = after
        if message:
            messages.append((trigger, message))
        if is_active:
            key = trigger.group, trigger.kind
            active[key] = max(active.get(key, trigger.level), trigger.level)
    if in_request is not None:
        last = _last_of_each_group(triggers, in_request)
        messages = [
            (trigger, message) for trigger, message in messages if not message.closes or last.get(_group_key(trigger))
        ]
    return Evaluation(messages=_highest_of_each_group(messages, active), states=changed, failures=tuple(failures))


def restate_warnings(
    triggers: Iterable[Trigger],
    context: TriggerContext,
    states: Mapping[str, JSONObject],
    in_request: TriggerMessagesInRequest,
) -> Evaluation:
    """Return the messages at the start of an epoch that make the warnings in the request match the current state.

    A warning that still holds and is no longer in the request is repeated: the highest level of the group that holds,
    unless the group's last message in the request is of that level. If none holds, and that message is a warning, a
    message ends it.
    """
    last = _last_of_each_group(triggers := check_triggers(triggers), in_request)
    best: dict[str, tuple[Trigger, TriggerMessage]] = {}
    failures: list[tuple[str, str]] = []
    for trigger in sorted(triggers, key=lambda each: each.priority):
        stored, key = states.get(trigger.name, {}), _group_key(trigger)
        try:
            found = trigger.repeat(context, _own_state(stored)) if stored.get("heard") is True else None
            if found is None and last.get(key):
                found = trigger.take_back(context, _own_state(stored))
            message = None if found is None else _validated_message(trigger, found)
        except BaseException as error:
            if is_interrupt(error):
                raise
            failures.append((trigger.name, _failure_text(error)))
            continue
        if (
            message is not None
            and message.kind == "system"
            and (key not in best or _rank(message) > _rank(best[key][1]))
        ):
            best[key] = trigger, message
    messages = [
        (trigger, message)
        for trigger, message in best.values()
        if message.closes or last.get(_group_key(trigger)) != trigger.name
    ]
    return Evaluation(messages=tuple(messages), failures=tuple(failures))


def _rank(message: TriggerMessage) -> tuple[bool, int]:
    return not message.closes, message.level


def _group_key(trigger: Trigger) -> str:
    return trigger.group or f"\0{trigger.name}"


def _last_of_each_group(triggers: Iterable[Trigger], shown: TriggerMessagesInRequest) -> dict[str, str]:
    """Return, by group, the trigger whose warning is the group's last message, empty if that message ends it."""
    groups = {trigger.name: _group_key(trigger) for trigger in triggers}
    return {groups[name]: "" if closes else name for name, closes in shown if name in groups}


def _evaluate_one(
    trigger: Trigger, moment: TriggerContext, stored: JSONObject
) -> tuple[TriggerMessage | None, JSONObject]:
    """Return the message of one trigger, if allowed, and its new stored state."""
    returned = cast(object, trigger.check(moment, _own_state(stored)))
    if not isinstance(returned, tuple) or len(cast(tuple[object, ...], returned)) != 2:
        kind = type(cast(object, returned)).__name__
        raise InvalidInput(f"`check` must return a pair of a TriggerMessage (or None) and a state, got {kind}.")
    message, own = cast(tuple[object, object], returned)
    after: JSONObject = {key: stored[key] for key in ("said", "heard") if key in stored}
    if own := _validated_state(own):
        after["state"] = own
    after = _count_cooldown_step(trigger, moment, after)
    if message is None:
        return None, after
    return _apply_limits(trigger, moment, _validated_message(trigger, message), after)


def _apply_limits(
    trigger: Trigger, moment: TriggerContext, say: TriggerMessage, after: JSONObject
) -> tuple[TriggerMessage | None, JSONObject]:
    sent, was_seen = _mapping(after.get("said")), after.get("heard") is True
    if say.closes:
        after.pop("heard", None)
        return say if was_seen else None, after
    if sent.get("moment") == _context_identity(moment):
        return say if say.stop is not None else None, after
    if sent and (trigger.once or _is_cooling_down(trigger, moment, sent)):
        return None, after
    since: JSONObject = {"steps": 0, "now": moment.now} if trigger.cooldown_steps or trigger.cooldown_seconds else {}
    return say, {**after, "said": {"moment": _context_identity(moment), **since}, "heard": True}


def _count_cooldown_step(trigger: Trigger, moment: TriggerContext, stored: JSONObject) -> JSONObject:
    """Return the state with one more step of a step cooldown counted. Each step counts once."""
    sent = _mapping(stored.get("said"))
    waited, here = sent.get("steps", 0), [moment.conversation, moment.turn, moment.step]
    if not sent or waited >= trigger.cooldown_steps or sent.get("counted", _step_identity(sent.get("moment"))) == here:
        return stored
    return {**stored, "said": {**sent, "steps": waited + 1, "counted": here}}


def _is_cooling_down(trigger: Trigger, moment: TriggerContext, sent: JSONObject) -> bool:
    passed = moment.now - sent.get("now", float("-inf"))
    return sent.get("steps", 0) < trigger.cooldown_steps or 0 <= passed < trigger.cooldown_seconds


def _context_identity(moment: TriggerContext) -> list[JSON]:
    return [moment.conversation, moment.turn, moment.step, moment.when, moment.tool_calls]


def _step_identity(identity: JSON) -> JSON:
    return cast(list[JSON], identity)[:3] if isinstance(identity, list) else None


def _highest_of_each_group(
    messages: list[tuple[Trigger, TriggerMessage]], active: Mapping[tuple[str, TriggerKind], int]
) -> tuple[tuple[Trigger, TriggerMessage], ...]:
    """Keep one message per group: one that ends the turn first, then the highest level, then the first one."""
    best: dict[tuple[str, TriggerKind], TriggerMessage] = {}
    for trigger, message in messages:
        key = trigger.group, trigger.kind
        if key not in best or (message.stop is not None, message.level) > (best[key].stop is not None, best[key].level):
            best[key] = message

    def is_kept(trigger: Trigger, message: TriggerMessage) -> bool:
        key = trigger.group, trigger.kind
        return best[key] is message and (message.stop is not None or message.level >= active.get(key, message.level))

    return tuple(
        [(trigger, message) for trigger, message in messages if not trigger.group or is_kept(trigger, message)]
    )


def _own_state(stored: JSONObject) -> JSONObject:
    """Return a copy of the trigger's own state, which the trigger may change."""
    own = _mapping(stored.get("state"))
    return decode(encode(own)) if own else {}


def _mapping(value: JSON) -> JSONObject:
    return cast(JSONObject, value) if isinstance(value, dict) else {}


def _validated_state(own: object) -> JSONObject:
    if not isinstance(own, dict):
        raise InvalidInput(
            f"state must be a dict, got {type(own).__name__}", fix="Return a JSON-compatible dict, {} for no state."
        )
    if not own:
        return {}
    if problem := find_json_problem(cast(JSON, own), "state"):
        raise InvalidInput(f"{problem[0]}: {problem[1]}")
    if (size := len(encode(own))) > MAX_STATE_BYTES:
        raise InvalidInput(
            f"state must have at most {MAX_STATE_BYTES:,} bytes, got {size:,}", fix="Store hashes or ids, not messages."
        )
    return cast(JSONObject, own)


def _validated_message(trigger: Trigger, say: object) -> TriggerMessage:
    if not isinstance(say, TriggerMessage):
        raise InvalidInput(f"message must be a TriggerMessage or None, got {type(say).__name__}.")
    if not isinstance(say.text, str) or not say.text.strip():
        raise InvalidInput("TriggerMessage: text must not be blank", fix="Return None for no message.")
    if type(say.level) is not int or say.kind not in get_args(TriggerKind):
        raise InvalidInput(
            'TriggerMessage: level must be an integer and kind "system" or "hint", '
            f"got level={say.level!r}, kind={say.kind!r}."
        )
    if say.stop is not None and (not isinstance(say.stop, str) or not say.stop):
        raise InvalidInput("TriggerMessage: stop must be a non-empty finish reason", got=say.stop)
    return replace(
        say,
        text=fix_surrogates(say.text),
        level=say.level or trigger.level,
        kind="hint" if trigger.kind == "hint" else say.kind,
    )


def _failure_text(error: BaseException) -> str:
    text = str(error) if isinstance(error, ContextcError) else f"It raised {describe_error(error)}"
    return mask_secrets(fix_surrogates(text))[:MAX_FAILURE_CHARACTERS]


# ── built-in triggers ─────────────────────────────────────────────────────────────────────────────────────────────────
# Built-in triggers: context usage, limits of the turn, open todos, memory and CPU, and a turn without progress.


# ── context usage ─────────────────────────────────────────────────────────────────────────────────────────────────────
# Context usage: warnings at 80 % and 90 % of the available tokens, and a message on recovery. The levels are one
# group, so a rise above both gives one message. Each level warns once, until the share has fallen by a margin below
# its threshold. A compaction resets all levels, so that a later rise is reported again. The share is that of the
# request that contains the message, after trimming.


HYSTERESIS = 0.05
CRITICAL_SHARE = 0.9


def context_triggers(*levels: float, margin: float = HYSTERESIS) -> list[Trigger]:
    """Return one trigger per level, by default 0.8 and 0.9. The lowest level also reports the recovery."""
    marks = sorted(set(levels)) or [0.8, CRITICAL_SHARE]
    return [_level_trigger(mark, margin, lowest=mark == marks[0]) for mark in marks]


def _level_trigger(mark: float, margin: float, *, lowest: bool) -> Trigger:
    return ThresholdTrigger(
        name=f"context_{mark * 100:g}",
        group="context",
        priority=20,
        level=round(mark * 100),
        scope="channel",
        at=("before_step", "after_compaction"),
        reset_at=("after_compaction",),
        value=lambda moment: moment.share,
        enter=mark,
        exit=mark - margin,
        text=_critical_text if mark >= CRITICAL_SHARE else _warning_text,
        title=f"Context {percent(mark)}",
        exit_text=_recovered_text if lowest else "",
        exit_title="Context recovered" if lowest else "",
    )


def _warning_text(moment: TriggerContext) -> str:
    return (
        f"Context warning: {_usage_text(moment)}. Read and print only what is needed, and write down open points and "
        "findings (todos, files) before older content is shortened."
    )


def _critical_text(moment: TriggerContext) -> str:
    return (
        f"Context critical: {_usage_text(moment)}. Older content is about to be shortened, summarized or left "
        "out. Write "
        "down now what must not be lost, finish the current piece of work, and avoid large results."
    )


def _recovered_text(moment: TriggerContext) -> str:
    return (
        f"Context recovered: {_usage_text(moment)}. Older content may have been shortened, summarized or left "
        "out; read "
        "again what is needed. The earlier context warning no longer holds."
    )


def _usage_text(moment: TriggerContext) -> str:
    if not moment.available:
        return f"{percent(moment.share)} of the available tokens are in use"
    return f"{percent(moment.share)} of the available tokens are in use ({moment.used:,} of {moment.available:,})"


# ── limits of the turn ────────────────────────────────────────────────────────────────────────────────────────────────
# Limits of the turn and truncated replies, and a user notice with the number of tool calls. The executor enforces the
# limits. These triggers warn the model at 80 % of a limit, and at the latest before the last step or call. Limits
# count within a turn, so each turn has its own warnings.


WARNING_SHARE = 0.8
NOTICE_EVERY_CALLS = 10
LIMIT_ADVICE = "At the limit the turn ends: do what matters most, and give an answer before that."


def step_limit_trigger() -> Trigger:
    return _limit_trigger(
        "step_limit",
        50,
        lambda moment: _count_share(moment.steps, moment.step_limit),
        lambda moment: f"{moment.steps} of at most {moment.step_limit} steps are made",
    )


def tool_call_limit_trigger() -> Trigger:
    return _limit_trigger(
        "tool_call_limit",
        51,
        lambda moment: _count_share(moment.tool_calls, moment.tool_call_limit),
        lambda moment: f"{moment.tool_calls} of at most {moment.tool_call_limit} tool calls are made",
    )


def cost_limit_trigger() -> Trigger:
    return _limit_trigger(
        "cost_limit",
        52,
        lambda moment: _share(moment.cost, moment.cost_limit),
        lambda moment: f"{moment.cost or 0:.3g} of at most {moment.cost_limit or 0:.3g} dollars are spent",
    )


def time_limit_trigger() -> Trigger:
    return _limit_trigger(
        "time_limit",
        53,
        lambda moment: _share(moment.seconds, moment.seconds_limit),
        lambda moment: f"{moment.seconds:.0f} of at most {moment.seconds_limit or 0:.0f} seconds have passed",
    )


def _limit_trigger(
    name: str, priority: int, value: Callable[[TriggerContext], float | None], figures: Callable[[TriggerContext], str]
) -> Trigger:
    lead = name.replace("_", " ").capitalize()
    return ThresholdTrigger(
        name=name,
        priority=priority,
        value=value,
        enter=WARNING_SHARE,
        exit=WARNING_SHARE,
        text=lambda moment: f"{lead}: {figures(moment)} in this turn. {LIMIT_ADVICE}",
        title=f"{lead} near",
    )


def _count_share(made: int, limit: int | None) -> float | None:
    if made and limit is not None and limit - made <= 1:
        return 1.0
    return _share(made, limit)


def _share(made: float | None, limit: float | None) -> float | None:
    if made is None or limit is None:
        return None
    return made / limit if limit > 0 else None


class OutputTruncatedTrigger(Trigger, frozen=True, kw_only=True):
    """A message after every reply that reached the output limit."""

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        if moment.finish != "length":
            return None, state
        text = (
            "Output cut: the last reply reached the output limit and is incomplete. Go on where it stopped, in smaller "
            "pieces. A tool call that was cut did not run as meant: make it again, with less content or in parts."
        )
        return TriggerMessage(text=text, title="Output cut"), state


class ToolCallCountTrigger(Trigger, frozen=True, kw_only=True):
    """A user notice after each `every` tool calls of a turn."""

    every: int = NOTICE_EVERY_CALLS

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        turn = [moment.conversation, moment.turn]
        reported: int = state.get("told", 0) if state.get("turn") == turn else 0
        if moment.tool_calls // self.every <= reported // self.every:
            return None, state
        text = (
            f"Tool calls: {moment.tool_calls} so far in this turn, step {moment.step}, context at "
            f"{percent(moment.share)}."
        )
        return TriggerMessage(text=text, title="Tool calls", kind="hint"), {"turn": turn, "told": moment.tool_calls}


def limit_triggers() -> list[Trigger]:
    """Return the triggers that warn before a limit of the turn is reached: steps, calls, cost, time."""
    return [
        step_limit_trigger(),
        tool_call_limit_trigger(),
        cost_limit_trigger(),
        time_limit_trigger(),
        OutputTruncatedTrigger(name="output_cut", priority=45),
        ToolCallCountTrigger(name="call_count", priority=90, kind="hint", at=("mid_step",)),
    ]


# ── open todos ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Open todos, at the start of a session and after a compaction. The list itself is state, and a prompt fragment
# contains it (Guarantee 8.4). The trigger reports the event: at the start of a session or after a compaction there is
# work to continue. The message stays in the log, so it contains the numbers of the todos, which do not change, and not
# their texts, which may.


MAX_LISTED = 20


class OpenTodosTrigger(Trigger, frozen=True, kw_only=True):
    """A message at every evaluation with open todos."""

    intro: Callable[[str], str]

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        left = [todo for todo in moment.todos if todo.state in ("open", "doing")]
        if not left:
            return None, state
        count = f"{len(left)} of {len(moment.todos)} todos {'is' if len(left) == 1 else 'are'} not done"
        text = f"{self.intro(count)} ({_listed_numbers(left)}). {_continue_text(left)}"
        return TriggerMessage(text=text, title="Todos left"), state


def todo_triggers() -> list[Trigger]:
    """Return the triggers that remind of open todos."""
    return [
        _open_todos_trigger(
            "todos_at_start", "session_start", lambda count: f"Todos: this session begins with work left, {count}"
        ),
        _open_todos_trigger(
            "todos_after_compaction",
            "after_compaction",
            lambda count: f"Todos: earlier messages were replaced by a summary, and {count}",
        ),
    ]


def _open_todos_trigger(name: str, when: TriggerTime, lead: Callable[[str], str]) -> Trigger:
    return OpenTodosTrigger(name=name, priority=10, at=(when,), intro=lead)


def _listed_numbers(left: Sequence[Todo]) -> str:
    named = ", ".join(str(todo.number) for todo in left[:MAX_LISTED])
    return f"number{'s' if len(left) > 1 else ''} {named}{', …' if len(left) > MAX_LISTED else ''}"


def _continue_text(left: Sequence[Todo]) -> str:
    doing = [todo.number for todo in left if todo.state == "doing"]
    where = f"Number {doing[0]} was being worked on; go on there" if doing else f"Go on with number {left[0].number}"
    return f"{where}, unless the user asks for something else, and keep the list up to date."


# ── memory and CPU ────────────────────────────────────────────────────────────────────────────────────────────────────
# High memory and CPU usage, and the recovery. Off by default. The model's own work can be the cause (a build, a large
# file), and it can reduce it. The trigger context contains the shares; `read_resources` reads them on first use with
# psutil (extra `resources`). In a container with a memory limit the share of that limit is used if it is higher. CPU
# is the share of all processors since the last reading.


CGROUP = Path("/sys/fs/cgroup")


def memory_trigger(enter: float = 0.85, exit: float = 0.75) -> Trigger:
    """Return a trigger that warns of high memory usage, and reports when it is over."""
    return ThresholdTrigger(
        name="memory",
        priority=30,
        value=lambda moment: moment.resources().memory,
        enter=enter,
        exit=exit,
        text=lambda moment: (
            f"Memory warning: {percent(moment.resources().memory)} of this machine's memory is in use. Work in smaller "
            "pieces, start nothing that needs much memory, and end what is no longer needed."
        ),
        title="Memory high",
        exit_text=lambda moment: (
            f"Memory recovered: {percent(moment.resources().memory)} is in use. The earlier memory warning no longer "
            "holds."
        ),
        exit_title="Memory recovered",
    )


def cpu_trigger(enter: float = 0.9, exit: float = 0.7) -> Trigger:
    """Return a trigger that warns of high CPU usage, and reports when it is over."""
    return ThresholdTrigger(
        name="cpu",
        priority=31,
        value=lambda moment: moment.resources().cpu,
        enter=enter,
        exit=exit,
        text=lambda moment: (
            f"CPU warning: {percent(moment.resources().cpu)} of this machine's processor time is in use. Commands take "
            "longer; run one at a time, and allow for more time."
        ),
        title="CPU high",
        exit_text=_cpu_recovered_text,
        exit_title="CPU recovered",
    )


def _cpu_recovered_text(moment: TriggerContext) -> str:
    return f"CPU recovered: {percent(moment.resources().cpu)} is in use. The earlier CPU warning no longer holds."


def resource_triggers() -> list[Trigger]:
    """Return the triggers for memory and CPU usage."""
    return [memory_trigger(), cpu_trigger()]


def read_resources(cgroup: Path = CGROUP) -> ResourceUsage:
    """Return the memory and CPU in use now. The first CPU reading in a process is 0, because it has no reference."""
    try:
        import psutil
    except ImportError as error:
        raise InvalidSetting(
            "Cannot read memory and CPU usage: psutil is not installed",
            fix="Run pip install 'contextc[resources]', or omit these triggers.",
        ) from error
    memory = psutil.virtual_memory().percent / 100
    return ResourceUsage(memory=max(memory, _container_memory_share(cgroup)), cpu=psutil.cpu_percent() / 100)


def _container_memory_share(cgroup: Path) -> float:
    """Return the used share of the container's memory limit, without file caches; 0 if there is no limit.

    Without a limit cgroup v2 reports `max`, and v1 a number near 2^63, so the share is about 0.
    """
    for limit_file, used_file, stat_file, cache in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        try:
            limit = (cgroup / limit_file).read_text().strip()
            if not limit.isdigit() or not int(limit):
                continue
            used = int((cgroup / used_file).read_text())
            stat = dict(line.split(maxsplit=1) for line in (cgroup / stat_file).read_text().splitlines())
        except (OSError, ValueError):
            continue
        return min(max(used - int(stat.get(cache, 0)), 0) / int(limit), 1.0)
    return 0.0


# ── a turn without progress ───────────────────────────────────────────────────────────────────────────────────────────
# Triggers for a turn without progress: equal calls with equal results, or a tool that repeats the same error.
#
# Both use only the replies and results of the last steps. Calls are compared by name, arguments and result; ids and
# the order of parallel calls are ignored. An incomplete reply is ignored, because no model sees it. A user message
# resets the count, and so does a reply without calls. Tool results are never quoted: they are untrusted, and these are
# system messages.


NO_PROGRESS = "no_progress"
PROGRESS_GROUP = "progress"
CallOutcome: TypeAlias = tuple[str, bytes, str | tuple[Text | Media, ...], bool]
"""One call: its tool, its arguments, its result, and True if that is an error."""
_FOREIGN = re.compile(r"[^\w.:/-]+")


class NoProgressTrigger(Trigger, frozen=True, kw_only=True):
    """A warning after `warn_after` equal steps in a row; after `stop_after` of them the turn ends.

    Within the reply of a provider that runs its own loop there is only the warning: such a program may ask again and
    again whether something is finished, and ends its loop itself.
    """

    warn_after: int = 2
    stop_after: int = 4

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        mark, times = _equal_steps(_complete_messages(moment.last))
        if times < max(min(self.warn_after, self.stop_after), 2):
            return None, {}
        lead = f"No progress: the last {times} steps made the same calls and got the same results."
        if times >= self.stop_after and not moment.within_reply:
            message = TriggerMessage(
                text=f"{lead} The turn ends here.", level=3, stop=NO_PROGRESS, title="No progress, stopped"
            )
            return message, {"corrected": mark}
        if state.get("corrected") == mark:
            return None, state
        text = (
            f"{lead} Making them again will change nothing. Use what they returned, try another way, or say what is "
            "missing."
        )
        if not moment.within_reply:
            text += f" After {self.stop_after} equal steps the turn ends."
        return TriggerMessage(text=text, level=2, title="No progress"), {"corrected": mark}


class RepeatedErrorTrigger(Trigger, frozen=True, kw_only=True):
    """A message when a tool has failed `times` times in a row with the same error, whatever its arguments."""

    times: int = 3

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        failing = {
            name: mark
            for name, (mark, times) in _repeated_errors(_complete_messages(moment.last)).items()
            if times >= self.times
        }
        known: JSONObject = state.get("failing") or {}
        new = [name for name, mark in failing.items() if known.get(name) != mark]
        kept: JSONObject = {"failing": failing} if failing else {}
        if not new:
            return None, kept
        tools = ", ".join(sorted({_safe_tool_name(name) for name in new}))
        text = (
            f"Repeated error: the tool{'s' if len(new) > 1 else ''} {tools} failed at least {self.times} times in a "
            "row with the same error. Read the error, and try something else: other arguments, another tool, or a "
            "question to the user."
        )
        return TriggerMessage(text=text, level=1, title="Repeated tool error"), kept


def progress_triggers() -> list[Trigger]:
    """Return the triggers that warn of a turn without progress: repeated calls and repeated errors."""
    return [
        NoProgressTrigger(name="no_progress", group=PROGRESS_GROUP, priority=40),
        RepeatedErrorTrigger(name="repeated_error", group=PROGRESS_GROUP, priority=41),
    ]


def _complete_messages(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without incomplete replies and the results of their calls."""
    broken = {call.id for message in messages if _is_incomplete(message) for call in message.tool_calls}
    return [
        message
        for message in messages
        if not _is_incomplete(message) and not any(result.call_id in broken for result in message.tool_results)
    ]


def _is_incomplete(message: Message) -> bool:
    return message.role == "assistant" and message.status != "sent"


def _equal_steps(messages: Sequence[Message]) -> tuple[str, int]:
    """Return a hash of the newest step's outcome, if earlier steps equal it, and the number of equal steps in a row."""
    steps = (_step_outcomes(*step) for step in _steps_newest_first(messages))
    newest = next(steps, None)
    if newest is None:
        return "", 0
    times = 1 + sum(1 for _ in takewhile(lambda other: other == newest, steps))
    return hash_blob(encode_canonical(newest))[:16] if times > 1 else "", times


def _steps_newest_first(messages: Sequence[Message]) -> Iterator[tuple[tuple[ToolCall, ...], dict[str, ToolResult]]]:
    """Yield each reply's calls with the results by call id, back to the last user message."""
    results: dict[str, ToolResult] = {}
    for message in reversed(messages):
        if message.role == "user":
            return
        results |= {result.call_id: result for result in reversed(message.tool_results)}
        if message.role == "assistant":
            yield message.tool_calls, results
            results = {}


def _step_outcomes(calls: Sequence[ToolCall], results: dict[str, ToolResult]) -> list[CallOutcome] | None:
    """Return the outcomes of a step; None for a step without calls, or with a call without a result."""
    if not calls or any(call.id not in results for call in calls):
        return None
    outcomes = [
        (call.name, encode_canonical(call.raw if call.malformed else call.arguments), result.content, result.is_error)
        for call in calls
        for result in (results[call.id],)
    ]
    return sorted(outcomes, key=lambda outcome: outcome[:2])


def _repeated_errors(messages: Iterable[Message]) -> dict[str, tuple[str, int]]:
    """Return, by tool, its newest error and how many of its newest results in a row are that error."""
    found: dict[str, tuple[str, int]] = {}
    for message in messages:
        if message.role == "user":
            found.clear()
        for result in message.tool_results:
            if not result.is_error:
                found.pop(result.name, None)
                continue
            mark = hash_blob(encode_canonical(result.content))[:16]
            before, times = found.get(result.name, (mark, 0))
            found[result.name] = mark, times + 1 if before == mark else 1
    return found


def _safe_tool_name(name: str) -> str:
    """Return a tool name, as the model wrote it, as one word without special characters."""
    return _FOREIGN.sub("_", name)[:64]


def default_triggers() -> list[Trigger]:
    """Return the triggers for todos, context, progress and limits. Add memory and CPU by `+ resource_triggers()`."""
    return [*todo_triggers(), *context_triggers(), *progress_triggers(), *limit_triggers()]
