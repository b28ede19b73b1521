"""The common core of the adapters: record the messages of a framework, fit its requests, commit the replies.

A framework keeps a list of messages and sends all of it. An adapter converts that list to contextc's messages, one or
more for each of the framework's objects, and calls a `RequestPreparer`:

    preparer = RequestPreparer(store, "conversation", "openai:gpt-5.4", window=32_000)
    prepared = preparer.prepare(messages, system_prompt=text, tools=tools)   # records, compiles, begins the request
    objects = prepared.apply(own_objects, build)                             # what the framework sends
    preparer.commit(prepared, [reply], usage=usage)                          # or preparer.abort(prepared, error)

- `prepare` records what is new in the list. A list that repeats what is recorded adds nothing. If the framework removed
  or changed earlier messages, or rewound, the rest goes to a branch; a list that matches another branch continues it.
  If it dropped its first messages, the branch stays, and its context starts where the list begins.
- `prepared.messages` has an entry for each message of the request. An entry without a `message` is unchanged: the
  framework sends its own objects, which are at `indexes` of the list. An entry with a `message` replaces the objects at
  `indexes` (a shortened result), or is inserted (no indexes: a line on what was left out, a result for a call that has
  none). What no entry names was left out. Calls and their results are always together.
- `apply(objects, build, change)` returns the list for the framework: `objects` has one object for each message that was
  given, `build` converts one of our messages, `change` copies an object with what is left of its message.
- `commit` stores the reply with the request and its usage: manifest, ledger, findings and costs then include it.
  Without `commit`, the next `prepare` or `record` finds the reply in the list and commits it; its `usage` counts.
- `record(messages)` only records. `load()` returns the recorded messages of the current branch.
- The framework's own form of a message belongs in its `meta` or `extra`. `keep_original` and `get_original` do that.

All methods block and may be called from any thread. On an event loop: `await run_blocking(partial(…))`, from
`contextc._worker_threads`.
"""

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeVar, Unpack

from msgspec.structs import replace

from contextc._installed_packages import importing
from contextc._json import JSON, JSONObject
from contextc.compiler import Compiled, MessageCompiler
from contextc.compiler.draft import CompilerOptionArguments, list_blob_names
from contextc.compiler.past_requests import SentMessage, list_sent_messages
from contextc.errors import InvalidSetting, StaleCompile, StoreCorrupt, UnknownModel
from contextc.formats import formatter
from contextc.messages import Message, Usage, user
from contextc.providers import Provider, provider, provider_names
from contextc.providers.registry import beta_headers
from contextc.store import Store, message_log
from contextc.store.branches import list_other_branches, place_entries
from contextc.store.message_log import DEFAULT_AGENT, BranchTip, find_tip, load_context_start, load_tip_of_branch
from contextc.store.message_matching import (
    AlignedBlock,
    Alignment,
    align_histories,
    align_last_messages,
    may_match_better,
)
from contextc.store.transaction_engine import Transaction
from contextc.tools.definitions import AnyTool

if TYPE_CHECKING:
    from contextc.tools import ToolLike


# ── preparation of requests ───────────────────────────────────────────────────────────────────────────────────────────


T = TypeVar("T")
MAX_ATTEMPTS = 50
"""The number of attempts to compile a request while other processes change the conversation."""
LOW = 0.5
"""The share of the window that a cut leaves. The default of a compiler is 0.7. Tool steps grow fast, and each cut loses
the provider's cache, so agents of frameworks are cut further and less often."""
MAX_IDLE_PREPARERS = 64
"""The number of conversations that a pool keeps in memory between two requests."""
NO_REPLY = "no reply was reported"
QUESTION = user("?")


class PreparedMessage(NamedTuple):
    """A message of a prepared request, and the indexes of the given messages that it stands for.

    `message` is None if these are unchanged: the framework sends its own objects.
    """

    indexes: tuple[int, ...]
    message: Message | None


