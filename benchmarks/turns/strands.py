"""strands: its agent on Anthropic, with the sliding window applied before each call and sessions in files."""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2

from converters import CLAUDE, TOOL, Said
from transcripts import system_prompt
from trimmers import KEPT, OUTPUT, Strands
from turns.script import CONVERSATION, DESCRIPTION, QUESTION, Asked, anthropic_streams, streaming

# Any: the peers are not part of this project's environment, so their types are not known here.


class Subject:
    stores = "every step"

    def __init__(self, folder: Path) -> None:
        self.transport, self._results = streaming(), iter(list[str]())
        self._folder, self._said = folder / "strands", Strands()
        self._model: Any = import_module("strands.models.anthropic").AnthropicModel(
            client_args={
                "api_key": "none",
                "max_retries": 0,
                "http_client": httpx2.AsyncClient(transport=self.transport),
            },
            model_id=CLAUDE,
            max_tokens=OUTPUT,
        )
        self._package: Any = import_module("strands")
        self._runner = asyncio.Runner()
        self._agent: Any = None

    def _tool(self, query: str) -> str:
        return next(self._results)

    def fill(self, history: Sequence[Said]) -> None:
        managers: Any = import_module("strands.agent.conversation_manager")
        sessions: Any = import_module("strands.session.file_session_manager")
        self._agent = self._package.Agent(
            model=self._model,
            messages=[self._said.message(each) for each in history],
            system_prompt=system_prompt(),
            tools=[self._package.tool(name=TOOL, description=DESCRIPTION)(self._tool)],
            callback_handler=None,
            conversation_manager=managers.SlidingWindowConversationManager(window_size=KEPT, per_turn=True),
            session_manager=sessions.FileSessionManager(CONVERSATION, storage_dir=str(self._folder)),
        )

    def prepare(self, script: Sequence[Asked]) -> None:
        self._results = iter([asked.result for asked in script])
        self.transport.expect(anthropic_streams(script))

    def turn(self) -> str:
        return str(self._runner.run(self._agent.invoke_async(QUESTION))).strip()

    def close(self) -> None:
        self._runner.close()
