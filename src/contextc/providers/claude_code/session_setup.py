"""Preparation of a session before a call: start it, add history, or copy it up to the cursor.

All changes are made in the stored transcript before a program is started. A session with entries after the cursor is
not modified. It is copied up to the cursor under a new id, so that an interrupted call changes nothing. Messages of
other agents are appended after the cursor. If the call fails, the next one finds and drops them.
"""

import os
from time import time
from typing import TYPE_CHECKING, NamedTuple, cast
from uuid import uuid4

from contextc._json import JSONObject
from contextc._worker_threads import run_in_thread
from contextc.errors import ProviderFailed
from contextc.formats.claude_code.transcript_entries import UNKNOWN_MODEL_NAME, transcript_entries
from contextc.providers.claude_code.call_options import ClaudeCallOptions
from contextc.providers.claude_code.transcript_splitting import (
    SplitTranscript,
    file_matches,
    find_answer,
    result_line,
    split_transcript,
    with_session_id,
)
from contextc.providers.client import ProviderCall

if TYPE_CHECKING:
    from claude_agent_sdk import SessionKey, SessionStore, SessionStoreEntry

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
