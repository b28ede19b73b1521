"""The ways to keep a conversation in a SQLite file that `store.py` compares.

Each subject has one file and one conversation in it, and does three things with it: fill it with a history as fast as
it can, append messages one at a time (durable when the call returns), and load. Peers run with the settings their
package chooses; nothing is changed, and `settings` says what they are.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Protocol, TypedDict

import contextc as cc
from contextc.messages import decode_message, encode_message

RAW, INDEXED, OURS, AGENTS, GRAPH = NAMES = ("raw", "raw + index", "contextc", "openai-agents", "langgraph")
CONVERSATION = "benchmark"
BATCH = 1000
SENTENCE = "The harbour office asks for the papers of the third ship before noon, and for the name of its captain. "
TEXT_LENGTH = 400


def text(index: int) -> str:
    return f"{index:07d} {SENTENCE * 4}"[:TEXT_LENGTH]


class Subject(Protocol):
    name: str

    def fill(self, count: int) -> None:
        """Prepare a history of this length, by the fastest way there is."""
        ...

    def append(self, count: int) -> None:
        """Append so many messages, one durable call each."""
        ...

    def load(self, last: int | None = None) -> Sequence[object]:
        """All messages, or the last few."""
        ...

    def settings(self) -> str: ...

    def close(self) -> None: ...


class Raw:
    """What a developer writes without a library: a table, an insert, a select. Bodies are encoded by msgspec."""

    def __init__(self, path: Path, *, index: bool) -> None:
        self.name = INDEXED if index else RAW
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE message (id INTEGER PRIMARY KEY, conversation TEXT NOT NULL, body BLOB NOT NULL)"
        )
        if index:
            self._connection.execute("CREATE INDEX message_conversation ON message (conversation, id)")
        self._messages = [cc.user(text(index)) for index in range(BATCH)]

    def fill(self, count: int) -> None:
        rows = ((CONVERSATION, encode_message(cc.user(text(index)))) for index in range(count))
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO message (conversation, body) VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def append(self, count: int) -> None:
        for message in self._messages[:count]:
            self._connection.execute(
                "INSERT INTO message (conversation, body) VALUES (?, ?)", (CONVERSATION, encode_message(message))
            )

    def load(self, last: int | None = None) -> list[cc.Message]:
        if last is None:
            query = "SELECT body FROM message WHERE conversation = ? ORDER BY id"
            return [decode_message(body) for (body,) in self._connection.execute(query, (CONVERSATION,)).fetchall()]
        query = "SELECT body FROM message WHERE conversation = ? ORDER BY id DESC LIMIT ?"
        rows = self._connection.execute(query, (CONVERSATION, last)).fetchall()
        return [decode_message(body) for (body,) in reversed(rows)]

    def settings(self) -> str:
        return pragmas(self._connection)

    def close(self) -> None:
        self._connection.close()


class Ours:
    def __init__(self, path: Path) -> None:
        self.name = OURS
        self._store = cc.open_store(path)
        self._messages = [cc.user(text(index)) for index in range(BATCH)]

    def fill(self, count: int) -> None:
        for start in range(0, count, BATCH):
            self._store.extend(CONVERSATION, [cc.user(text(index)) for index in range(start, start + BATCH)])

    def append(self, count: int) -> None:
        for message in self._messages[:count]:
            self._store.append(CONVERSATION, message)

    def load(self, last: int | None = None) -> list[cc.Message]:
        return self._store.load(CONVERSATION, last=last)

    def settings(self) -> str:
        # Read through the store, so that what is printed is what was measured.
        return self._store.read(lambda tx: ", ".join(f"{name}={tx.rows(f'PRAGMA {name}')[0][0]}" for name in PRAGMAS))

    def close(self) -> None:
        self._store.close()


class OpenAIAgents:
    """`SQLiteSession`, one item a call. One event loop for the whole run, as in a server."""

    def __init__(self, path: Path) -> None:
        self.name = AGENTS
        # Any: the package is not part of this project's environment, so its types are not known here.
        package: Any = import_module("agents")
        self._session: Any = package.SQLiteSession(CONVERSATION, path)
        self._runner = asyncio.Runner()
        self._items = [{"role": "user", "content": text(index)} for index in range(BATCH)]

    def fill(self, count: int) -> None:
        items = [{"role": "user", "content": text(index)} for index in range(count)]
        self._runner.run(self._session.add_items(items))

    def append(self, count: int) -> None:
        async def one_by_one() -> None:
            for item in self._items[:count]:
                await self._session.add_items([item])

        self._runner.run(one_by_one())

    def load(self, last: int | None = None) -> list[object]:
        return self._runner.run(self._session.get_items(limit=last))

    def settings(self) -> str:
        return pragmas(self._session._get_connection())

    def close(self) -> None:
        self._runner.close()
        self._session.close()


class LangGraph:
    """A graph with a messages channel (`add_messages`) on `SqliteSaver`.

    A message is added with `update_state`, which writes one checkpoint; `invoke` writes several for the same message.
    """

    def __init__(self, path: Path) -> None:
        self.name = GRAPH
        # Any: the packages are not part of this project's environment, so their types are not known here.
        graph: Any = import_module("langgraph.graph")
        saver: Any = import_module("langgraph.checkpoint.sqlite").SqliteSaver
        self._human: Any = import_module("langchain_core.messages").HumanMessage
        add_messages: Any = graph.add_messages

        class State(TypedDict):
            messages: Annotated[list[Any], add_messages]

        def nothing(_: State) -> dict[str, Any]:
            return {}

        self._connection = sqlite3.connect(path, check_same_thread=False)
        builder: Any = graph.StateGraph(State)
        builder.add_node("chat", nothing)
        builder.add_edge(graph.START, "chat")
        builder.add_edge("chat", graph.END)
        self._graph: Any = builder.compile(checkpointer=saver(self._connection))
        self._thread = {"configurable": {"thread_id": CONVERSATION}}

    def fill(self, count: int) -> None:
        self._add(range(count))

    def append(self, count: int) -> None:
        for index in range(count):
            self._add([index])

    def _add(self, indexes: Sequence[int]) -> None:
        messages = [self._human(text(index)) for index in indexes]
        self._graph.update_state(self._thread, {"messages": messages}, as_node="chat")

    def load(self, last: int | None = None) -> list[object]:
        messages: list[object] = self._graph.get_state(self._thread).values["messages"]
        return messages if last is None else messages[-last:]

    def settings(self) -> str:
        return pragmas(self._connection)

    def close(self) -> None:
        self._connection.close()


PRAGMAS = ("journal_mode", "synchronous", "wal_autocheckpoint")


def pragmas(connection: sqlite3.Connection) -> str:
    return ", ".join(f"{name}={connection.execute(f'PRAGMA {name}').fetchone()[0]}" for name in PRAGMAS)
