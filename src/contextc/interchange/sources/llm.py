"""Log database `logs.db` of simonw/llm, in its current and its older schema.

Since 0.36, it has a tree of messages, and threads that end in it. Before, it had one row per response with its prompt,
and tables for calls, results, fragments and attachments. A file may have both. A conversation that llm continued has
all of its messages in the tree. An attachment with only a path is left out, because the file may have changed.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from contextc._json import JSON, JSONObject, as_object, as_objects, parse_object
from contextc.errors import InvalidInput
from contextc.interchange.found_conversation import FoundConversation, parse_time, read_or_error
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.messages import AnyPart, Media, Message, ProviderBlock, Reasoning, Role, Text, ToolCall, ToolResult, Usage

ABOUT = "simonw/llm's logs.db"
ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def matches(sample: FileSample) -> bool:
    return sample.has_table("responses", "prompt", "response", "conversation_id") and "conversations" in sample.tables


def read_conversations(given: ImportInput) -> Iterator[FoundConversation]:
    for file in given.files:
        with file.open_database() as connection:
            log = _LogDatabase(connection, file.sample())
            file.notes += log.orphan_notes()
            for kind, row in given.with_progress(log.listed()):
                read = log.thread if kind == "thread" else log.conversation
                yield read_or_error(str(row["id"]), lambda read=read, row=row: read(row))


class _LogDatabase:
    def __init__(self, connection: sqlite3.Connection, sample: FileSample) -> None:
        self.connection, self.sample = connection, sample
        self.left_out: list[str] = []

    def listed(self) -> list[tuple[str, sqlite3.Row]]:
        """Return the conversations and threads, oldest first: ids begin with the time."""
        found: dict[str, tuple[str, sqlite3.Row]] = {}
        for row in self.rows("SELECT id, name FROM conversations"):
            found[str(row["id"])] = "conversation", row
        if self.sample.has_table("threads", "tip_message_hash"):
            for row in self.rows("SELECT * FROM threads WHERE tip_message_hash IS NOT NULL"):
                found[str(row["id"])] = "thread", row
        return [found[id] for id in sorted(found)]

    def orphan_notes(self) -> list[str]:
        """Return notes for responses without a conversation."""
        sql = "SELECT count(*) FROM responses WHERE conversation_id IS NULL OR conversation_id NOT IN (SELECT id FROM"
        ((count,),) = self.rows(f"{sql} conversations WHERE id IS NOT NULL)")
        return ["a response without a conversation"] * int(count)

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        return self.connection.execute(sql, values).fetchall()

    def found(self, row: sqlite3.Row, lines: Sequence[Sequence[Message]]) -> FoundConversation:
        left_out, self.left_out = self.left_out, []
        return FoundConversation(id=str(row["id"]), title=str(row["name"] or ""), lines=lines, left_out=left_out)

    def media(self, row: sqlite3.Row) -> AnyPart | None:
        """Return an attachment; None if the table has only the path of a file."""
        kind = str(row["type"] or "application/octet-stream")
        if isinstance(row["content"], bytes) and row["content"]:
            return Media(mime_type=kind, data=row["content"])
        if row["url"]:
            return Media(mime_type=kind, url=str(row["url"]))
        self.left_out.append("an attachment whose bytes are not in the database")
        return None

    def thread(self, row: sqlite3.Row) -> FoundConversation:
        """Read a thread of the tree: the messages up to its tip, and the lines of turns that ended elsewhere."""
        tree = _ThreadTree(self, str(row["id"]))
        tip = str(row["tip_message_hash"])
        lines = [tree.line(each) for each in [*tree.other_ends(tip), tip]]
        return self.found(row, [line for line in lines if line])

    def conversation(self, row: sqlite3.Row) -> FoundConversation:
        """Read a conversation of the older tables: its responses in order, each with its prompt."""
        messages: list[Message] = []
        prompt = ""
        for response in self.rows("SELECT * FROM responses WHERE conversation_id = ? ORDER BY id", row["id"]):
            asked = _ResponseRow(self, response)
            if (system := asked.system()) is not None and system.text != prompt:
                prompt = system.text
                messages.append(system)
            messages += asked.messages()
        return self.found(row, [messages] if messages else [])


class _ResponseRow(NamedTuple):
    """One response of the older tables."""

    log: _LogDatabase
    row: sqlite3.Row

    @property
    def time(self) -> int:
        return parse_time(self.row["datetime_utc"])

    def system(self) -> Message | None:
        text = "\n\n".join([*self.fragments("system_fragments"), *_texts(self.row["system"])])
        return Message(role="system", parts=(Text(text),), time=self.time) if text.strip() else None

    def messages(self) -> Iterator[Message]:
        results = [self.result(each) for each in self.of("tool_results")]
        if results:
            yield Message(role="tool", parts=tuple(results), time=self.time)
        text = "\n".join([*self.fragments("prompt_fragments"), *_texts(self.row["prompt"])])
        shown = [part for each in self.attachments() if (part := self.log.media(each)) is not None]
        if text or shown:
            yield Message(role="user", parts=(*([Text(text)] if text else []), *shown), time=self.time)
        yield self.reply()

    def reply(self) -> Message:
        thought = self.row["reasoning"] if "reasoning" in self.row.keys() else None  # noqa: SIM118 (a row is no dict)
        calls = [
            ToolCall(
                id=str(each["tool_call_id"] or f"call_{each['id']}"),
                name=str(each["name"]),
                arguments=parse_object(str(each["arguments"] or "{}")) or {},
            )
            for each in self.of("tool_calls")
        ]
        parts = [Text(text) for text in _texts(self.row["response"])]
        return Message(
            role="assistant",
            parts=(*[Reasoning(text=text) for text in _texts(thought)], *parts, *calls),
            usage=_usage(self.row),
            finish="tool_calls" if calls else "stop",
            time=self.time,
        )

    def result(self, row: sqlite3.Row) -> ToolResult:
        failed = "exception" in row.keys() and bool(row["exception"])  # noqa: SIM118 (a row is no dict)
        return ToolResult(
            call_id=str(row["tool_call_id"] or f"result_{row['id']}"),
            name=str(row["name"]),
            content=str(row["output"] or ""),
            is_error=failed,
        )

    def of(self, table: str) -> list[sqlite3.Row]:
        if not self.log.sample.has_table(table, "response_id"):
            return []
        return self.log.rows(f"SELECT * FROM {table} WHERE response_id = ? ORDER BY id", self.row["id"])

    def fragments(self, table: str) -> list[str]:
        if not self.log.sample.has_table(table, "fragment_id"):
            return []
        sql = (
            f"SELECT content FROM {table} t JOIN fragments f ON f.id = t.fragment_id WHERE response_id = ?"
            ' ORDER BY t."order"'
        )
        return [str(row["content"]) for row in self.log.rows(sql, self.row["id"])]

    def attachments(self) -> list[sqlite3.Row]:
        if not self.log.sample.has_table("prompt_attachments", "attachment_id"):
            return []
        sql = (
            "SELECT a.* FROM prompt_attachments p JOIN attachments a ON a.id = p.attachment_id WHERE response_id = ?"
            ' ORDER BY p."order"'
        )
        return self.log.rows(sql, self.row["id"])


class _ThreadTree:
    """The part of the tree of messages that one thread uses."""

    def __init__(self, log: _LogDatabase, thread: str) -> None:
        self.log = log
        self.turns = log.rows("SELECT * FROM turns WHERE thread_id = ? ORDER BY id", thread)
        self.ended = {str(turn["tip_message_hash"]): turn for turn in reversed(self.turns)}
        self.begun = {str(turn["parent_message_hash"]): turn for turn in reversed(self.turns)}
        self.made: dict[str, Message] = {}
        self.before: dict[str, str | None] = {}

    def parent(self, name: str) -> str | None:
        if name not in self.before:
            rows = self.log.rows("SELECT parent_hash FROM messages WHERE hash = ?", name)
            if not rows:
                raise InvalidInput(f"Message {name!r} not found in the database.")
            self.before[name] = rows[0]["parent_hash"]
        return self.before[name]

    def other_ends(self, tip: str) -> list[str]:
        """Return the tips of turns that no later turn continues."""
        passed = set(self.path(tip))
        ends: list[str] = []
        for turn in reversed(self.turns):
            end = str(turn["tip_message_hash"])
            if end in passed:
                continue
            try:
                passed.update(self.path(end))
                ends.append(end)
            except InvalidInput:
                self.log.left_out.append("a turn whose messages are not in the database")
        return ends[::-1]

    def path(self, tip: str) -> list[str]:
        found: dict[str, None] = {}
        name: str | None = tip
        while name is not None and name not in found:
            found[name] = None
            name = self.parent(name)
        return list(found)[::-1]

    def line(self, tip: str) -> list[Message]:
        time = parse_time(self.turns[0]["datetime_utc"]) if self.turns else 0
        found: list[Message] = []
        for name in self.path(tip):
            turn = self.ended.get(name) or self.begun.get(name)
            time = parse_time(turn["datetime_utc"]) if turn is not None else time
            if name not in self.made:
                self.made[name] = self.message(name, time)
            found.append(self.made[name])
        return found

    def message(self, name: str, time: int) -> Message:
        (row,) = self.log.rows("SELECT role FROM messages WHERE hash = ?", name)
        parts = self.log.rows("SELECT * FROM parts WHERE message_hash = ? ORDER BY position", name)
        role, turn = ROLES.get(str(row["role"]), "user"), self.ended.get(name)
        made = tuple(part for each in parts if (part := self.part(each)) is not None)
        if role != "assistant" or turn is None:
            return Message(role=role, parts=made, time=time)
        finish = "tool_calls" if any(isinstance(part, ToolCall) for part in made) else "stop"
        return Message(role=role, parts=made, time=time, usage=_usage(turn), finish=finish)

    def part(self, row: sqlite3.Row) -> AnyPart | None:
        held = parse_object(str(row["payload"])) or {} if row["payload"] else {}
        text = str(row["text"]) if row["text"] is not None else self.expand_fragments(held)
        by_provider = bool(held.get("server_executed"))
        match row["type"]:
            case "text":
                return Text(text)
            case "reasoning":
                return Reasoning(text=text) if text else None
            case "tool_call" if not by_provider:
                return ToolCall(
                    id=str(held.get("tool_call_id") or f"call_{row['id']}"),
                    name=str(held.get("name") or row["tool_name"]),
                    arguments=as_object(held.get("arguments")),
                )
            case "tool_result" if not by_provider:
                return self.result(row, held)
            case "attachment":
                return self.attachment(held.get("attachment"))
            case kind:
                return ProviderBlock(provider="llm", data={"type": str(kind), **held})

    def result(self, row: sqlite3.Row, held: JSONObject) -> ToolResult:
        output = str(held.get("output") or "")
        shown = as_objects(held.get("attachments"))
        media = [part for each in shown if isinstance(part := self.attachment(each), Media)]
        return ToolResult(
            call_id=str(held.get("tool_call_id") or f"result_{row['id']}"),
            name=str(held.get("name") or row["tool_name"]),
            content=(Text(output), *media) if media else output,
            is_error=bool(held.get("exception")),
        )

    def attachment(self, reference: JSON) -> AnyPart | None:
        rows = self.log.rows("SELECT * FROM attachments WHERE id = ?", str(as_object(reference).get("id")))
        return self.log.media(rows[0]) if rows else None

    def expand_fragments(self, held: JSONObject) -> str:
        """Return a text that refers to fragments, with their content."""
        found = ""
        for piece in as_objects(held.get("text_ref")):
            if "literal" in piece:
                found += str(piece["literal"])
            else:
                rows = self.log.rows("SELECT content FROM fragments WHERE id = ?", piece.get("fragment"))
                found += str(rows[0]["content"]) if rows else ""
        return found


def _usage(row: sqlite3.Row) -> Usage | None:
    names = ("input_tokens", "output_tokens")
    values = [row[name] if name in row.keys() else None for name in names]  # noqa: SIM118 (a row is no dict)
    counts = [value if isinstance(value, int) and value >= 0 else None for value in values]
    if counts == [None, None]:
        return None
    return Usage(input=counts[0] or 0, output=counts[1] or 0)


def _texts(value: object) -> list[str]:
    """Return the text of a column, in which SQLite allows any type; none if it is empty."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else "" if value is None else str(value)
    return [text] if text else []
