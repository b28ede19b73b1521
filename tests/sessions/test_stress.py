"""Random turns on the real programs with injected faults: nothing is lost, duplicated or refused.

A person talks to Claude Code or to Codex, now and then to the other one, to another model, or to a vendor without a
session, always in the same conversation. The API is overloaded, lines are cut, turns are cancelled, programs are
killed. What must be true after every turn is in `Audit`. `--log-cli-level=INFO` shows what there was.
"""

import asyncio
import logging
import os
from collections import Counter
from pathlib import Path
from time import monotonic

import contextc as cc
from contextc.messages import Message
from contextc.providers.client import endpoint
from contextc.store.turn_records import StepRecord
from tests.conftest import often
from tests.fake_vendors import AcceptedRequest, FakeVendors, Fault, RandomFaults, RequestRecord, faults
from tests.sessions.cli_agents import (
    CODEX,
    MARK,
    PROGRAMS,
    VARIABLE,
    AgentSetup,
    ProgramUnderTest,
    marks,
    twice,
    with_program,
)
from tests.sessions.stress_simulation import FOUL, SETTINGS, Busy, Person, Played, RecordingTool, visible

log = logging.getLogger("tests.restless")
TURNS = often(4, 100)
SEED = int(os.environ.get("CONTEXTC_PROGRAM_SEED", "1"))
LENGTH = 14
"""How many turns a conversation has at most."""
STATELESS = {"anthropic": "anthropic:claude-sonnet-4-5", "openai_responses": "openai:gpt-5.4"}
STATIC = "«static» Be brief."
RETOLD = "was exec_command("
"""A command of Codex is told as a call of `shell`, to whoever has no such tool."""


class Foul(RandomFaults):
    """Weather in which the second request is sure to meet something, however short the run."""

    def __call__(self, ask: AcceptedRequest) -> Fault | None:
        return faults.overloaded() if ask.number == 1 else super().__call__(ask)


class Company:
    """All providers of the test: both programs, with two models each, and two vendors without sessions."""

    def __init__(self, setup: AgentSetup, standin: FakeVendors, recorder: RecordingTool) -> None:
        self.setup, self.standin, self.recorder = setup, standin, recorder
        self.programs = {f"{each.name}:{model}": each for each in PROGRAMS for model in (each.model, each.other)}

    def make(self, who: str) -> cc.AgentExecutor:
        tools = [self.recorder.look]
        if (program := self.programs.get(who)) is not None:
            model, settings = who.partition(":")[2], SETTINGS[program.name]
            return self.setup.agent(
                program, self.standin, model=model, settings=settings, tools=tools, instructions=STATIC
            )
        format = next(format for format, spec in STATELESS.items() if spec == who)
        provider = cc.provider(who, url=self.standin.url(format), key=VARIABLE)
        line = endpoint(provider)
        return cc.AgentExecutor(
            self.setup.store, provider, tools=tools, instructions=STATIC, endpoint=line, triggers=()
        )

    def drawn(self, program: ProgramUnderTest, person: Person) -> str:
        """Select a provider: most of the time the program, with its first model."""
        others = [each for each in (*self.programs, *STATELESS.values()) if each != f"{program.name}:{program.model}"]
        return f"{program.name}:{program.model}" if person.chance.random() < 0.7 else person.chance.choice(others)


