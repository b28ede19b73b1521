"""Session databases of the OpenAI Agents SDK: `SQLiteSession`, `SQLAlchemySession`, and `AdvancedSQLiteSession`.

Table names can be configured, so tables are recognised by their columns. Items are those of the Responses API, for
every model. Encrypted items are left out.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc._json import JSONObject, parse_object
from contextc.formats import formatter
from contextc.formats.openai_responses.codec import is_model_output
from contextc.interchange.found_conversation import FoundConversation, parse_time, read_or_error
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.linting.request_reading import coerce_request
from contextc.messages import Message

ABOUT = "sessions of the OpenAI Agents SDK (SQLite)"
COLUMNS = frozenset({"id", "session_id", "message_data", "created_at"})


class _Item(NamedTuple):
    id: int
    value: JSONObject
    time: int


def matches(sample: FileSample) -> bool:
    return bool(_tables(sample))


def read_conversations(given: ImportInput) -> Iterator[FoundConversation]:
    for file in given.files:
        with file.open_database() as connection:
            tables = _tables(file.sample())
            if not tables:
                file.notes.append("a database without a table of sessions")
            has_branches = file.sample().has_table("message_structure", "branch_id", "message_id", "sequence_number")
            for table in tables:
                sql = f"SELECT session_id FROM {_quoted(table)} GROUP BY session_id ORDER BY min(id)"
                is_first = table == tables[0]
                for (session,) in given.with_progress(connection.execute(sql).fetchall()):
                    id = str(session) if is_first else f"{table}-{session}"
                    reading = _Session(connection, table, session, id, has_branches and is_first)
                    yield read_or_error(id, reading.found)


def _tables(sample: FileSample) -> list[str]:
    """Return the tables of messages in the order of their creation; the one with the default name first."""
    found = [name for name, columns in sample.tables.items() if columns >= COLUMNS]
    return sorted(found, key=lambda name: name != "agent_messages")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _Session(NamedTuple):
    """One session of one table. Only the first table has branches."""

    connection: sqlite3.Connection
    table: str
    session: object
    id: str
    has_branches: bool

    def found(self) -> FoundConversation:
        sql = f"SELECT id, message_data, created_at FROM {_quoted(self.table)} WHERE session_id IS ? ORDER BY id"
        rows = self.connection.execute(sql, (self.session,)).fetchall()
        items: dict[int, _Item] = {}
        for number, data, time in rows:
            value = parse_object(str(data))
            if value is not None and "__enc__" not in value:
                items[number] = _Item(number, value, parse_time(time))
        left_out = ["an item that is encrypted, or not JSON"] * (len(rows) - len(items))
        lines = _branches(self.connection, self.session) if self.has_branches else []
        read = _BranchReader()
        found = [read.line([items[number] for number in line if number in items]) for line in lines or [list(items)]]
        return FoundConversation(id=self.id, lines=[line for line in found if line], left_out=left_out)


def _branches(connection: sqlite3.Connection, session: object) -> list[list[int]]:
    """Return the items of each branch in order. The branch that was written last comes last."""
    rows = connection.execute(
        "SELECT branch_id, message_id FROM message_structure WHERE session_id = ? ORDER BY sequence_number, id",
        (session,),
    )
    found: dict[str, list[int]] = {}
    for branch, number in rows:
        found.setdefault(branch, []).append(number)
    return sorted(found.values(), key=max)


class _BranchReader:
    """Decoder for the branches of one session. Common items become the same message objects."""

    def __init__(self) -> None:
        self.made: dict[tuple[int, ...], Message] = {}

    def line(self, items: Sequence[_Item]) -> list[Message]:
        form = formatter("openai_responses")
        messages = form.decode_request(coerce_request(form, {"input": [item.value for item in items]}).body).messages
        groups = _groups(items)
        if len(groups) != len(messages):  # the results are in another order than their calls
            return [replace(message, time=items[0].time) for message in messages]
        return [
            self.made.setdefault(tuple(item.id for item in group), replace(message, time=group[0].time))
            for group, message in zip(groups, messages, strict=True)
        ]


def _groups(items: Sequence[_Item]) -> list[list[_Item]]:
    """Group the items by message: consecutive output of a model is one message."""
    found: list[list[_Item]] = []
    for item in items:
        if found and is_model_output(item.value) and is_model_output(found[-1][-1].value):
            found[-1].append(item)
        else:
            found.append([item])
    return found
