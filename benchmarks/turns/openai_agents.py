"""openai-agents: its runner on OpenAI's chat API, with the SQLite session and a limit of items.

On the Responses API, its default, it takes several times as long: OpenAI's SDK then goes through each item anew.
"""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2

import converters
from converters import GPT, TOOL, Said
from transcripts import system_prompt
from trimmers import KEPT
from turns.script import CONVERSATION, DESCRIPTION, QUESTION, Asked, answering, openai_replies

# Any: the peers are not part of this project's environment, so their types are not known here.


class Subject:
    stores = "every step"

    def __init__(self, folder: Path) -> None:
        self.transport, self._results = answering(), iter(list[str]())
        self._said = converters.OpenAIAgents()
        package: Any = import_module("agents")
        package.set_tracing_disabled(True)
        client = import_module("openai").AsyncOpenAI(
            api_key="none", max_retries=0, http_client=httpx2.AsyncClient(transport=self.transport)
        )
        tool: Any = package.function_tool(self._tool, name_override=TOOL, description_override=DESCRIPTION)
        model: Any = import_module("agents.models.openai_chatcompletions").OpenAIChatCompletionsModel(GPT, client)
        self._agent: Any = package.Agent(name="assistant", instructions=system_prompt(), tools=[tool], model=model)
        settings: Any = import_module("agents.memory").SessionSettings(limit=KEPT)
        self._session: Any = package.SQLiteSession(CONVERSATION, folder / "openai_agents.db", session_settings=settings)
        self._run: Any = package.Runner.run
        self._runner = asyncio.Runner()

    def _tool(self, query: str) -> str:
        return next(self._results)

    def fill(self, history: Sequence[Said]) -> None:
        items = [item for index, each in enumerate(history) for item in self._said.items(each, index)]
        self._runner.run(self._session.add_items(items))

    def prepare(self, script: Sequence[Asked]) -> None:
        self._results = iter([asked.result for asked in script])
        self.transport.expect(openai_replies(script))

    def turn(self) -> str:
        return self._runner.run(self._turn())

    async def _turn(self) -> str:
        ran = await self._run(self._agent, QUESTION, session=self._session, max_turns=1_000)
        return ran.final_output

    def close(self) -> None:
        self._runner.close()
        self._session.close()
