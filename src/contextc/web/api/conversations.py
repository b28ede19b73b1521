"""Conversations: their state, messages, branches, pins, notices, media and export."""

import re
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Literal
from urllib.parse import quote

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from contextc._worker_threads import REQUEST_SLOTS, run_blocking
from contextc.app.agent_factory import resolve_model, time_based_names
from contextc.compiler.ledger import load_messages_by_place
from contextc.errors import ConversationExists, InvalidInput
from contextc.events import CompactionFinished, ErrorOccurred, RetryScheduled, UserNoticeCreated
from contextc.inspection.preview import build_edited_message, load_last_request
from contextc.inspection.request_timeline import compute_total_cost
from contextc.interchange import export_lines
from contextc.messages import AnyPart, Media, Message, ToolCall, ToolResult, system, user
from contextc.sharing import SHARE_REDACTIONS, build_shared_file
from contextc.store import Branch, Store, message_log, turn_queue, turn_records
from contextc.store.agent_calls import load_caller_name
from contextc.store.conversation_list import (
    MAX_GIVEN_TITLE,
    MAX_PAGE_SIZE,
    CalledAgent,
    ConversationOverview,
    ObservedSource,
    load_called_agents,
    load_overview,
)
from contextc.store.message_log import SEQ_MASK, load_context_start, load_tip, make_place
from contextc.store.pins import load_pinned_places
from contextc.store.submitted_turns import find_submitted, load_parked
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_queue import PROCESS_LESS_STATES
from contextc.store.turn_records import QueueKind, load_events_of_types
from contextc.store.turn_records import load_todos as load_todos
from contextc.tools.todos import Todo
from contextc.web.app_state import AppState
from contextc.web.http_errors import HTTPError
from contextc.web.request_view import ChannelView, as_view, channel_views
from contextc.web.router import EmptyObject, EventStream, RawResponse, endpoint
from contextc.web.turn_manager import ApprovalView

# ── the state of a conversation ───────────────────────────────────────────────────────────────────────────────────────
# Current state of a conversation: everything that a client needs before it follows the events.
#
# The stored part is read in one transaction: `pending` is the streamed reply up to `last_event`. So a client that
# follows the events from there misses nothing and shows nothing twice.


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
    """Context use of the last request, in tokens of the whole input, and the cost of the conversation in dollars.

    `cost_is_lower_bound` is present if a factor of a price is unknown.
    """

    used: int
    available: int
    window: int
    cost: float | None
    cost_is_lower_bound: bool | UnsetType = UNSET


class StoredConversationState(Struct, frozen=True, kw_only=True):
    """The stored part of the state, read in one transaction. `observed` is present if other software made it.

    `parked` is present if workers gave up on turns. `called_agents` is present if agents were called as tools, and
    `caller` is the name of the conversation that called this one's agent.
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
    tags: list[str] | UnsetType = UNSET
    parked: list[ParkedTurnView] | UnsetType = UNSET
    called_agents: list[CalledAgent] | UnsetType = UNSET
    caller: str | UnsetType = UNSET


class ConversationView(StoredConversationState, frozen=True, kw_only=True):
    """A conversation and its state. `running` is null if no turn of this server's agent runs."""

    approvals: list[ApprovalView]
    gauge: ContextUseView | None
    channels: list[ChannelView]


def load_conversation_view(app: AppState, name: str) -> ConversationView:
    """Return the state of a conversation. Raises `UnknownConversation`."""
    agent = app.options.agent
    stored = app.store.read(lambda tx: _load_stored_state(tx, name, agent))
    if stored.running is not None and app.turns.running_turn(name) is None:
        app.last_turn(name)  # closes it if its process has ended
        stored = app.store.read(lambda tx: _load_stored_state(tx, name, agent))
    return as_view(
        ConversationView,
        stored,
        approvals=app.turns.approvals(name),
        gauge=_context_use(app.store, name),
        channels=channel_views(app.store, name),
    )


