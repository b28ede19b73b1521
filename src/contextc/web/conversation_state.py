"""Current state of a conversation: everything that a client needs before it follows the events.

The stored part is read in one transaction: `pending` is the streamed reply up to `last_event`. So a client that follows
the events from there misses nothing and shows nothing twice.
"""

from msgspec import UNSET, Struct, UnsetType

from contextc.inspection.preview import load_last_request
from contextc.inspection.request_timeline import compute_total_cost
from contextc.messages import AnyPart
from contextc.store import Store, partial_message_journal, turn_and_event_records, turn_queue
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_list import load_overview
from contextc.store.message_rows import SEQ_MASK, load_context_start, load_tip
from contextc.store.observed_conversation_sources import ObservedSource
from contextc.store.parked_turns import load_parked
from contextc.store.pins import load_pinned_places
from contextc.store.submitted_input import find_submitted
from contextc.store.todos import load_todos as load_todos
from contextc.store.turn_and_event_records import QueueKind
from contextc.store.turn_queue import PROCESS_LESS_STATES
from contextc.tools.todos import Todo
from contextc.web.app_state import AppState
from contextc.web.channel_list import ChannelView, channel_views
from contextc.web.turn_manager import ApprovalView


class RunningTurnView(Struct, frozen=True, kw_only=True):
    """The turn that runs or waits for approval: its number, current step, start time, and model.

    `turn` is 0 if its input was submitted and no worker has started it yet.
    """

    turn: int
    step: int
    started: int
    model: str


class ParkedTurnView(Struct, frozen=True, kw_only=True):
    """A turn that workers gave up on: its agent, its number (0: none could be opened), when, and why."""

    agent: str
    turn: int
    parked: int
    reason: str


class QueuedInputView(Struct, frozen=True, kw_only=True):
    """Queued input, to steer the running turn or to follow it."""

    number: int
    kind: QueueKind
    text: str


class PendingReplyView(Struct, frozen=True, kw_only=True):
    """The received part of a streaming reply."""

    uid: str
    parts: tuple[AnyPart, ...]


class ContextUseView(Struct, frozen=True, kw_only=True):
    """Context use of the last request, in tokens of the whole input, and the cost of the conversation in dollars."""

    used: int
    available: int
    window: int
    cost: float | None


class StoredConversationState(Struct, frozen=True, kw_only=True):
    """The stored part of the state, read in one transaction. `observed` is present if other software made it.

    `parked` is present if workers gave up on turns.
    """

    name: str
    title: str
    length: int
    branches: int
    created: int
    spoken: int
    model: str
    excerpt: str
    tip: str
    branch: int
    revision: int
    edge: int
    running: RunningTurnView | None
    queued: list[QueuedInputView]
    pending: PendingReplyView | None
    todos: list[Todo]
    last_event: int
    pinned: list[int]
    observed: ObservedSource | UnsetType = UNSET
    parked: list[ParkedTurnView] | UnsetType = UNSET


class ConversationView(StoredConversationState, frozen=True, kw_only=True):
    """A conversation and its state. `running` is null if no turn of this server's agent runs."""

    approvals: list[ApprovalView]
    gauge: ContextUseView | None
    channels: list[ChannelView]


def load_conversation_view(app: AppState, name: str) -> ConversationView:
    """Return the state of a conversation. Raises `UnknownConversation`."""
    agent = app.options.agent
    stored = app.store.read(lambda tx: _stored(tx, name, agent))
    if stored.running is not None and app.turns.running_turn(name) is None:
        app.last_turn(name)  # closes it if its process has ended
        stored = app.store.read(lambda tx: _stored(tx, name, agent))
    return ConversationView(
        **{field: getattr(stored, field) for field in stored.__struct_fields__},
        approvals=app.turns.approvals(name),
        gauge=_gauge(app.store, name),
        channels=channel_views(app.store, name),
    )


def _gauge(store: Store, name: str) -> ContextUseView | None:
    last = load_last_request(store, name)
    if last is None:
        return None
    budget = last[1].corrected_budget
    return ContextUseView(
        used=budget.input, available=budget.room, window=budget.window, cost=compute_total_cost(store, name)
    )


def _stored(tx: Transaction, name: str, agent: str) -> StoredConversationState:
    at, seen = load_tip(tx, name), load_overview(tx, name)
    running = _running(tx, name, at.conversation, agent, is_held=seen.running)
    writing = partial_message_journal.load_partial(tx, name, agent) if running is not None else None
    return StoredConversationState(
        name=name,
        title=seen.title,
        length=at.seq,
        branches=seen.branches,
        created=seen.created,
        spoken=seen.spoken,
        model=seen.model,
        excerpt="",
        tip=at.id.hex(),
        branch=at.branch,
        revision=at.revision,
        edge=load_context_start(tx, at.branch, at.seq),
        running=running,
        queued=[
            QueuedInputView(number=each.number, kind=each.kind, text=each.message.text)
            for each in turn_and_event_records.load_queue(tx, at.conversation, agent)
        ],
        pending=None if writing is None else PendingReplyView(uid=writing.uid, parts=writing.parts),
        todos=load_todos(tx, name, agent),
        last_event=turn_and_event_records.load_last_number(tx, "event", at.conversation),
        pinned=[where & SEQ_MASK for where in load_pinned_places(tx, at)],
        observed=seen.observed,
        parked=[
            ParkedTurnView(agent=each.agent, turn=each.turn, parked=each.parked, reason=each.reason)
            for each in load_parked(tx, name)
        ]
        or UNSET,
    )


def _running(tx: Transaction, name: str, conversation: int, agent: str, *, is_held: bool) -> RunningTurnView | None:
    turn = turn_and_event_records.load_last_turn(tx, conversation, agent)
    worker_turn = turn_queue.load_worker_turn(tx, conversation, agent)
    is_run_by_workers = worker_turn is not None
    if worker_turn is not None and worker_turn.parked:
        return None
    if turn is None or not (
        turn.state in PROCESS_LESS_STATES
        or (turn.state == "running" and is_held)
        or (turn.state == "interrupted" and is_run_by_workers)  # a worker will continue it
    ):
        is_submitted = is_run_by_workers and find_submitted(tx, name, agent)
        return RunningTurnView(turn=0, step=0, started=0, model="") if is_submitted else None
    step = turn_and_event_records.load_last_steps(tx, [conversation]).get(conversation)
    if step is None or step.turn != turn.number:
        return RunningTurnView(turn=turn.number, step=0, started=turn.started, model="")
    asked = f"{step.provider}:{step.model}" if step.provider else ""
    return RunningTurnView(turn=turn.number, step=step.index, started=turn.started, model=asked)
