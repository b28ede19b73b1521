"""What goes wrong with a session, on the real programs: nothing is lost, nothing is doubled, and the account says what
happened (Guarantees 9.3 to 9.8).
"""

import asyncio
import os
import shutil
import signal
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

import contextc as cc
from contextc.compiler.manifest import Manifest
from contextc.events import TextDelta
from contextc.store import session_transcripts
from tests.fake_vendors import AcceptedRequest, FakeVendors, Fault, Plan, Reply, RequestRecord, ScriptedCall, faults
from tests.fake_vendors.responses import refused
from tests.sessions.cli_agents import (
    CLAUDE,
    CODEX,
    AgentSetup,
    Marked,
    ProgramUnderTest,
    answered,
    marks,
    run_turns,
    turn,
    with_program,
)


@pytest.fixture
def setup(tmp_path: Path) -> AgentSetup:
    return AgentSetup(cc.open_store(f"sqlite:///{tmp_path / 'chat.db'}"), tmp_path)


def account(agent: cc.AgentExecutor, request: int | None = None) -> Manifest:
    return agent.compiler.explain("talk", request, name="assistant", directory=agent.directory)


def once(record: RequestRecord, *expected: str) -> None:
    """Everything expected is in a request, and nothing that bears a mark is there twice."""
    found = marks(record)
    assert {mark: found[mark] for mark in expected} == dict.fromkeys(expected, 1)
    assert not {mark for mark, times in found.items() if times > 1}


