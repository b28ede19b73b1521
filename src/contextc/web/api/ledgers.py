"""The ledger of a channel: messages that were sent, and messages that were not sent yet."""

from msgspec import Struct

from contextc.compiler.knowing import epochs, knowledge, told
from contextc.web.api.requests import After, Limit
from contextc.web.channels import channel_at
from contextc.web.desk import Desk
from contextc.web.endpoint import endpoint

MOST_NEWS = 1_000
SHORT = 1_000  # characters of a text


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """The page of sent messages: `after` is how many to skip."""

    after: After = 0
    limit: Limit = 200


class Begun(Struct, frozen=True, kw_only=True):
    """An epoch: its first request, its reason, and its number of ledger rows."""

    epoch: int
    request: int
    why: str
    rows: int
    time: int


class Entry(Struct, frozen=True, kw_only=True):
    """A message or an inserted text."""

    seq: int
    kind: str
    role: str
    tokens: int
    text: str


class News(Entry, frozen=True, kw_only=True):
    """An entry that the last request did not have. `before` is true if an earlier request on another branch had it."""

    before: bool


class Held(Entry, frozen=True, kw_only=True):
    """An entry that was sent.

    `acknowledged` is true if the session has it, or if the provider keeps no session and gets everything each time.
    """

    acknowledged: bool


class Ledger(Struct, frozen=True, kw_only=True):
    """`session` is the provider's session id, and `lost` why it no longer exists.

    `unanswered` is true if a request is running or failed, and the session may contain it. `total` is the number of
    sent messages.
    """

    session: str
    lost: str
    unanswered: bool
    epochs: list[Begun]
    known: list[Held]
    total: int
    more: bool
    new: list[News]


@endpoint("GET", "/conversations/{name}/channels/{channel}/ledger")
def show_ledger(desk: Desk, name: str, channel: str, query: Part) -> Ledger:
    """Return what was sent on a channel, by epoch, and what was not sent yet."""
    found = channel_at(desk.store, name, channel)
    knows = knowledge(desk.store, found)
    news = knows.news[:MOST_NEWS]
    shown = told(desk.store, knows.known[query.after : query.after + query.limit])
    return Ledger(
        session=knows.session,
        lost=knows.lost,
        unanswered=knows.unanswered,
        epochs=[Begun(**each._asdict()) for each in epochs(desk.store, found)],
        known=[
            Held(
                seq=line.seq,
                kind=line.kind,
                role=line.role,
                tokens=line.tokens,
                text=line.text[:SHORT],
                acknowledged=knows.acknowledged,
            )
            for line in shown
        ],
        total=len(knows.known),
        more=query.after + query.limit < len(knows.known),
        new=[
            News(
                seq=line.seq,
                kind=line.kind,
                role=line.role,
                tokens=line.tokens,
                text=line.text[:SHORT],
                before=item.place in knows.before,
            )
            for item, line in zip(news, told(desk.store, news), strict=True)
        ],
    )
