"""Journal of partial messages, which are still being written. It is stored outside the chain and survives a crash.

A `Stream` journals its deltas in batches, at most a quarter of a second apart. Ending it appends the message and
removes the journal in one transaction.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Literal, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from contextc._credential_mask import mask_secrets
from contextc._json import encode, fix_surrogates_in_json
from contextc.errors import ContextcError, InvalidInput, InvalidMessage, LeaseLost
from contextc.events import AnyEvent, ReasoningDelta, TextDelta, ToolCallDelta, ToolFailed, ToolFinished
from contextc.messages import (
    AnyPart,
    Extra,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    decode_message,
    encode_message,
    tool_call,
    validate_message,
)
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_types import Lease
from contextc.store.message_rows import check_name, decode_row, decode_rows, find_by_name, load_tip
from contextc.store.turn_and_event_records import MAX_EVENT_TEXT, QUEUE

BATCH_SECONDS = 0.25
StreamStatus: TypeAlias = Literal["sent", "error", "cancelled"]
StreamDelta: TypeAlias = Text | Reasoning | ToolCall
Piece: TypeAlias = tuple[str, AnyPart]
"""The uid of a message, and a part of it that was received."""
OPEN_OF_TURN = "SELECT uid FROM stream WHERE conversation = ? AND agent = ? AND lease <= ? ORDER BY uid"
EMPTY_REPLY = Message(role="assistant")

_parts_to_json = msgspec.json.Encoder().encode
_parts_from_json = msgspec.json.Decoder(list[AnyPart]).decode


def open_stream(tx: Transaction, lease: Lease, head: Message) -> None:
    """Create the journal of a message that has no parts yet."""
    uid = head.uid
    check_name(uid, "message")
    made = tx.run(
        "INSERT INTO stream (uid, conversation, agent, lease, head) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        uid,
        lease.conversation,
        lease.agent,
        lease.number,
        encode_message(head),
    )
    if (not made and not tx.is_retry) or find_by_name(tx, load_tip(tx, lease.conversation).tree, uid):
        raise InvalidMessage(
            f"there is already a message {uid!r}",
            field="uid",
            conversation=lease.conversation,
            fix="Leave uid empty for a new message.",
        )


def save_deltas(tx: Transaction, uid: str, number: int, parts: list[AnyPart]) -> None:
    try:
        body = _parts_to_json(parts)
    except UnicodeEncodeError:
        body = _parts_to_json(fix_surrogates_in_json(msgspec.to_builtins(parts)))
    tx.send(
        "INSERT INTO stream_delta (uid, number, parts) VALUES (?, ?, ?)"
        " ON CONFLICT (uid, number) DO UPDATE SET parts = excluded.parts",  # a retry: the same deltas, possibly more
        uid,
        number,
        body,
    )


def list_open_of_turn(tx: Transaction, conversation: str, agent: str, number: int) -> list[str]:
    """Return the uids of open streams of a turn and of earlier turns."""
    return [uid for (uid,) in tx.rows(OPEN_OF_TURN, conversation, agent, number)]


def prefetch_closing(tx: Transaction, lease: Lease) -> None:
    """Announce what is read when a turn ends: its open streams and the queue."""
    tx.prefetch(OPEN_OF_TURN, lease.conversation, lease.agent, lease.number)
    tx.prefetch(QUEUE, lease.root, lease.agent)


def list_open_uids(tx: Transaction, conversation: str) -> set[str]:
    """Return the uids of open streams in a conversation."""
    return {uid for (uid,) in tx.rows("SELECT uid FROM stream WHERE conversation = ?", conversation)}


def assemble_message(tx: Transaction, uid: str, final: Message) -> Message | None:
    """Return the complete message: the fields that `final` sets, and the journaled ones otherwise.

    Return None if the stream has already ended.
    """
    row = tx.row("SELECT head FROM stream WHERE uid = ?", uid)
    if row is None:
        return None
    begun = decode_row(decode_message, row[0], f"Stream {uid}")
    known = {
        name: value for name in final.__struct_fields__ if (value := getattr(final, name)) != getattr(EMPTY_REPLY, name)
    }
    message = replace(begun, **known | {"uid": uid, "status": final.status, "time": begun.time})
    if not message.parts:
        deltas = tx.rows("SELECT parts FROM stream_delta WHERE uid = ? ORDER BY number", uid)
        batches = decode_rows(_parts_from_json, [batch for (batch,) in deltas], f"Stream {uid}")
        message = replace(message, parts=join_deltas(part for batch in batches for part in batch))
    if not message.parts and message.status == "sent" and message.finish is None:
        message = replace(message, finish="stop")  # an empty reply without a finish reason
    return message


def load_partial(tx: Transaction, conversation: str, agent: str) -> Message | None:
    """Return the journaled part of the message that an agent is writing, or None."""
    row = tx.row("SELECT max(uid) FROM stream WHERE conversation = ? AND agent = ?", conversation, agent)
    return assemble_message(tx, row[0], replace(EMPTY_REPLY, status="pending")) if row and row[0] is not None else None


def delete_stream(tx: Transaction, uid: str) -> None:
    tx.send("DELETE FROM stream_delta WHERE uid = ?", uid)
    tx.send("DELETE FROM stream WHERE uid = ?", uid)


def join_deltas(deltas: Iterable[AnyPart]) -> tuple[AnyPart, ...]:
    """Merge deltas into parts: adjacent text and reasoning, and all pieces of the same call."""
    joined: list[AnyPart] = []
    calls: dict[str, int] = {}
    for delta in deltas:
        if isinstance(delta, ToolCall):
            if delta.id in calls:
                joined[calls[delta.id]] = _continued(joined[calls[delta.id]], delta)
                continue
            calls[delta.id] = len(joined)
        elif joined and (merged := _merged(joined[-1], delta)):
            joined[-1] = merged
            continue
        joined.append(delta)
    return tuple(joined)


def split_reply(message: Message) -> list[Message]:
    """Split a reply with tool results into messages: calls, their results, and what follows.

    Such replies come from a provider that runs tools itself; their `finish` is "tool_calls". The status and error of an
    aborted reply go to its last message. Earlier calls are complete and may have run. An incomplete call after
    complete ones cannot have run and is dropped.
    """
    runs: list[list[AnyPart]] = [[]]
    for part in message.parts:
        if runs[-1] and isinstance(part, ToolResult) != isinstance(runs[-1][-1], ToolResult):
            runs.append([])
        runs[-1].append(part)
    whole = replace(message, status="sent", finish="tool_calls", error=None, usage=None)
    messages: list[Message] = []
    for index, run in enumerate(runs):
        uid = message.uid if index == 0 else ""
        if index == len(runs) - 1 and message.status != "sent" and message.finish == "tool_calls":
            run = [*drop_incomplete_call(run)]
        if run and isinstance(run[0], ToolResult):
            messages.append(replace(whole, role="tool", finish=None, parts=tuple(run), uid=uid))
        elif index < len(runs) - 1 or may_have_run(message.finish, run):
            messages.append(replace(whole, parts=tuple(run), uid=uid))
        else:
            finish = None if message.finish == "tool_calls" and message.status != "sent" else message.finish
            messages.append(replace(message, parts=tuple(run), uid=uid, finish=finish))
    return messages


def may_have_run(finish: str | None, parts: Sequence[AnyPart]) -> bool:
    """Return True if an aborted reply ends with calls that its provider may have run."""
    calls = [part for part in parts if isinstance(part, ToolCall)]
    return finish == "tool_calls" and bool(calls) and not any(_is_incomplete(call) for call in calls)


def drop_incomplete_call(parts: Sequence[AnyPart]) -> Sequence[AnyPart]:
    """Return the parts of an aborted reply, without an incomplete call that follows complete ones."""
    return parts[:-1] if parts and _is_incomplete(parts[-1]) and may_have_run("tool_calls", parts[:-1]) else parts


def _is_incomplete(part: AnyPart) -> bool:
    """Return True for a call whose arguments are incomplete."""
    return isinstance(part, ToolCall) and (part.malformed or (part.raw is not None and not part.raw.strip()))


def _merged(before: AnyPart, delta: AnyPart) -> AnyPart | None:
    match before, delta:
        case Text(), Text() if not before.extra and not delta.extra:
            return Text(before.text + delta.text)
        case Reasoning(), Reasoning() if before.id == delta.id and not (before.signature or before.data or delta.data):
            return replace(
                before,
                text=before.text + delta.text,
                signature=delta.signature,
                provider=delta.provider or before.provider,
                model=delta.model or before.model,
                extra=_both(before.extra, delta.extra),
            )
        case _:
            return None


def _continued(before: AnyPart, piece: ToolCall) -> ToolCall:
    """Return a call extended by a piece of its arguments, or replaced by a complete one."""
    written = before.raw if isinstance(before, ToolCall) else None
    whole = piece if piece.raw is None else tool_call(piece.id, piece.name, (written or "") + piece.raw)
    return replace(whole, extra=_both(before.extra, piece.extra))


def _both(one: Extra | None, other: Extra | None) -> Extra | None:
    return {**(one or {}), **(other or {})} or None


class Stream:
    """A message being written. Use it in a `with`: an exception ends it as `error`, a cancellation as `cancelled`."""

    def __init__(
        self,
        uid: str,
        lease: Lease,
        save: Callable[[int, list[AnyPart]], None],
        close: Callable[[int, list[AnyPart], Message], Message],
    ) -> None:
        self.uid, self.lease = uid, lease
        self.message: Message | None = None
        """The message as it was stored, once the stream has ended."""
        self._save, self._close = save, close
        self._waiting: list[AnyPart] = []
        self._batches = 0
        self._ending = False
        self._lock = threading.Lock()
        """Guards the fields above. It is not held during store writes, so `write` never waits for the disk."""
        self._saving = threading.Lock()
        """Held during store writes: one batch after the other, then the end."""
        self._lost: ContextcError | None = None
        self._pid = os.getpid()
        self.stop_journaling: Callable[[], None] = lambda: None
        """Stops the periodic journaling."""

    def write(self, delta: StreamDelta | str) -> None:
        """Add text, reasoning or a call. Raises `LeaseLost` after the turn has ended."""
        part = Text(delta) if isinstance(delta, str) else delta
        if not isinstance(part, Text | Reasoning | ToolCall):
            raise InvalidMessage(f"stream.write expects text, Reasoning or a ToolCall, got {type(delta).__name__}.")
        (sound,) = validate_message(Message(role="assistant", parts=(part,), status="error")).message.parts
        with self._lock:
            if self._lost is not None:
                raise self._lost
            if self.message is not None or self._ending:
                raise InvalidInput("This stream has ended", fix="Open another stream for the next message.")
            self._waiting.append(sound)

    def write_call(self, id: str, name: str, piece: str) -> None:
        """Add the next piece of the JSON text of a call's arguments. Pieces of several calls may interleave."""
        self.write(tool_call(id, name, piece))

    def refuse_writes(self) -> None:
        """Refuse further writes, because the turn is over."""
        self.stop_journaling()
        if self.message is None and self._lost is None:
            self._lost = LeaseLost(self.lease.conversation, self.lease.agent, number=self.lease.number)

    def flush(self) -> None:
        """Journal what was written so far. The store calls this four times a second."""
        if self._pid != os.getpid():
            return
        with self._saving:
            with self._lock:
                taken = list(self._waiting)
            if not taken or self.message is not None:
                return
            try:
                self._save(self._batches, list(join_deltas(taken)))
            except LeaseLost as error:
                self._lost = error
                self.stop_journaling()
                raise
            with self._lock:
                self._batches, self._waiting = self._batches + 1, self._waiting[len(taken) :]

    def end(
        self,
        message: Message | None = None,
        *,
        status: StreamStatus | None = None,
        error: str | None = None,
        finish: str | None = None,
        usage: Usage | None = None,
    ) -> Message:
        """Append the message to the chain, with fields that are known only now, such as `finish` and `usage`.

        `message` may set them all at once. Its parts, if any, replace those that were written.
        """
        final = message or EMPTY_REPLY
        final = replace(
            final,
            status=status or final.status,
            error=error or final.error,
            finish=finish or final.finish,
            usage=usage or final.usage,
        )
        with self._saving:
            if self.message is None:
                with self._lock:
                    self._ending, taken = True, list(self._waiting)
                try:
                    self.message = self._close(self._batches, list(join_deltas(taken)), final)
                finally:
                    self._ending = False
                self.stop_journaling()
            return self.message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.message is not None or self._pid != os.getpid():
            return
        if error is None:
            self.end()
        else:
            why = mask_secrets(f"{type(error).__name__}: {error}".removesuffix(": "))
            self.end(status="error" if isinstance(error, Exception) else "cancelled", error=why)


