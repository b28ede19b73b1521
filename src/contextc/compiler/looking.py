"""Everything that is read before a compilation: the channel, new messages, summaries, cached token counts.

All reads use one consistent snapshot of the store and write nothing. The next step of a channel that this handle used
last takes a fast path with one statement (`ledger.look.look_on`).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc.compiler.assembly import FetchedMessages, list_blob_names
from contextc.ledger import book, overlays
from contextc.ledger.look import ChannelSnapshot, load_messages_at, load_next, load_snapshot, may_have_summaries
from contextc.ledger.overlays import Summary
from contextc.ledger.standing import Channel, ChannelState
from contextc.ledger.warm import ChannelCache
from contextc.messages import Message, hash_content, validate_message
from contextc.providers import Provider
from contextc.store import Reference, Store
from contextc.store.base import Transaction
from contextc.store.places import SEQ_MASK, find_message, load_tip, make_place
from contextc.tokens import Calibration, TokenCounter, load_calibration, load_counts


class LoadedContext(NamedTuple):
    """The loaded channel, its summary, and the tokens of new messages."""

    sight: ChannelSnapshot
    summary: Summary | None
    counts: Mapping[int, int]
    fresh: dict[bytes, int]

    def followed_by(self, messages: Sequence[Message]) -> "LoadedContext":
        """Return the same with unsaved messages appended."""
        at, log = self.sight.at, list(self.sight.log)
        for seq, message in enumerate(messages, at.seq + 1):
            log.append(
                (
                    make_place(at.branch, seq),
                    replace(validate_message(replace(message, uid="", time=0)).message, seq=seq),
                )
            )
        return self._replace(sight=replace(self.sight, log=tuple(log)))


class ContextLoader:
    """Reads a store for one provider. `calibration` is None until the first read."""

    def __init__(self, store: Store, provider: Provider, counter: TokenCounter, warm: ChannelCache) -> None:
        self.store, self.provider, self.counter, self._warm = store, provider, counter, warm
        self.calibration: Calibration | None = None
        self.since_summary = False
        """True if messages that the latest summary covers are not read."""

    @property
    def factor(self) -> float:
        return self.calibration.factor if self.calibration is not None else 1.0

    def seen(
        self, channel: Channel, runs: str, edit: tuple[Reference, Message] | None, rewind: Reference | None
    ) -> LoadedContext:
        """Load a channel as it is now, or as it would be after an edit or a rewind."""
        as_it_is = edit is None and rewind is None
        return (self._next(channel) if as_it_is else None) or self._look(channel, runs, edit, rewind)

    def _next(self, channel: Channel) -> LoadedContext | None:
        """Load the next step of a channel by the fast path; None if the full load is needed."""
        if self.calibration is None or (sight := load_next(self.store, self._warm, channel)) is None:
            return None
        counts, fresh = dict[int, int](), dict[bytes, int]()
        if self.counter.exact:
            counts, fresh = self.store.read(lambda tx: self._counts(tx, sight))
        since = sight.shown.since
        return LoadedContext(sight, since.summary if since else None, counts, fresh)

    def _look(
        self, channel: Channel, runs: str, edit: tuple[Reference, Message] | None, rewind: Reference | None
    ) -> LoadedContext:
        room, read, counter = self.provider.model.window, 0, self.counter
        counted: dict[int, int] = {}

        def seen_tokens(where: int, message: Message) -> int:
            """Return the tokens that a message may take, as far as known before all messages are read."""
            if message.redacted or message.status != "sent" or message.audience not in (None, channel.agent):
                return 0
            if message.author in (None, channel.agent) or message.role == "user":
                tokens = counted[where] = counter.message(message)
                return tokens
            return counter.text(message.text) if message.role == "assistant" else 0

        def enough(block: Sequence[tuple[int, Message]]) -> bool:
            nonlocal read
            read += sum([seen_tokens(where, message) for where, message in block])
            return read > room

        def work(tx: Transaction) -> LoadedContext:
            nonlocal read
            read, upto = 0, None
            counted.clear()
            if edit is not None or rewind is not None:
                at = load_tip(tx, channel.conversation)
                where = find_message(
                    tx, channel.conversation, at, edit[0] if edit is not None else cast(Reference, rewind)
                )
                upto = where.seq - 1 if edit is not None else where.seq
            since = None
            if self.since_summary and may_have_summaries(at := load_tip(tx, channel.conversation)):
                since = overlays.load_latest_summary(tx, channel.agent, at, counter.system)
            sight = load_snapshot(tx, self._warm, channel, room=room, runs=runs, enough=enough, upto=upto, since=since)
            if self.calibration is None:
                self.calibration = load_calibration(tx, self.provider.asks_for)
            counts, fresh = self._counts(tx, sight, counted)
            summary = None
            if may_have_summaries(sight.at):
                summary = overlays.load_latest_summary(tx, channel.agent, sight.at, counter.system)
            if summary is not None and summary.anchor & SEQ_MASK <= sight.standing.edge:
                summary = None  # the context was cleared after it
            return LoadedContext(sight, summary, counts, fresh)

        seen = self.store.read(work)
        return seen if edit is None else seen.followed_by([edit[1]])

    def elsewhere(self, channel: Channel, sight: ChannelSnapshot) -> ChannelState | None:
        """Return the state of the channel that this agent used last, if it never used this one."""
        if sight.standing.requests or sight.standing.layout:
            return None
        channels = self.store.read(lambda tx: book.load_channels(tx, channel.conversation))
        others = [standing for _, other, standing, _ in channels if other.agent == channel.agent and standing.requests]
        return max(others, key=lambda standing: standing.seen, default=None)

    def _counts(
        self, tx: Transaction, sight: ChannelSnapshot, counted: Mapping[int, int] = {}
    ) -> tuple[Mapping[int, int], dict[bytes, int]]:
        """Return the tokens of new messages by place, and newly counted tokens by content hash.

        `counted` are counts made while reading. Estimates are not cached: computing one is cheaper than looking it up.
        """
        if not self.counter.exact or not sight.log:
            return counted, {}
        names = {where: hash_content(message) for where, message in sight.log}
        found = load_counts(tx, self.counter.tokenizer, list(names.values()))
        fresh: dict[bytes, int] = {}
        for where, message in sight.log:
            if (name := names[where]) not in found:
                found[name] = fresh[name] = counted.get(where) or self.counter.message(message)
        return {where: found[name] for where, name in names.items()}, fresh

    def fetch(self, places: Sequence[int], also: Sequence[Message]) -> FetchedMessages:
        """Return messages by place, and the bytes of their media and of the media of `also`."""

        def work(tx: Transaction) -> FetchedMessages:
            messages = load_messages_at(tx, places)
            names = list_blob_names([*messages.values(), *also])
            blobs: dict[str, bytes] = {}
            for name in names:
                row = tx.row("SELECT data FROM blob WHERE name = ?", name)
                if row is not None:
                    blobs[name] = bytes(row[0])
            return FetchedMessages(messages, blobs)

        return self.store.read(work)
