"""The real Claude Code and Codex programs, each in a temporary home, with a strict fake of its vendor's API.

Every message has a unique mark. So the tests can count at the API how often each message reaches the model.
"""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import contextc as cc
from contextc.events import AnyEvent
from contextc.providers.client import Endpoint, endpoint
from tests.conftest import THOROUGH
from tests.fake_vendors import KEY, AcceptedRequest, FakeVendors, Reply, RequestRecord

VARIABLE = "CONTEXTC_STANDIN_KEY"
MARK = re.compile(r"«\w+»")


class ProgramUnderTest(Struct, frozen=True, kw_only=True):
    """A CLI agent: two of its models, and the format of its vendor's API."""

    name: str
    model: str
    other: str
    format: str
    bash: str
    """Name of its tool that runs commands."""

    def __str__(self) -> str:
        return self.name


CLAUDE = ProgramUnderTest(
    name="claude-code", model="claude-sonnet-4-5", other="claude-opus-4-5", format="anthropic", bash="Bash"
)
CODEX = ProgramUnderTest(name="codex", model="gpt-5.4", other="gpt-5.2", format="openai_responses", bash="exec_command")
PROGRAMS = (CLAUDE, CODEX)
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=str)


def with_program(quick: ProgramUnderTest) -> pytest.MarkDecorator:
    """Parametrize a test with this program, or with all of them in `make prove`."""
    return pytest.mark.parametrize("program", PROGRAMS if THOROUGH else [quick], ids=str)


class Marked:
    """Script that answers every request with a unique mark."""

    def __init__(self) -> None:
        self.given = 0

    def __call__(self, ask: AcceptedRequest) -> Reply:
        self.given += 1
        return Reply(f"«a{self.given}» I have read it.")


class AgentSetup:
    """A store, a home folder for the programs, and the clients."""

    def __init__(self, store: cc.Store, home: Path) -> None:
        self.store, self.home = store, home
        self.work = home / "work"
        for folder in (self.work, home / "claude", home / "codex"):
            folder.mkdir(parents=True, exist_ok=True)
        os.environ[VARIABLE] = KEY

    @property
    def env(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "CLAUDE_CONFIG_DIR": str(self.home / "claude"),
            "CODEX_HOME": str(self.home / "codex"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def provider(self, program: ProgramUnderTest, standin: FakeVendors, model: str = "") -> cc.Provider:
        spec = f"{program.name}:{model or program.model}"
        return cc.provider(spec, url=standin.url(program.format), key=VARIABLE)

    def line(self, provider: cc.Provider, **options: object) -> Endpoint:
        """Return an agent. `retries=0` disables the program's API retries, so the first error fails a turn."""
        return endpoint(provider, store=self.store, env=self.env, **options)

    def agent(
        self,
        program: ProgramUnderTest,
        standin: FakeVendors,
        *,
        model: str = "",
        directory: Path | None = None,
        triggers: Iterable[cc.Trigger] = (),
        **options: Any,
    ) -> cc.AgentExecutor:
        provider = self.provider(program, standin, model)
        given: dict[str, Any] = {"directory": str(directory or self.work), "endpoint": self.line(provider), **options}
        return cc.AgentExecutor(self.store, provider, triggers=triggers, **given)


async def turn(executor: cc.AgentExecutor, conversation: str, text: str | None) -> list[AnyEvent]:
    """Run one turn and return its events."""
    async with aclosing(executor.run(conversation, text)) as events:
        return [event async for event in events]


def run_turns(executor: cc.AgentExecutor, conversation: str, *texts: str) -> None:
    """Run turns sequentially on a new event loop, then close the client."""

    async def work() -> None:
        line = await executor.client()
        try:
            for text in texts:
                await turn(executor, conversation, text)
        finally:
            await line.close()

    asyncio.run(work())


def answered(standin: FakeVendors) -> list[RequestRecord]:
    """Return the answered requests, without a program's auxiliary ones."""
    return [record for record in standin.records if record.reply is not None]


def marks(record: RequestRecord) -> Counter[str]:
    """Return the number of occurrences of each mark in a request."""
    return Counter(MARK.findall(record.raw.decode()))


def twice(found: Counter[str]) -> Iterator[str]:
    return (mark for mark, times in found.items() if times > 1)
