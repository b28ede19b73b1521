"""Stress simulation of sessions: random tool calls, API faults, cancelled turns and killed programs.

Every message and every tool result has a unique mark, also a second run of the same tool. The user's actions come from
a seed. Their timing depends on the machine, so two runs are never identical.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Literal, TypeAlias, cast

from msgspec import Struct

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import ContextcError
from contextc.executor import Turn, TurnResult
from contextc.messages import Message
from contextc.providers.claude_code.client import ClaudeCodeEndpoint
from contextc.providers.client import Endpoint
from contextc.providers.codex.client import CodexEndpoint
from contextc.tools.definitions import Tool
from tests.fake_vendors import AcceptedRequest, Reply, ScriptedCall, faults
from tests.fake_vendors.faults import Draw
from tests.sessions.cli_agents import MARK

Mishap: TypeAlias = Literal["", "cancel", "kill"]
IN_A_ROW = 3
SETTINGS: dict[str, JSONObject] = {
    "claude-code": {"allowed_tools": ["Bash"]},
    "codex": {"approvalPolicy": "never", "sandbox": "danger-full-access"},
}
"""Settings that let a program run commands without approval."""
FOUL: tuple[Draw, ...] = (
    lambda chance: faults.overloaded(),
    lambda chance: faults.internal(),
    lambda chance: faults.cut(chance.random()),
    lambda chance: faults.cut(chance.random(), reset=True),
    lambda chance: faults.error_inside(chance.random()),
    lambda chance: faults.reset(),
    lambda chance: faults.slow(chance.choice((0.01, 0.05))),
)


class Busy:
    """Script that answers or calls some of the offered tools, at most a few times in a row."""

    def __init__(self, seed: int, *, calls: float = 0.5) -> None:
        self.chance, self.calls = Random(f"model {seed}"), calls
        self.given = self.row = 0

    def __call__(self, ask: AcceptedRequest) -> Reply:
        self.given += 1
        offered = [tool.name for tool in ask.request.tools if isinstance(tool, Tool)]
        texts = [name for name in offered if name in ("Bash", "exec_command") or name.endswith("look")]
        if not texts or self.row >= IN_A_ROW or self.chance.random() >= self.calls:
            self.row = 0
            return Reply(f"«a{self.given}» I have read it, and this is all that I can say about it.")
        self.row += 1
        calls = [self._call(self.chance.choice(texts), number) for number in range(self.chance.choice((1, 1, 2)))]
        return Reply(f"«a{self.given}» Let me see.", calls)

    def _call(self, name: str, number: int) -> ScriptedCall:
        mark = f"{self.given}n{number}"
        command = f"sleep {self.chance.choice((0, 0.2))}; echo «o{mark}p$$»"
        match name:
            case "Bash":
                return ScriptedCall(name, {"command": command, "description": "Say it"})
            case "exec_command":
                return ScriptedCall(name, {"cmd": command})
            case _:
                return ScriptedCall(name, {"thing": f"«c{mark}»"})


class RecordingTool:
    """Return a tool, and its results by call id. Each run has a new mark."""

    def __init__(self, name: str = "") -> None:
        self.gave: list[tuple[str, str]] = []
        self._numbers, self._name = count(1), name

    def note(self, call: str, mark: str) -> None:
        self.gave.append((call, mark))

    @property
    def look(self) -> cc.tools.FunctionTool:
        def look(thing: str, context: cc.ToolContext) -> str:
            """Look at a thing."""
            mark = f"«r{self._name}{next(self._numbers)}»"
            self.note(context.call.id, mark)
            time.sleep(0.05)
            return f"{mark} {thing[1:-1]} is there."

        return cc.tool(look)


class Played(Struct, frozen=True, kw_only=True):
    """One turn: its agent, the disturbance, and its outcome."""

    who: str
    agent: cc.AgentExecutor
    mishap: Mishap
    result: TurnResult


class Person:
    """Simulated user that alternates between agents in one conversation. `make` creates an agent by its name.

    It cancels turns and kills programs at any moment. An agent may be replaced by a new one of the same name.
    """

    def __init__(self, store: cc.Store, conversation: str, make: Callable[[str], cc.AgentExecutor], seed: int) -> None:
        self.store, self.conversation, self.make = store, conversation, make
        self.chance = Random(f"person {seed}")
        self.agents: dict[str, cc.AgentExecutor] = {}
        self.said: list[str] = []
        self.done = Counter[str]()
        self._numbers = count(1)

    async def turn(self, who: str) -> Played:
        chance = self.chance
        if chance.random() < 0.3:
            self.store.append(self.conversation, cc.system(self._words("s")))
        if chance.random() < 0.15:
            await self._replace(who)
        agent = self.agents.get(who) or self.agents.setdefault(who, self.make(who))
        if chance.random() < 0.05:
            self._kill(await agent.client())
        mishap = cast(Mishap, chance.choice(("",) * 6 + ("cancel",) * 2 + ("kill",) * 2))
        given = self._words("u") if chance.random() < 0.85 or not self.said else None
        turn = agent.start(self.conversation, given) if given or chance.random() < 0.5 else self._resumed(agent)
        trouble = asyncio.ensure_future(self._trouble(turn, mishap, chance.choice((0.3, 1.0, 3.0)) * chance.random()))
        if given and chance.random() < 0.1:
            await self._steer(agent)
        with suppress(ContextcError):  # the result contains it
            async for _ in turn.events():
                pass
        result = await turn.wait()
        trouble.cancel()
        if given and not result.turn:
            self.said.remove(given)  # it was never appended
        return Played(who=who, agent=agent, mishap=mishap, result=turn.results[-1])

    async def leave(self) -> None:
        for agent in self.agents.values():
            await (await agent.client()).close()

    def _resumed(self, agent: cc.AgentExecutor) -> Turn:
        return agent.resume(self.conversation)

    async def _steer(self, agent: cc.AgentExecutor) -> None:
        await asyncio.sleep(0.2 * self.chance.random())
        await agent.steer(self.conversation, self._words("u"))
        self.done["steer"] += 1

    async def _replace(self, who: str) -> None:
        if (agent := self.agents.pop(who, None)) is not None:
            await (await agent.client()).close()
            self.done["replace"] += 1

    async def _trouble(self, turn: Turn, mishap: Mishap, seconds: float) -> None:
        if not mishap:
            return
        await asyncio.sleep(seconds)
        if turn.done:
            return
        if mishap == "cancel":
            turn.cancel()
            self.done["cancel"] += 1
        else:
            self._kill(turn.config.clients.get())

    def _kill(self, line: Endpoint) -> None:
        """Kill the programs that this client started."""
        for pid in pids(line):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.done["kill"] += 1

    def _words(self, kind: Literal["u", "s"]) -> str:
        text = self.chance.choice(("Hello.", "And now?", "It is late. " * 9))
        self.said.append(f"«{kind}{next(self._numbers)}» {text}")
        return self.said[-1]


def pids(line: Endpoint) -> list[int]:
    """Return the running programs of a client."""
    match line:
        case ClaudeCodeEndpoint():
            return [live.pid for live in line.running if live.pid]
        case CodexEndpoint():
            return [line.pid] if line.pid else []
        case _:
            return []


def visible(messages: list[Message]) -> Counter[str]:
    """Return the marks that a model is sent: those of complete messages and of their tool results."""
    shown = [message for message in messages if message.status == "sent"]
    asked = {call.id for message in shown for call in message.tool_calls}
    found = Counter[str]()
    for message in shown:
        found.update(MARK.findall(message.text))
        for call in message.tool_calls:
            found.update(MARK.findall(str(call.arguments)))
        for result in message.tool_results:
            if result.call_id in asked:
                found.update(MARK.findall(result.text))
    return found