def _context_use(store: Store, name: str) -> ContextUseView | None:
    last = load_last_request(store, name)
    if last is None:
        return None
    budget = last[1].corrected_budget
    dollars, is_lower_bound = compute_total_cost(store, name) or (None, False)
    return ContextUseView(
        used=budget.input,
        available=budget.room,
        window=budget.window,
        cost=dollars,
        cost_is_lower_bound=is_lower_bound or UNSET,
    )


def _load_stored_state(tx: Transaction, name: str, agent: str) -> StoredConversationState:
    at, seen = load_tip(tx, name), load_overview(tx, name)
    running = _load_running_turn(tx, name, at.conversation, agent, is_held=seen.running)
    writing = turn_records.load_partial(tx, name, agent) if running is not None else None
    return as_view(
        StoredConversationState,
        seen,
        name=name,
        length=at.seq,
        excerpt="",
        tip=at.id.hex(),
        branch=at.branch,
        revision=at.revision,
        edge=load_context_start(tx, at.branch, at.seq),
        running=running,
        queued=[
            QueuedInputView(number=each.number, kind=each.kind, text=each.message.text)
            for each in turn_records.load_queue(tx, at.conversation, agent)
        ],
        pending=None if writing is None else as_view(PendingReplyView, writing),
        todos=load_todos(tx, name, agent),
        last_event=turn_records.load_last_number(tx, "event", at.conversation),
        pinned=[where & SEQ_MASK for where in load_pinned_places(tx, at)],
        parked=[as_view(ParkedTurnView, each) for each in load_parked(tx, name)] or UNSET,
        called_agents=load_called_agents(tx, at.conversation) or UNSET,
        caller=load_caller_name(tx, at.conversation) or UNSET,
    )


def _load_running_turn(
    tx: Transaction, name: str, conversation: int, agent: str, *, is_held: bool
) -> RunningTurnView | None:
    turn = turn_records.load_last_turn(tx, conversation, agent)
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
    step = turn_records.load_last_steps(tx, [conversation]).get(conversation)
    if step is None or step.turn != turn.number:
        return RunningTurnView(turn=turn.number, step=0, started=turn.started, model="")
    asked = f"{step.provider}:{step.model}" if step.provider else ""
    return RunningTurnView(turn=turn.number, step=step.index, started=turn.started, model=asked)


# ── list, create, get, rename and delete ──────────────────────────────────────────────────────────────────────────────


class ConversationsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`search` selects conversations that contain a text, `tag` those with a tag. `before` is `next` of a page."""

    search: str = ""
    tag: str = ""
    before: str = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE)] = 50


class ConversationsPage(Struct, frozen=True, kw_only=True):
    """A page of the list. If there is `more`, the next page has `before` set to `next`.

    A search reads a limited number of messages per page, so a page may be empty although there is more.
    """

    conversations: list[ConversationOverview]
    more: bool
    next: str


class CreateBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without a name, the current time is the name."""

    name: str | None = None


@endpoint("GET", "/conversations", tag="conversations")
def listing(app: AppState, query: ConversationsQuery) -> ConversationsPage:
    """List conversations, most recently active first."""
    page = app.store.overviews(search=query.search, before=query.before, limit=query.limit, tag=query.tag)
    return ConversationsPage(conversations=app.turns.with_approvals(page.found), more=bool(page.next), next=page.next)


@endpoint("POST", "/conversations", status=201, tag="conversations")
def begin(app: AppState, body: CreateBody) -> ConversationOverview:
    """Create an empty conversation."""
    if body.name is not None:
        app.store.begin(body.name)
        return app.store.overview(body.name)
    for name in time_based_names():
        try:
            app.store.begin(name)
        except ConversationExists:
            continue
        return app.store.overview(name)
    raise AssertionError("time_based_names() never ends")


