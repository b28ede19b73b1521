"""Known sessions: list and invalidate the sessions that stateful providers keep of conversations."""

from msgspec import Struct
from msgspec.structs import replace

from contextc.compiler.ledger import repository
from contextc.errors import InvalidInput
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_types import DEFAULT_AGENT
from contextc.store.ledger_schema import Channel


class KnownSession(Struct, frozen=True, kw_only=True):
    """The session of a channel. `id` is empty if there is none, and `lost` is the reason."""

    channel: Channel
    id: str = ""
    cursor: str = ""
    lost: str = ""
    requests: int = 0
    epoch: int = 0
    unanswered: bool = False
    """True if a request was begun and no reply was stored; `error` is the reason, if known."""
    error: str = ""


class SessionManager:
    """Lists and invalidates the sessions of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def sessions(self, conversation: str) -> list[KnownSession]:
        """Return every channel of a conversation with its session."""

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
                for _, channel, standing, attempt in repository.load_channels(tx, conversation)
            ]

        return self.store.read(work)

    def session(
        self, conversation: str, *, provider: str, model: str, agent: str = DEFAULT_AGENT, directory: str = ""
    ) -> KnownSession | None:
        """Return the session of one channel; None if the channel does not exist."""
        wanted = Channel(conversation, agent, provider, model, directory)
        return next((each for each in self.sessions(conversation) if each.channel == wanted), None)

    def invalidate(self, channel: Channel, why: str) -> None:
        """Mark a session as unusable, for example because the provider no longer has it. The next request is a full
        one.
        """
        if not why.strip():
            raise InvalidInput(
                "why must be a non-empty string", got=why, fix="Pass the reason; the next manifest contains it."
            )

        if not isinstance(channel, Channel):
            raise InvalidInput(
                f"channel must be a Channel, got {type(channel).__name__}",
                fix="Pass the `channel` of an entry that `sessions` returns.",
            )

        def work(tx: Transaction) -> bool:
            found = repository.find_channel(tx, channel)
            standing = repository.load_state(tx, channel)
            if found is None or standing is None:
                raise InvalidInput(
                    f"Conversation {channel.conversation!r}: channel {channel} not found",
                    fix="Pass the `channel` of an entry that `sessions` returns.",
                )
            return repository.update_state(tx, found[0], found[1], replace(standing, session=None, lost=why))

        while not self.store.write(work):  # a request was committed in between
            pass
