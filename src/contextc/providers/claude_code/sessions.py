"""Claude Code's own record of its sessions, kept in a store of ours: the SDK's `SessionStore`.

    ClaudeAgentOptions(session_store=cc.ClaudeSessions(store), resume=…)

So a session can be gone on with on another machine, or when the CLI's folder is gone. An append is one transaction:
durable when it returns, and the same entries given again are stored once. The store is synchronous, so it is called on
a worker thread; who is cancelled meanwhile is told so when the transaction is over. `conversation` says whose words
these are: with that conversation they are deleted, and where something in it is redacted they go too.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from contextc._json import JSONObject
from contextc.store import Store, transcripts
from contextc.store.places import check_name
from contextc.store.transcripts import Batch, TranscriptKey

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
    """Transcripts of Claude Code in a store. Any number of them, in any number of processes, may write at once."""

    def __init__(self, store: Store, conversation: str = "") -> None:
        if conversation:
            check_name(conversation)
        self.store, self.conversation = store, conversation

    async def append(self, key: "SessionKey", entries: "list[SessionStoreEntry]") -> None:
        """Store entries at the end of a transcript. One that has a `uuid` and is there already is passed over."""
        where = _where(key)
        batch = Batch(cast(list[JSONObject], entries))
        fold = None if where.subpath else _folding(key)
        await _on_thread(
            lambda: self.store.write(
                lambda tx: transcripts.append(tx, where, batch, self.conversation, fold), repeatable=True
            )
        )

    async def load(self, key: "SessionKey") -> "list[SessionStoreEntry] | None":
        """All entries of a transcript; None where there is none."""
        where = _where(key)
        found = await _on_thread(lambda: self.store.read(lambda tx: transcripts.load(tx, where)))
        return cast("list[SessionStoreEntry] | None", found)

    async def list_sessions(self, project_key: str) -> "list[SessionStoreListEntry]":
        """The sessions of a project, with the time of their last append in milliseconds."""
        return [{"session_id": session, "mtime": time} for session, time, _ in await self._sessions(project_key)]

    async def list_session_summaries(self, project_key: str) -> "list[SessionSummaryEntry]":
        """What the SDK keeps beside each session of a project: its title, its first prompt."""
        return [
            {"session_id": session, "mtime": time, "data": data}
            for session, time, data in await self._sessions(project_key)
            if data is not None
        ]

    async def delete(self, key: "SessionKey") -> None:
        """Remove a transcript for good; a main one with those of its subagents."""
        where = _where(key)
        await _on_thread(lambda: self.store.drop_transcript(where))

    async def list_subkeys(self, key: "SessionListSubkeysKey") -> list[str]:
        """The transcripts beneath a session: those of its subagents."""
        project, session = key["project_key"], key["session_id"]
        return await _on_thread(lambda: self.store.read(lambda tx: transcripts.subpaths(tx, project, session)))

    async def _sessions(self, project: str) -> list[tuple[str, int, JSONObject | None]]:
        return await _on_thread(lambda: self.store.read(lambda tx: transcripts.sessions(tx, project)))


def _where(key: "SessionKey") -> TranscriptKey:
    return TranscriptKey(key["project_key"], key["session_id"], key.get("subpath") or "")


def _folding(key: "SessionKey") -> transcripts.Fold:
    """The SDK's own summary of a session."""
    from claude_agent_sdk import fold_session_summary

    def fold(before: JSONObject | None, entries: list[JSONObject]) -> JSONObject:
        known: SessionSummaryEntry | None = None
        if before is not None:
            known = {"session_id": key["session_id"], "mtime": 0, "data": before}
        return fold_session_summary(known, key, cast("list[SessionStoreEntry]", entries))["data"]

    return fold


async def _on_thread(work: Callable[[], T]) -> T:
    from anyio import CapacityLimiter
    from anyio.to_thread import run_sync  # the SDK's own, so that it works on every loop the SDK works on

    return await run_sync(work, limiter=CapacityLimiter(1))  # not the limiter that all code of a process shares