class PreparedRequest(NamedTuple):
    """A request that has begun. `history` is what was given to `prepare`; its last `new_count` messages were new."""

    messages: list[PreparedMessage]
    compiled: Compiled
    history: tuple[Message, ...]
    new_count: int

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the framework must send with the request: beta flags, and those of the provider."""
        return self.compiled.headers

    @property
    def is_unchanged(self) -> bool:
        """True if the framework sends all of its own messages, and nothing else."""
        sent = [index for each in self.messages if each.message is None for index in each.indexes]
        return sent == list(range(len(self.history))) and all(each.message is None for each in self.messages)

    def apply(
        self,
        objects: Sequence[T],
        build: Callable[[Message], Iterable[T]],
        change: Callable[[T, Message], T] | None = None,
    ) -> list[T]:
        """Return the objects that the framework sends: its own, and new ones for what was changed or inserted.

        `change` returns a copy of an object with the content of a message, which may have lost parts: what the message
        has not must not be sent. Without it, `build` makes all new objects.
        """
        found: list[T] = []
        for indexes, message in self.messages:
            if message is None:
                found += [objects[index] for index in indexes]
            elif change is not None and len(indexes) == 1:
                found.append(change(objects[indexes[0]], message))
            else:
                found += build(message)
        return found


class RecordedHistory(NamedTuple):
    """The messages of the current branch, the blocks that equal the given history, and the number of new messages."""

    messages: list[Message]
    blocks: list[AlignedBlock]
    tip: BranchTip | None
    new_count: int = 0


class BranchMatch(NamedTuple):
    """The messages of a branch after message `start`, its end, and their alignment with a history.

    `context_start` is where its context starts now. The framework may have dropped messages after that, or have earlier
    ones again.
    """

    messages: list[Message]
    start: int
    tip: BranchTip
    alignment: Alignment
    context_start: int

    def is_continued(self, history: Sequence[Message], rewinds: bool) -> bool:
        """Return True if a branch has nothing that a history lacks, or all of it where nothing is rewound."""
        matched, given = self.alignment.stored, self.alignment.given
        return matched == len(self.messages) or (given == len(history) and not rewinds)

    def begin_later(self, messages: list[Message], history: Sequence[Message]) -> "BranchMatch":
        """Return the match of a history that begins in the middle of some messages of the branch, if it is longer."""
        at, alignment = align_last_messages(messages, history) or (0, self.alignment)
        if alignment.given <= self.alignment.given:
            return self
        return self._replace(messages=messages[at:], start=messages[at].seq - 1, alignment=alignment)


class HistoryRewritten(Exception):
    """A history does not continue the current branch. `seq` is the last message that both have; 0 if there is none."""

    def __init__(self, seq: int) -> None:
        super().__init__(f"the history differs after message {seq}")
        self.seq = seq


class RequestPreparer:
    """Records a framework's messages in one conversation, and prepares its requests to one model."""

    def __init__(
        self,
        store: Store,
        conversation: str,
        model: Provider | str,
        *,
        window: int | None = None,
        agent: str = DEFAULT_AGENT,
        **options: Unpack[CompilerOptionArguments],
    ) -> None:
        """Create a preparer. `model` is a provider or "provider:model"; `window` replaces the model's own window."""
        self.model = model = choose_model(model, window)
        self.store, self.conversation, self.agent = store, conversation, agent
        if model.betas and model.beta_field:
            refuse_headers(model)
        if options.setdefault("fetch", False):
            raise InvalidSetting(
                "fetch: an adapter adds no tools, because the framework would not run them",
                got=options.get("fetch"),
                fix="Pass history_functions(…) of contextc.adapters.history_functions to the agent as tools.",
            )
        if options.get("native") is not None or options.get("cache", "auto") not in ("auto", "off"):
            raise InvalidSetting(
                "native, cache: an adapter cannot pass settings of a request to the framework",
                fix="Set them in the model of the framework.",
            )
        options.setdefault("low", LOW)
        options.setdefault("static_change", "new session")
        # The framework sends its own instructions, tools and settings at the head of each request: none is appended.
        head_only = replace(model, model=replace(model.model, features=()))
        self.compiler = MessageCompiler(store, head_only, **options)
        self._lock = threading.RLock()
        self._known: list[Message] = []
        self._known_tip: BranchTip | None = None
        self._open: PreparedRequest | None = None

    def load(self) -> list[Message]:
        """Return the messages of the current branch, since the context was last cleared."""
        return load_messages(self.store, self.conversation)

    def record(self, history: Sequence[Message]) -> list[Message]:
        """Record the messages of a history that are new. Return those of the current branch.

        A history that ends earlier than the recorded one changes nothing.
        """
        with self._lock:
            self._settle(history)
            return self._record(history, rewinds=False).messages

    def prepare(
        self,
        history: Sequence[Message],
        *,
        system_prompt: str | None = None,
        tools: "Iterable[AnyTool | ToolLike | JSONObject]" = (),
        settings: JSONObject | None = None,
        output: int | None = None,
        may_branch: bool = True,
    ) -> PreparedRequest:
        """Record a history, compile it within the window, and begin the request.

        `output` is the number of tokens that the answer may have. Raises `ContextOverflow` if the newest messages alone
        do not fit. Without `may_branch`, a history that does not continue the current branch raises `HistoryRewritten`.
        """
        tools = tuple(tools)
        with self._lock:
            self._settle(history)
            attempts = new_count = 0
            while True:
                recorded, attempts = self._record(history, rewinds=True, may_branch=may_branch), attempts + 1
                new_count = max(new_count, recorded.new_count)
                compiled = self.compiler.compile(
                    self.conversation,
                    name=self.agent,
                    system_prompt=system_prompt,
                    tools=tools,
                    settings=settings,
                    max_output_tokens=output,
                    retry=True,
                )
                try:
                    if not _is_same_tip(recorded.tip, compiled.snapshot.tip):
                        raise StaleCompile(self.conversation, compiled.channel, "other messages were added")
                    self.compiler.begin(compiled)
                    break
                except StaleCompile:
                    if attempts == MAX_ATTEMPTS:
                        raise
            sent = list_sent_messages(compiled, {message.seq: message for message in recorded.messages})
            self._open = PreparedRequest(_prepare_messages(sent, recorded), compiled, tuple(history), new_count)
            return self._open

    def commit(
        self,
        prepared: PreparedRequest,
        produced: Sequence[Message],
        *,
        usage: Usage | None = None,
        following: Sequence[Message] = (),
        is_recorded: bool = False,
    ) -> list[Message]:
        """Store the reply to a prepared request, and return it as stored.

        `following` are messages after the reply, which are stored in the same transaction. If another process changed
        the conversation meanwhile, the reply is recorded after the history that it answers. With `is_recorded`, the
        caller records it elsewhere: nothing is stored then, and nothing is returned.
        """
        with self._lock:
            if self._open is prepared:
                self._open = None
            replies = [replace(message, uid="") for message in produced]
            entries = [
                message_log.prepare_entry(message_log.validate_for(message, self.conversation)) for message in following
            ]

            def append(tx: Transaction, stored: list[Message]) -> None:
                message_log.append_messages(tx, self.conversation, entries)

            try:
                stored = self.compiler.commit(
                    prepared.compiled, produced=replies, usage=usage, in_transaction=append if entries else None
                )
            except StaleCompile as error:
                self.compiler.abort(prepared.compiled, error, usage=usage or _last_usage(replies))
                if is_recorded:
                    return []
                recorded = self._record([*prepared.history, *replies, *following], rewinds=False).messages
                return recorded[-len(replies) - len(following) :][: len(replies)]
            return stored

    def abort(self, prepared: PreparedRequest, error: BaseException | str, *, usage: Usage | None = None) -> None:
        """Close a prepared request that got no reply."""
        with self._lock:
            if self._open is prepared:
                self._open = None
            self.compiler.abort(prepared.compiled, error, usage=usage)

    # ── recording ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self, history: Sequence[Message]) -> None:
        """Commit the open request with the reply that a history contains; without one, abort it."""
        prepared, self._open = self._open, None
        if prepared is None:
            return
        asked, before = prepared.history, align_histories(prepared.history, history)
        if before.stored < len(asked):  # the framework may have dropped its first messages since
            at, before = align_last_messages(asked, history) or (0, before)
            asked = asked[at:]
        if before.stored == len(asked) and before.given < len(history):
            reply = history[before.given]
            if reply.role == "assistant":
                self.commit(prepared, [reply])
                return
        self.compiler.abort(prepared.compiled, NO_REPLY)

    def _record(self, history: Sequence[Message], *, rewinds: bool, may_branch: bool = True) -> RecordedHistory:
        entries: dict[int, message_log.PendingMessage] = {}

        def prepare(index: int) -> message_log.PendingMessage:
            """Return the same entry if the transaction is repeated."""
            if index not in entries:
                message = replace(history[index], uid="", id="", seq=0)
                entries[index] = message_log.prepare_entry(
                    message_log.validate_for(message, self.conversation, index=index)
                )
            return entries[index]

        def work(tx: Transaction) -> RecordedHistory:
            here = find_tip(tx, self.conversation, True)
            if here is None:
                here = message_log.insert_conversation(tx, self.conversation) if history else None
            if here is None:
                return RecordedHistory([], [], None)
            match = self._find_branch(tx, here, history, rewinds, may_branch)
            stored, tip, alignment = match.messages, match.tip, match.alignment
            rest = [prepare(index) for index in range(alignment.given, len(history))]
            last = stored[alignment.stored - 1].seq if alignment.stored else match.start
            is_branch = match.start < match.context_start or alignment.stored < len(stored)
            if is_branch and not may_branch:
                raise HistoryRewritten(last)
            added: list[Message] = []
            if rest or rewinds:
                stored = stored[: alignment.stored]
                start = match.start if match.start != match.context_start else None
                tip, added = place_entries(
                    tx, self.conversation, here, tip, last, rest, is_branch=is_branch, context_start=start
                )
            blocks = [
                *alignment.blocks,
                *[
                    AlignedBlock(len(stored) + at, len(stored) + at + 1, alignment.given + at, alignment.given + at + 1)
                    for at in range(len(added))
                ],
            ]
            return RecordedHistory([*stored, *added], blocks, tip, len(added))

        recorded = self.store.write(work, repeatable=True)  # a repeated attempt finds what an earlier one stored
        self._known, self._known_tip = recorded.messages, recorded.tip
        return recorded

    def _find_branch(
        self, tx: Transaction, here: BranchTip, history: Sequence[Message], rewinds: bool, may_branch: bool
    ) -> BranchMatch:
        """Return the branch that a history continues, and where on it the history begins."""
        own = best = self._match_branch(tx, here, history)
        if not may_branch or own.is_continued(history, rewinds):
            return own
        last = own.begin_later(own.messages, history)
        if last.is_continued(history, rewinds):
            return last if rewinds or last.alignment.given < len(history) else own._replace(alignment=last.alignment)
        seqs = [message.seq for message in own.messages]
        for branch in list_other_branches(tx, self.conversation, here):
            is_decided = branch.context_start == own.start <= branch.base
            shared = bisect_right(seqs, branch.base)
            if is_decided and not may_match_better(own.alignment, shared, history, branch.first):
                continue
            try:
                tip = load_tip_of_branch(tx, self.conversation, here, branch.number)
                other = self._match_branch(tx, tip, history)
            except StoreCorrupt:  # a branch with unreadable messages cannot be continued
                continue
            is_better = other.alignment.given > best.alignment.given
            is_as_good = other.alignment.given == best.alignment.given > 0
            if is_better or (is_as_good and other.is_continued(history, rewinds)):
                best = other
        if best.is_continued(history, rewinds) or best.alignment.given == len(history):
            return best
        whole = message_log.load_between(tx, here.branch, 0, here.seq)
        last = own.begin_later([message for message in whole if message.status == "sent"], history)
        return last if last.alignment.given > best.alignment.given else best

    def _match_branch(self, tx: Transaction, tip: BranchTip, history: Sequence[Message]) -> BranchMatch:
        stored, start = self._load_branch(tx, tip)
        return BranchMatch(stored, start, tip, align_histories(stored, history), start)

    def _load_branch(self, tx: Transaction, at: BranchTip) -> tuple[list[Message], int]:
        """Return the messages of a branch that are sent to models, and the seq after which they begin."""
        start, tip, known = load_context_start(tx, at.branch, at.seq), self._known_tip, list[Message]()
        after = start
        if tip is not None and (tip.branch, tip.revision) == (at.branch, at.revision) and start <= tip.seq <= at.seq:
            known, after = [each for each in self._known if each.seq > start], tip.seq  # only appends followed
        found = message_log.load_between(tx, at.branch, after, at.seq)
        return [*known, *[message for message in found if message.status == "sent"]], start


