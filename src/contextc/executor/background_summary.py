"""Summaries that are written in the background, before the window is full.

From a share of the window on, a task asks for the summary while the turn goes on. The summary is stored, and is used
where the context is trimmed next. So a turn waits for a summary only if the window is full before it is written. At
most one is written for a conversation of an agent at a time, in all processes: a claim in the store says so, for as
long as its process lives, or until it expires. A task that fails, or is cancelled, stores nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

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


class BackgroundSummaries:
    """The tasks that write summaries for one agent, by conversation."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._checked: dict[str, float] = {}
        self._written: set[str] = set()
        """The conversations with a new summary that no turn has looked for yet."""

    async def start(
        self,
        config: AgentConfig,
        conversation: str,
        share: float,
        steps: Callable[[], CompactionSteps],
        summarize: Callable[[SummarizerInput], Awaitable[ModelSummary]],
    ) -> None:
        """Start a task if the context is full enough, and no summary of this conversation is being written yet.

        The steps end without a summary if the next trimming would not need one. They run up to the request for the
        summary before this method returns: the turn has no open calls then, so that the request is its next one.
        """
        if config.summarize_at is None or share < config.summarize_at:
            self._checked.pop(conversation, None)
            return
        if conversation in self._tasks or share < self._checked.get(conversation, 0) + CHECK_STEP:
            return
        self._checked[conversation] = share
        try:
            compaction = steps()
            reached = await begin_compaction(compaction)
        except Exception as error:
            _log_failure(conversation, error)
            return
        if isinstance(reached, SummarizerInput):
            self._checked[conversation] = 1.0  # asked for once until the context is trimmed, also if it fails
            written = self._write(config, conversation, partial(run_compaction, compaction, summarize, reached))
            task = self._tasks[conversation] = asyncio.get_running_loop().create_task(written)
            task.add_done_callback(lambda _: self._tasks.pop(conversation, None))

    async def _write(self, config: AgentConfig, conversation: str, run: Callable[[], Awaitable[object]]) -> None:
        claim = _Claim(config, conversation)
        try:
            async with asyncio.timeout(MAX_SECONDS):
                if not await run_blocking(claim.take):
                    return
                try:
                    if await run() is not None:
                        self._written.add(conversation)
                finally:
                    await run_blocking(claim.release)
        except Exception as error:
            _log_failure(conversation, error)

    async def wait(self, conversation: str) -> bool:
        """Wait for the task of a conversation in this event loop. Return True if there is a new summary."""
        task = self._tasks.get(conversation)
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([task])
        is_new = conversation in self._written
        self._written.discard(conversation)
        return is_new

    async def close(self) -> None:
        """Cancel the tasks of the running event loop, and wait for their end."""
        loop = asyncio.get_running_loop()
        tasks = [task for task in self._tasks.values() if task.get_loop() is loop]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


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
