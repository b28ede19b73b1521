"""Implementation of the Agent SDK's `SessionStore` that keeps Claude Code's transcripts in a contextc store.

    ClaudeAgentOptions(session_store=cc.providers.ClaudeSessions(store), resume=…)

So a session can be resumed on another machine, or when the CLI's folder is gone. An append is one transaction: it is
durable when it returns, and repeated entries are stored once. The store is synchronous, so it is called on a worker
thread. A cancellation takes effect after the transaction. Transcripts belong to `conversation`: they are deleted with
it, and also when something in it is redacted.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from contextc._json import JSONObject
from contextc.store import Store, session_transcripts
from contextc.store.message_rows import check_name
from contextc.store.session_transcripts import EntryBatch, TranscriptKey

if TYPE_CHECKING:
    from claude_agent_sdk import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

T = TypeVar("T")


class ClaudeSessions:
    """Transcripts of Claude Code in a store. Any number of instances and processes may write concurrently."""

    def __init__(self, store: Store, conversation: str = "") -> None:
        if conversation:
            check_name(conversation)
        self.store, self.conversation = store, conversation

    async def append(self, key: "SessionKey", entries: "list[SessionStoreEntry]") -> None:
        """Append entries to a transcript. An entry whose `uuid` already exists is skipped."""
        where = _where(key)
        batch = EntryBatch(cast(list[JSONObject], entries))
        fold = None if where.subpath else _folding(key)
        await _on_thread(
            lambda: self.store.write(
                lambda tx: session_transcripts.append_entries(tx, where, batch, self.conversation, fold),
                repeatable=True,
            )
        )

    async def load(self, key: "SessionKey") -> "list[SessionStoreEntry] | None":
        """Return all entries of a transcript, or None if it does not exist."""
        where = _where(key)
        found = await _on_thread(lambda: self.store.read(lambda tx: session_transcripts.load_entries(tx, where)))
        return cast("list[SessionStoreEntry] | None", found)

    async def list_sessions(self, project_key: str) -> "list[SessionStoreListEntry]":
        """Return the sessions of a project, with the time of their last append in milliseconds."""
        return [{"session_id": session, "mtime": time} for session, time, _ in await self._sessions(project_key)]

    async def list_session_summaries(self, project_key: str) -> "list[SessionSummaryEntry]":
        """Return the SDK's summary of each session of a project, such as title and first prompt."""
        return [
            {"session_id": session, "mtime": time, "data": data}
            for session, time, data in await self._sessions(project_key)
            if data is not None
        ]

    async def delete(self, key: "SessionKey") -> None:
        """Delete a transcript permanently. A main transcript is deleted with those of its subagents."""
        where = _where(key)
        await _on_thread(lambda: self.store.drop_transcript(where))

    async def list_subkeys(self, key: "SessionListSubkeysKey") -> list[str]:
        """Return the subpaths of a session: the transcripts of its subagents."""
        project, session = key["project_key"], key["session_id"]
        return await _on_thread(
            lambda: self.store.read(lambda tx: session_transcripts.list_subpaths(tx, project, session))
        )

    async def _sessions(self, project: str) -> list[tuple[str, int, JSONObject | None]]:
        return await _on_thread(lambda: self.store.read(lambda tx: session_transcripts.list_sessions(tx, project)))


def _where(key: "SessionKey") -> TranscriptKey:
    return TranscriptKey(key["project_key"], key["session_id"], key.get("subpath") or "")


def _folding(key: "SessionKey") -> session_transcripts.UpdateSummary:
    """Return a function that updates the SDK's summary of a session."""
    from claude_agent_sdk import fold_session_summary

    def fold(before: JSONObject | None, entries: list[JSONObject]) -> JSONObject:
        known: SessionSummaryEntry | None = None
        if before is not None:
            known = {"session_id": key["session_id"], "mtime": 0, "data": before}
        return fold_session_summary(known, key, cast("list[SessionStoreEntry]", entries))["data"]

    return fold


async def _on_thread(work: Callable[[], T]) -> T:
    from anyio import CapacityLimiter
    from anyio.to_thread import run_sync  # supports every event loop that the SDK supports

    return await run_sync(work, limiter=CapacityLimiter(1))  # not the limiter that the whole process shares
