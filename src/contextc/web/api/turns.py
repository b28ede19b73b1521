"""Turns: start, cancel, resume, steer and follow up; queued input; approvals; compaction; parked turns."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from contextc._json import JSONObject
from contextc._worker_threads import run_blocking
from contextc.compiler.compaction import CompactionPreview, StoredCompaction, load_compactions
from contextc.compiler.compaction import undo_compaction as undo_stored_compaction
from contextc.executor.event_hub import event_hub
from contextc.messages import Message
from contextc.store import turn_records
from contextc.store.approval_rules import Always, ApprovalRule, RuleArguments, RuleScope
from contextc.store.approvals import MAX_WHO, CallAnswer, load_call_answers
from contextc.store.message_log import DEFAULT_AGENT, load_tip
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import QueueKind
from contextc.web.app_state import AppState
from contextc.web.http_errors import HTTPError
from contextc.web.router import EmptyObject, endpoint
from contextc.web.turn_manager import RUNS_ELSEWHERE, WHO
from contextc.worker import cancel_parked, parked_turns, resume_parked


class StartBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without `input`, the agent answers queued input or the last unanswered message.

    `model` is a provider and a model, as in `anthropic:claude-opus-5-5`; default: the last one of the conversation.
    """

    input: str | Message | None = None
    model: str | None = None
    resume: bool = False
    """Resume a turn whose process has died, or that waits for approval and has an answer."""


class StartResult(Struct, frozen=True, kw_only=True):
    """A started turn. Its events come after number `after`."""

    after: int


class ModelBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model; default: the last one of the conversation."""

    model: str | None = None


class CompactBody(ModelBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model, and what the summary should keep."""

    instructions: str = ""


class MessageTextBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text of a message."""

    text: str


class QueueResult(Struct, frozen=True, kw_only=True):
    """The number of the queued input. `running` is true if a turn of any process runs or waits, and will read it."""

    number: int
    running: bool


class CancelResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cancelled` is true if a turn was running or waiting. `interrupted` is true if the process of the last turn died.

    `requested` is true if another process runs the turn: it ends as soon as that process has read the request.
    """

    cancelled: bool
    interrupted: bool = False
    requested: bool = False


class AlwaysBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decision that also holds for later calls: where, for which arguments, and for how many seconds (null: no end).

    `argument` and `prefix` select calls of which that argument begins with the prefix, and all others are equal. `who`
    is shown as the author of the rule.
    """

    scope: RuleScope = "conversation"
    arguments: RuleArguments = "exact"
    argument: str = ""
    prefix: str = ""
    seconds: float | None = None
    who: Annotated[str, Meta(max_length=MAX_WHO)] = WHO


class RuleView(ApprovalRule, frozen=True, kw_only=True):
    """A rule that answers calls in advance. `text` describes it in one line."""

    text: str


class RulesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `ended`, rules that have expired or were revoked are listed, too."""

    ended: bool = False


class DecisionBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decision. The model gets `why` if the call is denied. `hash` is that of the preview, from `approvals`.

    To a question of an MCP server, `content` has the values of its form, or those of several forms by their keys.
    Without `approve` it is declined, or with `cancel` only closed. With `always`, the decision holds for later calls.
    """

    approve: bool
    hash: str
    why: str = ""
    content: JSONObject | None = None
    cancel: bool = False
    always: AlwaysBody | None = None


class NamedDecisionBody(DecisionBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decision with the `id` of its approval."""

    id: str


class CompactResult(Struct, frozen=True, kw_only=True):
    """The result of a compaction: messages up to `upto` were summarized, from `before` to `after` tokens.

    `upto` is 0 if there was nothing to compact. `fallback` is why the summary is not by a model. `score` is the share
    of the facts and of people's sentences that the next request still has, and `missing` the number of the others.
    """

    upto: int = 0
    before: int = 0
    after: int = 0
    text: str = ""
    fallback: str = ""
    score: float | None = None
    missing: int = 0


class PreviewResult(Struct, frozen=True, kw_only=True):
    """The effect of a compaction; null if there is nothing to compact."""

    preview: CompactionPreview | None


class UndoResult(Struct, frozen=True, kw_only=True):
    """The last message that the summary covers; 0 if there was no summary."""

    upto: int


