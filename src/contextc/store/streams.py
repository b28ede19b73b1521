"""Messages that are still being written. They live outside the chain, and survive the process that writes them.

A stream collects deltas and journals them in batches, at most a quarter of a second apart. Ending it puts the message
into the chain in the same transaction that removes the journal, so it is never in both places and never in neither.
"""

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Literal, NamedTuple, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from contextc.messages import AnyPart, Message, Reasoning, Text, ToolCall, from_json, to_json
from contextc.store.base import Transaction

BATCH_SECONDS = 0.25
Ending: TypeAlias = Literal["sent", "error", "cancelled"]
Delta: TypeAlias = Text | Reasoning | ToolCall

_parts_to_json = msgspec.json.Encoder().encode
_parts_from_json = msgspec.json.Decoder(list[AnyPart]).decode


class Row(NamedTuple):
    uid: str
    lease: int


def begin(tx: Transaction, conversation: str, agent: str, lease: int, head: Message) -> None:
    tx.run(
        "INSERT INTO stream (uid, conversation, agent, lease, head) VALUES (?, ?, ?, ?, ?)",
        head.uid,
        conversation,
        agent,
        lease,
        to_json(head),
    )


def journal(tx: Transaction, uid: str, number: int, parts: list[AnyPart]) -> None:
    tx.run("INSERT INTO stream_delta (uid, number, parts) VALUES (?, ?, ?)", uid, number, _parts_to_json(parts))


def of_agent(tx: Transaction, conversation: str, agent: str) -> list[Row]:
    rows = tx.rows(
        "SELECT uid, lease FROM stream WHERE conversation = ? AND agent = ? ORDER BY uid", conversation, agent
    )
    return [Row(*row) for row in rows]


def assemble(tx: Transaction, uid: str, status: Ending, error: str | None) -> Message:
    """The message as far as it was journaled."""
    row = tx.row("SELECT head FROM stream WHERE uid = ?", uid)
    assert row is not None, "a stream is closed once, by its writer or by the repair of a dead turn"
    deltas = tx.rows("SELECT parts FROM stream_delta WHERE uid = ? ORDER BY number", uid)
    parts = [part for (batch,) in deltas for part in _parts_from_json(batch)]
    return replace(from_json(row[0]), parts=join(parts), status=status, error=error)


def forget(tx: Transaction, uid: str) -> None:
    tx.run("DELETE FROM stream_delta WHERE uid = ?", uid)
    tx.run("DELETE FROM stream WHERE uid = ?", uid)


def join(deltas: Iterable[AnyPart]) -> tuple[AnyPart, ...]:
    """Deltas as whole parts: neighbouring text and reasoning run together, and so do pieces of one call's arguments."""
    joined: list[AnyPart] = []
    for delta in deltas:
        merged = _merge(joined[-1], delta) if joined else None
        if merged is None:
            joined.append(delta)
        else:
            joined[-1] = merged
    return tuple(joined)


def _merge(before: AnyPart, delta: AnyPart) -> AnyPart | None:
    match before, delta:
        case Text(), Text():
            return Text(before.text + delta.text)
        case Reasoning(), Reasoning() if not before.signature and before.id == delta.id:
            return replace(
                before, text=before.text + delta.text, signature=delta.signature, data=delta.data or before.data
            )
        case ToolCall(), ToolCall() if before.id == delta.id:
            written = (before.raw or "") + (delta.raw or "")
            return ToolCall(id=before.id, name=before.name, arguments=written)  # pyright: ignore[reportArgumentType]
        case _:
            return None


class Stream:
    """A message being written. Use it in a `with`: an exception ends it as `error`, a cancellation as `cancelled`."""

    def __init__(
        self,
        uid: str,
        save: Callable[[int, list[AnyPart]], None],
        close: Callable[[int, list[AnyPart], Ending, str | None, Message | None], Message],
    ) -> None:
        self.uid = uid
        self.message: Message | None = None
        self._save, self._close = save, close
        self._waiting: list[AnyPart] = []
        self._batches = 0
        self._lock = threading.Lock()

    def write(self, delta: Delta | str) -> None:
        """Add what came in: text, reasoning, or a call whose `arguments` are the next piece of its JSON text."""
        with self._lock:
            self._waiting.append(Text(delta) if isinstance(delta, str) else delta)

    def flush(self) -> None:
        """Journal what has been written so far. The store does this by itself, four times a second."""
        with self._lock:
            if self._waiting and self.message is None:
                self._save(self._batches, list(join(self._waiting)))
                self._batches, self._waiting = self._batches + 1, []

    def end(self, message: Message | None = None, *, status: Ending = "sent", error: str | None = None) -> Message:
        """Put the message into the chain: what was written, or `message`, which is the same with all that is known
        now.
        """
        with self._lock:
            if self.message is None:
                waiting = list(join(self._waiting))
                self.message = self._close(self._batches, waiting, status, error, message)
            return self.message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.end()
        elif self.message is None:
            failed = isinstance(error, Exception)
            self.end(status="error" if failed else "cancelled", error=f"{type(error).__name__}: {error}")
