"""A conversation with what its requests do not contain: its replies, and the exact bodies that were sent."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import cast

import msgspec
from msgspec import Struct

from contextc._json import JSONObject, decode_json
from contextc.analysis.conversation_loader import NO_HEAD, load_conversation_view
from contextc.analysis.element_costs import ChannelRun
from contextc.analysis.request_view import ConversationView, RequestView
from contextc.compiler.ledger.row_encoding import hash_chunks
from contextc.compiler.past_requests import join_observed, load_channel_formatter, rebuild
from contextc.errors import ContextcError
from contextc.linting import Violation, lint
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import DECODE_ERRORS

BLOCK_SIZE = 512
CALL_TAG = "tool_call"


class _PartName(Struct):
    """The kind of a part, and the name of the tool that it calls."""

    type: str = ""
    name: str | None = None


class _ReplyMessage(Struct):
    """The fields of a stored reply that findings need. Others are not decoded."""

    finish: str | None = None
    error: str | None = None
    parts: list[_PartName] = []


class Reply(Struct, frozen=True, kw_only=True):
    """The reply to one request: why it ended, its error, and the names of the tools that it calls."""

    finish: str = ""
    error: str = ""
    calls: tuple[str, ...] = ()


NO_REPLY = Reply()


class StoredConversation(ConversationView):
    """A conversation view that can read its store, and that can be updated.

    `channels` are the requests of each channel in their order, by the short id of the channel; `runs` are the same with
    their prices.
    """

    def __init__(self, store: Store, view: ConversationView) -> None:
        super().__init__(view.name, (), view.source, view.overlapping, view.continued)
        self.store = store
        self._forget_requests()
        self._add(view.requests)

    def _forget_requests(self) -> None:
        self.forget()
        self.requests.clear()
        self.channels: dict[str, list[RequestView]] = {}
        self._runs: dict[str, ChannelRun] = {}
        self._replies: dict[int, Reply] = {}
        self._replies_read = 0
        self._violations: dict[int, list[Violation]] = {}

    def update(self, view: ConversationView) -> None:
        """Take over a later state of the conversation. What was computed is kept if requests were only added."""
        count, self.source = len(self.requests), view.source
        is_same = view.overlapping == self.overlapping and view.continued is self.continued
        if view.requests[:count] != self.requests or not is_same:
            count, self.overlapping, self.continued = 0, view.overlapping, view.continued
            self._forget_requests()
        self._add(view.requests[count:])

    def _add(self, requests: Sequence[RequestView]) -> None:
        self.requests.extend(requests)
        for each in requests:
            self.channels.setdefault(each.channel_id, []).append(each)

    @property
    def runs(self) -> list[ChannelRun]:
        for id, requests in self.channels.items():
            run = self._runs.setdefault(id, ChannelRun())
            run.extend(requests[len(run.requests) :])
        return list(self._runs.values())

    def reply(self, request: RequestView) -> Reply:
        """Return the reply to a request. It is empty if none is stored."""
        if self._replies_read < len(self.requests):
            self._load_replies(self.requests[self._replies_read :])
            self._replies_read = len(self.requests)
        return self._replies.get(id(request), NO_REPLY)

    def violations(self, request: RequestView) -> list[Violation]:
        """Return what `contextc lint` finds in the body of a request; nothing if it cannot be rebuilt."""
        if (found := self._violations.get(id(request))) is None:
            found = self._violations[id(request)] = self._lint(request)
        return found

    def _lint(self, request: RequestView) -> list[Violation]:
        with suppress(ContextcError):
            body = self.body(request)
            return lint(body, format=request.format) if body is not None else []
        return []

    def body(self, request: RequestView) -> JSONObject | None:
        """Return the body of a request as it was sent; None if it cannot be rebuilt."""
        with suppress(ContextcError, ValueError):
            found = decode_json(self._rebuild(request))
            return cast(JSONObject, found) if isinstance(found, dict) else None
        return None

    def _rebuild(self, request: RequestView) -> bytes:
        rows = [each.raw for each in request.rows.sections]
        is_known = request.observed is not None and not request.is_replaced and request.head.raw != NO_HEAD
        if request.observed is None or not is_known or hash_chunks("", rows) != request.record.chain:
            formatter = load_channel_formatter(self.store, request.channel)
            return rebuild(self.store, request.channel, formatter, request.number)
        return join_observed(request.head.raw, rows, request.observed)

    def _load_replies(self, requests: Sequence[RequestView]) -> None:
        places = [where for each in requests for where in each.record.produced]
        messages = self.store.read(lambda tx: _load_messages(tx, places))
        for each in requests:
            produced = [messages[where] for where in each.record.produced if where in messages]
            if produced:
                self._replies[id(each)] = Reply(
                    finish=next((one.finish for one in reversed(produced) if one.finish), ""),
                    error=next((one.error for one in reversed(produced) if one.error), ""),
                    calls=tuple(
                        [part.name for one in produced for part in one.parts if part.type == CALL_TAG and part.name]
                    ),
                )


def load_stored_conversation(store: Store, conversation: str) -> StoredConversation:
    """Return a conversation with its requests. Raises `UnknownConversation`."""
    return StoredConversation(store, load_conversation_view(store, conversation))


def _load_messages(tx: Transaction, places: Iterable[int]) -> dict[int, _ReplyMessage]:
    """Return messages by place. Unreadable ones are skipped."""
    wanted, found, decoder = list(places), dict[int, _ReplyMessage](), msgspec.json.Decoder(_ReplyMessage)
    for start in range(0, len(wanted), BLOCK_SIZE):
        some = wanted[start : start + BLOCK_SIZE]
        marks = ", ".join("?" * len(some))
        for where, body in tx.rows(f"SELECT place, body FROM message WHERE place IN ({marks})", *some):
            with suppress(*DECODE_ERRORS):
                found[where] = decoder.decode(body)
    return found
