"""Event streams for the encoders: recorded from turns of every kind, and generated ones.

The real ones are told by an executor on a scripted model: tools side by side, a cancelled turn, one that failed, one
whose process died and that was resumed, two agents at once. The made-up ones keep only what a store guarantees, that
numbers grow: whatever else an event says may be anything.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, get_args

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

import contextc as cc
from contextc.errors import ProviderFailed
from contextc.events import AnyEvent, TextDelta, TurnStart
from contextc.store import turn_records
from contextc.store.message_log import load_tip
from tests.executor.scripted_provider import SONNET, Scripted, add, call, fails, says

KINDS = get_args(AnyEvent)


@cache
def recorded_events() -> dict[str, list[AnyEvent]]:
    """Every event of some conversations, by what happened in them."""
    return asyncio.run(_record_events())


async def _record_events() -> dict[str, list[AnyEvent]]:
    with cc.open_store("memory:") as store:
        await _answered(store)
        await _failed(store)
        await _cancelled(store)
        await _asked(store)
        await _resumed(store)
        await _together(store)
        await _waited(store)
        return {each.name: store.events(each.name) for each in store.conversations()}


def _agent(store: cc.Store, *script: Any, **more: Any) -> cc.AgentExecutor:
    return cc.AgentExecutor(store, SONNET, endpoint=Scripted(*script), tools=[add], triggers=(), **more)


async def _answered(store: cc.Store) -> None:
    both = says("I add.", call(1, a=1, b=2), call(2, a=3, b=4))
    executor = _agent(store, both, says(call(3, "nothing")), says("Seven and more."), says("More."))
    await executor.follow_up("answered", "And then?")
    _ = [event async for event in executor.run("answered", "Add.")]


async def _failed(store: cc.Store) -> None:
    broken = says("I was about to say", broken=4)
    executor = _agent(store, fails("transient"), broken, says("Now."))
    for given in ("Go.", None):
        with suppress(ProviderFailed):
            _ = [event async for event in executor.run("failed", given)]


async def _cancelled(store: cc.Store) -> None:
    executor = _agent(store, says("a b c d e f g h i j", pause=0.05), says("Again."))
    async for event in executor.run("cancelled", "Count."):
        if isinstance(event, TextDelta):
            break
    await asyncio.sleep(0.3)
    _ = [event async for event in executor.run("cancelled", "Once more.")]


async def _asked(store: cc.Store) -> None:
    sign = cc.tool(_sign, approval=True)
    script = Scripted(says("May I?", call(1, "_sign")), says("Then not."))
    executor = cc.AgentExecutor(
        store, SONNET, endpoint=script, tools=[sign], approve=lambda call, tool: "no pen", triggers=()
    )
    _ = [event async for event in executor.run("asked", "Sign.")]


def _sign() -> str:
    """Sign something."""
    return "signed"


async def _resumed(store: cc.Store) -> None:
    """A turn that was written to its middle; then its lease ended."""
    executor = _agent(store, says("a b c d e", pause=0.05), says("Here I am again."))
    turn = executor.start("resumed", "Hello")
    async for event in turn.events():
        if isinstance(event, TextDelta):
            break
    number = store.read(lambda tx: load_tip(tx, "resumed").conversation)
    store.write(lambda tx: turn_records.mark_interrupted(tx, number, "assistant", 1, 1, "it died"))
    turn.cancel()
    await turn.wait()
    started = TurnStart(agent="assistant", turn=1, seq=1, resumed=True)
    store.write(lambda tx: turn_records.append_events(tx, number, [started]))
    _ = [event async for event in executor.run("resumed", None)]


async def _together(store: cc.Store) -> None:
    one = _agent(store, says("I am one of two.", pause=0.01), name="one")
    two = _agent(store, says("I am the other.", call(1, a=1, b=1), pause=0.01), says("Yes."), name="two")
    store.append("together", cc.user("Who is there?"))
    begun = [one.start("together"), two.start("together")]
    for turn in begun:
        await turn.wait()


async def _waited(store: cc.Store) -> None:
    """A turn that waited for two approvals, was continued after each answer, and then waited until it was cancelled."""
    sign = cc.tool(_sign, approval=True)
    asks = says("May I?", call(1, "_sign"), call(2, "_sign"))
    script = Scripted(asks, says("Thanks.", call(3, "_sign")))
    executor = cc.AgentExecutor(store, SONNET, endpoint=script, tools=[sign], approve=cc.Suspend(), triggers=())
    await executor.start("waited", "Sign.").wait()
    for answer in (True, False):
        store.answer_approval(store.approvals("waited")[0].id, answer)
        await executor.resume("waited").wait()
    store.cancel_turn("waited")


NAMES = st.sampled_from(("a", "b", "c1", ""))


@st.composite
def made_up(draw: st.DrawFn) -> list[AnyEvent]:
    """Any events, in any order."""
    events: list[AnyEvent] = []
    for number in range(1, draw(st.integers(1, 30)) + 1):
        kind = draw(st.sampled_from(KINDS))
        about = {
            field.name: _value(draw, field)
            for field in msgspec.structs.fields(kind)
            if field.required or draw(st.booleans())
        }
        events.append(kind(**{**about, "number": number, "time": 1, "turn": draw(st.integers(0, 2))}))
    return [replace(event, agent=draw(st.sampled_from(("one", "two")))) for event in events]


def _value(draw: st.DrawFn, field: msgspec.structs.FieldInfo) -> object:
    made = {
        "uid": NAMES,
        "id": NAMES,
        "name": NAMES,
        "arguments": st.sampled_from(('{"a":', "1}", "")) if field.type is str else st.just({"a": 1}),
        "finish": st.sampled_from(("stop", "cancelled", "error", "max_steps")),
        "kind": st.sampled_from(("steer",)) if "steer" in get_args(field.type) else st.sampled_from(("rate",)),
        "usage": st.just(cc.Usage(input=3, output=4)),
        "approvals": st.sampled_from(((), ("", "x"))),
        "text": st.sampled_from(("", "words", "Not run: the user declined.")),
    }
    plain = {str: st.sampled_from(("", "x")), int: st.integers(0, 3), bool: st.booleans(), float: st.just(1.0)}
    return draw(made.get(field.name, plain.get(field.type, st.none())))


def tails(events: Sequence[AnyEvent]) -> list[list[AnyEvent]]:
    """Return the stream from each of its events on."""
    return [list(events[start:]) for start in range(len(events))]
