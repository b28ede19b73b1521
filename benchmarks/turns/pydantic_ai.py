"""pydantic-ai: an agent on Anthropic with a history processor that cuts to the window. It stores nothing.

It streams from Anthropic by itself, because a long reply may take longer than a connection that is silent.
"""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2

from converters import CLAUDE, TOOL, Said
from transcripts import system_prompt
from trimmers import PydanticAI
from turns.script import DESCRIPTION, QUESTION, Asked, anthropic_streams, streaming

# Any: the peers are not part of this project's environment, so their types are not known here.


class Subject:
    stores = "nothing"

    def __init__(self, folder: Path) -> None:
        self.transport, self._results = streaming(), iter(list[str]())
        self._said = PydanticAI()
        package: Any = import_module("pydantic_ai")
        client = import_module("anthropic").AsyncAnthropic(
            api_key="none", max_retries=0, http_client=httpx2.AsyncClient(transport=self.transport)
        )
        provider: Any = import_module("pydantic_ai.providers.anthropic").AnthropicProvider(anthropic_client=client)
        self._agent: Any = package.Agent(
            import_module("pydantic_ai.models.anthropic").AnthropicModel(CLAUDE, provider=provider),
            instructions=system_prompt(),
            tools=[package.Tool(self._tool, name=TOOL, description=DESCRIPTION)],
            capabilities=[import_module("pydantic_ai.capabilities").ProcessHistory(self._said.recent)],
        )
        self._limits: Any = import_module("pydantic_ai.usage").UsageLimits(request_limit=None)
        self._runner = asyncio.Runner()
        self._history: list[Any] = []

    def _tool(self, query: str) -> str:
        return next(self._results)

    def fill(self, history: Sequence[Said]) -> None:
        self._history = [self._said.message(each) for each in history]

    def prepare(self, script: Sequence[Asked]) -> None:
        self._results = iter([asked.result for asked in script])
        self.transport.expect(anthropic_streams(script))

    def turn(self) -> str:
        return self._runner.run(self._turn())

    async def _turn(self) -> str:
        ran = await self._agent.run(QUESTION, message_history=self._history, usage_limits=self._limits)
        self._history = ran.all_messages()
        return ran.output

    def close(self) -> None:
        self._runner.close()
