"""Triggers, steering and limits between the calls that a program makes within one prompt.

Every text has a unique mark, which is counted in each request that the API gets.
"""

import asyncio
from pathlib import Path

import contextc as cc
from contextc.events import InputDequeued, SystemMessageCreated, UserNoticeCreated
from contextc.tools.definitions import Tool
from tests.fake_vendors import AcceptedRequest, FakeVendors, Reply, ScriptedCall
from tests.sessions.cli_agents import (
    CLAUDE,
    CODEX,
    AgentSetup,
    ProgramUnderTest,
    answered,
    each_program,
    marks,
    turn,
    twice,
    with_program,
)
from tests.sessions.stress_simulation import SETTINGS

CALLS = 11


class Working:
    """Script that makes calls one after the other, and then only answers."""

    def __init__(self, tool: str = "look") -> None:
        self.tool, self.given, self.calls = tool, 0, CALLS

    def __call__(self, ask: AcceptedRequest) -> Reply:
        self.given += 1
        if self.given > self.calls:
            return Reply(f"«a{self.given}» Done.")
        (name,) = [each.name for each in ask.request.tools if isinstance(each, Tool) and each.name.endswith(self.tool)]
        arguments: dict[str, object] = {"thing": f"it {self.given}"}
        if self.tool == "Bash":
            arguments = {"command": f"echo {self.given}", "description": "Say it"}
        elif self.tool == "exec_command":
            arguments = {"cmd": f"echo {self.given}"}
        return Reply(f"«a{self.given}» Let me see.", [ScriptedCall(name, arguments)])


@cc.trigger("two_calls", once=True)
def two_calls(moment: cc.TriggerContext) -> str | None:
    return "«w» Two calls are made." if moment.tool_calls >= 2 else None


def first_request_with(standin: FakeVendors, mark: str) -> int:
    return next(number for number, record in enumerate(answered(standin), 1) if marks(record)[mark])


@each_program
def test_the_model_reads_warnings_and_steering_between_its_calls(program: ProgramUnderTest, tmp_path: Path) -> None:
    """Guarantees 9.2, 11.3, 11.9: once in each later request, also of another process and of another provider."""
    setup = AgentSetup(cc.open_store(f"sqlite:///{tmp_path / 'chat.db'}"), tmp_path)

    def agent(standin: FakeVendors) -> cc.AgentExecutor:
        async def look(thing: str) -> str:
            """Look at a thing."""
            if thing == "it 3":
                await made[-1].steer("talk", "«s» Look at the tests first.")
            return f"{thing} is there"

        triggers = [*cc.default_triggers(), two_calls]
        made = [setup.agent(program, standin, tools=[look], triggers=triggers)]
        return made[-1]

    with FakeVendors(Working()) as standin:

        async def work(executor: cc.AgentExecutor, *texts: str) -> None:
            for text in texts:
                found = await turn(executor, "talk", text)
                if text == "«u1» Go.":
                    events.extend(found)
            await (await executor.client()).close()

        events: list[cc.events.AnyEvent] = []
        asyncio.run(work(agent(standin), "«u1» Go.", "«u2» And now?"))
        assert (first_request_with(standin, "«w»"), first_request_with(standin, "«s»")) == (3, 4)
        asyncio.run(work(agent(standin), "«u3» And in another process?"))
        assert not [mark for record in answered(standin) for mark in twice(marks(record))]
        assert {"«w»", "«s»", "«u1»", "«u2»", "«u3»"} <= set(marks(answered(standin)[-1]))
        assert not standin.refused

    made = [event for event in events if isinstance(event, SystemMessageCreated | InputDequeued | UserNoticeCreated)]
    assert [type(event) for event in made] == [SystemMessageCreated, InputDequeued, UserNoticeCreated]
    roles = [message.role for message in setup.store.load("talk")[:10]]
    assert roles == ["user", *["assistant", "tool"] * 2, "system", "assistant", "tool", "user", "assistant"]
    other = cc.MessageCompiler(setup.store, "anthropic:claude-sonnet-4-5").compile("talk")
    assert [other.body.decode().count(mark) for mark in ("«w»", "«s»", "«u3»")] == [1, 1, 1]


@with_program(CLAUDE)
def test_a_limit_of_tool_calls_ends_the_prompt_of_a_program(program: ProgramUnderTest, tmp_path: Path) -> None:
    """Guarantee 11.2: the fourth call of three does not run, and the session can be continued."""
    setup = AgentSetup(cc.open_store(f"sqlite:///{tmp_path / 'chat.db'}"), tmp_path)

    async def work(standin: FakeVendors) -> None:
        settings = SETTINGS[program.name]
        agent = setup.agent(program, standin, limits=cc.Limits(tool_calls=3), settings=settings)
        result = await agent.start("talk", "«u1» Go.").wait()
        assert (result.finish, result.error) == ("max_tool_calls", None)
        ran = [part for message in setup.store.load("talk") for part in message.tool_results if not part.is_error]
        assert result.tool_calls == 3
        assert len(ran) == 3 or (program is CODEX and len(ran) == 4), "Codex starts a call before it can be denied"
        assert [message for message in setup.store.load("talk") if not message.parts] == []
        script.calls = 0
        continued = await agent.resume("talk").wait()
        assert (continued.turn, continued.finish, continued.text) == (2, "stop", f"«a{script.given}» Done.")
        assert (await agent.start("talk", "«u2» And now?").wait()).finish == "stop"
        await (await agent.client()).close()

    script = Working(program.bash)
    with FakeVendors(script) as standin:
        asyncio.run(work(standin))
        assert not list(twice(marks(answered(standin)[-1])))
        assert {"«u1»", "«u2»"} <= set(marks(answered(standin)[-1]))