def choose_model(model: Provider | str, window: int | None) -> Provider:
    """Return the provider that an adapter was given, or "provider:model". `window` replaces the model's own window."""
    if isinstance(model, str):
        return provider(model, window=window)
    return model if window is None else replace(model, model=replace(model.model, window=window))


def merge_headers(given: Mapping[str, str] | None, added: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a call with those of a prepared request. A given one is kept; flags in it are joined."""
    found = dict(given or {})
    names = {name.lower(): name for name in found}
    for name, value in added.items():
        own = names.get(name.lower(), name)
        if own in found and name.lower() in beta_headers():
            flags = [flag.strip() for flag in f"{found[own]},{value}".split(",")]
            value = ",".join(dict.fromkeys(filter(None, flags)))
        elif own in found:
            continue
        found[own] = value
    return found


def refuse_headers(model: Provider, fix: str = "") -> None:
    """Raise `InvalidSetting` if requests to a model have beta flags or headers, because they would not be sent."""
    names = [*model.betas, *[name for name, _ in model.headers]]
    if names:
        raise InvalidSetting(
            f"betas, headers: the adapter cannot pass {', '.join(names)} to the framework",
            fix=fix or "Set them in the model of the framework, and pass a model without them to contextc.",
        )


def load_messages(store: Store, conversation: str) -> list[Message]:
    """Return the messages of the current branch that are sent to models, since the context was last cleared."""

    def work(tx: Transaction) -> list[Message]:
        here = find_tip(tx, conversation, False)
        if here is None:
            return []
        start = load_context_start(tx, here.branch, here.seq)
        found = message_log.load_between(tx, here.branch, start, here.seq)
        return [message for message in found if message.status == "sent"]

    return store.read(work)


class PreparerPool:
    """Preparers for calls of a framework. A call has a preparer for itself: two at once on a conversation have two."""

    def __init__(self, store: Store, *, agent: str = DEFAULT_AGENT, **options: Unpack[CompilerOptionArguments]) -> None:
        self._store, self._agent, self._options = store, agent, options
        self._idle: deque[RequestPreparer] = deque(maxlen=MAX_IDLE_PREPARERS)
        self._lock = threading.Lock()

    def take(self, conversation: str, model: Provider) -> RequestPreparer:
        """Return an idle preparer of the conversation, or a new one. Give it back with `give_back`."""
        with self._lock:
            for preparer in self._idle:
                if (preparer.conversation, preparer.model) == (conversation, model):
                    self._idle.remove(preparer)
                    return preparer
        return RequestPreparer(self._store, conversation, model, agent=self._agent, **self._options)

    def give_back(self, preparer: RequestPreparer) -> None:
        with self._lock:
            self._idle.append(preparer)


def _is_same_tip(one: BranchTip | None, other: BranchTip) -> bool:
    return one is not None and (one.branch, one.seq, one.id) == (other.branch, other.seq, other.id)


def _last_usage(messages: Sequence[Message]) -> Usage | None:
    return next((message.usage for message in reversed(messages) if message.usage), None)


def _prepare_messages(sent: Sequence[SentMessage], recorded: RecordedHistory) -> list[PreparedMessage]:
    """Return the messages of a request with the indexes of the given messages that they stand for."""
    block_of = {recorded.messages[at].seq: block for block in recorded.blocks for at in range(block.start, block.end)}
    found: list[PreparedMessage] = []
    for block, group in groupby(sent, lambda each: block_of.get(each.seq)):
        messages = list(group)
        if block is None:
            found += [PreparedMessage((), each.message) for each in messages]
            continue
        seqs = [recorded.messages[at].seq for at in range(block.start, block.end)]
        indexes = tuple(range(block.given_start, block.given_end))
        if [each.seq for each in messages] == seqs and not any(each.is_changed for each in messages):
            found.append(PreparedMessage(indexes, None))
        else:
            found += [PreparedMessage(indexes if each is messages[0] else (), each.message) for each in messages]
    return found


# ── the framework's own form of a message ─────────────────────────────────────────────────────────────────────────────


def keep_original(message: Message, framework: str, original: JSON) -> Message:
    """Return a message that also has the framework's own form, as JSON. A redaction removes it too."""
    return replace(message, meta={**(message.meta or {}), framework: original})


def get_original(message: Message, framework: str) -> JSON:
    """Return the framework's own form of a message; None if it has none."""
    found: Mapping[str, JSON] = message.meta or {}
    return found.get(framework)


def require_package(module: str, package: str, minimum: str = "") -> None:
    """Raise `InvalidSetting` with the command that installs a framework, if it is missing or older than `minimum`."""
    with importing(package, at_least=minimum):
        import_module(module)


# ── messages in a wire format ─────────────────────────────────────────────────────────────────────────────────────────
# Requests of frameworks that have their messages in the wire format of a provider: litellm, Strands, Google's ADK.
#
# The framework sends its own messages as long as nothing has to be cut. Otherwise all of them are encoded again, in
# the same way each time, so that the prefix stays the same.


class WireRequest(NamedTuple):
    """A request that has begun. `messages` is None if the framework sends its own."""

    preparer: RequestPreparer
    prepared: PreparedRequest
    messages: list[JSONObject] | None


class WireRequestPreparer:
    """Records and fits the requests of one framework. One call has a preparer for itself while it runs."""

    def __init__(
        self,
        store: Store,
        format: str,
        *,
        agent: str = DEFAULT_AGENT,
        **options: Unpack[CompilerOptionArguments],
    ) -> None:
        self.store, self.formatter = store, formatter(format)
        self._pool = PreparerPool(store, agent=agent, **options)

    def begin(
        self,
        conversation: str,
        model: Provider,
        messages: Sequence[JSONObject],
        *,
        system_prompt: str | None = None,
        tools: Sequence[AnyTool | JSONObject] = (),
        output: int | None = None,
    ) -> WireRequest:
        """Record the messages, and prepare the request. `tools` as JSON are in OpenAI's chat format."""
        request = self.formatter.decode_request({self.formatter.messages_key: list(messages)})
        preparer = self._pool.take(conversation, model)
        try:
            prepared = preparer.prepare(request.messages, system_prompt=system_prompt, tools=tools, output=output)
        except BaseException:
            self._pool.give_back(preparer)
            raise
        if prepared.is_unchanged:
            return WireRequest(preparer, prepared, None)
        request = WireRequest(preparer, prepared, None)
        try:
            sent = prepared.apply(prepared.history, lambda message: [message])  # those given have the bytes of media
            return request._replace(messages=self.formatter.format(sent))
        except BaseException as error:
            self.abort(request, error)
            raise

    def commit(self, request: WireRequest, reply: Message, usage: Usage | None = None) -> None:
        """Store the reply with its request."""
        try:
            request.preparer.commit(request.prepared, [replace(reply, usage=usage or reply.usage)])
        finally:
            self._pool.give_back(request.preparer)

    def abort(self, request: WireRequest, error: BaseException | str) -> None:
        """Store that the request got no reply."""
        try:
            request.preparer.abort(request.prepared, error)
        finally:
            self._pool.give_back(request.preparer)

    def load(self, conversation: str) -> list[JSONObject]:
        """Return the recorded messages of the current branch, since the context was last cleared."""
        messages = load_messages(self.store, conversation)
        blobs = {name: self.store.blob(name) for name in list_blob_names(messages)}
        return self.formatter.encode_history(messages, blobs=blobs)

    def decode_message(self, message: JSONObject) -> Message:
        """Return a reply that the framework has as a message.

        It is read after a question: a reply that begins a request is marked, and not merged with others when sent.
        """
        asked = self.formatter.encode_history([QUESTION])
        _, found = self.formatter.decode_request({self.formatter.messages_key: [*asked, message]}).messages
        return found


def find_provider(name: str, model: str, window: int | None, known_window: int | None = None) -> Provider:
    """Return a provider. `known_window` is what the framework knows about the model, if contextc does not know it."""
    format = None if name in provider_names() else "openai_chat"
    try:
        return provider(f"{name}:{model}", window=window, format=format)
    except UnknownModel:
        if not (window or known_window):
            raise
        return provider(f"{name}:{model}", window=window or known_window, format=format)
