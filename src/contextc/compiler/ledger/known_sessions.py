"""Known sessions: list, adopt and invalidate the sessions that stateful providers keep of conversations."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import is_valid_text
from contextc.compiler.ledger import repository
from contextc.compiler.ledger.log_check import without_rows
from contextc.errors import InvalidInput
from contextc.store import Store
from contextc.store.append_and_load import load_between
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_types import DEFAULT_AGENT
from contextc.store.ledger_schema import Channel, ChannelState, ProviderSession
from contextc.store.message_rows import SEQ_MASK, check_name, load_context_start, load_tip


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
    shown: int = 0
    """The number of the message up to which the conversation was shown, replies included. `cursor` is the same in the
    provider's own terms, if it has any.
    """


class SessionManager:
    """Lists, adopts and invalidates the sessions of one store."""

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
                    shown=_find_shown(standing),
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
        if not is_valid_text(why) or not why.strip():
            raise InvalidInput(
                "why must be a non-empty string", got=why, fix="Pass the reason; the next manifest contains it."
            )
        _check_channel(channel)

        def work(tx: Transaction) -> bool:
            found = repository.find_channel(tx, channel)
            standing = repository.load_state(tx, channel)
            if found is None or standing is None:
                raise InvalidInput(
                    f"Conversation {channel.conversation!r}: channel {channel} not found",
                    fix="Pass the `channel` of an entry that `sessions` returns.",
                )
            return repository.update_state(tx, found[0], found[1], replace(standing, session=None, held=0, lost=why))

        self._repeat(work)

    def set_cursor(self, channel: Channel, shown: int, *, session_id: str | None = None, cursor: str = "") -> None:
        """Set how far a session has the conversation: up to message `shown`. The next request continues after it.

        `session_id` adopts a session that something else began, and `cursor` is its position in the provider's own
        terms. A channel is what `compiler.channel(…)` or `executor.channel(…)` returns; it need not have any request.
        If the conversation is edited before the next request, that one is a full one.
        """
        _check_channel(channel)
        check_name(channel.author, "agent")
        if session_id is not None and not (session_id and is_valid_text(session_id)):
            raise InvalidInput("session_id must be a non-empty string", got=session_id, fix="Pass the provider's id.")
        if not is_valid_text(cursor):
            raise InvalidInput("cursor must be a string", got=cursor, fix="Pass the provider's own position as text.")

        def work(tx: Transaction) -> bool:
            at = load_tip(tx, channel.conversation)
            edge = load_context_start(tx, at.branch, at.seq)
            if isinstance(shown, bool) or not isinstance(shown, int) or not edge < shown <= at.seq:
                raise InvalidInput(
                    f"shown must be the number of a message of {channel.conversation!r}, from {edge + 1} to {at.seq}",
                    got=shown,
                    fix="Pass the last one that the session has, or call `invalidate` to begin a new session.",
                )
            found = repository.find_channel(tx, channel)
            before = repository.load_state(tx, channel) or ChannelState()
            known = before.session.id if before.session else ""
            if not (session_id or known):
                raise InvalidInput(f"Channel {channel} has no session", fix="Pass session_id.")
            state = replace(
                without_rows(before, ""),
                epoch=before.epoch + 1,
                session=ProviderSession(session_id or known, cursor),
                held=shown,
                branch=at.branch,
                revision=at.revision,
                seen=edge,
                edge=edge,
                tip=load_between(tx, at.branch, shown - 1, shown)[0].id,
            )
            if found is None:
                return bool(repository.create_channel(tx, channel, state))
            return repository.update_state(tx, found.number, found.version, state)

        self._repeat(work)

    def _repeat(self, work: Callable[[Transaction], bool]) -> None:
        while not self.store.write(work):  # a request was committed in between
            pass


def _check_channel(channel: object) -> None:
    if not isinstance(channel, Channel) or not all([isinstance(name, str) for name in channel]):
        raise InvalidInput(
            f"channel must be a Channel, got {type(channel).__name__}",
            fix="Pass the `channel` of an entry that `sessions` returns.",
        )


def _find_shown(standing: ChannelState) -> int:
    """Return the seq up to which the log was shown. A reply counts if no message came before it meanwhile."""
    shown, produced = standing.held or standing.seen, {item.place & SEQ_MASK for item in standing.produced}
    while shown + 1 in produced:
        shown += 1
    return shown
