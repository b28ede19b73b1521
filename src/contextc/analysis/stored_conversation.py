"""A conversation with what its requests do not contain: its replies, and the exact bodies that were sent."""

from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from typing import cast

import msgspec
from msgspec import Struct

from contextc._json import JSONObject, decode_json
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.element_costs import ChannelRun
from contextc.analysis.request_view import ConversationView, RequestView
from contextc.compiler.past_requests import load_channel_formatter, rebuild
from contextc.errors import ContextcError
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
    """A conversation view that can read its store."""

    def __init__(self, store: Store, view: ConversationView) -> None:
        super().__init__(view.name, view.requests, view.source, view.overlapping)
        self.store = store

    @cached_property
    def channels(self) -> dict[str, list[RequestView]]:
        """The requests of each channel in their order, by the short id of the channel."""
        found: dict[str, list[RequestView]] = {}
        for each in self.requests:
            found.setdefault(each.channel_id, []).append(each)
        return found

    @cached_property
    def runs(self) -> list[ChannelRun]:
        """The requests of each channel, with their prices."""
        return [ChannelRun(each) for each in self.channels.values()]

    def reply(self, request: RequestView) -> Reply:
        """Return the reply to a request. It is empty if none is stored."""
        return self._replies.get((request.channel_id, request.number), NO_REPLY)

    def body(self, request: RequestView) -> JSONObject | None:
        """Return the body of a request as it was sent; None if it cannot be rebuilt."""
        with suppress(ContextcError, ValueError):
            formatter = load_channel_formatter(self.store, request.channel)
            found = decode_json(rebuild(self.store, request.channel, formatter, request.number))
            return cast(JSONObject, found) if isinstance(found, dict) else None
        return None

    @cached_property
    def _replies(self) -> dict[tuple[str, int], Reply]:
        places = [where for each in self.requests for where in each.record.produced]
        messages = self.store.read(lambda tx: _load_messages(tx, places))
        found: dict[tuple[str, int], Reply] = {}
        for each in self.requests:
            produced = [messages[where] for where in each.record.produced if where in messages]
            if produced:
                found[each.channel_id, each.number] = Reply(
                    finish=next((one.finish for one in reversed(produced) if one.finish), ""),
                    error=next((one.error for one in reversed(produced) if one.error), ""),
                    calls=tuple(
                        [part.name for one in produced for part in one.parts if part.type == CALL_TAG and part.name]
                    ),
                )
        return found


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