@endpoint("POST", "/conversations/{name}/turns", status=202, tag="turns")
async def start_turn(app: AppState, name: str, body: StartBody) -> StartResult:
    """Start a turn. It runs in the background; its events are at …/events. Creates the conversation if needed."""
    begun = await app.turns.start(name, body.input, model=body.model, resume=body.resume)
    return StartResult(after=begun.after)


@endpoint("POST", "/conversations/{name}/cancel", tag="turns")
async def cancel_turn(app: AppState, name: str, body: EmptyObject) -> CancelResult:
    """Cancel the running turn. Partial output is kept with its status, and open tool calls get a result."""
    if app.turns.cancel(name):
        return CancelResult(cancelled=True)
    turn = await run_blocking(app.last_turn, name)
    if app.options.queue or (turn is not None and turn.state in ("running", "waiting", "queued")):
        request = await app.turns.cancel_anywhere(name, turn.agent if turn is not None else app.options.agent)
        if request.turn or request.taken:
            return CancelResult(cancelled=True, requested=not request.taken)
        turn = await run_blocking(app.last_turn, name)
    return CancelResult(cancelled=False, interrupted=turn is not None and turn.state == "interrupted")


def _refuse_if_elsewhere(app: AppState, name: str, id: str) -> None:
    """Raise `HTTPError` if another process runs the last turn: it may ask for approval in its own terminal.

    An approval that is stored can be answered by any process, so it has been answered.
    """
    turn = app.last_turn(name)
    if turn is None or any(each.id == id for each in app.store.turn_approvals(name, turn.number)):
        return
    if turn.state == "running" and app.turns.running_turn(name) is None:
        process = app.describe_process(name, turn.agent)
        raise HTTPError(409, RUNS_ELSEWHERE.format(turn=turn.number, name=name, process=process), "RunsElsewhere")


@endpoint("POST", "/conversations/{name}/steer", tag="turns")
async def steer_turn(app: AppState, name: str, body: MessageTextBody) -> QueueResult:
    """Steer the running turn: the model gets the text with its next step. Without a turn, it is queued."""
    return await _queue_input(app, name, body, "steer")


@endpoint("POST", "/conversations/{name}/follow-up", tag="turns")
async def follow_up(app: AppState, name: str, body: MessageTextBody) -> QueueResult:
    """Queue a message that starts the next turn."""
    return await _queue_input(app, name, body, "follow-up")


async def _queue_input(app: AppState, name: str, body: MessageTextBody, kind: QueueKind) -> QueueResult:
    queued = await app.turns.queue_input(name, body.text, kind)
    turn = await run_blocking(app.last_turn, name)
    goes_on = turn is not None and turn.state in ("running", "waiting", "queued")
    return QueueResult(number=queued.number, running=goes_on)


@endpoint("POST", "/conversations/{name}/approvals/{id}", tag="turns")
async def decide(app: AppState, name: str, id: str, body: DecisionBody) -> EmptyObject:
    """Approve or deny a pending tool call. The first decision counts, and only for the preview with its hash."""
    return await _answer_approval(app, name, id, body)


@endpoint("POST", "/conversations/{name}/approvals", tag="turns")
async def decide_named(app: AppState, name: str, body: NamedDecisionBody) -> EmptyObject:
    """Approve or deny a pending tool call, with the `id` of the approval in the body."""
    return await _answer_approval(app, name, body.id, body)


async def _answer_approval(app: AppState, name: str, id: str, decision: DecisionBody) -> EmptyObject:
    try:
        await app.turns.answer_previewed(
            name,
            id,
            decision.hash,
            decision.approve,
            decision.why,
            content=decision.content,
            cancel=decision.cancel,
            always=None if decision.always is None else Always(**structs.asdict(decision.always)),
        )
    except HTTPError:
        await run_blocking(_refuse_if_elsewhere, app, name, id)  # also raises if the conversation does not exist
        raise
    return EmptyObject()


@endpoint("GET", "/conversations/{name}/messages/{number}/approvals", tag="turns")
def call_answers(app: AppState, name: str, number: int) -> list[CallAnswer]:
    """Return the answers to the calls of a message: of a person with the time, or of a rule."""
    found = app.store.load(name, after=max(0, number - 1), until=number) if number > 0 else []
    return app.store.read(lambda tx: load_call_answers(tx, name, found[0])) if found else []


@endpoint("GET", "/approval-rules", tag="turns")
def approval_rules(app: AppState, query: RulesQuery) -> list[RuleView]:
    """List the rules that answer calls in advance, oldest first."""
    return [_view_rule(each) for each in app.store.approval_rules(ended=query.ended)]


