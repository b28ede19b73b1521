"""Summaries that are written in the background, before the window is full.

From a share of the window on, a task asks for the summary while the turn goes on. The summary is stored, and is used
where the context is trimmed next. So a turn waits for a summary only if the window is full before it is written. At
most one is written for a conversation of an agent at a time, in all processes: a claim in the store says so, for as
long as its process lives, or until it expires. A task that fails, or is cancelled, stores nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from contextc._credential_mask import get_logger
from contextc._json import JSONObject
from contextc._worker_threads import run_blocking
from contextc.compiler.compaction import CompactionSteps
from contextc.compiler.summary_request import SummarizerInput
from contextc.errors import ContextcError
from contextc.executor.agent_config import AgentConfig
from contextc.executor.summarizer import ModelSummary, begin_compaction, run_compaction
from contextc.store import turn_and_event_records as records
from contextc.store.append_and_load import now_ms
from contextc.store.backend_interface import Transaction
from contextc.store.leases import current_process, has_ended
from contextc.store.message_rows import load_tip

log = get_logger("contextc.executor")
CHECK_STEP = 0.05
"""The share of the window by which a conversation must grow before it is checked again."""
MAX_SECONDS = 600.0
"""Time limit of a summary in the background, and of its claim."""
CLAIM_STATE = "contextc.summarizing"
"""Name of the state with the process that writes a summary."""


class _Writing(NamedTuple):
    """A summary that is being written. `is_prepared` is set when its request is known, or when the task has ended."""

    task: asyncio.Task[None]
    is_prepared: asyncio.Event


class BackgroundSummaries:
    """The tasks that write summaries for one agent, by conversation."""

    def __init__(self) -> None:
        self._writing: dict[str, _Writing] = {}
        self._checked: dict[str, float] = {}
        self._written: set[str] = set()
        """The conversations with a new summary that no turn has looked for yet."""

    def start(
        self,
        config: AgentConfig,
        conversation: str,
        share: float,
        steps: Callable[[], CompactionSteps],
        summarize: Callable[[SummarizerInput], Awaitable[ModelSummary]],
    ) -> None:
        """Start a task if the context is full enough, and no summary of this conversation is being written yet.

        The steps end without a summary if the next trimming would not need one.
        """
        if config.summarize_at is None or share < config.summarize_at:
            self._checked.pop(conversation, None)
            return
        if conversation in self._writing or share < self._checked.get(conversation, 0) + CHECK_STEP:
            return
        self._checked[conversation] = share
        is_prepared = asyncio.Event()
        written = self._write(config, conversation, steps, summarize, is_prepared)
        task = asyncio.get_running_loop().create_task(written)
        self._writing[conversation] = _Writing(task, is_prepared)

        def ended(_: asyncio.Task[None]) -> None:
            self._writing.pop(conversation, None)
            is_prepared.set()

        task.add_done_callback(ended)

    async def _write(
        self,
        config: AgentConfig,
        conversation: str,
        steps: Callable[[], CompactionSteps],
        summarize: Callable[[SummarizerInput], Awaitable[ModelSummary]],
        is_prepared: asyncio.Event,
    ) -> None:
        claim = _Claim(config, conversation)
        try:
            async with asyncio.timeout(MAX_SECONDS):
                if not await run_blocking(claim.take):
                    return
                try:
                    compaction = steps()
                    reached = await begin_compaction(compaction)
                    is_prepared.set()
                    if isinstance(reached, SummarizerInput):
                        self._checked[conversation] = 1.0  # asked for once until the context is trimmed
                    if await run_compaction(compaction, summarize, reached) is not None:
                        self._written.add(conversation)
                finally:
                    await run_blocking(claim.release)
        except Exception as error:
            _log_failure(conversation, error)

    async def wait_until_prepared(self, conversation: str) -> None:
        """Wait until a summary that was started has its request. Before the reply of the model is stored, there are no
        open calls, so that the request for the summary is the next one of the conversation.
        """
        if (writing := self._find(conversation)) is not None:
            await writing.is_prepared.wait()

    async def wait(self, conversation: str) -> bool:
        """Wait for the task of a conversation in this event loop. Return True if there is a new summary."""
        if (writing := self._find(conversation)) is not None:
            await asyncio.wait([writing.task])
        is_new = conversation in self._written
        self._written.discard(conversation)
        return is_new

    async def close(self) -> None:
        """Cancel the tasks of the running event loop, and wait for their end."""
        tasks = [found.task for name in list(self._writing) if (found := self._find(name)) is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _find(self, conversation: str) -> _Writing | None:
        """Return the summary of a conversation that is being written in the running event loop."""
        writing = self._writing.get(conversation)
        return writing if writing is not None and writing.task.get_loop() is asyncio.get_running_loop() else None


class _Claim:
    """The right to write a summary for an agent's view of a conversation."""

    def __init__(self, config: AgentConfig, conversation: str) -> None:
        self._store, self._agent, self._conversation = config.store, config.agent, conversation
        self._state: JSONObject = {}

    def take(self) -> bool:
        def work(tx: Transaction) -> JSONObject:
            at = load_tip(tx, self._conversation, lock=True).conversation
            held = records.load_trigger_states(tx, at, self._agent).get(CLAIM_STATE) or {}
            is_ours = held.get("conversation") == at  # a fork has a copy of it
            if is_ours and held["until"] > now_ms() and not has_ended(held["holder"]):
                return {}
            until = now_ms() + int(MAX_SECONDS * 1000)
            claim: JSONObject = {"conversation": at, "holder": current_process(), "until": until}
            records.save_trigger_states(tx, at, self._agent, {CLAIM_STATE: claim})
            return claim

        self._state = self._store.write(work)
        return bool(self._state)

    def release(self) -> None:
        def work(tx: Transaction) -> None:
            at = load_tip(tx, self._conversation, lock=True).conversation
            if records.load_trigger_states(tx, at, self._agent).get(CLAIM_STATE) == self._state:
                records.save_trigger_states(tx, at, self._agent, {CLAIM_STATE: {}})

        self._store.write(work)


def _log_failure(conversation: str, error: Exception) -> None:
    foreseen = isinstance(error, ContextcError | TimeoutError)
    log.log(
        logging.INFO if foreseen else logging.ERROR,
        "%s: no summary was written in the background: %s",
        conversation,
        str(error).strip() or type(error).__name__,
        exc_info=None if foreseen else error,
    )