@endpoint("GET", "/conversations/{name}", tag="conversations")
def look(app: AppState, name: str) -> ConversationView:
    """Return a conversation and its state. New events follow `last_event`."""
    return load_conversation_view(app, name)


class RenameBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With an empty title, the first user message is the title again."""

    title: Annotated[str, Meta(max_length=MAX_GIVEN_TITLE)]


@endpoint("PATCH", "/conversations/{name}", tag="conversations")
def rename(app: AppState, name: str, body: RenameBody) -> ConversationOverview:
    """Set the title of a conversation. Its name, which URLs and commands use, stays."""
    return app.turns.with_approvals([app.store.set_title(name, body.title)])[0]


class DeleteResult(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`pending_erasure` is present if the content is still in the store's files, because another program reads them.

    The store erases it as soon as possible.
    """

    pending_erasure: int = 0


@endpoint("DELETE", "/conversations/{name}", tag="conversations")
def delete(app: AppState, name: str) -> DeleteResult:
    """Delete a conversation permanently, except messages that a fork shares."""
    app.store.conversation(name)  # raises if it does not exist
    with app.store.lease(name, app.options.agent):  # raises while a turn runs
        pass
    app.store.delete(name)
    app.deletions.notify_deleted(name)
    return DeleteResult(pending_erasure=app.store.pending_erasure)


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


MAX_MESSAGES_PER_PAGE = 1_000
Number = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1, le=MAX_MESSAGES_PER_PAGE)]


class MessagesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `limit` messages: the first ones after `after`, the last ones before `before`, or the `last` ones of all.

    `branch` selects another branch than the current one.
    """

    after: Number = 0
    before: Number | None = None
    last: Count | None = None
    limit: Count = 100
    branch: Number | None = None


class MessagesPage(Struct, frozen=True, kw_only=True):
    """Messages in order, numbered by `seq`. `length` is the total number of messages on the branch."""

    messages: list[Message]
    length: int
    branch: int


class AppendBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A complete `message`, or a `text` with a `role`.

    With a `key`, retries store the message only once. `parent` is the message that must be the last one: its seq, uid
    or id. Otherwise the append is rejected.
    """

    message: Message | None = None
    text: str | None = None
    role: Literal["user", "system"] = "user"
    key: str | None = None
    parent: str | int | None = None


@endpoint("GET", "/conversations/{name}/messages", tag="messages")
def messages(app: AppState, name: str, query: MessagesQuery) -> MessagesPage:
    """Return messages of a conversation, in order."""
    before, limit = query.before, query.limit
    if query.last is not None:
        if query.before is not None or query.after:
            raise InvalidInput("last cannot be combined with after or before", fix="Send only one of them.")
        before, limit = 1 << 31, query.last
    found = app.store.read(
        lambda tx: message_log.load_window(tx, name, after=query.after, before=before, limit=limit, branch=query.branch)
    )
    return MessagesPage(messages=found.messages, length=found.length, branch=found.branch)


@endpoint("POST", "/conversations/{name}/messages", status=201, tag="messages")
def say(app: AppState, name: str, body: AppendBody) -> Message:
    """Append a message to a conversation, which is created if needed. No turn starts."""
    if (body.message is None) == (body.text is None):
        raise InvalidInput("exactly one of message and text is required", fix="Send one of them.")
    message = body.message or (user if body.role == "user" else system)(body.text or "")
    return app.store.append(name, message, key=body.key, parent=body.parent)


# ── branches ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Branches of a conversation: list, fork, rewind, edit and switch; and reset.
#
# Nothing is deleted here. Operations that change the current branch are rejected while a turn runs, because the turn
# would continue on another branch than it started on.


EXCERPT_LENGTH = 80
"""Characters of a branch's excerpt."""
Seq = Annotated[int, Meta(ge=1)]


class ForkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `name` of the new conversation, and `at`, the last shared message: its seq, uid or id."""

    name: str
    at: str | int | None = None


class RewindBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message to continue from: its seq (0: the start), uid or id."""

    to: str | int


class EditBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seq: Seq
    text: str


class SwitchBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    branch: int


class BranchView(Branch, frozen=True, kw_only=True):
    """A branch with an excerpt `words` of its first own message.

    For the first branch, it is the message at which others branch off. A message without text has the name of its tool
    call or result. Empty if there is no message yet. `time` is when this message was written; without a message, when
    the branch was created.
    """

    words: str
    time: int = 0


@endpoint("GET", "/conversations/{name}/branches", tag="branches")
def branches(app: AppState, name: str) -> list[BranchView]:
    """List the branches of a conversation, oldest first. One of them is current."""
    found = app.store.branches(name)
    places = {branch.number: make_place(branch.number, _first_own_seq(branch, found)) for branch in found}
    messages = app.store.read(lambda tx: load_messages_by_place(tx, places.values()))
    return [
        _branch_view(branch, messages.get(places[branch.number]))
        for branch in sorted(found, key=lambda each: (each.created, each.number))
    ]


def _branch_view(branch: Branch, message: Message | None) -> BranchView:
    time = branch.created if message is None else message.time or branch.created
    return BranchView(**structs.asdict(branch), words=_excerpt(message), time=time)


def _first_own_seq(branch: Branch, all: list[Branch]) -> int:
    """Return the seq of the message at which a branch diverges."""
    if any(each.number == branch.parent for each in all):
        return branch.base + 1
    leave = [each.base + 1 for each in all if each.parent == branch.number and each.base >= branch.base]
    return min([seq for seq in leave if seq <= branch.length], default=branch.base + 1)


def _excerpt(message: Message | None) -> str:
    """Return the first words of a message; of one without text, the tool that it calls or has a result of."""
    if message is None:
        return ""
    found = " ".join(message.text[: EXCERPT_LENGTH * 8].split())[:EXCERPT_LENGTH]
    if found:
        return found
    for part in message.parts:
        if isinstance(part, ToolCall):
            return f"call of {part.name}"[:EXCERPT_LENGTH]
        if isinstance(part, ToolResult):
            return f"result of {part.name}"[:EXCERPT_LENGTH]
    return ""


@endpoint("POST", "/conversations/{name}/fork", status=201, tag="branches")
def fork(app: AppState, name: str, body: ForkBody) -> ConversationOverview:
    """Create a conversation that shares all messages up to `at`, or all. Nothing is copied."""
    app.store.fork(name, body.name, at=body.at)
    return app.store.overview(body.name)


@endpoint("POST", "/conversations/{name}/rewind", tag="branches")
def rewind(app: AppState, name: str, body: RewindBody) -> ConversationView:
    """Continue from an earlier message. Later messages are kept on their own branch."""
    with _without_running_turn(app, name):
        app.store.rewind(name, body.to)
    return load_conversation_view(app, name)


@endpoint("POST", "/conversations/{name}/edit", tag="branches")
def edit(app: AppState, name: str, body: EditBody) -> Message:
    """Replace the text of a message, on a new branch. Later messages are kept on the old branch."""
    with _without_running_turn(app, name):
        return app.store.edit(name, body.seq, build_edited_message(app.store, name, body.seq, body.text))


@endpoint("POST", "/conversations/{name}/switch", tag="branches")
def switch(app: AppState, name: str, body: SwitchBody) -> ConversationView:
    """Make another branch current."""
    with _without_running_turn(app, name):
        app.store.switch(name, body.branch)
    return load_conversation_view(app, name)


@endpoint("POST", "/conversations/{name}/reset", tag="branches")
def reset(app: AppState, name: str, body: EmptyObject) -> ConversationView:
    """Clear the context: existing messages stay stored, but are no longer sent to a model."""
    with _without_running_turn(app, name):
        app.store.reset(name)
    return load_conversation_view(app, name)


