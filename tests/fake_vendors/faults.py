"""Fault injection: faults as changes to a response, and plans that select a fault for a request.

A plan is called for every accepted request. It is a function, so that a test can write its own:
`lambda ask: overloaded() if ask.attempt == 0 else None` fails every request once. `listed` returns faults in order.
`RandomFaults` selects them by a seed and the content of the request. No request fails more than `most` times in a row,
so retries succeed.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from random import Random
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tests.fake_vendors.responses import Drop, FakeError, FakeResponse, Pause, Silence, Step, refused
from tests.fake_vendors.vendor import AcceptedRequest, Trouble


class Fault(Struct, frozen=True):
    """A named change to a response. `spoils` is True if the changed response is incomplete."""

    name: str
    apply: Callable[[FakeResponse, AcceptedRequest], FakeResponse]
    spoils: bool = True


Plan: TypeAlias = Callable[[AcceptedRequest], Fault | None]


def slow(seconds: float = 0.01) -> Fault:
    """Pause before every event."""

    def apply(answer: FakeResponse, ask: AcceptedRequest) -> FakeResponse:
        return replace(answer, steps=tuple(each for step in answer.steps for each in (Pause(seconds), step)))

    return Fault("slow", apply, spoils=False)


def cut(at: int | float = 0.5, *, reset: bool = False) -> Fault:
    """Break the connection before the event number `at`, or, for a float, after that fraction of the events.

    A reply that is not streamed loses its second half.
    """

    def apply(answer: FakeResponse, ask: AcceptedRequest) -> FakeResponse:
        return _interrupted(answer, at, (Drop(reset),))

    return Fault("cut by a reset" if reset else "cut", apply)


def ended(at: int | float = 0.5) -> Fault:
    """End the stream early but cleanly, as a proxy does that lost its upstream."""
    return Fault("ended", lambda answer, ask: _interrupted(answer, at, ()))


def stalled(at: int | float = 0.5) -> Fault:
    """Stop sending after the middle, and keep the connection open."""
    return Fault("stalled", lambda answer, ask: _interrupted(answer, at, (Silence(),)))


def hang() -> Fault:
    """Send nothing, and keep the connection open."""
    return Fault("hang", lambda answer, ask: FakeResponse(status=0, steps=(Silence(),)))


def reset() -> Fault:
    """Reset the connection before anything is sent."""
    return Fault("reset", lambda answer, ask: FakeResponse(status=0, steps=(Drop(reset=True),)))


def closed() -> Fault:
    """Close the connection before anything is sent."""
    return Fault("closed", lambda answer, ask: FakeResponse(status=0, steps=(Drop(),)))


def trouble(kind: Trouble, seconds: float = 0.0) -> Fault:
    """Answer with the vendor's error body and status."""
    return Fault(kind, lambda answer, ask: refused(ask.vendor.trouble(kind, seconds)))


def overloaded() -> Fault:
    return trouble("overloaded")


def internal() -> Fault:
    return trouble("internal")


def unavailable() -> Fault:
    return trouble("unavailable")


def quota() -> Fault:
    return trouble("quota")


def rate(seconds: float = 1.0, *, form: Literal["own", "seconds", "date", "none"] = "own") -> Fault:
    """Answer with status 429. `form` states the wait as the vendor does, as `Retry-After`, or not at all."""

    def apply(answer: FakeResponse, ask: AcceptedRequest) -> FakeResponse:
        view = ask.vendor.trouble("rate", seconds)
        if form == "own":
            return refused(view)
        rest = tuple(each for each in view.headers if not each[0].startswith("retry-after"))
        # An HTTP date has no fractions of a second, so it is rounded up.
        moment = datetime.now(UTC) + timedelta(seconds=seconds + 1)
        date = format_datetime(moment, usegmt=True)
        wait = {"seconds": (("retry-after", f"{seconds:g}"),), "date": (("retry-after", date),), "none": ()}
        return refused(FakeError(view.status, view.body, (*rest, *wait[form])))

    return Fault("rate", apply)


def garbled(at: int | float = 0.5) -> Fault:
    """Truncate the JSON of one event. The following events are valid."""

    def apply(answer: FakeResponse, ask: AcceptedRequest) -> FakeResponse:
        steps = list(answer.steps)
        place = _place(steps, at)
        if answer.streamed:
            event = answer.events[place]
            steps[place] = ask.vendor.framed(event._replace(data=event.written.decode()[:-3]))
        elif isinstance(step := steps[place], bytes):
            steps[place] = step[:-3]
        return replace(answer, steps=tuple(steps))

    return Fault("garbled", apply)


def error_inside(at: int | float = 0.5, kind: Trouble = "overloaded") -> Fault:
    """Replace the rest by an error event, or the whole reply by the error if it is not streamed."""

    def apply(answer: FakeResponse, ask: AcceptedRequest) -> FakeResponse:
        if not answer.streamed:
            return refused(ask.vendor.trouble(kind, 0.0))
        place = _place(answer.steps, at)
        events = ask.vendor.trouble_inside(kind, ask, place)
        return _interrupted(answer, at, tuple(ask.vendor.framed(event) for event in events))

    return Fault("error inside", apply)


def _place(steps: Sequence[Step], at: int | float) -> int:
    """Return the index of a step. A negative value counts from the end. The result is always in range."""
    place = int(len(steps) * at) if isinstance(at, float) else at if at >= 0 else len(steps) + at
    return min(max(place, 0), len(steps) - 1)


def _interrupted(answer: FakeResponse, at: int | float, then: tuple[Step, ...]) -> FakeResponse:
    if answer.streamed:
        return replace(answer, steps=(*answer.steps[: _place(answer.steps, at)], *then))
    whole = b"".join(step for step in answer.steps if isinstance(step, bytes))
    half = whole[: len(whole) // 2]
    return replace(answer, steps=(half, *then), length=len(whole) if then else None)


def listed(*faults: Fault | None) -> Plan:
    """Return a plan with one fault per request, in order, then none."""

    def plan(ask: AcceptedRequest) -> Fault | None:
        return faults[ask.number] if ask.number < len(faults) else None

    return plan


Draw: TypeAlias = Callable[[Random], Fault]
QUICK: tuple[Draw, ...] = (
    lambda chance: slow(0.001),
    lambda chance: cut(chance.random()),
    lambda chance: cut(chance.random(), reset=True),
    lambda chance: ended(chance.random()),
    lambda chance: rate(0.01),
    lambda chance: overloaded(),
    lambda chance: internal(),
    lambda chance: unavailable(),
    lambda chance: garbled(chance.random()),
    lambda chance: error_inside(chance.random(), chance.choice(("overloaded", "internal"))),
    lambda chance: reset(),
    lambda chance: closed(),
)
"""Faults without a delay. `hang` and `stalled` last until the client's timeout, so tests select them explicitly."""


class RandomFaults:
    """Plan with pseudo-random faults for a share of all attempts."""

    def __init__(self, seed: int, *, share: float = 0.3, draws: Iterable[Draw] = QUICK, most: int = 2) -> None:
        self.seed, self.share, self.draws, self.most = seed, share, tuple(draws), most

    def __call__(self, ask: AcceptedRequest) -> Fault | None:
        chance = Random(f"{self.seed} {ask.identity} {ask.attempt}")
        if ask.attempt >= self.most or chance.random() >= self.share:
            return None
        return chance.choice(self.draws)(chance)
