"""Ten turns with messages of other agents between them: the API gets everything exactly once."""

import asyncio
from pathlib import Path

import contextc as cc
from tests.fake_vendors import FakeVendors
from tests.sessions.cli_agents import CODEX, AgentSetup, Marked, ProgramUnderTest, answered, marks, turn, with_program

TURNS, RESTART = 10, 6


@with_program(CODEX)
def test_ten_turns_with_injections_are_shown_once_each(program: ProgramUnderTest, tmp_path: Path) -> None:
    """Guarantees 9.2, 9.4: the program holds the conversation, and is given what is new; also after a restart."""
    setup = AgentSetup(cc.open_store(f"sqlite:///{tmp_path / 'chat.db'}"), tmp_path)

    async def work(standin: FakeVendors, first: int, last: int) -> cc.AgentExecutor:
        agent = setup.agent(program, standin, instructions="«static» Be brief.")
        for number in range(first, last + 1):
            if number % 2:
                setup.store.append("talk", cc.system(f"«s{number}» The clock says {number}."))
            await turn(agent, "talk", f"«u{number}» Question {number}.")
        await (await agent.client()).close()
        return agent

    with FakeVendors(Marked()) as standin:
        asyncio.run(work(standin, 1, RESTART - 1))
        agent = asyncio.run(work(standin, RESTART, TURNS))
        last = marks(answered(standin)[-1])

    expected = {"«static»", *(f"«u{number}»" for number in range(1, TURNS + 1))}
    expected |= {f"«s{number}»" for number in range(1, TURNS + 1, 2)}
    expected |= {f"«a{number}»" for number in range(1, TURNS)}
    assert last == dict.fromkeys(expected, 1)
    assert not standin.refused
    assert len(answered(standin)) == TURNS, "one request a turn"

    sizes = [len(agent.compiler.rebuild("talk", number, directory=str(setup.work))) for number in range(2, TURNS + 1)]
    assert max(sizes) - min(sizes) < 200, "what is sent to the program does not grow with the conversation"
    modes = [agent.compiler.explain("talk", each, directory=str(setup.work)).mode for each in range(1, TURNS + 1)]
    assert modes == ["full", *["resume"] * (TURNS - 1)]
