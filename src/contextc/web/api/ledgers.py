"""What the other end of a channel knows already, and what it has not been shown yet."""

from msgspec import Struct

from contextc.compiler.knowing import epochs, knowledge, told
from contextc.web.api.requests import After, Limit
from contextc.web.channels import channel_at
from contextc.web.desk import Desk
from contextc.web.endpoint import endpoint

MOST_NEWS = 1_000
SHORT = 1_000  # characters of a text


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """Which of the messages that are known: `after` is how many to pass over."""

    after: After = 0
    limit: Limit = 200


class Begun(Struct, frozen=True, kw_only=True):
    """An epoch: the request it began with, why, and how many rows of the ledger it came to."""

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
    """One that the last request did not show. `before`: an earlier one did, on another branch."""

    before: bool


class Held(Entry, frozen=True, kw_only=True):
    """One that was. `acknowledged`: it need not be told again before the conversation can go on, because the session
    has it, or because the provider keeps none and is sent everything each time.
    """

    acknowledged: bool


class Ledger(Struct, frozen=True, kw_only=True):
    """`session` is the provider's name for what it keeps, `lost` why it keeps none any more. `unanswered`: a request is
    on its way, or came to nothing, and the session may hold it. `total` is how many messages are known.
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
    """What a model, or a program's session, has been shown, epoch by epoch, and what is news to it."""
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
