"""Turns: begun, steered, stopped and resumed; what they ask a person for, answered."""

from msgspec import Struct

from contextc.executor.threads import durable
from contextc.messages import Message
from contextc.store.turns import QueueKind, TurnRecord
from contextc.web.desk import Desk
from contextc.web.endpoint import Nothing, endpoint
from contextc.web.problems import Refused
from contextc.web.running import ELSEWHERE


class Start(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to say, and to whom. Without `input` the agent answers what waits, or what was not answered.

    `model` is a provider and a model, as in `anthropic:claude-opus-5-5`; left out, it is the one asked last.
    """

    input: str | Message | None = None
    model: str | None = None
    resume: bool = False
    """Go on with a turn whose process died."""


class Started(Struct, frozen=True, kw_only=True):
    """A turn runs. Its events come after number `after`."""

    after: int


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whom to ask; left out, it is the one asked last."""

    model: str | None = None


class Words(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said."""

    text: str


class Waiting(Struct, frozen=True, kw_only=True):
    """The number under which input waits, and whether a turn runs that will read it, here or in another process."""

    number: int
    running: bool


class Cancelled(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether there was a turn to stop. `interrupted`: the process of the last turn ended before the turn did."""

    cancelled: bool
    interrupted: bool = False


class Decision(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person's word. The model is told why, where it is no. `hash` is that of what was shown, from `approvals`."""

    approve: bool
    hash: str
    why: str = ""


class Word(Decision, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person's word, and the `id` of the approval it is about."""

    id: str


class Compacted(Struct, frozen=True, kw_only=True):
    """What was summed up: everything up to message `upto`, so that `before` tokens became `after`.

    `upto` is 0 where there was nothing to sum up. `fallback` says why no model's words were taken.
    """

    upto: int = 0
    before: int = 0
    after: int = 0
    text: str = ""
    fallback: str = ""


@endpoint("POST", "/conversations/{name}/turns", status=202)
async def start_turn(desk: Desk, name: str, body: Start) -> Started:
    """Begin a turn. It runs by itself: its events are at …/events. A conversation that is not there is made."""
    begun = await desk.running.start(name, body.input, model=body.model, resume=body.resume)
    return Started(after=begun.after)


@endpoint("POST", "/conversations/{name}/cancel")
async def cancel_turn(desk: Desk, name: str, body: Nothing) -> Cancelled:
    """Stop the turn that runs. What was said so far stays, with its status, and open calls are answered."""
    if desk.running.cancel(name):
        return Cancelled(cancelled=True)
    turn = await durable(_not_elsewhere, desk, name)
    return Cancelled(cancelled=False, interrupted=turn is not None and turn.state == "interrupted")


def _not_elsewhere(desk: Desk, name: str) -> TurnRecord | None:
    """The last turn. Refuses where another process runs it: only that one can do what is asked for."""
    turn = desk.last_turn(name)
    if turn is not None and turn.state == "running" and desk.running.turn(name) is None:
        process = desk.process_of(name, turn.agent)
        raise Refused(409, ELSEWHERE.format(turn=turn.number, name=name, process=process), "RunsElsewhere")
    return turn


@endpoint("POST", "/conversations/{name}/steer")
async def steer_turn(desk: Desk, name: str, body: Words) -> Waiting:
    """Say something to the turn that runs: the model sees it with its next step. Where none runs, it waits."""
    return await _queued(desk, name, body, "steer")


@endpoint("POST", "/conversations/{name}/follow-up")
async def follow_up(desk: Desk, name: str, body: Words) -> Waiting:
    """Say something that waits until the turn is over, and then opens the next."""
    return await _queued(desk, name, body, "follow-up")


async def _queued(desk: Desk, name: str, body: Words, kind: QueueKind) -> Waiting:
    queued = await desk.running.queue(name, body.text, kind)
    turn = await durable(desk.last_turn, name)
    return Waiting(number=queued.number, running=turn is not None and turn.state == "running")


@endpoint("POST", "/conversations/{name}/approvals/{id}")
async def decide(desk: Desk, name: str, id: str, body: Decision) -> Nothing:
    """Say yes or no to a call that waits for it. The first word counts, and only for what was shown."""
    return await _decided(desk, name, id, body)


@endpoint("POST", "/conversations/{name}/approvals")
async def decide_named(desk: Desk, name: str, body: Word) -> Nothing:
    """The same, with the `id` of the approval in the body."""
    return await _decided(desk, name, body.id, body)


async def _decided(desk: Desk, name: str, id: str, said: Decision) -> Nothing:
    try:
        await desk.running.answer_shown(name, id, said.hash, said.approve, said.why)
    except Refused:
        await durable(_not_elsewhere, desk, name)  # nor where there is no such conversation
        raise
    return Nothing()


@endpoint("POST", "/conversations/{name}/compact")
async def compact(desk: Desk, name: str, body: Model) -> Compacted:
    """Have what is old summed up now, as it is done when room is short. Answers when that is done."""
    done = await desk.running.compact(name, body.model)
    if done is None:
        return Compacted()
    return Compacted(upto=done.upto, before=done.before, after=done.after, text=done.text, fallback=done.fallback)