@contextmanager
def _without_running_turn(app: AppState, name: str) -> Generator[None]:
    """Hold the lease of the conversation. Raises `ConversationBusy` while a turn of this server's agent runs."""
    app.store.conversation(name)  # raises if it does not exist: a lease would create it
    with app.store.lease(name, app.options.agent):
        yield


# ── pins ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Pins of a conversation: messages that are never trimmed.


class PinBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seq: Annotated[int, Meta(ge=1)]


@endpoint("POST", "/conversations/{name}/pin", tag="branches")
def pin(app: AppState, name: str, body: PinBody) -> ConversationView:
    """Pin a message, so that it is never trimmed. A tool call is pinned with its results."""
    app.store.pin(name, body.seq)
    return load_conversation_view(app, name)


@endpoint("POST", "/conversations/{name}/unpin", tag="branches")
def unpin(app: AppState, name: str, body: PinBody) -> ConversationView:
    """Unpin a message, so that it may be trimmed."""
    app.store.unpin(name, body.seq)
    return load_conversation_view(app, name)


# ── notices: events besides messages ──────────────────────────────────────────────────────────────────────────────────


NOTICE_EVENTS = (UserNoticeCreated, CompactionFinished, RetryScheduled, ErrorOccurred)


class NoticesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `limit` notices: the last ones before event `before`, or the last ones of all."""

    before: Annotated[int, Meta(ge=1, lt=1 << 32)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_MESSAGES_PER_PAGE)] = 100


class NoticeView(Struct, frozen=True, kw_only=True):
    """An event, and the last message before it.

    `after` is the seq of that message, 0 if there is none, and `uid` its uid. If the conversation has another message
    at this seq, the notice belongs to another branch.
    """

    after: int
    uid: str
    event: UserNoticeCreated | CompactionFinished | RetryScheduled | ErrorOccurred


@endpoint("GET", "/conversations/{name}/notices", tag="notices")
def notices(app: AppState, name: str, query: NoticesQuery) -> list[NoticeView]:
    """List hints, compactions, retries and errors in order, each with the message before it."""
    found = app.store.read(
        lambda tx: load_events_of_types(
            tx, load_tip(tx, name).conversation, NOTICE_EVENTS, before=query.before, limit=query.limit
        )
    )
    return [NoticeView(after=seq or _seq_of_compaction(event), uid=uid, event=event) for event, seq, uid in found]


def _seq_of_compaction(event: object) -> int:
    """Return the last message at the time of a compaction, for conversations that were imported: they have no turns."""
    return (event.seq or event.upto) if isinstance(event, CompactionFinished) else 0


# ── bytes of media parts ──────────────────────────────────────────────────────────────────────────────────────────────
# Bytes of media parts. They are untrusted, so browsers must never execute them: no HTML, scripts or SVG.
#
# Raster images are displayed; everything else is a download.


DISPLAYED_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
DOWNLOAD_TYPE = "application/octet-stream"
BLOB_HEADERS = {
    "Cache-Control": "private, max-age=300",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}


class BlobQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`type` is the `mime_type` of the media part."""

    type: str = DOWNLOAD_TYPE


class MediaQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`type` is the `mime_type` of a media part. `model` is as for turns; without it, the server's own."""

    type: str
    model: str | None = None


class MediaSupport(Struct, frozen=True, kw_only=True):
    """`is_sent`: the model gets the bytes. Otherwise it gets a line of text with the name and the type."""

    is_sent: bool


@endpoint("GET", "/media-support", tag="blobs")
def media_support(app: AppState, query: MediaQuery) -> MediaSupport:
    """Return whether a model gets media of this type. Text files of any type are sent to all models, as text."""
    provider = resolve_model(query.model or app.options.model).provider
    media = Media(mime_type=query.type)
    return MediaSupport(is_sent=media.kind in provider.model.media and provider.formatter.takes_media(query.type))


