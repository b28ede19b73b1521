"""Composition by cause: what the input tokens of a request, and of all requests of a conversation, are spent for."""

from msgspec import UNSET, Struct, UnsetType

from contextc.analysis.conversation_loader import load_single_request
from contextc.analysis.cost_by_cause import (
    INPUT_KINDS,
    CompositionNode,
    RequestTokens,
    compute_composition,
    compute_run_composition,
)
from contextc.web.api.findings import CostLineView, CostsView, costs_view, line_view
from contextc.web.app_state import AppState
from contextc.web.channel_list import find_channel
from contextc.web.endpoint_registry import endpoint
from contextc.web.request_view import CountOrigin, count_origin

TAG = "composition"


class CauseNode(Struct, frozen=True, kw_only=True):
    """Tokens with one cause. `cause` is system, tool, result, history, reasoning, media or overhead (added by the
    provider). The children are parts of it, the largest first, and add up to it; absent if there are none.

    `name` is the name within the parent: a tool, a prompt fragment, a role, a file, or the beginning of a text. `tool`
    is the tool that it belongs to. `cached`, `written` and `uncached` are how the tokens were charged: read from the
    cache, written to it, or neither; null if the provider reported no usage. `cost` is in dollars. `line` is the index
    of its line, if it is one line. `merged` is the number of smaller parts that it stands for.
    """

    cause: str
    name: str
    tokens: int
    cached: int | None
    written: int | None
    uncached: int | None
    cost: float | None
    tool: str | UnsetType = UNSET
    line: int | UnsetType = UNSET
    merged: int | UnsetType = UNSET
    children: "list[CauseNode] | UnsetType" = UNSET


class CompositionView(Struct, frozen=True, kw_only=True):
    """The input of a request by cause. The tokens of all causes add up to `tokens`, which is `input` of the budget.

    `how` is the origin of `tokens`, as in the budget. Parts of a measured total are estimated shares of it. `answer`
    are tokens and costs of the answer, which are not input; `cost` is that of the request with its answer.
    """

    channel: str
    number: int
    tokens: int
    how: CountOrigin
    causes: list[CauseNode]
    answer: list[CostLineView]
    cost: float | None


class RequestTokensView(Struct, frozen=True, kw_only=True):
    """The input tokens of one request by cause, in the order of `causes`. `estimated` is present and true if the
    provider reported no total and the tokens are not counted exactly.
    """

    channel: str
    number: int
    tokens: list[int]
    estimated: bool | UnsetType = UNSET


class RunCompositionView(Struct, frozen=True, kw_only=True):
    """The composition of all requests of a conversation, in the order in which they began, and their costs by cause."""

    causes: list[str]
    requests: list[RequestTokensView]
    costs: CostsView


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/composition")
def show_composition(app: AppState, name: str, channel: str, number: int) -> CompositionView:
    """Return the input tokens of a request by cause: system prompt, tools, results, history, reasoning and media."""
    found = find_channel(app.store, name, channel)
    with app.analysed.use_parser(name) as parser:
        loaded = load_single_request(app.store, found, number, parser)
    composition = compute_composition(loaded)
    return CompositionView(
        channel=channel,
        number=number,
        tokens=composition.tokens,
        how=count_origin(loaded.request.record.corrected_budget),
        causes=[_node_view(each) for each in composition.nodes],
        answer=[line_view(each) for each in composition.answer],
        cost=composition.cost,
    )


@endpoint("GET", "/conversations/{name}/composition")
def show_run_composition(app: AppState, name: str) -> RunCompositionView:
    """Return the input tokens by cause of each request of a conversation, and the costs of all by cause."""
    with app.analysed.open(name) as view:
        found = compute_run_composition(view)
    return RunCompositionView(
        causes=list(INPUT_KINDS),
        requests=[_request_view(each) for each in found.requests],
        costs=costs_view(found.costs),
    )


def _request_view(request: RequestTokens) -> RequestTokensView:
    return RequestTokensView(
        channel=request.channel,
        number=request.request,
        tokens=request.tokens,
        estimated=UNSET if request.is_measured else True,
    )


def _node_view(node: CompositionNode) -> CauseNode:
    cached, written, uncached = _whole_tokens(node)
    return CauseNode(
        cause=node.kind,
        name=node.name,
        tokens=node.tokens,
        cached=cached,
        written=written,
        uncached=uncached,
        cost=node.cost,
        tool=node.tool or UNSET,
        line=UNSET if node.line is None else node.line,
        merged=node.merged or UNSET,
        children=[_node_view(each) for each in node.children] or UNSET,
    )


def _whole_tokens(node: CompositionNode) -> tuple[int | None, int | None, int | None]:
    """Return how the tokens were charged. They add up to those of the node, unless the provider charged others."""
    parts = node.charged
    if parts is None:
        return None, None, None
    is_same = abs(parts.total - node.tokens) < node.parts + node.tokens / 100  # each part is rounded
    total = node.tokens if is_same else round(parts.total)
    factor = total / parts.total if parts.total else 0.0
    cached, written = round(parts.read * factor), round((parts.read + parts.written) * factor)
    return cached, written - cached, total - written
