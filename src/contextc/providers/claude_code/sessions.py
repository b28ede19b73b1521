"""Sessions of Claude Code: their transcripts in a store, split at a cursor, and prepared for a call."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast
from uuid import uuid4

from contextc._json import JSON, JSONObject, encode_canonical, parse_object
from contextc._worker_threads import run_in_thread
from contextc.errors import ProviderFailed
from contextc.formats.claude_code.codec import UNKNOWN_MODEL_NAME, transcript_entries
from contextc.providers.claude_code.call_options import ClaudeCallOptions
from contextc.providers.client import ProviderCall
from contextc.store import Store, session_transcripts
from contextc.store.message_log import check_name
from contextc.store.session_transcripts import EntryBatch, TranscriptKey
from contextc.store.store import drop_transcript

if TYPE_CHECKING:
    from claude_agent_sdk import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )


# ── transcripts in a store ────────────────────────────────────────────────────────────────────────────────────────────
# Implementation of the Agent SDK's `SessionStore` that keeps Claude Code's transcripts in a contextc store.
#
#     ClaudeAgentOptions(session_store=cc.providers.ClaudeSessions(store), resume=…)
#
# So a session can be resumed on another machine, or when the CLI's folder is gone. An append is one transaction: it is
# durable when it returns, and repeated entries are stored once. The store is synchronous, so it is called on a worker
# thread. A cancellation takes effect after the transaction. Transcripts belong to `conversation`: they are deleted
# with it, and also when something in it is redacted.


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
        await _on_thread(lambda: drop_transcript(self.store, where))

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


# ── splitting of transcripts ──────────────────────────────────────────────────────────────────────────────────────────
# Stored transcript of a session: split it at a cursor, find an existing answer, and rename its session.
#
# Entries are the CLI's own lines, in the order of writing, and each names its parent. A prefix of a transcript is a
# valid session too. After the cursor's entry, entries of the same turn are kept: the snapshot of a prompt, or the
# result of a tool that ended the turn. The next prompt, a queued prompt or the next output of the model is after the
# cursor.
#
# The CLI's own transcript file is used to resume if it equals our stored transcript. A session that is resumed from
# our transcript runs in a temporary configuration folder. There the user's memory, skills and plugins are missing, and
# the login cannot be renewed. So the CLI's file is preferred if it has the same entries. It is only read here. If it
# is missing, unreadable or different, our transcript is used.


MESSAGE_TYPES = ("user", "assistant")
FINAL_STOP_REASONS = ("end_turn", "stop_sequence", "max_tokens", "model_context_window_exceeded", "refusal")


class SplitTranscript(NamedTuple):
    """A transcript that is split at a cursor."""

    kept: list[JSONObject]
    after: list[JSONObject]

    @property
    def is_clean(self) -> bool:
        """True if there is no message and no queued prompt after the cursor."""
        return not any(_is_message(entry) or _is_queued(entry) for entry in self.after)

    @property
    def last_uuid(self) -> str:
        """UUID of the entry that is the parent of the next one."""
        return next((entry["uuid"] for entry in reversed(self.kept) if _is_linked(entry)), "")


def split_transcript(entries: list[JSONObject], cursor: str) -> SplitTranscript | None:
    """Split the transcript at the cursor. An empty cursor means its end.

    Return None if the cursor is missing, or if entries before it are.
    """
    if not cursor:
        return SplitTranscript(entries, [])
    place = next((place for place, entry in enumerate(entries) if entry.get("uuid") == cursor), None)
    if place is None or not _is_whole(entries[: place + 1]):
        return None
    end = place + 1
    while end < len(entries) and not _starts_turn(entries[end]):
        end += 1
    return SplitTranscript(entries[:end], entries[end:])


def find_answer(after: list[JSONObject], history: list[JSONObject], prompt: JSONObject) -> list[JSONObject]:
    """Return the lines of a complete answer to exactly this prompt, in the CLI's form. Empty if there is none."""
    messages = [entry for entry in after if _is_message(entry)]
    asked = [place for place, entry in enumerate(messages) if "promptId" in entry and not _is_result(entry)]
    if len(asked) != 1 or _role_and_blocks(messages[: asked[0] + 1]) != _role_and_blocks(
        [*history, {"message": prompt}]
    ):
        return []
    answer = messages[asked[0] + 1 :]
    last = answer[-1] if answer else {}
    if last.get("type") != "assistant" or last["message"].get("stop_reason") not in FINAL_STOP_REASONS:
        return []
    return [] if any(_is_synthetic(entry) for entry in answer) else [_line(entry) for entry in answer]


