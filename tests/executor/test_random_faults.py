"""Random turns with the vendors' SDKs against strict fake APIs, with injected faults.

Each conversation is one person's, who asks, steers, loses patience and changes the model, while lines are cut, the
vendor is overloaded, and the window is too small for all that is said. What must be true after every turn is in
`audit`. `--log-cli-level=INFO` shows what there was.
"""

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from time import monotonic

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc.events import AnyEvent
from contextc.providers.client import Endpoint, endpoint
from tests.conftest import often, some
from tests.executor.random_user import LOCKED_OUT, Restless
from tests.executor.recording_tools import Hands, approve
from tests.executor.turn_audit import Audit, Figures, Sorted, mistaken
from tests.fake_vendors import KEY, AcceptedRequest, FakeVendors, Fault, RandomFaults, RandomScript, faults
from tests.fake_vendors.faults import QUICK
from tests.fake_vendors.responses import refused
from tests.fake_vendors.sdks import clients

log = logging.getLogger("tests.faults")
TURNS, KINDS_OF_FAULTS = often(10, 100), often(4, 6)
LENGTH, TOGETHER = max(5, TURNS // 100), 10
"""How many turns a conversation has, and how many conversations there are at a time."""
WINDOW, OUTPUT = 3_400, 600
"""Tokens, beside what some models take more than others to be told of the tools."""
LONG = 9_000
"""Bytes of a request that a vendor may find too long."""
VARIABLE, WRONG = "CONTEXTC_STANDIN_KEY", "CONTEXTC_WRONG_KEY"
SPECS = {client.specs[0].partition(":")[0]: client for client in clients() if client.specs}
"""Each provider with the SDK that knows which of its models are asked."""


def told_to_wait(chance: Random) -> Fault:
    seconds = chance.choice((0.01, 0.9))
    return replace(faults.rate(seconds, form=chance.choice(("own", "seconds"))), name=f"rate in {seconds}")


def too_long(_: Random) -> Fault:
    return Fault("too long", lambda answer, ask: refused(ask.vendor.too_long(ask, WINDOW + 1, WINDOW)))


class Foul(RandomFaults):
    """Weather in which only what is long is ever found too long."""

    def __call__(self, ask: AcceptedRequest) -> Fault | None:
        fault = super().__call__(ask)
        return None if fault is not None and fault.name == "too long" and len(ask.raw) < LONG else fault


def out_of_credit(_: Random) -> Fault:
    return faults.quota()


FOUL = (*(draw for draw in QUICK if draw(Random(0)).name != "rate"), told_to_wait, too_long, out_of_credit)


class Company:
    """The agents of every conversation, on lines that all of them share."""

    def __init__(self, store: cc.Store, standin: FakeVendors, name: str, seed: int) -> None:
        self.store, self.standin, self.seed, self.hands = store, standin, seed, Hands()
        self.records, self.figures = Sorted(standin), Figures()
        asked = [*SPECS[name].specs, *(other.specs[0] for word, other in SPECS.items() if word != name)]
        providers = {spec: self._provider(spec, VARIABLE) for spec in asked}
        self.providers = providers | {LOCKED_OUT: self._provider(asked[0], WRONG)}
        self.lines: dict[str, Endpoint] = {who: endpoint(each) for who, each in self.providers.items()}

    def _provider(self, spec: str, key: str) -> cc.Provider:
        client = SPECS[spec.partition(":")[0]]
        url, window = self.standin.url(client.name), WINDOW + client.overhead
        return cc.provider(spec, url=url, key=key, window=window, output=OUTPUT)

    @property
    def faults(self) -> Counter[str]:
        return Counter(record.fault for record in self.standin.records if record.fault)

    def agents(self, conversation: str) -> dict[str, cc.AgentExecutor]:
        tools = self.hands.tools()
        return {
            who: cc.AgentExecutor(
                self.store,
                each,
                tools=tools,
                triggers=cc.default_triggers(),
                approve=approve,
                instructions=f"You answer in the conversation <{conversation}>.",
                endpoint=self.lines[who],
            )
            for who, each in self.providers.items()
        }

    async def converse(self, conversation: str, turns: int) -> None:
        """Run one conversation, with an audit after every turn and a watcher from its beginning."""
        agents = self.agents(conversation)
        person = Restless(conversation, agents, seed=self.seed)
        audit = Audit(person, self.store, self.records, self.hands, self.figures)
        watched: list[AnyEvent] = []
        watcher = asyncio.ensure_future(_watch(agents[LOCKED_OUT], conversation, watched))
        for _ in range(turns):
            audit.check(await person.turn())
        whole = self.store.events(conversation)
        with suppress(TimeoutError):
            async with asyncio.timeout(60):
                while len(watched) < len(whole):
                    await asyncio.sleep(0.01)
        watcher.cancel()
        assert watched == whole
        audit.look_back()

    async def run(self, turns: int, length: int) -> None:
        """So many turns, in conversations of this length, and more of them until there was a bit of everything."""
        room = asyncio.Semaphore(TOGETHER)

        async def one(number: int) -> None:
            async with room:
                await self.converse(f"number {number}", length)

        count = turns // length
        await asyncio.gather(*(one(number) for number in range(count)))
        seen = self.figures
        while count < 10 * turns // length and not (
            len(self.faults) >= KINDS_OF_FAULTS and seen.retries and seen.compactions
        ):
            await one(count)
            count += 1
        for line in self.lines.values():
            await line.close()


async def _watch(agent: cc.AgentExecutor, conversation: str, seen: list[AnyEvent]) -> None:
    async for event in agent.watch(conversation):
        seen.append(event)


@pytest.mark.parametrize("name", some(list(SPECS), 1))
def test_nothing_is_lost_or_doubled_or_refused_with_random_faults(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Guarantees 11.1, 11.9 to 11.11, 3.2, 9.2, 9.10, 12.1, 13.2: the checks are in `audit`."""
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setenv(WRONG, f"{KEY}-of-somebody-else")
    found = run_with_faults(name, tmp_path, TURNS, length=LENGTH)
    assert found["turns"] >= TURNS
    assert found["retries"]
    assert found["compactions"]
    assert found["kinds of fault"] >= KINDS_OF_FAULTS
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def run_with_faults(name: str, folder: Path, turns: int, *, length: int, seed: int = 11) -> Counter[str]:
    """So many turns with one provider, and with the others now and then; what there was."""
    with (
        cc.open_store(f"sqlite:///{folder / 'turns.db'}") as store,
        FakeVendors(RandomScript(seed), faults=Foul(seed, share=0.2, draws=FOUL)) as standin,
    ):
        company, began = Company(store, standin, name, seed), monotonic()
        asyncio.run(company.run(turns, length))
        met = company.faults
        log.info("%s: %s, %d requests, %.1f s", name, company.figures, len(standin.records), monotonic() - began)
        log.info("%s: %d faults: %s; %d summaries", name, met.total(), met, len(company.records.others))
        assert mistaken(standin) == []
        figures = company.figures
        told = {"turns": figures.turns, "steps": figures.steps, "calls": figures.calls, "retries": figures.retries}
        told |= {"compactions": figures.compactions, "requests": len(standin.records), "faults": met.total()}
        return Counter(told | {"kinds of fault": len(met)})