def children() -> set[int]:
    """The processes that this one has started."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


@with_program(CODEX)
def test_an_overloaded_api_and_then_success(program: ProgramUnderTest, setup: AgentSetup) -> None:
    """Guarantee 9.8: a prompt that failed is in the session, and is taken back before it is sent again."""
    plan = faults.listed(None, faults.overloaded())
    with FakeVendors(Marked(), faults=plan) as standin:
        line = setup.line(setup.provider(program, standin), retries=0)
        agent = setup.agent(program, standin, endpoint=line)
        run_turns(agent, "talk", "«u1» Hello.", "«u2» Are you there?", "«u3» And now?")
        once(answered(standin)[-1], "«u1»", "«u2»", "«u3»", "«a1»")
    assert not standin.refused
    assert [message.status for message in setup.store.load("talk")] == ["sent"] * 6


@with_program(CODEX)
def test_an_overloaded_api_in_the_middle_of_a_turn_costs_none_of_its_steps(
    program: ProgramUnderTest, setup: AgentSetup
) -> None:
    """Guarantees 9.8, 11.11: what its tools did cannot be sent again, so the program itself asks again."""

    def look(thing: str) -> str:
        """Look at a thing."""
        texts.append(thing)
        return "«seen» It is there."

    def script(ask: AcceptedRequest) -> Reply:
        is_asked = "«use look»" in ask.request.messages[-1].text
        return Reply("I look.", [ScriptedCall(name, {"thing": "cup"})]) if is_asked else marked(ask)

    name = "mcp__contextc__look" if program is CLAUDE else "look"
    texts, marked = list[str](), Marked()
    with FakeVendors(script, faults=faults.listed(None, None, faults.overloaded())) as standin:
        agent = setup.agent(program, standin, tools=[look])
        run_turns(agent, "talk", "«u1» Hello.", "«u2» Please «use look».", "«u3» And now?")
        once(answered(standin)[-1], "«u1»", "«u2»", "«u3»", "«seen»", "«a1»", "«a3»")
    assert texts == ["cup"]
    assert [record.fault for record in standin.records] == ["", "", "overloaded", "", ""]
    assert [message.status for message in setup.store.load("talk")] == ["sent"] * 8


@with_program(CODEX)
def test_the_program_is_killed_in_the_stream(program: ProgramUnderTest, setup: AgentSetup) -> None:
    """Guarantee 9.8."""

    def plan(ask: AcceptedRequest) -> Fault | None:
        return faults.stalled(0.6) if ask.number == 1 else None

    async def work() -> None:
        await turn(agent, "talk", "«u1» Hello.")
        before = children()
        running = agent.start("talk", "«u2» Tell me more.")
        async with aclosing(running.events()) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        for pid in children() | before:
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                if b"claude" in (command := Path(f"/proc/{pid}/cmdline").read_bytes()) or b"codex" in command:
                    os.kill(pid, signal.SIGKILL)
        await running.wait()
        await turn(agent, "talk", "«u3» Go on.")
        await (await agent.client()).close()

    with FakeVendors(Marked(), faults=plan) as standin:
        agent = setup.agent(program, standin)
        asyncio.run(work())
        once(answered(standin)[-1], "«u1»", "«u2»", "«u3»", "«a1»")
    assert not standin.refused
    assert any("came to nothing" in remark for remark in account(agent).record.remarks)


@with_program(CODEX)
def test_a_session_that_was_deleted_starts_over_with_everything(program: ProgramUnderTest, setup: AgentSetup) -> None:
    """Guarantees 9.5, 9.6: full context into a new session, and the account says why."""
    with FakeVendors(Marked()) as standin:
        agent = setup.agent(program, standin)
        run_turns(agent, "talk", "«u1» Hello.", "«u2» More.")
        for folder in ("claude/projects", "codex/sessions"):
            shutil.rmtree(setup.home / folder, ignore_errors=True)
        setup.store.write(lambda tx: session_transcripts.delete_of_conversation(tx, "talk"))
        run_turns(setup.agent(program, standin), "talk", "«u3» And now?")
        once(answered(standin)[-1], "«u1»", "«u2»", "«u3»", "«a1»", "«a2»")
    result = account(agent)
    assert (result.mode, result.why) == ("full", "the provider no longer has the session")
    assert not standin.refused


def test_another_directory_is_another_session_of_claude_code(setup: AgentSetup, tmp_path: Path) -> None:
    """Guarantees 9.1, 9.5."""
    other = tmp_path / "other"
    other.mkdir()
    with FakeVendors(Marked()) as standin:
        run_turns(setup.agent(CLAUDE, standin), "talk", "«u1» Hello.")
        moved = setup.agent(CLAUDE, standin, directory=other)
        run_turns(moved, "talk", "«u2» And here?")
        once(answered(standin)[-1], "«u1»", "«u2»", "«a1»")
    first, second = (session.channel.directory for session in cc.SessionManager(setup.store).sessions("talk"))
    assert (first, second) == (os.path.realpath(setup.work), os.path.realpath(other))
    assert account(moved).mode == "full"


def test_a_thread_of_codex_goes_along_to_another_directory(setup: AgentSetup, tmp_path: Path) -> None:
    """Guarantee 9.1: it is bound to none."""
    other = tmp_path / "other"
    other.mkdir()
    with FakeVendors(Marked()) as standin:
        run_turns(setup.agent(CODEX, standin), "talk", "«u1» Hello.")
        moved = setup.agent(CODEX, standin, directory=other)
        run_turns(moved, "talk", "«u2» And here?")
        once(answered(standin)[-1], "«u1»", "«u2»", "«a1»")
    assert account(moved).mode == "resume"


@with_program(CODEX)
def test_a_changed_static_prompt_is_reported_in_the_session(program: ProgramUnderTest, setup: AgentSetup) -> None:
    """Guarantee 9.3: an update, because a session keeps the prompt it began with."""
    with FakeVendors(Marked()) as standin:
        run_turns(setup.agent(program, standin, instructions="«old» Be brief."), "talk", "«u1» Hello.")
        changed = setup.agent(program, standin, instructions="«new» Be long.")
        run_turns(changed, "talk", "«u2» And now?", "«u3» Still?")
        once(answered(standin)[-1], "«old»", "«new»", "«u1»", "«u2»", "«u3»")
    assert [account(changed, number).mode for number in (1, 2, 3)] == ["full", "resume", "resume"]


@with_program(CODEX)
def test_another_model_is_given_everything_in_a_session_of_its_own(
    program: ProgramUnderTest, setup: AgentSetup
) -> None:
    """Guarantees 9.1, 9.10."""
    with FakeVendors(Marked()) as standin:
        run_turns(setup.agent(program, standin), "talk", "«u1» Hello.")
        run_turns(setup.agent(program, standin, model=program.other), "talk", "«u2» And you?")
        once(answered(standin)[-1], "«u1»", "«a1»", "«u2»")
        run_turns(setup.agent(program, standin), "talk", "«u3» Back again.")
        once(answered(standin)[-1], "«u1»", "«a1»", "«u2»", "«a2»", "«u3»")
    assert {record.model for record in answered(standin)} == {program.model, program.other}


@with_program(CODEX)
def test_of_two_turns_at_once_one_waits_for_the_other(program: ProgramUnderTest, setup: AgentSetup) -> None:
    """Guarantee 9.7: one session has one writer."""

    async def work() -> None:
        first, second = setup.agent(program, standin), setup.agent(program, standin)
        await turn(first, "talk", "«u1» Hello.")
        both = [first.start("talk", "«u2» One.", wait=60), second.start("talk", "«u3» Two.", wait=60)]
        for each in both:
            assert (await each.wait()).finish == "stop"
        for agent in (first, second):
            await (await agent.client()).close()

    with FakeVendors(Marked(), faults=lambda ask: faults.slow(0.02)) as standin:
        asyncio.run(work())
        once(answered(standin)[-1], "«u1»", "«u2»", "«u3»", "«a1»", "«a2»")
    assert len(answered(standin)) == 3
    assert not standin.refused


def too_long(*marks: str) -> Plan:
    """The API finds every request too long that has these marks."""

    def plan(ask: AcceptedRequest) -> Fault | None:
        view = ask.raw.decode()
        if not all(mark in view for mark in marks):
            return None
        return Fault("too long", lambda answer, ask: refused(ask.vendor.too_long(ask, 210_000, 200_000)))

    return plan


@with_program(CODEX)
def test_a_session_that_is_too_long_for_the_model_starts_over(program: ProgramUnderTest, setup: AgentSetup) -> None:
    """Guarantees 7.6, 9.6: our own record is shown within a smaller budget, in a new session; and the account says
    why.
    """
    with FakeVendors(Marked(), faults=too_long("«a1»")) as standin:
        agent = setup.agent(program, standin, max_input_tokens=9_000, summarize=None)
        run_turns(agent, "talk", "«u1» Hello. " + "word " * 6_000, "«u2» And now?")
        once(answered(standin)[-1], "«u2»")
    assert (account(agent).mode, account(agent).why) == ("full", "the session has become too long for the model")
    assert [message.status for message in setup.store.load("talk")] == ["sent"] * 4


def test_a_history_that_claude_code_shortens_by_itself_is_noticed(setup: AgentSetup) -> None:
    """Guarantee 9.3: its compaction continues in the same session; the manifest reports it."""
    with FakeVendors(Marked(), faults=too_long("«u1»", "«u2»")) as standin:
        agent = setup.agent(CLAUDE, standin)
        run_turns(agent, "talk", "«u1» Hello. " + "word " * 6_000, "«u2» And now?", "«u3» Still there?")
        once(answered(standin)[-1], "«u2»", "«u3»")
    assert [account(agent, number).mode for number in (1, 2, 3)] == ["full", "resume", "resume"]
    assert "the provider shortened its own history" in account(agent, 2).record.remarks
    assert not account(agent, 3).record.remarks
