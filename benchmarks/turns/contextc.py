"""contextc: the executor, with its events, its default triggers, and every step durable in SQLite with full sync."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import httpx2

import contextc as cc
from contextc.events import TurnFinish
from contextc.providers.client import endpoint
from converters import TOOL, Said
from transcripts import system_prompt
from trimmers import PROVIDER, WINDOW, message
from turns.script import CONVERSATION, DESCRIPTION, QUESTION, Asked, anthropic_streams, streaming


class Subject:
    stores = "every step, synced"

    def __init__(self, folder: Path | None = None, *, store: cc.Store | None = None) -> None:
        self.transport, self._results = streaming(), iter(list[str]())
        self._runner = asyncio.Runner()
        self.store = store or cc.open_store(f"sqlite:///{(folder or Path()) / 'contextc.db'}")
        provider = cc.provider(PROVIDER, window=WINDOW)
        self.executor = cc.AgentExecutor(
            self.store,
            provider,
            tools=[cc.tool(self._tool, name=TOOL, description=DESCRIPTION)],
            triggers=cc.default_triggers(),
            instructions=system_prompt(),
            summarize=None,  # the peers cut, too
            endpoint=endpoint(provider, http_client=httpx2.AsyncClient(transport=self.transport)),
        )

    def _tool(self, query: str) -> str:
        return next(self._results)

    def fill(self, history: Sequence[Said]) -> None:
        for start in range(0, len(history), 1000):
            self.store.extend(CONVERSATION, [message(each) for each in history[start : start + 1000]])

    def prepare(self, script: Sequence[Asked]) -> None:
        self._results = iter([asked.result for asked in script])
        self.transport.expect(anthropic_streams(script))

    def turn(self) -> str:
        self.run(CONVERSATION)
        return self.store.load(CONVERSATION, last=1)[0].text

    def run(self, conversation: str) -> None:
        """Run the turn in a conversation."""
        self._runner.run(self._turn(conversation))

    async def _turn(self, conversation: str) -> None:
        last = None
        async for event in self.executor.run(conversation, QUESTION):
            last = event
        assert isinstance(last, TurnFinish)

    def close(self) -> None:
        self._runner.run(self.executor.close())
        self._runner.close()
        self.store.close()
