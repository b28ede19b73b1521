"""Evaluate triggers at a moment, and select the messages to send.

Pure: states come in and changed states go out. The caller stores them with the messages in one transaction. A stored
state holds the trigger's own state (`state`), the time of its last message (`said`), whether that warning is still
open (`heard`), and the last reported failure (`failed`).

Invariants: a trigger sends at most one message per moment, so a turn resumed after a crash repeats nothing. A trigger
suppressed by a higher level of its group counts as having sent its message. A trigger that fails keeps its state and
does not affect others.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from contextc._credential_mask import mask_secrets
from contextc._json import JSON, JSONObject, decode, encode, find_json_problem, fix_surrogates
from contextc.errors import ContextcError, InvalidInput, describe_error, is_interrupt
from contextc.triggers.base import Trigger, TriggerContext, TriggerKind, TriggerMessage

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
