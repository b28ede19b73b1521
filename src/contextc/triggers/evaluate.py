"""Asks triggers what they have to say at a moment, and decides who speaks.

Pure: states come in and changed ones go out, for the caller to store with the messages, in one transaction. A stored
state holds the trigger's own (`state`), when it last spoke (`said`), whether what it said still waits for its end
(`heard`) and the failure that was last reported (`failed`). What stays true: nobody speaks twice at one moment, so a
turn that is taken up again after a crash doubles nothing; who is silenced by a higher level of its group counts as
having spoken; a trigger that fails keeps its state and stops no one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, check, decode, encode, well_formed
from contextc.errors import ContextcError, InvalidInput, described, is_interrupt
from contextc.triggers.base import Kind, Moment, Say, Trigger

MAX_STATE = 16_384
MAX_FAILURE = 500


class Verdict(Struct, frozen=True, kw_only=True):
    """What is said at a moment, in order; the states that changed; and which triggers failed, with the reason.

    A failure that repeats is reported once, until the trigger works again or fails in another way.
    """

    says: tuple[tuple[Trigger, Say], ...] = ()
    states: dict[str, JSONObject] = {}
    failures: tuple[tuple[str, str], ...] = ()

    @property
    def stop(self) -> str | None:
        """The finish reason with which the turn is to end, if anybody says so."""
        return next((say.stop for _, say in self.says if say.stop is not None), None)


def check_triggers(triggers: Iterable[Trigger]) -> list[Trigger]:
    """The triggers as a list; `InvalidInput` where something else is among them, or a name is taken twice."""
    found: dict[str, Trigger] = {}
    if not isinstance(triggers, Iterable):
        way_out = "Call it" if callable(triggers) else "Give a list of triggers"
        raise InvalidInput(f"triggers is a {type(triggers).__name__}. {way_out}, such as cc.default_triggers().")
    for each in cast(Iterable[object], triggers):
        if not isinstance(each, Trigger):
            raise InvalidInput(
                f'a {type(each).__name__} is not a trigger. Put @contextc.trigger("name") above a function.'
            )
        if each.name in found:
            raise InvalidInput(f"There are two triggers {each.name!r}. Their states would be one: rename one of them.")
        found[each.name] = each
    return list(found.values())


Shown: TypeAlias = Sequence[tuple[str, bool]]
"""Messages of triggers that are in a request, oldest first: the trigger's name, and whether it says that it is over."""


def evaluate(
    triggers: Iterable[Trigger], moment: Moment, states: Mapping[str, JSONObject], shown: Shown | None = None
) -> Verdict:
    """Who speaks at this moment, by priority; of one group only the highest level.

    `shown` is given where an epoch starts: what is over is then taken back only where the request still shows it.
    """
    triggers = check_triggers(triggers)
    said: list[tuple[Trigger, Say]] = []
    active: dict[tuple[str, Kind], int] = {}
    changed: dict[str, JSONObject] = {}
    failures: list[tuple[str, str]] = []
    for trigger in sorted(triggers, key=lambda each: each.priority):
        before = states.get(trigger.name, {})
        say, after, standing = None, before, False
        try:
            if moment.when in trigger.at:
                say, after = _ask(trigger, moment, before)
            standing = bool(trigger.group) and trigger.active(_own(after))
        except BaseException as error:
            if is_interrupt(error):
                raise
            say, after = None, {**before, "failed": _told(error)}
            if after != before:
                failures.append((trigger.name, after["failed"]))
        if after != before:
            changed[trigger.name] = after
        if say:
            said.append((trigger, say))
        if standing:
            key = trigger.group, trigger.kind
            active[key] = max(active.get(key, trigger.level), trigger.level)
    if shown is not None:
        last = _last_of_each_group(triggers, shown)
        said = [(trigger, say) for trigger, say in said if not say.closes or last.get(_group(trigger))]
    return Verdict(says=_of_each_group_the_highest(said, active), states=changed, failures=tuple(failures))


def restate(triggers: Iterable[Trigger], moment: Moment, states: Mapping[str, JSONObject], shown: Shown) -> Verdict:
    """Return what is said at the start of an epoch so that what the request shows is true.

    What still holds and is not in the request any more is said again: of one group the highest level that holds, unless
    the group's last message in the request is that level's. Where none holds, and that message is a warning, it is
    taken back.
    """
    last = _last_of_each_group(triggers := check_triggers(triggers), shown)
    best: dict[str, tuple[Trigger, Say]] = {}
    failures: list[tuple[str, str]] = []
    for trigger in sorted(triggers, key=lambda each: each.priority):
        stored, key = states.get(trigger.name, {}), _group(trigger)
        try:
            found = trigger.repeat(moment, _own(stored)) if stored.get("heard") is True else None
            if found is None and last.get(key):
                found = trigger.take_back(moment, _own(stored))
            say = None if found is None else _checked_say(trigger, found)
        except BaseException as error:
            if is_interrupt(error):
                raise
            failures.append((trigger.name, _told(error)))
            continue
        if say is not None and say.kind == "system" and (key not in best or _rank(say) > _rank(best[key][1])):
            best[key] = trigger, say
    says = [(trigger, say) for trigger, say in best.values() if say.closes or last.get(_group(trigger)) != trigger.name]
    return Verdict(says=tuple(says), failures=tuple(failures))


def _rank(say: Say) -> tuple[bool, int]:
    return not say.closes, say.level


def _group(trigger: Trigger) -> str:
    return trigger.group or f"\0{trigger.name}"


