"""Comparison of any two requests in cache order, and of two conversations as a whole."""

from typing import Annotated

from msgspec import Meta, Struct

from contextc.analysis.conversation_comparison import (
    ComparedCause,
    ComparedCost,
    FirstDifference,
    RunFigures,
    compare_conversations,
)
from contextc.analysis.conversation_loader import load_request_views
from contextc.analysis.request_comparison import Difference, compare_two_requests
from contextc.analysis.request_view import RequestView
from contextc.compiler.manifest import RequestRecord
from contextc.compiler.past_requests import find_request
from contextc.errors import InvalidRequest
from contextc.inspection.prefix_break import load_compared_record
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel
from contextc.web.app_state import AppState
from contextc.web.channel_list import find_channel
from contextc.web.endpoint_registry import endpoint

TAG = "comparison"
MAX_NUMBER = 1 << 31


class OtherRequestQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The request to compare with, which counts as the earlier one. Default: the last request before it on the same
    channel that was answered.

    `to_conversation` and `to_channel` are by default those of the compared request.
    """

    to_conversation: str = ""
    to_channel: str = ""
    to_request: Annotated[int, Meta(ge=0, le=MAX_NUMBER)] = 0


class ComparedRequest(Struct, frozen=True, kw_only=True):
    """One of the two requests. `input` are its input tokens."""

    conversation: str
    channel: str
    request: int
    model: str
    format: str
    time: int
    input: int


class RequestComparisonView(Struct, frozen=True, kw_only=True):
    """The comparison of a request (`after`) with another one (`before`; null if there is none).

    `differences` are in cache order: tools, system prompt, messages. Cache breakpoints do not count. `break_index` is
    the index of the first difference that breaks the prefix; null if there is none. `reason` says what it is, and `fix`
    how to avoid it. `readable` are tokens that could be read from the cache that `before` left, by the rules of the
    provider. `lost` are tokens that both have and that were not read, by the reported usage if there is any, and `cost`
    is what these cost more than a read from the cache, in dollars. They are null if the requests share no cache (then
    `shares_cache` is false), or if its rules are not known. `as_messages` is true if the formats differ, so that
    contextc messages are compared. `omitted` is the number of differences that are left out; `cut` is true if texts
    are.
    """

    before: ComparedRequest | None
    after: ComparedRequest
    differences: list[Difference]
    break_index: int | None
    reason: str
    fix: str
    shares_cache: bool
    as_messages: bool
    readable: int | None
    lost: int | None
    cost: float | None
    unchanged: int
    unchanged_tokens: int
    omitted: int
    cut: bool


class ConversationsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`a` and `b` are the names of the conversations."""

    a: str
    b: str


class FirstDifferenceView(Struct, frozen=True, kw_only=True):
    """The first requests that differ, at the same position in both conversations; null where there is none.

    `related` is false if the conversations are about different things. `equal` is the number of parts before the first
    difference, and `equal_tokens` their tokens.
    """

    position: int
    a: ComparedRequest | None
    b: ComparedRequest | None
    reason: str
    related: bool = True
    equal: int = 0
    equal_tokens: int = 0


class ConversationComparisonView(Struct, frozen=True, kw_only=True):
    """Two conversations side by side: figures, findings by cause, costs, and the first requests that differ.

    `first` is null if all requests are the same.
    """

    a: RunFigures
    b: RunFigures
    causes: list[ComparedCause]
    costs: list[ComparedCost]
    first: FirstDifferenceView | None


def find_other_request(
    app: AppState, channel: Channel, number: int, query: OtherRequestQuery
) -> tuple[Channel, int] | None:
    """Return the channel and the number of the request to compare with; None if there is no previous request."""
    before = app.store.read(lambda tx: _load_compared(tx, channel, number))
    if not query.to_conversation and not query.to_channel and not query.to_request:
        return (channel, before.request) if before is not None else None
    if not query.to_request:
        raise InvalidRequest("to_request is missing", fix="Pass the number of the request to compare with.")
    if not query.to_channel and query.to_conversation not in ("", channel.conversation):
        raise InvalidRequest("to_channel is missing", fix="Pass the channel of the other conversation's request.")
    conversation = query.to_conversation or channel.conversation
    other = find_channel(app.store, conversation, query.to_channel) if query.to_channel else channel
    return other, query.to_request


def _load_compared(tx: Transaction, channel: Channel, number: int) -> RequestRecord | None:
    channel_number, record = find_request(tx, channel, number)
    return load_compared_record(tx, channel_number, record.request)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/comparison")
def show_comparison(
    app: AppState, name: str, channel: str, number: int, query: OtherRequestQuery
) -> RequestComparisonView:
    """Compare a request with the last answered one before it, or with any other, in cache order."""
    found = find_channel(app.store, name, channel)
    other = find_other_request(app, found, number, query)
    if other is None:
        (after,) = load_request_views(app.store, [(found, number)])
        return _nothing_before(after)
    before, after = load_request_views(app.store, [other, (found, number)])
    compared = compare_two_requests(app.store, before, after)
    return RequestComparisonView(
        before=_request(before),
        after=_request(after),
        differences=list(compared.differences),
        break_index=compared.break_index,
        reason=compared.reason,
        fix=compared.fix,
        shares_cache=compared.shares_cache,
        as_messages=compared.as_messages,
        readable=compared.readable,
        lost=compared.lost,
        cost=compared.cost,
        unchanged=compared.unchanged,
        unchanged_tokens=compared.unchanged_tokens,
        omitted=compared.omitted,
        cut=compared.is_cut,
    )


@endpoint("GET", "/compare")
def show_conversation_comparison(app: AppState, query: ConversationsQuery) -> ConversationComparisonView:
    """Compare two conversations: figures, costs and findings by cause, and the first request that differs."""
    found = compare_conversations(app.store, query.a, query.b)
    return ConversationComparisonView(
        a=found.a, b=found.b, causes=list(found.causes), costs=list(found.costs), first=_first(found.first)
    )


def _first(found: FirstDifference | None) -> FirstDifferenceView | None:
    if found is None:
        return None
    return FirstDifferenceView(
        position=found.position,
        a=_request(found.a) if found.a is not None else None,
        b=_request(found.b) if found.b is not None else None,
        reason=found.reason,
        related=found.is_related,
        equal=found.equal,
        equal_tokens=found.equal_tokens,
    )


def _request(view: RequestView) -> ComparedRequest:
    return ComparedRequest(
        conversation=view.channel.conversation,
        channel=view.channel_id,
        request=view.number,
        model=f"{view.channel.provider}:{view.channel.model}",
        format=view.format,
        time=view.began,
        input=view.input,
    )


def _nothing_before(after: RequestView) -> RequestComparisonView:
    return RequestComparisonView(
        before=None, after=_request(after), differences=[], break_index=None, reason="", fix="",
        shares_cache=False, as_messages=False, readable=None, lost=None, cost=None,
        unchanged=0, unchanged_tokens=0, omitted=0, cut=False,
    )  # fmt: skip
