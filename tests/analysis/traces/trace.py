"""The form of a labelled trace: exchanges in their order, each with the cause of its cache miss."""

from typing import NamedTuple

CAUSES = (
    "first_request", "below_minimum", "model_changed", "tools_changed", "tools_reordered", "system_changed",
    "message_changed", "message_removed", "message_inserted", "settings_changed", "cache_expired",
    "breakpoint_missing", "lookback_exceeded", "compacted", "parallel_request", "provider_missed",
)  # fmt: skip


class Exchange(NamedTuple):
    """A request and its reply, with its label.

    `cause` is the cause of the cache miss, None for a request whose cache hit. `accepted` are all causes that are
    right, including `cause`: two can be equally true. `also` are further causes that alone had the same effect.
    `total` and `read` are the tokens of the simulated cache, `missed` are those that were not read because of the
    cause. `agent` identifies the conversation within the trace.
    """

    agent: str
    format: str
    url: str
    headers: dict[str, str]
    conversation: str | None
    body: bytes
    reply: bytes | None
    status: int
    began: int
    ended: int
    cause: str | None
    accepted: frozenset[str | None]
    also: tuple[str, ...] = ()
    total: int = 0
    read: int = 0
    missed: int = 0


class Trace(NamedTuple):
    """Exchanges of one client with one provider. `half` is the name of its set."""

    name: str
    half: str
    wire: str
    exchanges: tuple[Exchange, ...]

    @property
    def causes(self) -> set[str]:
        """The causes of its cache misses, without `first_request`."""
        return {each.cause for each in self.exchanges if each.cause and each.cause != "first_request"}

    @property
    def is_clean(self) -> bool:
        return not self.causes
