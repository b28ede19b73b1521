"""Session files of the OpenAI Agents SDK: `SQLiteSession`, its SQLAlchemy sibling, and the advanced one with branches.

Tables may have other names than the default ones, so they are known by their columns. Items are those of the Responses
API, whatever model answered. An item that is encrypted is left out.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc._json import JSONObject, parse_object
from contextc.formats import formatter
from contextc.messages import Message
from contextc.transfer.found import Found, moment
from contextc.transfer.given import Given, Sample
from contextc.wire.reading import readable

ABOUT = "sessions of the OpenAI Agents SDK (SQLite)"
COLUMNS = frozenset({"id", "session_id", "message_data", "created_at"})
ANSWERS = ("_output", "_response")  # how the types of items end that come from the caller


class _Item(NamedTuple):
    id: int
    value: JSONObject
    time: int


def recognises(sample: Sample) -> bool:
    return _table(sample) is not None


def conversations(given: Given) -> Iterator[Found]:
    for file in given.files:
        with file.database() as connection:
            table = _table(file.sample())
            if table is None:
                file.notes.append("a database without a table of sessions")
                continue
            has_branches = file.sample().has("message_structure", "branch_id", "message_id", "sequence_number")
            sessions = connection.execute(f'SELECT session_id FROM "{table}" GROUP BY session_id ORDER BY min(id)')
            for (session,) in given.counted(sessions.fetchall()):
                yield _session(connection, table, session, has_branches)


def _table(sample: Sample) -> str | None:
    return next((name for name, columns in sorted(sample.tables.items()) if columns >= COLUMNS), None)


def _session(connection: sqlite3.Connection, table: str, session: str, has_branches: bool) -> Found:
    rows = connection.execute(
        f'SELECT id, message_data, created_at FROM "{table}" WHERE session_id = ? ORDER BY id', (session,)
    ).fetchall()
    items: dict[int, _Item] = {}
    for number, data, time in rows:
        value = parse_object(str(data))
        if value is not None and "__enc__" not in value:
            items[number] = _Item(number, value, moment(time))
    left_out = ["an item that is encrypted, or no JSON"] * (len(rows) - len(items))
    lines = _branches(connection, session) if has_branches else []
    read = _Read()
    found = [read.line([items[number] for number in line if number in items]) for line in lines or [list(items)]]
    return Found(id=str(session), lines=[line for line in found if line], left_out=left_out)


def _branches(connection: sqlite3.Connection, session: str) -> list[list[int]]:
    """The items of each branch in their order; the branch that was written last comes last."""
    rows = connection.execute(
        "SELECT branch_id, message_id FROM message_structure WHERE session_id = ? ORDER BY sequence_number, id",
        (session,),
    )
    found: dict[str, list[int]] = {}
    for branch, number in rows:
        found.setdefault(branch, []).append(number)
    return sorted(found.values(), key=max)


class _Read:
    """Reads the branches of one session; what they share becomes the same messages."""

    def __init__(self) -> None:
        self.made: dict[tuple[int, ...], Message] = {}

    def line(self, items: Sequence[_Item]) -> list[Message]:
        form = formatter("openai_responses")
        messages = form.decode_request(readable(form, {"input": [item.value for item in items]}).body).messages
        groups = _groups(items)
        if len(groups) != len(messages):  # results in another order than their calls
            return [replace(message, time=items[0].time) for message in messages]
        return [
            self.made.setdefault(tuple(item.id for item in group), replace(message, time=group[0].time))
            for group, message in zip(groups, messages, strict=True)
        ]


def _groups(items: Sequence[_Item]) -> list[list[_Item]]:
    """The items that become one message each: what a model said without a break is one."""
    found: list[list[_Item]] = []
    for item in items:
        if found and _is_said(item.value) and _is_said(found[-1][-1].value):
            found[-1].append(item)
        else:
            found.append([item])
    return found


def _is_said(item: JSONObject) -> bool:
    """Whether a model said this, or called for it."""
    if "role" in item:
        return item["role"] == "assistant"
    return not str(item.get("type") or "").endswith(ANSWERS)
