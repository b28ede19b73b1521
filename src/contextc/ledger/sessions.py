"""The sessions that stateful providers keep of our conversations: which there are, and which are no longer good."""

from msgspec import Struct
from msgspec.structs import replace

from contextc.errors import InvalidInput
from contextc.ledger import book
from contextc.ledger.standing import Channel
from contextc.store import Store
from contextc.store.base import DEFAULT_AGENT, Transaction


class KnownSession(Struct, frozen=True, kw_only=True):
    """A session as we know it: whose, and what it holds. `id` is empty where there is none, and `lost` says why."""

    channel: Channel
    id: str = ""
    cursor: str = ""
    lost: str = ""
    requests: int = 0
    epoch: int = 0
    unanswered: bool = False
    """A request left, or was about to, and no reply was stored; `error` says why, if that is known."""
    error: str = ""


class SessionManager:
    """Looks after the sessions of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def sessions(self, conversation: str) -> list[KnownSession]:
        """Every channel of a conversation, with the session it has."""

        def work(tx: Transaction) -> list[KnownSession]:
            return [
                KnownSession(
                    channel=channel,
                    id=standing.session.id if standing.session else "",
                    cursor=standing.session.cursor if standing.session else "",
                    lost=standing.lost,
                    requests=standing.requests,
                    epoch=standing.epoch,
                    unanswered=attempt is not None,
                    error=attempt.error if attempt else "",
                )
                for _, channel, standing, attempt in book.channels(tx, conversation)
            ]

        return self.store.read(work)

    def session(
        self, conversation: str, *, provider: str, model: str, agent: str = DEFAULT_AGENT, directory: str = ""
    ) -> KnownSession | None:
        """The session of one channel; None where nothing was ever shown on it."""
        wanted = Channel(conversation, agent, provider, model, directory)
        return next((each for each in self.sessions(conversation) if each.channel == wanted), None)

    def invalidate(self, channel: Channel, why: str) -> None:
        """Say that a provider no longer has a session, or that it is not to be used: the next request is a full one."""
        if not why.strip():
            raise InvalidInput("Say why the session is no longer good: it stands in the manifest of the next request.")

        if not isinstance(channel, Channel):
            raise InvalidInput("Name the channel, as `sessions` lists it: each has a `channel`.")

        def work(tx: Transaction) -> bool:
            found = book.find(tx, channel)
            standing = book.stood(tx, channel)
            if found is None or standing is None:
                raise InvalidInput(f"Conversation {channel.conversation!r} has nothing on {channel}.")
            return book.advance(tx, found[0], found[1], replace(standing, session=None, lost=why))

        while not self.store.write(work):  # a request was committed in between
            pass
