"""DeepChat's conversations: its database `agent.db`, or its message records as a JSON list or JSON Lines.

A record has a role, a status, and its content as JSON: a user's text with files and links, or the blocks of a reply.
Since schema version 26 a database also has the content in tables of its own. DeepChat reads those first, and so does
this source. A reply with tool calls becomes several messages: each step with its calls, and the results.
"""

import sqlite3
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, as_objects, decode_json, json_type_name, parse_object
from contextc.errors import InvalidImport, InvalidInput
from contextc.interchange.found_conversation import FoundConversation, parse_time, read_or_error
from contextc.interchange.input_files import FileSample, ImportInput, InputFile
from contextc.messages import (
    AnyPart,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Status,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from contextc.messages import tool_call as make_call

ABOUT = "DeepChat's agent.db, and its message records as JSON"
TABLE = "deepchat_messages"
COLUMNS = ("id", "session_id", "role", "content", "status")
ORDER_COLUMNS = ("order_seq", "created_at")
HAS_SESSION = "typeof(session_id) = 'text'"
ROLES = ("user", "assistant")
STATUSES: Mapping[JSON, Status] = {"sent": "sent", "error": "error", "pending": "cancelled"}
"""A reply that was pending when the file was written is not sent to a model. A later import replaces it."""
TEXT_BLOCKS = ("content", "reasoning_content")
CORRECT_IT = "Correct the record, or remove it."


def matches(sample: FileSample) -> bool:
    return sample.has_table(TABLE, *COLUMNS) or any(map(_is_record, sample.objects))


def read_conversations(given: ImportInput) -> Iterator[FoundConversation]:
    for file in given.files:
        file.check_lines()
    for file in given.files:
        if file.sample().shape == "database":
            yield from _read_database(given, file)
            continue
        for session, records in _by_session(file).items():
            yield read_or_error(session, lambda session=session, records=records: _found(session, "", records))


def _is_record(value: JSONObject) -> bool:
    return (
        isinstance(_field(value, "session_id"), str)
        and value.get("role") in ROLES
        and value.get("status") in STATUSES
        and "content" in value
        and "parts" not in value
    )


def _field(record: JSONObject, name: str) -> JSON:
    """Return a field of a record: columns have underscores, and objects of the program are in camel case."""
    first, *others = name.split("_")
    return record.get(name, record.get(first + "".join(map(str.title, others))))


def _by_session(file: InputFile) -> dict[str, list[JSONObject]]:
    found: dict[str, list[JSONObject]] = {}
    for placed in file.values():
        record = as_object(placed.value)
        if not _is_record(record):
            raise InvalidImport(
                f"{file.name}, {placed.position}: expected a record with session_id, role (user, assistant), status "
                f"({', '.join(map(str, STATUSES))}) and content",
                line=placed.line,
                fix=CORRECT_IT,
            )
        found.setdefault(str(_field(record, "session_id")), []).append(record)
    for records in found.values():
        numbers = [_field(record, "order_seq") for record in records]
        if all(isinstance(number, int) for number in numbers):
            records.sort(key=lambda record: cast(int, _field(record, "order_seq")))
    return found


def _read_database(given: ImportInput, file: InputFile) -> Iterator[FoundConversation]:
    with file.open_database() as connection:
        database = _Database(connection, file.sample())
        if (error := database.find_lost_records()) is not None:
            yield FoundConversation(id="", lines=(), error=str(error))
        for session in given.with_progress(database.sessions()):
            yield read_or_error(
                session, lambda session=session: _found(session, database.title(session), database.records(session))
            )


class _Database(NamedTuple):
    connection: sqlite3.Connection
    sample: FileSample

    def rows(self, table: str, key: str, value: str, order: str) -> list[JSONObject]:
        """Return the rows of a table as objects, in order; none if the database has no such table."""
        if not self.sample.has_table(table, key):
            return []
        found = self.connection.execute(f"SELECT * FROM {table} WHERE {key} = ? ORDER BY {order}", (value,))
        return [cast(JSONObject, dict(row)) for row in found]

    def sessions(self) -> list[str]:
        sql = f"SELECT session_id FROM {TABLE} WHERE {HAS_SESSION} GROUP BY session_id ORDER BY min(rowid)"
        return [str(row[0]) for row in self.connection.execute(sql)]

    def find_lost_records(self) -> InvalidInput | None:
        """Return the error for records without the id of a session; None if there are none."""
        sql = f"SELECT id, session_id FROM {TABLE} WHERE NOT {HAS_SESSION} ORDER BY rowid"
        lost = self.connection.execute(sql).fetchall()
        if not lost:
            return None
        others = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        got = json_type_name(lost[0]["session_id"])
        return InvalidInput(f"record {lost[0]['id']}{others}: session_id must be text, got {got}", fix=CORRECT_IT)

    def title(self, session: str) -> str:
        return next((str(row.get("title") or "") for row in self.rows("new_sessions", "id", session, "id")), "")

    def records(self, session: str) -> list[JSONObject]:
        order = ", ".join([*(name for name in ORDER_COLUMNS if name in self.sample.tables[TABLE]), "rowid"])
        records = self.rows(TABLE, "session_id", session, order)
        return [{**record, **self.content(str(record["id"]), record["role"])} for record in records]

    def content(self, message: str, role: JSON) -> JSONObject:
        """Return the content in the tables of its own; nothing if it is only in the record."""
        if role == "assistant":
            blocks = self.rows("deepchat_assistant_blocks", "message_id", message, "block_index")
            return {"content": [_block_of_row(row) for row in blocks]} if blocks else {}
        texts = self.rows("deepchat_user_messages", "message_id", message, "message_id")
        if not texts:
            return {}
        files = self.rows("deepchat_user_message_files", "message_id", message, "ordinal")
        links = self.rows("deepchat_user_message_links", "message_id", message, "ordinal")
        more = [parse_object(str(row.get("metadata_json") or "{}")) or {} for row in files]
        return {
            "content": {
                "text": texts[0]["text"],
                "files": [
                    {**each, "name": row.get("name"), "mimeType": row.get("mime_type")}
                    for row, each in zip(files, more, strict=True)
                ],
                "links": [row.get("url") for row in links],
            }
        }


def _block_of_row(row: JSONObject) -> JSONObject:
    extra = parse_object(str(row.get("extra_json") or "{}")) or {}
    call = {name: row[f"tool_{column}"] for name, column in CALL_COLUMNS.items() if row.get(f"tool_{column}")}
    image = {"data": extra.get("imageData"), "mimeType": row.get("image_mime_type")}
    return {
        "type": row["block_type"],
        "status": row["status"],
        **({"content": row["text_content"]} if row.get("text_content") is not None else {}),
        **({"tool_call": call} if call else {}),
        **({"image_data": image} if image["data"] else {}),
    }


CALL_COLUMNS = {"id": "call_id", "name": "name", "params": "params", "response": "response"}
"""The fields of a tool call, and their columns after `tool_`."""


def _found(session: str, title: str, records: Sequence[JSONObject]) -> FoundConversation:
    left_out: list[str] = []
    messages = [message for record in records for message in _Record(record, left_out).messages()]
    return FoundConversation(id=session, title=title, lines=[messages] if messages else [], left_out=left_out)


class _Record(NamedTuple):
    """A record, and where to note what is left out of it."""

    record: JSONObject
    left_out: list[str]

    @property
    def name(self) -> str:
        return f"record {self.record.get('id') or _field(self.record, 'order_seq')}"

    def messages(self) -> list[Message]:
        role, status = self.record.get("role"), self.record.get("status")
        if role not in ROLES or status not in STATUSES:
            raise InvalidInput(
                f"{self.name}: role must be user or assistant, and status sent, error or pending, got {role!r} and "
                f"{status!r}",
                fix=CORRECT_IT,
            )
        if _field(self.record, "is_context_edge"):
            self.left_out.append("the mark that the context begins after a message")
        time = parse_time(_field(self.record, "created_at"))
        if role == "assistant":
            return self.reply(STATUSES[status], time)
        if status == "pending":
            self.left_out.append("a user's message that was pending")
            return []
        return self.user(STATUSES[status], time)

    def content(self) -> JSON:
        content = self.record.get("content")
        if not isinstance(content, str):
            return content
        try:
            return decode_json(content.encode())
        except ValueError as error:
            raise InvalidInput(f"{self.name}: content must be JSON: {error}", fix=CORRECT_IT) from error

    def user(self, status: Status, time: int) -> list[Message]:
        content = self.content()
        if not isinstance(content, dict):
            raise self._wrong("content", "an object with a text", content)
        held = cast(JSONObject, content)
        if not isinstance(text := held.get("text"), str):
            raise self._wrong("content.text", "a string", text)
        files = [part for file in as_objects(held.get("files")) if (part := self.file(file)) is not None]
        given = held.get("links")
        links = [link for link in cast(list[JSON], given) if isinstance(link, str)] if isinstance(given, list) else []
        parts = (*([Text(text)] if text.strip() else []), *files)
        meta: JSONObject | None = {"links": links} if links else None
        if not parts:
            self.left_out.append("a message without content")
            return []
        error = "unknown error" if status == "error" else None
        return [Message(role="user", parts=parts, status=status, error=error, time=time, meta=meta)]

    def file(self, file: JSONObject) -> AnyPart | None:
        """Return a file whose content is in the record: a data URL, or the text that DeepChat read from it."""
        content, name = file.get("content"), str(file.get("name") or "") or None
        kind = str(file.get("mimeType") or file.get("type") or "")
        if isinstance(content, str) and (media := _decode_media(content, kind, name)) is not None:
            return media
        if not isinstance(content, str) or not content.strip():
            self.left_out.append("a file whose content is not in the record")
            return None
        return Media(mime_type=kind if kind.startswith("text/") else "text/plain", data=content.encode(), name=name)

    def reply(self, status: Status, time: int) -> list[Message]:
        """Return the messages of a reply: one for each step, and the results of its calls after it."""
        blocks = self.blocks()
        made: list[Message] = []
        parts: list[AnyPart] = []
        results: list[ToolResult] = []
        errors: list[str] = []
        called = False
        for number, block in enumerate(blocks):
            kind = block.get("type")
            if kind == "error" and status == "error":
                errors.append(str(block.get("content") or ""))
                continue
            if called and kind != "tool_call":
                made += self._step(parts, results, status, time)
                parts, results, called = [], [], False
            if kind == "tool_call":
                called = True
                call = as_object(block.get("tool_call"))
                id = str(call.get("id") or f"{self.record.get('id')}_{number}")
                tool = str(call.get("name") or "unknown")
                parts.append(make_call(id, tool, str(call.get("params") or "")))
                if isinstance(answer := call.get("response"), str):
                    failed = block.get("status") == "error"
                    results.append(ToolResult(call_id=id, name=tool, content=answer, is_error=failed))
            elif (part := self.part(block)) is not None:
                parts.append(part)
        if not made and not parts and status == "sent":
            self.left_out.append("a message without content")
        elif parts or status != "sent":
            made += self._step(parts, results, status, time, error="\n".join(filter(None, errors)) or "unknown error")
        replies = [index for index, message in enumerate(made) if message.role == "assistant"]
        for number, index in enumerate(replies):  # so that a reply which was pending is found by its id
            name = str(self.record.get("id") or "")
            made[index] = replace(made[index], uid=f"{name}-{number}" if name and number else name)
        return _with_usage(made, parse_object(str(self.record.get("metadata") or "{}")) or {})

    def blocks(self) -> list[JSONObject]:
        """Return the blocks of a reply."""
        content = self.content()
        if not isinstance(content, list):
            raise self._wrong("content", "a list of blocks", content)
        for number, block in enumerate(cast(list[JSON], content)):
            if not isinstance(block, dict):
                raise self._wrong(f"content[{number}]", "a block", block)
            held = cast(JSONObject, block)
            kind, text, call = held.get("type"), held.get("content"), held.get("tool_call")
            if kind == "tool_call" and not isinstance(call, dict | None):
                raise self._wrong(f"content[{number}].tool_call", "an object", call)
            if kind in TEXT_BLOCKS and not isinstance(text, str | None):
                raise self._wrong(f"content[{number}].content", "a string", text)
        return as_objects(content)

    def _wrong(self, field: str, wanted: str, got: JSON) -> InvalidInput:
        return InvalidInput(f"{self.name}: {field} must be {wanted}, got {json_type_name(got)}", fix=CORRECT_IT)

    def _step(
        self, parts: list[AnyPart], results: list[ToolResult], status: Status, time: int, error: str = "unknown error"
    ) -> list[Message]:
        said = Message(
            role="assistant",
            parts=tuple(parts),
            status=status,
            error=error if status == "error" else None,
            finish=None if status != "sent" else "tool_calls" if any(map(_is_call, parts)) else "stop",
            time=time,
        )
        if not results:
            return [said]
        return [said, Message(role="tool", parts=tuple(results), status=status, error=said.error, time=time)]

    def part(self, block: JSONObject) -> AnyPart | None:
        content = block.get("content")
        text = content if isinstance(content, str) else ""
        match block.get("type"):
            case "content":
                return Text(text) if text else None
            case "reasoning_content":
                return Reasoning(text=text) if text else None
            case "image":
                image = as_object(block.get("image_data"))
                media = _decode_media(str(image.get("data") or ""), str(image.get("mimeType") or "image/png"), None)
                if media is None:
                    self.left_out.append("an image whose bytes are not in the record")
                return media
            case _:
                return ProviderBlock(provider="deepchat", data=block)


def _is_call(part: AnyPart) -> bool:
    return isinstance(part, ToolCall)


def _decode_media(text: str, mime_type: str, name: str | None) -> Media | None:
    """Return the bytes of a data URL, or of base64 that is known to be media; None if the text is neither."""
    head, comma, data = text.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        if not mime_type.startswith(("image/", "audio/", "video/")):
            return None
        head, data = "", text
    try:
        found = b64decode(data, validate=True)
    except ValueError:
        return None
    kind = head.removeprefix("data:").partition(";")[0] or mime_type
    return Media(mime_type=kind, data=found, name=name) if found and kind else None


def _with_usage(messages: list[Message], metadata: JSONObject) -> list[Message]:
    """Return the messages with the usage of the reply, if it was one model call."""
    counts = [metadata.get(name) for name in ("inputTokens", "outputTokens")]
    if len(messages) != 1 or not all(isinstance(count, int) and count >= 0 for count in counts):
        return messages
    cached = metadata.get("cachedInputTokens")
    usage = Usage(
        input=cast(int, counts[0]),
        output=cast(int, counts[1]),
        cache_read=cached if isinstance(cached, int) and cached >= 0 else 0,
    )
    return [replace(messages[0], usage=usage)]
