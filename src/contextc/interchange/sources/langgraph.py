"""Checkpoints of LangGraph in SQLite: the newest checkpoint of each thread, and of each abandoned branch.

A checkpoint is msgpack with extensions that name a Python class and its arguments. They are read as data: nothing is
imported or called. Older files hold the same as JSON. Pickles are not read. All messages of a checkpoint get its time.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple, cast

import msgspec

from contextc._json import JSON, JSONObject, as_object, as_objects, decode_json, find_json_problem
from contextc.interchange import read_langchain
from contextc.interchange.found_conversation import FoundConversation, parse_time, read_or_error
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.messages import Message

ABOUT = "threads of LangGraph's SQLite checkpointer"
MESSAGES = "messages"
DELTA_CODE = 7
encode = msgspec.msgpack.Encoder().encode
LEAF_QUERY = (
    "SELECT checkpoint_id, type, checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ''"
    " AND checkpoint_id NOT IN (SELECT parent_checkpoint_id FROM checkpoints WHERE thread_id = ?"
    " AND checkpoint_ns = '' AND parent_checkpoint_id IS NOT NULL) ORDER BY checkpoint_id"
)
"""The checkpoints of a thread without a successor, in one query."""


class _Delta(NamedTuple):
    """A part of a channel's value; the rest is in earlier checkpoints."""


class _LeafCheckpoint(NamedTuple):
    """The content of the last checkpoint of a branch: its messages, or the reason why there are none."""

    id: str
    messages: Sequence[JSONObject]
    time: int
    problem: str = ""


def matches(sample: FileSample) -> bool:
    return sample.has_table("checkpoints", "thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint", "type")


def read_conversations(given: ImportInput) -> Iterator[FoundConversation]:
    for file in given.files:
        with file.open_database() as connection:
            threads = connection.execute(
                "SELECT thread_id FROM checkpoints WHERE checkpoint_ns = '' GROUP BY thread_id"
                " ORDER BY min(checkpoint_id)"
            ).fetchall()
            for (thread,) in given.with_progress(threads):
                yield read_or_error(str(thread), lambda thread=thread: _thread(connection, thread))


def _thread(connection: sqlite3.Connection, thread: object) -> FoundConversation:
    """Read a thread: one line per checkpoint without a successor; the newest is the current one."""
    ends = connection.execute(LEAF_QUERY, (thread, thread))
    read = _ThreadReader()
    left = [_read_leaf(str(id), str(kind or ""), data) for id, kind, data in ends]
    return FoundConversation(
        id=str(thread),
        lines=[line for each in left if (line := read.line(each))],
        left_out=[f"thread {str(thread)!r}: {each.problem}" for each in left if each.problem],
    )


class _ThreadReader:
    """Decoder for the branches of one thread. Common messages become the same objects."""

    def __init__(self) -> None:
        self.made: dict[bytes, Message] = {}

    def line(self, left: _LeafCheckpoint) -> list[Message]:
        names: dict[str, str] = {}
        path = b""
        found: list[Message] = []
        for each in left.messages:
            path = blake2b(path + encode(each), digest_size=16).digest()
            made = read_langchain.to_message(each, names, time=left.time)
            found.append(self.made.setdefault(path, made))
        return found


def _read_leaf(id: str, kind: str, data: object) -> _LeafCheckpoint:
    if not isinstance(data, bytes | str) or kind not in ("msgpack", "json"):
        return _LeafCheckpoint(id, (), 0, f"a checkpoint has the type {kind!r}, which is not supported")
    written = data.encode() if isinstance(data, str) else data
    try:
        value: JSON = _unpacked(written) if kind == "msgpack" else _from_legacy(decode_json(written))
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        return _LeafCheckpoint(id, (), 0, f"a checkpoint cannot be read: {error}")
    checkpoint = as_object(value)
    held = as_object(checkpoint.get("channel_values"))
    is_apart = MESSAGES not in held and MESSAGES in as_object(checkpoint.get("channel_versions"))
    if is_apart or isinstance(held.get(MESSAGES), _Delta):
        return _LeafCheckpoint(id, (), 0, "its messages are stored as differences, which is not supported")
    return _LeafCheckpoint(id, _messages(held), parse_time(checkpoint.get("ts")))


def _messages(channels: JSONObject) -> list[JSONObject]:
    """Return the messages of the channel `messages`, or else of the channel with the most messages."""
    lists = [[each for each in as_objects(value) if read_langchain.is_message(each)] for value in channels.values()]
    named = [each for each in as_objects(channels.get(MESSAGES)) if read_langchain.is_message(each)]
    return named or max([[], *lists], key=len)


def _unpacked(data: bytes | memoryview) -> JSON:
    return msgspec.msgpack.decode(data, ext_hook=_extension)


def _extension(code: int, data: memoryview) -> JSON:
    """Return the arguments of a serialized object `[module, class, arguments, method]`, as data."""
    if code == DELTA_CODE:
        return _Delta()
    value = _unpacked(data)
    held = cast(list[JSON], value) if isinstance(value, list) else []
    return _json(held[2]) if len(held) > 2 else None


def _json(value: JSON) -> JSON:
    return value if find_json_problem(value) is None else msgspec.to_builtins(value, str_keys=True)


def _from_legacy(value: JSON) -> JSON:
    """Convert `{"lc": …, "kwargs": …}` of LangChain's older serializer to the form of `model_dump`."""
    if isinstance(value, list):
        return [_from_legacy(each) for each in cast(list[JSON], value)]
    if not isinstance(value, dict):
        return value
    held = cast(JSONObject, value)
    if "lc" in held and isinstance(held.get("id"), list) and isinstance(held.get("kwargs"), dict):
        named = str(cast(list[JSON], held["id"])[-1])
        return {"type": named, **cast(JSONObject, _from_legacy(held["kwargs"]))}
    return {name: _from_legacy(each) for name, each in held.items()}
