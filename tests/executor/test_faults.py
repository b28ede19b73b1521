"""Turns at random, with the vendors' own SDKs against strict stand-ins of their APIs, in foul weather.

Each conversation is one person's, who asks, steers, loses patience and changes the model, while lines are cut, the
vendor is overloaded, and the window is too small for all that is said. What must be true after every turn is in
`audit`. `CONTEXTC_TURNS=1000` has that many turns for each provider, where otherwise there are 50;
`--log-cli-level=INFO` shows what there was.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from time import monotonic

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc.events import AnyEvent
from contextc.providers.endpoint import Endpoint, endpoint
from tests.executor.audit import Audit, Figures, Sorted, mistaken
from tests.executor.hands import Hands, approve
from tests.executor.restless import LOCKED_OUT, Restless
from tests.standin import KEY, Ask, Fault, Standin, Wanderer, Weather, faults
from tests.standin.answer import refused
from tests.standin.faults import QUICK

log = logging.getLogger("tests.faults")
TURNS = int(os.environ.get("CONTEXTC_TURNS", "50"))
LENGTH, TOGETHER = max(5, TURNS // 100), 10
"""How many turns a conversation has, and how many conversations there are at a time."""
WINDOW, WIDER, OUTPUT = 3_400, 4_400, 600
"""Tokens; Anthropic's models take more of them to be told of the tools."""
LONG = 9_000
"""Bytes of a request that a vendor may find too long."""
VARIABLE, WRONG = "CONTEXTC_STANDIN_KEY", "CONTEXTC_WRONG_KEY"
SPECS = {
    "anthropic": ("anthropic:claude-opus-5-5", "anthropic:claude-sonnet-4-5"),
    "openai": ("openai:gpt-5.6", "openai:gpt-5.4"),
    "openai-chat": ("openai-chat:gpt-4.1", "openai-chat:gpt-5.5"),
    "gemini": ("gemini:gemini-3.6-flash", "gemini:gemini-2.5-flash"),
}
"""Each provider with the model it is asked for, and another one of its models."""


def told_to_wait(chance: Random) -> Fault:
    seconds = chance.choice((0.01, 0.9))
    return replace(faults.rate(seconds, form=chance.choice(("own", "seconds"))), name=f"rate in {seconds}")


def too_long(_: Random) -> Fault:
    return Fault("too long", lambda answer, ask: refused(ask.vendor.too_long(ask, WINDOW + 1, WINDOW)))


class Foul(Weather):
    """Weather in which only what is long is ever found too long."""

    def __call__(self, ask: Ask) -> Fault | None:
        fault = super().__call__(ask)
        return None if fault is not None and fault.name == "too long" and len(ask.raw) < LONG else fault


def out_of_credit(_: Random) -> Fault:
    return faults.quota()


FOUL = (*(draw for draw in QUICK if draw(Random(0)).name != "rate"), told_to_wait, too_long, out_of_credit)


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[cc.Store]:
    with cc.open_store(f"sqlite:///{tmp_path / 'turns.db'}") as opened:
        yield opened


class Company:
    """The agents of every conversation, on lines that all of them share."""

    def __init__(self, store: cc.Store, standin: Standin, name: str) -> None:
        self.store, self.standin, self.hands = store, standin, Hands()
        self.records, self.figures = Sorted(standin), Figures()
        others = [spec for other, (spec, _) in SPECS.items() if other != name]
        providers = {spec: self._provider(spec, VARIABLE) for spec in (*SPECS[name], *others)}
        self.providers = providers | {LOCKED_OUT: self._provider(SPECS[name][0], WRONG)}
        self.lines: dict[str, Endpoint] = {who: endpoint(each) for who, each in self.providers.items()}

    def _provider(self, spec: str, key: str) -> cc.Provider:
        format = cc.provider(spec).format
        window = WIDER if format == "anthropic" else WINDOW
        return cc.provider(spec, url=self.standin.url(format), key=key, window=window, output=OUTPUT)

    def agents(self, conversation: str) -> dict[str, cc.AgentExecutor]:
        tools = self.hands.tools()
        return {
            who: cc.AgentExecutor(
                self.store,
                each,
                tools=tools,
                triggers=cc.default_triggers(),
                approve=approve,
                system_prompt=f"You answer in the conversation <{conversation}>.",
                endpoint=self.lines[who],
            )
            for who, each in self.providers.items()
        }

    async def converse(self, conversation: str, turns: int) -> None:
        """One conversation, looked at after every turn, and followed by somebody from its beginning."""
        agents = self.agents(conversation)
        person = Restless(conversation, agents, seed=11)
        audit = Audit(person, self.store, self.records, self.hands, self.figures)
        watched: list[AnyEvent] = []
        watcher = asyncio.ensure_future(_watch(agents[LOCKED_OUT], conversation, watched))
        for _ in range(turns):
            audit.check(await person.turn())
        whole = self.store.events(conversation)
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                while len(watched) < len(whole):
                    await asyncio.sleep(0.01)
        watcher.cancel()
        assert watched == whole
        audit.look_back()

    async def run(self, turns: int) -> None:
        room = asyncio.Semaphore(TOGETHER)

        async def one(number: int) -> None:
            async with room:
                await self.converse(f"number {number}", LENGTH)

        await asyncio.gather(*(one(number) for number in range(turns // LENGTH)))
        for line in self.lines.values():
            await line.close()


async def _watch(agent: cc.AgentExecutor, conversation: str, seen: list[AnyEvent]) -> None:
    async for event in agent.watch(conversation):
        seen.append(event)


@pytest.mark.parametrize("name", SPECS)
def test_nothing_is_lost_or_doubled_or_refused_in_foul_weather(
    name: str, on_disk: cc.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SPEC 11.1, 11.9-11.11, 3.2, 9.2, 9.10, 12.1, 13.2: the checks are in `audit`."""
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setenv(WRONG, f"{KEY}-of-somebody-else")
    with Standin(Wanderer(3), faults=Foul(7, share=0.2, draws=FOUL)) as standin:
        company, began = Company(on_disk, standin, name), monotonic()
        asyncio.run(company.run(TURNS))
        met = Counter(record.fault for record in standin.records if record.fault)
        log.info("%s: %s, %d requests, %.1f s", name, company.figures, len(standin.records), monotonic() - began)
        log.info("%s: %d faults: %s; %d summaries", name, met.total(), met, len(company.records.others))
        assert mistaken(standin) == []
    assert company.figures.turns == TURNS
    assert company.figures.retries
    assert company.figures.compactions
    assert len(met) > 5
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