class Audit:
    """What must be true of a conversation after each of its turns."""

    def __init__(self, person: Person, standin: FakeVendors, recorder: RecordingTool) -> None:
        self.person, self.standin, self.recorder = person, standin, recorder
        self.messages: list[Message] = []
        self.read = len(standin.records)
        self.figures = Counter[str]()

    def check(self, played: Played) -> None:
        store, conversation = self.person.store, self.person.conversation
        messages = store.load(conversation)
        assert messages[: len(self.messages)] == self.messages, "what was said has changed"
        records = [record for record in self.standin.records[self.read :] if record.reply is not None]
        self._inputs(messages)
        self._calls(messages)
        self._requests(records)
        if played.result.steps and played.result.finish == "stop":
            self._answer(messages, records)
            self._account(played)
        self.messages, self.read = messages, len(self.standin.records)
        self.figures.update(turns=1, requests=len(records), faults=sum(bool(record.fault) for record in records))
        self.figures[f"ended: {played.result.finish}"] += 1
        nothing_was_said = not any(message.role == "user" for message in messages)
        assert played.result.steps or played.result.finish != "stop" or nothing_was_said

    def _inputs(self, messages: list[Message]) -> None:
        """Everything that was said is there once, or waits."""
        waiting = [each.message.text for each in self.person.store.queued(self.person.conversation)]
        there = [message.text for message in messages if message.role in ("user", "system")]
        assert sorted([*there, *waiting]) == sorted(self.person.said)

    def _calls(self, messages: list[Message]) -> None:
        """Every call has one result; ours are what the tool gave, which gave it once."""
        calls = Counter(call.id for message in messages for call in message.tool_calls)
        results = Counter(result.call_id for message in messages for result in message.tool_results)
        assert calls == results, "a call without a result, or one twice"
        assert not set(twice(calls))
        gave = dict(self.recorder.gave)
        assert len(gave) == len(self.recorder.gave), "a tool ran twice for one call"
        shown = {call.id for message in messages if message.status == "sent" for call in message.tool_calls}
        for message in messages:
            for result in message.tool_results:
                assert result.call_id in shown or result.is_error, f"{result.text} is lost: nobody sees its call"
                if result.name == "look" and not result.is_error:
                    assert gave[result.call_id] in result.text

    def _requests(self, records: list[RequestRecord]) -> None:
        """In whatever was asked, everything from before the turn is there, and nothing is there twice."""
        before = visible(self.messages)
        for record in records:
            found = marks(record)
            assert not set(twice(found)), f"request {record.number}: twice"
            assert before.keys() <= found.keys(), f"request {record.number}: lost {before.keys() - found.keys()}"

    def _answer(self, messages: list[Message], records: list[RequestRecord]) -> None:
        """The last request has all that is visible, once, and nothing else; what was answered to it is stored."""
        reply = messages[-1]
        assert (reply.role, reply.status) == ("assistant", "sent")
        texts = [(each.reply.text or "", each) for each in reversed(records) if each.reply is not None]
        text, last = next((text, record) for text, record in texts if reply.text.endswith(text))
        before = reply.text.removesuffix(text)  # Codex keeps words after which the line was cut, and goes on
        assert marks(last) == visible(messages[:-1]) + Counter([*MARK.findall(before), "«static»"])

    def _account(self, played: Played) -> None:
        """It says that the session went back, or why another one began; and nothing where nothing had happened."""
        agent = played.agent
        manifest = agent.compiler.explain(self.person.conversation, directory=agent.directory or None)
        mine = [step for step in self.person.store.steps(self.person.conversation) if _is_of(step, agent)]
        finished = [place for place, step in enumerate(mine) if step.state == "finished"]
        since = mine[finished[-2] + 1 : finished[-1]] if len(finished) > 1 else []
        reverted = any("came to nothing" in remark for remark in manifest.record.remarks)
        self.figures[
            f"{manifest.mode}{': ' + manifest.why if manifest.why else ''}{', went back' if reverted else ''}"
        ] += 1
        if not agent.provider.session_resumption:
            assert (manifest.mode, reverted) == ("full", False)
        elif len(finished) == 1:
            assert (manifest.mode, manifest.why, reverted) == ("full", "first request", False)
        elif since:
            assert (manifest.mode == "resume" and reverted) or (manifest.mode == "full" and manifest.why), (
                manifest.record
            )
        else:
            assert (manifest.mode, manifest.why, reverted) == ("resume", "", False), manifest.record


def _is_of(step: StepRecord, agent: cc.AgentExecutor) -> bool:
    return (step.provider, step.model) == (agent.provider.name, agent.provider.model_id)


@with_program(CODEX)
def test_nothing_is_lost_or_doubled_or_refused_in_restless_turns(program: ProgramUnderTest, tmp_path: Path) -> None:
    """Guarantees 9.2, 9.4 to 9.8, 9.10, 11.9: the checks are in `Audit`."""
    began = monotonic()
    figures = restless_turns(program, tmp_path, TURNS, seed=SEED)
    log.info("%s: %s in %.0f s", program, dict(sorted(figures.items())), monotonic() - began)
    assert figures["turns"] == TURNS
    assert figures["faults"]


def restless_turns(program: ProgramUnderTest, folder: Path, count: int, *, seed: int) -> Counter[str]:
    """So many turns, in conversations of a few each; what there was."""
    figures = Counter[str]()

    async def converse(seed: int, turns: int) -> None:
        recorder = RecordingTool()
        company = Company(setup, standin, recorder)
        person = Person(setup.store, f"talk {seed}", company.make, seed)
        audit = Audit(person, standin, recorder)
        try:
            for _ in range(turns):
                audit.check(await person.turn(company.drawn(program, person)))
        finally:
            await person.leave()
            figures.update(audit.figures + person.done)

    setup = AgentSetup(cc.open_store(f"sqlite:///{folder / 'chat.db'}"), folder)
    for number, first in enumerate(range(0, count, LENGTH)):
        drawn = 100 * seed + number
        with FakeVendors(Busy(drawn), faults=Foul(drawn, share=0.2, draws=FOUL)) as standin:
            asyncio.run(converse(drawn, min(LENGTH, count - first)))
            wrong = [record.refused for record in standin.refused]
            wrong += [defect for defect in standin.defects if RETOLD not in defect]
            assert not wrong, f"conversation {drawn}: {wrong}"
    setup.store.close()
    return figures