def with_session_id(entries: list[JSONObject], session: str) -> list[JSONObject]:
    """Return the entries with another session id."""
    return [{**entry, "sessionId": session} if "sessionId" in entry else entry for entry in entries]


def result_line(lines: list[JSONObject]) -> JSONObject:
    """Return a `result` line for a turn whose own was never received."""
    last = lines[-1]
    texts = [block["text"] for block in _blocks(last["message"]) if block.get("type") == "text"]
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "session_id": last["session_id"],
        "stop_reason": last["message"]["stop_reason"],
        "result": "".join(texts),
    }


def _line(entry: JSONObject) -> JSONObject:
    names = ("type", "message", "uuid", "timestamp")
    line = {name: entry[name] for name in names if name in entry}
    if "toolUseResult" in entry:
        line["tool_use_result"] = entry["toolUseResult"]
    return {**line, "session_id": entry.get("sessionId", ""), "parent_tool_use_id": None}


def _is_whole(entries: list[JSONObject]) -> bool:
    """Return True if the parents of the last entry are complete. A failed append leaves a gap."""
    parents = {entry["uuid"]: entry.get("parentUuid") for entry in entries if "uuid" in entry}
    found: JSON = entries[-1].get("uuid")
    while found is not None:
        if found not in parents:
            return False
        found = parents.pop(found)
    return True


def _starts_turn(entry: JSONObject) -> bool:
    """Return True if this entry does not belong to the turn before it."""
    return _is_queued(entry) or (_is_message(entry) and not _is_result(entry))


def _is_queued(entry: JSONObject) -> bool:
    return entry.get("type") == "queue-operation"


def _is_linked(entry: JSONObject) -> bool:
    return bool(entry.get("uuid")) and "parentUuid" in entry and not entry.get("isSidechain")


def _is_message(entry: JSONObject) -> bool:
    return entry.get("type") in MESSAGE_TYPES and not entry.get("isSidechain") and not entry.get("isMeta")


def _is_result(entry: JSONObject) -> bool:
    return entry.get("type") == "user" and any(
        block.get("type") == "tool_result" for block in _blocks(entry["message"])
    )


def _is_synthetic(entry: JSONObject) -> bool:
    """Return True if the CLI wrote this entry in place of the model, to report an error."""
    return bool(entry.get("isApiErrorMessage")) or entry["message"].get("model") == "<synthetic>"


def _role_and_blocks(lines: list[JSONObject]) -> list[bytes]:
    """Return role and content of each block. The split into lines does not matter."""
    return [encode_canonical([line["message"]["role"], block]) for line in lines for block in _blocks(line["message"])]


def _blocks(message: JSONObject) -> list[JSONObject]:
    content: JSON = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else cast(list[JSONObject], content or [])


CONFIG_VARIABLE = "CLAUDE_CONFIG_DIR"


class WriteOnlySessionStore:
    """Session store that is written but reads as empty, so that the CLI resumes from its own file."""

    def __init__(self, store: "SessionStore") -> None:
        self.store = store

    async def append(self, key: "SessionKey", entries: "list[SessionStoreEntry]") -> None:
        await self.store.append(key, entries)

    async def load(self, key: "SessionKey") -> "list[SessionStoreEntry] | None":
        return None


def file_matches(key: "SessionKey", entries: list[JSONObject], env: Mapping[str, str]) -> bool:
    """Return True if the CLI's own file of this session has exactly these entries."""
    try:
        folder = env.get(CONFIG_VARIABLE) or os.environ.get(CONFIG_VARIABLE) or Path.home() / ".claude"
        written = (Path(folder) / "projects" / key["project_key"] / f"{key['session_id']}.jsonl").read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return False
    lines = [parse_object(line) for line in written.split("\n") if line]
    found = [line for line in lines if line is not None]
    return len(found) == len(lines) and _names(found) == _names(entries)


def _names(entries: list[JSONObject]) -> list[str]:
    """Return the ids of messages and queue operations. The CLI writes other entries only to its own file."""
    return [
        entry.get("uuid") or f"{entry['type']} {entry.get('operation')}"
        for entry in entries
        if entry.get("uuid") or entry.get("type") == "queue-operation"
    ]


