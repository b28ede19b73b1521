"""A recorded request, as the functions that record requests return it."""

from msgspec import Struct

from contextc.compiler.manifest import RequestRecord
from contextc.compiler.past_requests import compute_request_cost, load_channel_formatter, rebuild
from contextc.messages import Usage
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
        """`ok`, `error`, `unfinished` (the reply broke off) or `unanswered`."""
        return self.record.observed.status if self.record.observed else ""

    @property
    def usage(self) -> Usage | None:
        """The tokens that the provider counted; None if it reported none."""
        return self.record.usage

    @property
    def cost(self) -> float | None:
        """The cost in dollars; None if it is unknown."""
        return compute_request_cost(self.channel, self.record)