def delta_events(pieces: Sequence[Piece], stored: Sequence[Message] | None = None) -> list[AnyEvent]:
    """Return pieces of a reply as events. A result among them comes from a tool that the provider ran itself.

    `stored` are the messages of a reply that was never journaled. Their uids replace those of the pieces.
    """
    events: list[AnyEvent] = []
    uids = [message.uid for message in stored or () if message.role == "assistant"]
    names = dict(zip(dict.fromkeys(uid for uid, _ in pieces), uids, strict=False))
    for old, part in pieces:
        uid = names.get(old, old)
        match part:
            case Text():
                events.append(TextDelta(uid=uid, text=part.text))
            case Reasoning():
                if part.text:
                    events.append(ReasoningDelta(uid=uid, text=part.text))
            case ToolCall():
                events.append(ToolCallDelta(uid=uid, id=part.id, name=part.name, arguments=_arguments_text(part)))
            case ToolResult():
                kind = ToolFailed if part.is_error else ToolFinished
                events.append(kind(id=part.call_id, name=part.name, text=part.text[:MAX_EVENT_TEXT]))
            case _:
                pass
    return events


def _arguments_text(call: ToolCall) -> str:
    """Return the arguments as the model wrote them, or encoded if the provider sent them as data."""
    if call.raw is None and call.arguments:
        return encode(call.arguments).decode()
    return call.raw or ""