@endpoint("GET", "/blobs/{blob}", media_type="*/*", tag="blobs")
def blob(app: AppState, blob: str, query: BlobQuery) -> RawResponse:
    """Return the bytes of a media part by its `blob`. PNG, JPEG, GIF and WebP are displayed, others are downloads."""
    try:
        data = app.store.blob(blob if blob.isprintable() else "")  # some stores reject some characters
    except InvalidInput as error:
        raise HTTPError(404, str(error), "UnknownBlob") from error
    if query.type in DISPLAYED_TYPES:
        return RawResponse(data, query.type, BLOB_HEADERS)
    return RawResponse(data, DOWNLOAD_TYPE, {**BLOB_HEADERS, "Content-Disposition": "attachment"})


# ── export ────────────────────────────────────────────────────────────────────────────────────────────────────────────


LINES_PER_CHUNK = 200
"""Lines of an export that are read at once."""
MAX_PATTERN = 500


class ExportQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """With `format=html`, the export is one HTML file of the requests, which needs no server.

    It has all requests, or one: `request` is its number, and `channel` the id of its channel. `redact` lists what is
    removed, separated by commas: texts, results, files, keys, tokens, mail. `pattern` is a regular expression whose
    matches are removed. The file has the `tags` of the conversation, and its `notes` if that is true.
    """

    format: Literal["", "jsonl", "html"] = ""
    channel: str = ""
    request: Annotated[int, Meta(ge=0, le=1 << 31)] = 0
    redact: str = ""
    pattern: Annotated[str, Meta(max_length=MAX_PATTERN)] = ""
    tags: bool = True
    notes: bool = False


@endpoint("GET", "/conversations/{name}/export", media_type="application/x-ndjson", tag="branches")
async def export(app: AppState, name: str, query: ExportQuery) -> EventStream:
    """Export a conversation with its branches and media as JSON Lines, which `contextc import` reads; or as HTML."""
    if query.format == "html":
        data = await run_blocking(_build_html, app, name, query, slots=REQUEST_SLOTS)
        number = f"-{query.request}" if query.request else ""
        saved = f"attachment; filename*=UTF-8''{quote(name, safe='')}{number}.html"
        return EventStream(_stream_whole(data), "text/html; charset=utf-8", {"Content-Disposition": saved})
    lines = export_lines(app.store, name)
    first = await run_blocking(_read_export_lines, lines)  # errors are raised before the response starts
    saved = f"attachment; filename*=UTF-8''{quote(name, safe='')}.jsonl"
    return EventStream(_stream_export_lines(first, lines), "application/x-ndjson", {"Content-Disposition": saved})


def _build_html(app: AppState, name: str, query: ExportQuery) -> bytes:
    redact: list[str | re.Pattern[str]] = [each for each in query.redact.split(",") if each]
    unknown = [each for each in redact if each not in SHARE_REDACTIONS]
    if unknown:
        fix = f"Use {', '.join(SHARE_REDACTIONS)}; pass a regular expression as `pattern`."
        raise InvalidInput("redact: unknown name", got=unknown[0], fix=fix)
    if query.pattern:
        redact.append(_compile_pattern(query.pattern))
    return build_shared_file(
        app.store,
        name,
        request=query.request or None,
        channel=query.channel,
        redact=redact,
        tags=query.tags,
        notes=query.notes,
    )


async def _stream_whole(data: bytes) -> AsyncGenerator[bytes]:
    yield data


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidInput(f"pattern: invalid regular expression ({error})", got=pattern) from None


def _read_export_lines(lines: Iterator[bytes]) -> bytes:
    return b"".join([line + b"\n" for line in islice(lines, LINES_PER_CHUNK)])


async def _stream_export_lines(first: bytes, lines: Iterator[bytes]) -> AsyncGenerator[bytes]:
    some = first
    while some:
        yield some
        some = await run_blocking(_read_export_lines, lines)
