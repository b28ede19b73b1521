"""A recorded request, and the options of its recording."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from msgspec import Struct

from contextc.compiler.manifest import ProxyAction, RequestRecord
from contextc.compiler.past_requests import compute_usage_bill, load_channel_formatter, rebuild
from contextc.messages import Message, Usage
from contextc.models import Bill
from contextc.store import Store
from contextc.store.ledger_schema import Channel


class ObservedRequest(Struct, frozen=True, kw_only=True):
    """A recorded request: its conversation and channel, its number on the channel, and how it ended."""

    store: Store
    channel: Channel
    request: int
    record: RequestRecord
    is_new: bool = True
    """False if the exchange was recorded before."""
    added: int = 0
    """The number of messages that were stored with it."""

    @property
    def conversation(self) -> str:
        """The name of the conversation that the request belongs to."""
        return self.channel.conversation

    @property
    def body(self) -> bytes:
        """The exact bytes of the request, rebuilt from the store; redacted ones if it is marked inexact."""
        return rebuild(self.store, self.channel, load_channel_formatter(self.store, self.channel), self.request)

    @property
    def status(self) -> str:
        """`ok`, `error`, `unfinished` (the reply broke off), `unanswered` or `unrecorded`."""
        return self.record.observed.status if self.record.observed else ""

    @property
    def usage(self) -> Usage | None:
        """The tokens that the provider counted; None if it reported none."""
        return self.record.usage

    @property
    def bill(self) -> Bill | None:
        """The cost in dollars, and if it is a lower bound; None if it is unknown."""
        return compute_usage_bill(self.channel, self.record.usage)

    @property
    def cost(self) -> float | None:
        """The cost in dollars; None if it is unknown."""
        found = self.bill
        return found.dollars if found is not None else None


# ── options of a recording ────────────────────────────────────────────────────────────────────────────────────────────
# Options for recording an exchange: whether it is inexact; for imported ones, identity, names and stored messages.


class NewNames(Struct, frozen=True, kw_only=True):
    """The names that new conversations get.

    `base` is their first part. `wanted` is the name of the first conversation; if another one has it, recording is
    refused. `identity` is the source's own id of the conversation, and `plain` its name. Conversations of different
    `scope` are never mixed.
    """

    base: str
    wanted: str = ""
    identity: str = ""
    plain: str = ""
    scope: str = ""

    def candidates(self) -> Iterator[str]:
        """Return the names for an identity, in a stable order."""
        yield self.plain
        longer = f"{self.plain}-{blake2b(self.identity.encode(errors='replace'), digest_size=4).hexdigest()}"
        yield longer
        number = 2
        while True:
            yield f"{longer}-{number}"
            number += 1


class StoredMessages(Struct, frozen=True, kw_only=True):
    """The messages of a request that are in the store already.

    `starts` has the index of the first element of each message; `places` is parallel, 0 for one that is not stored.
    `replies` are the places of the reply, and `redacted` those of redacted messages.
    """

    messages: Sequence[Message]
    starts: Sequence[int]
    places: Sequence[int]
    replies: Sequence[tuple[int, Message]] = ()
    redacted: frozenset[int] = frozenset()


class RecordOptions(Struct, frozen=True, kw_only=True):
    """`key` identifies the exchange: it is recorded once. `inexact`: the body is not the one that was sent, for example
    because it was `redacted`. `actions`: what options of the proxy found or changed. `parent`: the request that started
    this sub-agent, or the name of its conversation. `directory`: where the software works. `raw`: the response as it
    arrived, packed.
    """

    key: str = ""
    inexact: bool = False
    redacted: bool = False
    actions: tuple[ProxyAction, ...] = ()
    names: NewNames | None = None
    stored: StoredMessages | None = None
    parent: tuple[Channel, int] | str = ""
    directory: str = ""
    raw: bytes = b""

    @property
    def scope(self) -> str:
        return self.names.scope if self.names is not None else ""