def _last_of_each_group(triggers: Iterable[Trigger], shown: Shown) -> dict[str, str]:
    """Return, by group, the trigger whose warning is the group's last message; empty where that says it is over."""
    groups = {trigger.name: _group(trigger) for trigger in triggers}
    return {groups[name]: "" if closes else name for name, closes in shown if name in groups}


def _ask(trigger: Trigger, moment: Moment, stored: JSONObject) -> tuple[Say | None, JSONObject]:
    """What one trigger says, if it may, and its new stored state."""
    returned = cast(object, trigger.check(moment, _own(stored)))
    if not isinstance(returned, tuple) or len(cast(tuple[object, ...], returned)) != 2:
        kind = type(cast(object, returned)).__name__
        raise InvalidInput(f"`check` returned a {kind}, not a pair of a Say (or None) and a state.")
    say, own = cast(tuple[object, object], returned)
    after: JSONObject = {key: stored[key] for key in ("said", "heard") if key in stored}
    if own := _checked_state(own):
        after["state"] = own
    after = _counted(trigger, moment, after)
    if say is None:
        return None, after
    return _admitted(trigger, moment, _checked_say(trigger, say), after)


def _admitted(trigger: Trigger, moment: Moment, say: Say, after: JSONObject) -> tuple[Say | None, JSONObject]:
    said, heard = _mapping(after.get("said")), after.get("heard") is True
    if say.closes:
        after.pop("heard", None)
        return say if heard else None, after
    if said.get("moment") == _identity(moment):
        return say if say.stop is not None else None, after
    if said and (trigger.once or _cooling(trigger, moment, said)):
        return None, after
    since: JSONObject = {"steps": 0, "now": moment.now} if trigger.cooldown_steps or trigger.cooldown_seconds else {}
    return say, {**after, "said": {"moment": _identity(moment), **since}, "heard": True}


def _counted(trigger: Trigger, moment: Moment, stored: JSONObject) -> JSONObject:
    """The state with one more step of a cooldown that counts steps; a step that is asked about twice counts once."""
    said = _mapping(stored.get("said"))
    waited, here = said.get("steps", 0), [moment.conversation, moment.turn, moment.step]
    if not said or waited >= trigger.cooldown_steps or said.get("counted", _place(said.get("moment"))) == here:
        return stored
    return {**stored, "said": {**said, "steps": waited + 1, "counted": here}}


def _cooling(trigger: Trigger, moment: Moment, said: JSONObject) -> bool:
    passed = moment.now - said.get("now", float("-inf"))
    return said.get("steps", 0) < trigger.cooldown_steps or 0 <= passed < trigger.cooldown_seconds


def _identity(moment: Moment) -> list[JSON]:
    return [moment.conversation, moment.turn, moment.step, moment.when, moment.tool_calls]


def _place(identity: JSON) -> JSON:
    return cast(list[JSON], identity)[:3] if isinstance(identity, list) else None


def _of_each_group_the_highest(
    said: list[tuple[Trigger, Say]], active: Mapping[tuple[str, Kind], int]
) -> tuple[tuple[Trigger, Say], ...]:
    """Who ends the turn goes before who does not, then the higher level, then who came first."""
    best: dict[tuple[str, Kind], Say] = {}
    for trigger, say in said:
        key = trigger.group, trigger.kind
        if key not in best or (say.stop is not None, say.level) > (best[key].stop is not None, best[key].level):
            best[key] = say

    def speaks(trigger: Trigger, say: Say) -> bool:
        key = trigger.group, trigger.kind
        return best[key] is say and (say.stop is not None or say.level >= active.get(key, say.level))

    return tuple([(trigger, say) for trigger, say in said if not trigger.group or speaks(trigger, say)])


def _own(stored: JSONObject) -> JSONObject:
    """The trigger's own state, as a copy that it may do with as it likes."""
    own = _mapping(stored.get("state"))
    return decode(encode(own)) if own else {}


def _mapping(value: JSON) -> JSONObject:
    return cast(JSONObject, value) if isinstance(value, dict) else {}


def _checked_state(own: object) -> JSONObject:
    if not isinstance(own, dict):
        raise InvalidInput(f"Its state is a {type(own).__name__}. Return a dict that JSON can hold; {{}} for nothing.")
    if not own:
        return {}
    if problem := check(cast(JSON, own), "state"):
        raise InvalidInput(f"{problem[0]}: {problem[1]}")
    if (size := len(encode(own))) > MAX_STATE:
        raise InvalidInput(f"Its state has {size:,} bytes and the limit is {MAX_STATE:,}. Keep marks, not messages.")
    return cast(JSONObject, own)


def _checked_say(trigger: Trigger, say: object) -> Say:
    if not isinstance(say, Say):
        raise InvalidInput(f"It says a {type(say).__name__}. Return a Say, or None for nothing.")
    if not isinstance(say.text, str) or not say.text.strip():
        raise InvalidInput("It says a Say without words. Return None for nothing.")
    if type(say.level) is not int or say.kind not in get_args(Kind):
        raise InvalidInput(
            f"Its Say has the level {say.level!r} and the kind {say.kind!r}. Use a number, and system or hint."
        )
    if say.stop is not None and (not isinstance(say.stop, str) or not say.stop):
        raise InvalidInput(f"Its Say stops with {say.stop!r}. Give the finish reason as text.")
    return replace(
        say,
        text=well_formed(say.text),
        level=say.level or trigger.level,
        kind="hint" if trigger.kind == "hint" else say.kind,
    )


def _told(error: BaseException) -> str:
    text = str(error) if isinstance(error, ContextcError) else f"It raised {described(error)}"
    return well_formed(text)[:MAX_FAILURE]
