"""Channels as the outside knows them: whom a conversation was shown to, each under a short name for addresses.

The name is a hash of agent, provider, model and directory, so it is the same in every conversation and after every
start of the server, and says nothing about any of them.
"""

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Literal

from msgspec import Struct

from contextc._json import canonical
from contextc.errors import UnknownChannel
from contextc.ledger import book
from contextc.ledger.standing import Channel
from contextc.providers.named import keeps_sessions
from contextc.store import Store

BYTES = 9  # twelve letters


class ChannelView(Struct, frozen=True, kw_only=True):
    """Whom a conversation was shown to, and where that stands. `mode`: whether the provider keeps a session by itself.

    `lost` says why it has none any more. `unanswered`: a request has left, or was about to, and no reply is stored;
    `error` is why, if that is known.
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


def channel_id(channel: Channel) -> str:
    """The name of a channel in addresses."""
    said = canonical([channel.agent, channel.provider, channel.model, channel.directory])
    return urlsafe_b64encode(blake2b(said, digest_size=BYTES).digest()).decode()


def channel_at(store: Store, conversation: str, id: str) -> Channel:
    """The channel of that name; raises `UnknownConversation` and `UnknownChannel`."""
    store.conversation(conversation)  # that there is one
    for _, channel, *_ in store.read(lambda tx: book.channels(tx, conversation)):
        if channel_id(channel) == id:
            return channel
    raise UnknownChannel(conversation, id)


def channel_views(store: Store, conversation: str) -> list[ChannelView]:
    """Everybody a conversation was shown to, the first one first; raises `UnknownConversation`."""
    store.conversation(conversation)
    found: list[ChannelView] = []
    for _, channel, standing, attempt in store.read(lambda tx: book.channels(tx, conversation)):
        session = standing.session.id if standing.session else ""
        stateful = bool(session or standing.lost) or keeps_sessions(channel.provider)
        found.append(
            ChannelView(
                id=channel_id(channel),
                agent=channel.agent,
                provider=channel.provider,
                model=channel.model,
                directory=channel.directory,
                requests=standing.requests,
                epoch=standing.epoch,
                mode="stateful" if stateful else "stateless",
                session=session,
                lost=standing.lost,
                unanswered=attempt is not None,
                error=attempt.error if attempt else "",
            )
        )
    return found
