"""Channels in the API, each with a short id for URLs."""

from typing import Literal

from msgspec import Struct

from contextc.compiler.ledger import repository
from contextc.errors import UnknownChannel
from contextc.providers.registry import has_sessions
from contextc.store import Store
from contextc.store.channel_ids import channel_id as channel_id
from contextc.store.ledger_schema import Channel


class ChannelView(Struct, frozen=True, kw_only=True):
    """A channel of a conversation and its state. `mode` is "stateful" if the provider keeps a session.

    `lost` is why the session no longer exists. `unanswered` is true if a request was sent, or was about to be, and no
    reply is stored; `error` is the reason, if known.
    """

    id: str
    agent: str
    provider: str
    model: str
    directory: str
    requests: int
    epoch: int
    mode: Literal["stateless", "stateful"]
    session: str
    lost: str
    unanswered: bool
    error: str


def find_channel(store: Store, conversation: str, id: str) -> Channel:
    """Return the channel with an id. Raises `UnknownConversation` and `UnknownChannel`."""
    store.conversation(conversation)  # raises if it does not exist
    for _, channel, *_ in store.read(lambda tx: repository.load_channels(tx, conversation)):
        if channel_id(channel) == id:
            return channel
    raise UnknownChannel(conversation, id)


def channel_views(store: Store, conversation: str) -> list[ChannelView]:
    """Return the channels of a conversation, oldest first. Raises `UnknownConversation`."""
    store.conversation(conversation)
    found: list[ChannelView] = []
    for _, channel, state, attempt in store.read(lambda tx: repository.load_channels(tx, conversation)):
        session = state.session.id if state.session else ""
        stateful = bool(session or state.lost) or has_sessions(channel.provider)
        found.append(
            ChannelView(
                id=channel_id(channel),
                agent=channel.agent,
                provider=channel.provider,
                model=channel.model,
                directory=channel.directory,
                requests=state.requests,
                epoch=state.epoch,
                mode="stateful" if stateful else "stateless",
                session=session,
                lost=state.lost,
                unanswered=attempt is not None,
                error=attempt.error if attempt else "",
            )
        )
    return found
