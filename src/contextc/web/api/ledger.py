"""The ledger of a channel: messages that were sent, and messages that were not sent yet."""

from msgspec import UNSET, Struct, UnsetType

from contextc.inspection.preview import build_item_lines, load_epochs, load_knowledge
from contextc.web.api.requests import After, Limit
from contextc.web.app_state import AppState
from contextc.web.channel_list import find_channel
from contextc.web.endpoint_registry import endpoint

TAG = "ledgers"
MAX_UNSENT = 1_000
MAX_TEXT_LENGTH = 1_000  # characters of a text


class LedgerQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The page of sent messages: `after` is how many to skip."""

    after: After = 0
    limit: Limit = 200


class EpochView(Struct, frozen=True, kw_only=True):
    """An epoch: its first request, its reason, and its number of ledger rows."""

    epoch: int
    request: int
    why: str
    rows: int
    time: int


class LedgerEntry(Struct, frozen=True, kw_only=True):
    """A message or an inserted text. `tokens` is an estimate."""

    seq: int
    kind: str
    role: str
    tokens: int
    text: str


class UnsentEntry(LedgerEntry, frozen=True, kw_only=True):
    """An entry that the last request did not have. `before` is true if an earlier request on another branch had it."""

    before: bool


class SentEntry(LedgerEntry, frozen=True, kw_only=True):
    """An entry that was sent.

    `acknowledged` is true if the session has it, or if the provider keeps no session and gets everything each time.
    `counted` are its tokens in the last request, as its lines have them; absent if the last request did not have it.
    """

    acknowledged: bool
    counted: int | UnsetType = UNSET


class LedgerView(Struct, frozen=True, kw_only=True):
    """`session` is the provider's session id, and `lost` why it no longer exists.

    `unanswered` is true if a request is running or failed, and the session may contain it. `total` is the number of
    sent messages. `request` is the last request.
    """

    session: str
    lost: str
    unanswered: bool
    epochs: list[EpochView]
    known: list[SentEntry]
    total: int
    more: bool
    new: list[UnsentEntry]
    request: int = 0


@endpoint("GET", "/conversations/{name}/channels/{channel}/ledger")
def show_ledger(app: AppState, name: str, channel: str, query: LedgerQuery) -> LedgerView:
    """Return what was sent on a channel, by epoch, and what was not sent yet."""
    found = find_channel(app.store, name, channel)
    knowledge = load_knowledge(app.store, found)
    news = knowledge.news[:MAX_UNSENT]
    shown = build_item_lines(app.store, knowledge.known[query.after : query.after + query.limit])
    counted = dict(enumerate(knowledge.last.tokens))
    return LedgerView(
        session=knowledge.session,
        lost=knowledge.lost,
        unanswered=knowledge.unanswered,
        epochs=[EpochView(**each._asdict()) for each in load_epochs(app.store, found)],
        known=[
            SentEntry(
                seq=line.seq,
                kind=line.kind,
                role=line.role,
                tokens=line.tokens,
                text=line.text[:MAX_TEXT_LENGTH],
                acknowledged=knowledge.acknowledged,
                counted=counted.get(index, UNSET),
            )
            for index, line in enumerate(shown, query.after)
        ],
        total=len(knowledge.known),
        more=query.after + query.limit < len(knowledge.known),
        new=[
            UnsentEntry(
                seq=line.seq,
                kind=line.kind,
                role=line.role,
                tokens=line.tokens,
                text=line.text[:MAX_TEXT_LENGTH],
                before=item.place in knowledge.sent_on_other_branch,
            )
            for item, line in zip(news, build_item_lines(app.store, news), strict=True)
        ],
        request=knowledge.last.record.request,
    )