@endpoint("DELETE", "/approval-rules/{rule}", tag="turns")
def revoke_rule(app: AppState, rule: str) -> RuleView:
    """Revoke a rule. It holds for no further call of any process."""
    return _view_rule(app.store.revoke_rule(rule, who=WHO))


def _view_rule(rule: ApprovalRule) -> RuleView:
    return RuleView(**structs.asdict(rule), text=rule.describe())


@endpoint("POST", "/conversations/{name}/compact", tag="turns")
async def compact(app: AppState, name: str, body: CompactBody) -> CompactResult:
    """Compact a conversation now, as if its context were full. Responds when done."""
    async with app.turns.executor_for(name, body.model) as executor:
        done = await executor.compact(name, instructions=body.instructions)
    if done is None:
        return CompactResult()
    score, missing = (done.receipt.score, done.receipt.missing) if done.receipt is not None else (None, 0)
    return CompactResult(
        upto=done.upto,
        before=done.before,
        after=done.after,
        text=done.text,
        fallback=done.fallback,
        score=score,
        missing=missing,
    )


@endpoint("POST", "/conversations/{name}/compact/preview", tag="turns")
async def preview_compaction(app: AppState, name: str, body: ModelBody) -> PreviewResult:
    """Return what a compaction would replace, and what it costs. Nothing is stored, and no model is called."""
    async with app.turns.executor_for(name, body.model) as executor:
        return PreviewResult(preview=await run_blocking(executor.preview_compaction, name))


@endpoint("GET", "/conversations/{name}/compactions", tag="turns")
def compactions(app: AppState, name: str) -> list[StoredCompaction]:
    """List the summaries that are in use, newest first, each with what it has kept and what it has lost."""
    return load_compactions(app.store, name, app.options.agent)


@endpoint("POST", "/conversations/{name}/compact/undo", tag="turns")
async def undo_compaction(app: AppState, name: str, body: EmptyObject) -> UndoResult:
    """Take the latest summary out of use. The next request has the original messages again, as far as they fit."""
    upto = await run_blocking(undo_stored_compaction, app.store, name, app.options.agent)
    event_hub(app.store).refresh(name)
    return UndoResult(upto=upto or 0)


# ── removal of queued input ───────────────────────────────────────────────────────────────────────────────────────────


NOT_QUEUED = "Queued input not found: a turn has taken it, or it was already removed."


@endpoint("DELETE", "/conversations/{name}/queue/{number}", tag="queue")
def withdraw(app: AppState, name: str, number: int) -> EmptyObject:
    """Remove queued input. Input that a turn has taken is in the conversation, and stays."""
    agent = app.options.agent

    def work(tx: Transaction) -> bool:
        at = load_tip(tx, name, lock=True)
        waits = any(each.number == number for each in turn_records.load_queue(tx, at.conversation, agent))
        return waits and turn_records.dequeue(tx, number)

    if not app.store.write(work):
        raise HTTPError(409, NOT_QUEUED, "NotWaiting")
    return EmptyObject()


# ── parked turns ──────────────────────────────────────────────────────────────────────────────────────────────────────


class ParkedTurn(Struct, frozen=True, kw_only=True):
    """A parked turn. `turn` is 0 if no worker could open one. `parked` is the time in Unix milliseconds."""

    conversation: str
    agent: str
    turn: int
    parked: int
    reason: str


class ParkedTurns(Struct, frozen=True, kw_only=True):
    """All parked turns of the store, oldest first."""

    turns: list[ParkedTurn]


class ParkedBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resume submits the turn to workers again. Cancel gives it up; its input stays in the conversation."""

    action: Literal["resume", "cancel"]
    agent: str = DEFAULT_AGENT


@endpoint("GET", "/parked", tag="turns")
def list_parked(app: AppState) -> ParkedTurns:
    """List the turns that workers gave up on."""
    turns = [
        ParkedTurn(
            conversation=each.conversation, agent=each.agent, turn=each.turn, parked=each.parked, reason=each.reason
        )
        for each in parked_turns(app.store)
    ]
    return ParkedTurns(turns=turns)


@endpoint("POST", "/conversations/{name}/parked", tag="turns")
def end_parking(app: AppState, name: str, body: ParkedBody) -> EmptyObject:
    """Resume or cancel a parked turn."""
    (resume_parked if body.action == "resume" else cancel_parked)(app.store, name, agent=body.agent)
    return EmptyObject()