# ── preparation of a session ──────────────────────────────────────────────────────────────────────────────────────────
# Preparation of a session before a call: start it, add history, or copy it up to the cursor.
#
# All changes are made in the stored transcript before a program is started. A session with entries after the cursor is
# not modified. It is copied up to the cursor under a new id, so that an interrupted call changes nothing. Messages of
# other agents are appended after the cursor. If the call fails, the next one finds and drops them.


ALREADY_ANSWERED_NOTE = (
    "Claude Code had already answered this prompt before the call was interrupted: that answer is used."
)
COPIED_NOTE = "Session {session} had entries after the last known reply: continued from that reply as {other}."
TRAILING_RESULTS_NOTE = 'The added history ends with tool results: Claude Code appends "No response requested." to it.'
CURSOR_NOT_FOUND = "the transcript of session {session} does not contain the last known reply"


class SessionStart(NamedTuple):
    """Result of the preparation: options that name the session, or the `lines` of an existing answer.

    `is_local` is True if the session can be resumed from the CLI's own file.
    """

    session: str
    options: JSONObject
    notes: tuple[str, ...] = ()
    lines: tuple[JSONObject, ...] = ()
    is_local: bool = False


async def prepare_session(
    call: ProviderCall, call_options: ClaudeCallOptions, session: str, store: "SessionStore"
) -> SessionStart:
    """Prepare the transcript of a session for this call. `session` is its id, also if it is new."""
    if not call.session:
        return await _begun(call_options, session, store)
    entries = await _load(store, _key(call_options, session))
    found = split_transcript(entries, call.cursor) if entries else None
    if found is None or (call.revert and not call.cursor):
        raise ProviderFailed(call.provider.name, "session", CURSOR_NOT_FOUND.format(session=session))
    if call.revert and (lines := find_answer(found.after, call_options.history, call_options.prompt)):
        return SessionStart(session, {}, (ALREADY_ANSWERED_NOTE,), (*lines, result_line(lines)))
    if not found.after and not call_options.history:
        is_local = await run_in_thread(file_matches, _key(call_options, session), entries, call_options.env)
        return SessionStart(session, {"resume": session}, is_local=is_local)
    notes = _broken_off(call_options)
    if found.after:
        other = str(uuid4())
        await _copy(call_options, found, session, other, store)
        session, notes = other, (COPIED_NOTE.format(session=session, other=other), *notes)
    await _take_over(call_options, session, found.last_uuid, store)
    return SessionStart(session, {"resume": session}, notes)


async def _begun(options: ClaudeCallOptions, session: str, store: "SessionStore") -> SessionStart:
    await _take_over(options, session, "", store)
    return SessionStart(session, {"resume" if options.history else "session_id": session}, _broken_off(options))


def _broken_off(options: ClaudeCallOptions) -> tuple[str, ...]:
    return (TRAILING_RESULTS_NOTE,) if options.history and options.history[-1]["type"] == "user" else ()


async def _take_over(options: ClaudeCallOptions, session: str, leaf: str, store: "SessionStore") -> None:
    """Append the history to the session, after the entry `leaf`."""
    if options.history:
        entries = transcript_entries(
            options.history,
            session=session,
            cwd=options.directory or os.getcwd(),
            after=leaf,
            time=int(time() * 1000),
            model=options.options.get("model", UNKNOWN_MODEL_NAME),
            tools=[tool["name"] for tool in options.tools],
        )
        await _append(store, _key(options, session), entries)


async def _copy(
    options: ClaudeCallOptions, found: SplitTranscript, session: str, other: str, store: "SessionStore"
) -> None:
    """Copy the kept entries to another session, with the transcripts of its subagents."""
    paths = await store.list_subkeys({"project_key": _key(options, session)["project_key"], "session_id": session})
    for path in paths:
        entries = await _load(store, _key(options, session, path))
        await _append(store, _key(options, other, path), with_session_id(entries, other))
    await _append(store, _key(options, other), with_session_id(found.kept, other))


async def _load(store: "SessionStore", key: "SessionKey") -> list[JSONObject]:
    return cast(list[JSONObject], await store.load(key) or [])


async def _append(store: "SessionStore", key: "SessionKey", entries: list[JSONObject]) -> None:
    if entries:
        await store.append(key, cast("list[SessionStoreEntry]", entries))


def _key(options: ClaudeCallOptions, session: str, path: str = "") -> "SessionKey":
    from claude_agent_sdk import project_key_for_directory

    key: SessionKey = {"project_key": project_key_for_directory(options.directory or None), "session_id": session}
    if path:
        key["subpath"] = path
    return key
