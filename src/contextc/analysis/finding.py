"""Findings: what a conversation wastes or fails at, where, what it costs, and how to fix it."""

from collections.abc import Iterable

from msgspec import Struct

EVIDENCE_WIDTH = 160


class RequestPlace(Struct, frozen=True, kw_only=True):
    """A request of any conversation: its number, and the short id of its channel."""

    conversation: str
    channel: str
    request: int


class Evidence(Struct, frozen=True, kw_only=True):
    """One place that a finding is based on.

    `request` is the number of the request on its channel, `channel` the short id of that channel. `path` is a path in
    the body of the request, such as `system[0].text`, `tools[3]` or `messages[12].content[0]`; "" for the whole
    request. `before` and `after` are the words that changed, shortened. If nothing changed (`is_change` is False), they
    are two facts, or the beginning of what was found. `compared` is the request that it was compared with, unless that
    is the previous one of the same channel. `name` is the name of the tool that changed, was added (`before` is "") or
    was removed (`after` is ""); "" for other changes.
    """

    request: int
    channel: str
    path: str = ""
    before: str = ""
    after: str = ""
    is_change: bool = True
    compared: RequestPlace | None = None
    name: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words before and after a change, or the facts, as far as there are any."""
        return tuple([each for each in (self.before, self.after) if each])


class RequestLoss(Struct, frozen=True, kw_only=True):
    """The loss of one request: tokens that it did not read from the cache, and what they cost more than necessary."""

    channel: str
    request: int
    tokens: int
    cost: float | None


class Finding(Struct, frozen=True, kw_only=True):
    """One finding about a conversation.

    `tokens` are the tokens that it concerns; for a cache miss those that could have been read from the cache. `cost` is
    what they cost more than necessary, in dollars; None if it is unknown. `confidence` is between 0 and 1. `also` are
    further causes that alone would have had the same effect. The first piece of evidence has the request that the
    finding is about. `vendor` is the provider's own word for the cause of a cache miss, "" if it gave none, and
    `vendor_agrees` whether it names the same cause; None if it cannot be compared. `losses` has each request, oldest
    first, if the finding is about several ones that lost little each.
    """

    code: str
    cause: str
    title: str
    conversation: str
    evidence: tuple[Evidence, ...] = ()
    tokens: int = 0
    cost: float | None = None
    fix: str = ""
    confidence: float = 1.0
    also: tuple[str, ...] = ()
    vendor: str = ""
    vendor_agrees: bool | None = None
    losses: tuple[RequestLoss, ...] = ()

    @property
    def request(self) -> int:
        """The number of the request that the finding is about; 0 if it is about the whole conversation."""
        return self.evidence[0].request if self.evidence else 0

    @property
    def channel(self) -> str:
        """The short id of the channel of that request; "" if there is none."""
        return self.evidence[0].channel if self.evidence else ""


def sort_by_cost(found: Iterable[Finding]) -> list[Finding]:
    """Return findings with the most expensive first, then those of unknown cost; equal ones by their tokens."""
    return sorted(
        found,
        key=lambda each: (
            each.cost is None, -(each.cost or 0.0), -each.tokens, each.code, each.conversation, each.request,
        ),
    )  # fmt: skip


def shorten(text: str, width: int = EVIDENCE_WIDTH) -> str:
    """Return a text on one line, cut to a width."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
