"""A random user of an agent: sends, steers, queues follow-ups, cancels and changes the model.

What it does comes from a seed. When things happen is up to the machine, so a run is never quite the same twice.
"""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal, TypeAlias

from msgspec import Struct

import contextc as cc
from contextc.errors import ContextcError
from contextc.events import AnyEvent
from contextc.executor import Turn, TurnResult
from tests.fake_vendors.random_script import random_text

LOCKED_OUT = "locked out"
"""The name of an agent whose key is wrong."""
Whim: TypeAlias = Literal["cancel", "steer", "follow-up"]
WHIMS: tuple[Whim, ...] = ("steer", "steer", "follow-up", "cancel")


class Said(Struct, frozen=True):
    """Something the person said. `kind` is how: with a turn of its own, or while one was running."""

    text: str
    kind: Literal["turn", "steer", "follow-up"]


class Played(Struct, frozen=True, kw_only=True):
    """One turn as the user saw it: the provider, the events, and the end."""

    who: str
    events: Sequence[AnyEvent]
    result: TurnResult


class Restless:
    """`agents` are the executors of one conversation by name; the first of them is asked most of the time."""

    def __init__(self, conversation: str, agents: Mapping[str, cc.AgentExecutor], seed: int) -> None:
        self.conversation, self.agents = conversation, agents
        self.chance = Random(f"{seed} {conversation}")
        self.said: list[Said] = []
        self.turns = 0

    async def turn(self) -> Played:
        """Have a turn, and do with it what comes to mind."""
        chance = self.chance
        self.turns += 1
        first, *others = self.agents
        who = first if not others or chance.random() < 0.75 else chance.choice(others)
        given = self._words("turn") if chance.random() < 0.85 or not self.said else None
        turn = self._started(self.agents[who], given)
        whims: list[tuple[int, Whim]] = sorted(
            (chance.randint(0, 30), self._whim()) for _ in range(chance.choice((0, 0, 1, 2, 3)))
        )
        events: list[AnyEvent] = []
        hurry = asyncio.ensure_future(self._hurry(turn, chance.random() / 2)) if chance.random() < 0.08 else None
        try:
            async for event in turn.events():
                events.append(event)
                while whims and len(events) > whims[0][0]:
                    await self._do(whims.pop(0)[1], self.agents[who], turn)
        except ContextcError:
            pass  # it is in the result
        if hurry is not None:
            hurry.cancel()
        await turn.wait()
        result = turn.results[-1]
        if given is not None and not result.turn:
            self.said.remove(Said(given, "turn"))  # it never came to that
        return Played(who=who, events=events, result=result)

    def _started(self, agent: cc.AgentExecutor, given: str | None) -> Turn:
        if given is None and self.chance.random() < 0.5:
            return agent.resume(self.conversation)
        return agent.start(self.conversation, given)

    def _whim(self) -> Whim:
        return self.chance.choice(WHIMS)

    async def _hurry(self, turn: Turn, seconds: float) -> None:
        await asyncio.sleep(seconds)
        turn.cancel()

    async def _do(self, whim: Whim, agent: cc.AgentExecutor, turn: Turn) -> None:
        if whim == "cancel":
            turn.cancel()
        elif whim == "steer":
            await agent.steer(self.conversation, self._words("steer"))
        else:
            await agent.follow_up(self.conversation, self._words("follow-up"))

    def _words(self, kind: Literal["turn", "steer", "follow-up"]) -> str:
        """No two of them are the same."""
        said = Said(f"{kind} {len(self.said)}: {random_text(self.chance, self.chance.choice((3, 30, 200)))}", kind)
        self.said.append(said)
        return said.text
