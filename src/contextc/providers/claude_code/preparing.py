"""What a session must hold before it is asked: a new one, one with a history, or one that is back at its cursor.

Everything happens in the record, before a program is started from it, or from its own file where that holds the same. A
session that holds too much is left as it is, and copied up to the cursor under a new name: a call that breaks off in
between has then changed nothing. What was said elsewhere is appended behind the cursor; should the call fail, the next
one finds it there and leaves it out again.
"""

import os
from time import time
from typing import TYPE_CHECKING, NamedTuple, cast
from uuid import uuid4

from contextc._json import JSONObject
from contextc._threads import in_thread
from contextc.errors import ProviderFailed
from contextc.formats.claude_code.entries import NOBODY, transcript_entries
from contextc.providers.claude_code.local import holds
from contextc.providers.claude_code.record import Standing, answered, ending, renamed, standing
from contextc.providers.claude_code.wish import Wish
from contextc.providers.endpoint import Call

if TYPE_CHECKING:
    from claude_agent_sdk import SessionKey, SessionStore, SessionStoreEntry

RECORDED = "Claude Code had answered this already when the call broke off: the answer is the one in its own record."
WENT_BACK = "The session {session} held more than is known here: it goes on from its last known reply as {other}."
BROKEN_OFF = 'What was taken over ends with results: Claude Code puts "No response requested." behind them by itself.'
LOST = "the record of the session {session} does not hold the last known reply"


class Start(NamedTuple):
    """How to go on: the options that name the session, or the lines of an answer that was given already.

    `is_local`: the CLI's own file of the session can be gone on with as it is.
    """

    session: str
    options: JSONObject
    notes: tuple[str, ...] = ()
    lines: tuple[JSONObject, ...] = ()
    is_local: bool = False


async def prepared(call: Call, wish: Wish, session: str, store: "SessionStore") -> Start:
    """Bring the record of a session to where this call can be asked in it; `session` is the name of a new one."""
    if not call.session:
        return await _begun(wish, session, store)
    entries = await _load(store, _key(wish, session))
    found = standing(entries, call.cursor) if entries else None
    if found is None or (call.revert and not call.cursor):
        raise ProviderFailed(call.provider.name, "session", LOST.format(session=session))
    if call.revert and (lines := answered(found.behind, wish.history, wish.prompt)):
        return Start(session, {}, (RECORDED,), (*lines, ending(lines)))
    if not found.behind and not wish.history:
        is_local = await in_thread(holds, _key(wish, session), entries, wish.env)
        return Start(session, {"resume": session}, is_local=is_local)
    notes = _broken_off(wish)
    if found.behind:
        other = str(uuid4())
        await _copy(wish, found, session, other, store)
        session, notes = other, (WENT_BACK.format(session=session, other=other), *notes)
    await _take_over(wish, session, found.leaf, store)
    return Start(session, {"resume": session}, notes)


async def _begun(wish: Wish, session: str, store: "SessionStore") -> Start:
    await _take_over(wish, session, "", store)
    return Start(session, {"resume" if wish.history else "session_id": session}, _broken_off(wish))


def _broken_off(wish: Wish) -> tuple[str, ...]:
    return (BROKEN_OFF,) if wish.history and wish.history[-1]["type"] == "user" else ()


async def _take_over(wish: Wish, session: str, leaf: str, store: "SessionStore") -> None:
    """Write what was said elsewhere into the session, behind the entry `leaf`."""
    if wish.history:
        entries = transcript_entries(
            wish.history,
            session=session,
            cwd=wish.directory or os.getcwd(),
            after=leaf,
            time=int(time() * 1000),
            model=wish.options.get("model", NOBODY),
            tools=[tool["name"] for tool in wish.tools],
        )
        await _append(store, _key(wish, session), entries)


async def _copy(wish: Wish, found: Standing, session: str, other: str, store: "SessionStore") -> None:
    """Copy what is kept under another name, with all that its subagents have said."""
    paths = await store.list_subkeys({"project_key": _key(wish, session)["project_key"], "session_id": session})
    for path in paths:
        entries = await _load(store, _key(wish, session, path))
        await _append(store, _key(wish, other, path), renamed(entries, other))
    await _append(store, _key(wish, other), renamed(found.kept, other))


async def _load(store: "SessionStore", key: "SessionKey") -> list[JSONObject]:
    return cast(list[JSONObject], await store.load(key) or [])


async def _append(store: "SessionStore", key: "SessionKey", entries: list[JSONObject]) -> None:
    if entries:
        await store.append(key, cast("list[SessionStoreEntry]", entries))


def _key(wish: Wish, session: str, path: str = "") -> "SessionKey":
    from claude_agent_sdk import project_key_for_directory

    key: SessionKey = {"project_key": project_key_for_directory(wish.directory or None), "session_id": session}
    if path:
        key["subpath"] = path
    return key
