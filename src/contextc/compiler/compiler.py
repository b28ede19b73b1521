"""MessageCompiler: compile a request, begin it, then commit or abort it.

`compile` writes nothing. `begin` stores the attempt before anything is sent. `commit` appends what the model produced
together with ledger and manifest in one transaction, or raises and changes nothing.
"""

import logging
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import (
    TYPE_CHECKING,
    Unpack,
)

from msgspec.structs import asdict, replace

from contextc._credential_mask import get_logger, mask_secrets
from contextc._json import JSONObject, encode_canonical, fix_surrogates
from contextc.compiler import ledger, past_requests
from contextc.compiler.arguments import (
    AgentArguments,
    ArgumentCache,
    CompileArguments,
    FormerArguments,
    ViewArguments,
    as_options,
    as_provider,
    check_commit_arguments,
    check_compile_arguments,
    check_store,
    check_usage,
    plan_native_context,
    with_former_names,
)
from contextc.compiler.commit import (
    Attempt,
    CommitResult,
    append_at_tip,
    build_cache_entry,
    check_lease_and_prefetch_channel,
    decode_reply,
    find_earlier_commit,
    find_remaining_attempt,
    find_reply_facts,
    find_session_id,
    load_streamed,
    locate_reply,
    lock_channel,
    save_unanswered,
    update_calibration,
    write_commit,
)
from contextc.compiler.compaction import (
    CompactionPreview,
    CompactionResult,
    CompactionSteps,
    StoredCompaction,
    Summarizer,
    WithCompaction,
    check_instructions,
    check_summarizer,
    complete_compaction,
    list_items,
    load_compaction_context,
    load_compactions,
    preview_compaction,
    run_compaction_steps,
    undo_compaction,
)
from contextc.compiler.draft import CompilerOptionArguments
from contextc.compiler.head_parts import find_shared_head
from contextc.compiler.history import (
    MAX_TOKENS,
    HistoryPassage,
    answer_history_call,
    search_history,
)
from contextc.compiler.ledger import CachedChannelRows, ChannelSnapshot, get_channel_cache
from contextc.compiler.manifest import Manifest
from contextc.compiler.prompt_cache import check_lifetime, make_cache_key, uses_key
from contextc.compiler.step import (
    Compiled,
    CompileInput,
    ContextLoader,
    HeadParts,
    RequestTerms,
    compile_request,
    may_begin_turn,
)
from contextc.errors import ContextcError, InvalidInput, InvalidSetting, NothingNew, describe_error
from contextc.formats.request_settings import NativeSettings
from contextc.messages import Message, ToolCall, Usage, Viewer, to_plain_text, validate_message
from contextc.models.tokens import TokenCounter, get_counter, save_calibration, save_counts
from contextc.prompts import (
    Instructions,
    PromptContext,
)
from contextc.providers import Provider
from contextc.store import Lease, Reference, Store, message_log
from contextc.store.ledger_schema import Channel, ProviderSession
from contextc.store.message_log import DEFAULT_AGENT
from contextc.store.message_log import BranchTip as Tip
from contextc.store.store import cache_tip
from contextc.store.transaction_engine import Transaction
from contextc.tools.definitions import AnyTool

if TYPE_CHECKING:
    from contextc.tools import ToolLike


log = get_logger("contextc.compiler")
MAX_KNOWN_HEADS = 1_000


class MessageCompiler:
    """Compiles conversations of one store for one provider. Cheap to create, because its caches belong to the store."""

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_cache",
        "_compacts",
        "_heads",
        "_heads_stored",
        "_native",
        "_uses_cache_key",
        "counter",
        "loader",
        "options",
        "provider",
        "shortcuts",
        "store",
    )  # fmt: skip

    def __init__(self, store: Store, model: Provider | str, **options: Unpack[CompilerOptionArguments]) -> None:
        check_store(store)
        self.store = store
        self.provider = as_provider(model)
        self.options = as_options(options)
        check_lifetime(self.options.cache, [self.provider])
        self._uses_cache_key = uses_key(self.options.cache, self.provider)
        if self.provider.keeps_static and self.options.placement == "head":
            self.options = replace(self.options, placement="tail")  # a session keeps its first head
        self._compacts = False
        self.shortcuts = True
        """False if every step runs all passes, also where a shorter way gives the same bytes."""
        self._native = plan_native_context(self.provider, self.options.native)
        known = self.provider.model
        self.counter: TokenCounter = get_counter(
            known.tokenizer, provider=self.provider.formatter.provider, model=known.name
        )
        self._heads: dict[object, HeadParts] = {}
        self._heads_stored: dict[int, tuple[bytes, int]] = {}  # only valid at this version: a redaction removes heads
        self._arguments = ArgumentCache(store, self.provider, self.counter, self.options)
        self._cache = get_channel_cache(store)
        self.loader = ContextLoader(store, self.provider, self.counter, self._cache)

    def __repr__(self) -> str:
        return f"MessageCompiler({self.store!r}, {self.provider.title!r})"

    # ── compiling ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def compile(
        self,
        conversation: str,
        *,
        name: str = DEFAULT_AGENT,
        instructions: Instructions | None = None,
        tools: "Iterable[AnyTool | ToolLike | JSONObject]" = (),
        settings: JSONObject | None = None,
        max_input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        run: str | None = None,
        running: Iterable[str] | None = None,
        directory: str | None = None,
        context: PromptContext | None = None,
        retry: bool = False,
        dry_run: bool = False,
        edit: tuple[Reference, Message] | None = None,
        rewind: Reference | None = None,
        upcoming: Sequence[Message | message_log.PendingMessage] = (),
        headroom: int = 0,
        **former: Unpack[FormerArguments],
    ) -> Compiled:
        """Compile the request that one model gets now. Nothing is stored, and nothing is sent.

        `instructions` is the system prompt: a text, a prompt fragment, a function of a `PromptContext`, or a list of
        them. `max_input_tokens` limits the whole input; the default is the model's window minus a reserve for the
        answer. `max_output_tokens` is the length of the answer that is asked for. `dry_run` compiles without the
        intention to send, also after an `edit` or a `rewind` that is not stored, or with `upcoming` messages. A request
        that has less than `headroom` tokens left is trimmed as if it were too long. To send what is not stored yet,
        pass `upcoming` as `prepare_entry` returned it, and append it in the transaction of `begin`.
        """
        if former:
            name, instructions, max_input_tokens = with_former_names(former, name, instructions, max_input_tokens)
        check_compile_arguments(
            name=name,
            settings=settings,
            max_input_tokens=max_input_tokens,
            max_output_tokens=max_output_tokens,
            edit=edit,
            rewind=rewind,
            upcoming=upcoming,
            headroom=headroom,
            dry_run=dry_run,
        )
        provider, native = self.provider, self._native
        if native.settings:
            native = native if settings is None or settings.keys().isdisjoint(native.settings) else NativeSettings({})
            settings = {**native.settings, **(settings or {})}
        running = None if running is None else frozenset(running)
        tools = self._arguments.validate_tools(tools)
        channel = self.channel(conversation, name=name, directory=directory)
        if edit is not None and edit[1].role == "user" and (context is None or not context.input):
            context = replace(context or PromptContext(), input=(edit[1],))
        prompt, render_turn = self._arguments.render_prompt(
            channel,
            instructions,
            lambda takes_input: self._arguments.complete_context(channel, context, tools, directory, takes_input),
        )
        runs = f"{run or ''}|{','.join(sorted(running)) if running is not None else None}"
        pending = [each for each in upcoming if isinstance(each, message_log.PendingMessage)]
        seen = self.loader.load(channel, runs, edit, rewind, has_instructions=bool(prompt.static), pending=pending)
        if unsaved := [each for each in upcoming if isinstance(each, Message)]:
            seen = seen.with_appended(unsaved)
        if seen.snapshot.leading:
            prompt = self._arguments.with_leading_messages(prompt, seen.snapshot.leading)
        turn = context.turn if context is not None else ""
        stand_in = provider.formatter.placeholder_tool
        if stand_in is not None and (tools or not seen.snapshot.has_calls):
            stand_in = None

        given = encode_canonical(settings) if settings else b""
        asked = (prompt, tools, given, max_input_tokens, max_output_tokens)

        def has_head() -> bool:
            state, version = seen.snapshot.state, seen.snapshot.version
            number, head = state.head_place[0], bytes.fromhex(state.head_place[1])
            if not head or self._heads_stored.get(number) == (head, version):
                return bool(head)
            return self.store.read(lambda tx: ledger.load_head(tx, number, head)) is not None

        def make_terms(*, renew: bool = False) -> RequestTerms:
            shown = self._arguments.arrange_tools(
                tools, seen.snapshot, stand_in, settings, max_input_tokens, has_head=has_head, renew=renew
            )
            return self._arguments.build_terms(
                channel,
                self._arguments.arrange_prompt(prompt, seen.snapshot, has_head=has_head, renew=renew),
                shown,
                settings,
                max_input_tokens,
                max_output_tokens,
                seen.snapshot.state,
                renew=renew,
            )

        terms = self._arguments.find_terms(channel, asked, seen.snapshot) if self.shortcuts else None
        if terms is None:
            terms = make_terms()
            if terms.broken:
                terms = replace(make_terms(renew=True), broken=terms.broken)
            self._arguments.keep_terms(channel, asked, seen.snapshot, terms)
        ask = CompileInput(
            provider=provider,
            counter=self.counter,
            options=self.options,
            channel=channel,
            terms=terms,
            turn_fragments=render_turn() if render_turn and may_begin_turn(seen.snapshot, channel, turn) else (),
            turn=turn,
            run=run,
            running=running,
            runs=runs,
            cache_key=self._find_cache_key(channel, seen.snapshot),
            now=message_log.now_ms(),
            snapshot=seen.snapshot,
            summary=seen.summary,
            counts=seen.counts,
            new_counts=seen.new_counts,
            unsent=seen.unsent,
            factor=seen.snapshot.state.observed_factor
            if seen.snapshot.cached.is_observed
            else self.loader.factor(terms.kind),
            fetch=self.loader.fetch_messages,
            load_earlier=self.loader.load_earlier,
            head_cache=self._heads,
            retry=retry,
            headroom=headroom,
            compacts=self._compacts,
            shortcuts=self.shortcuts,
            for_summary=self.loader.skip_summarized,
            native=native,
            dry_run=dry_run,
            load_left_out=lambda sight, items: past_requests.load_left_out_reasons(
                self.store, channel, sight.tip.branch, sight.tip.seq, sight.state.requests + 1, items
            ),
            find_shared_head=lambda state, head: find_shared_head(
                provider.formatter, head, self._arguments.load_head(state)
            ),
            other_channel_state=self.loader.load_other_channel_state(channel, seen.snapshot) if dry_run else None,
        )
        compiled = compile_request(ask, lambda: make_terms(renew=True))
        if compiled.draft.epoch:
            _ = compiled.account  # it compares a changed head with the stored one, and the store may be closed later
        if not (dry_run or upcoming):
            self.loader.keep_unsent(channel, compiled.unsent)
        return compiled

    def _find_cache_key(self, channel: Channel, snapshot: ChannelSnapshot) -> str:
        """Return the cache key of a channel, or "" if it has none. A fork keeps that of its parent, with the prefix."""
        if not self._uses_cache_key or snapshot.cached.is_observed:
            return ""
        return snapshot.state.cache_key or make_cache_key(channel)

    def compile_compaction(
        self, conversation: str, *, summary_instructions: str = "", **asked: Unpack[AgentArguments]
    ) -> Compiled | None:
        """Compile a request with which the provider compacts the conversation itself. Send it, and commit its reply.

        The next request begins with the block in the reply. `summary_instructions` replace those of the provider; the
        other arguments are those of `compile`. Returns None if there is nothing to compact, or if input or calls wait
        for an answer.
        """
        check_instructions(summary_instructions)
        given = asked.get("settings")
        own = given if isinstance(given, dict) else {}
        found = self.provider.formatter.compaction_settings(own, summary_instructions)
        if found is None or not all([self.provider.offers(feature) for feature in found.features]):
            raise InvalidSetting(
                f"compaction: {self.provider.name} does not compact a conversation on request", fix="Use compact()."
            )
        wanted: AgentArguments = {**asked, "settings": found.settings if given is None or own is given else given}
        asker = type(self)(self.store, self.provider, **asdict(replace(self.options, native=None)))
        asker._compacts, asker._native = True, found._replace(settings={})
        compiled = asker.compile(conversation, retry=True, **wanted)
        items = [item for item in list_items(compiled.draft) if item.kind == "message"]
        if not (items and compiled.state.answered) or items[-1].role != "assistant" or items[-1].compacts:
            return None
        return compiled

    def prompt_context(
        self,
        conversation: str,
        *,
        name: str = DEFAULT_AGENT,
        tools: "Iterable[AnyTool | ToolLike | JSONObject]" = (),
        directory: str | None = None,
        context: PromptContext | None = None,
    ) -> PromptContext:
        """Return the context that `compile` renders fragments with, for callers that render them themselves."""
        channel = self.channel(conversation, name=name, directory=directory)
        checked = self._arguments.validate_tools(tools)
        return self._arguments.complete_context(channel, context, checked, directory, takes_input=True)

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(
        self,
        compiled: Compiled,
        *,
        lease: Lease | None = None,
        in_transaction: Callable[[Transaction], None] | None = None,
    ) -> None:
        """Store the attempt before the request is sent. `in_transaction` runs in the same transaction."""
        self._check(compiled)
        if not compiled.is_new:
            raise NothingNew(compiled.channel.conversation, compiled.channel)
        attempt = ledger.OpenAttempt(
            request=compiled.request,
            token=compiled.token,
            session=compiled.session_id or "",
            head=compiled.head.hash.hex(),
            chain=compiled.state.chain,
        )

        def work(tx: Transaction) -> None:
            if lease is not None:
                check_lease_and_prefetch_channel(tx, lease, compiled.channel)
            number, _, other = lock_channel(tx, compiled)
            beside = other is not None and other != seen and other.token != compiled.token
            ledger.save_attempt(tx, number, replace(attempt, doubtful=True) if beside else attempt)
            if in_transaction is not None:
                in_transaction(tx)

        sight = compiled.snapshot
        seen = sight.attempt
        in_company = lease is not None or in_transaction is not None
        if in_company or not ledger.save_attempt_if_unchanged(self.store, sight.channel, sight.version, attempt, seen):
            self.store.write(work, repeatable=True)
        compiled.began = message_log.now_ms()
        if log.isEnabledFor(logging.INFO):
            log.info("%s: began request %d for %s", *_log_fields(compiled))

    def commit(
        self,
        compiled: Compiled,
        reply: object = None,
        *,
        session_id: str | None = None,
        cursor: str = "",
        produced: Sequence[Message] | None = None,
        usage: Usage | None = None,
        notes: Sequence[str] = (),
        shortened: bool = False,
        events: Sequence[JSONObject] = (),
        lease: Lease | None = None,
        in_transaction: Callable[[Transaction, list[Message]], None] | None = None,
    ) -> list[Message]:
        """Store the model's reply, together with everything that was sent, in one transaction.

        `reply` is what the vendor's SDK returned, its JSON, or a message; `produced` is for more than one message. A
        message that was already streamed into the conversation is not stored again. `session_id` and `cursor` are a
        stateful provider's names for its session and its position; set `shortened` if the provider shortened its own
        history. `notes` appear in the manifest. `events` are those of a reply that is passed as a message: with
        `cache_diagnostics`, its id and what it says about the cache are kept. `in_transaction` receives the stored
        messages and runs in the same transaction.
        """
        self._check(compiled)
        check_commit_arguments(reply, produced, usage, session_id, cursor, notes, shortened)
        messages = [*(produced or ()), *([] if reply is None else [decode_reply(compiled, reply)])]
        draft = compiled.draft
        there = [message for message in messages if message.id]
        messages = [
            replace(message, author=message.author or draft.agent, run=message.run or draft.run)
            if message.role in ("assistant", "tool")
            else message
            for message in messages
            if not message.id
        ]
        usage = usage or next((message.usage for message in reversed([*there, *messages]) if message.usage), None)
        entries = [message_log.prepare_entry(validate_message(message)) for message in messages]
        session_id = session_id or find_session_id(compiled, reply)
        calibration, sight = update_calibration(compiled, usage, self.loader.calibrations), compiled.snapshot
        facts = find_reply_facts(compiled, reply, events)
        kind = compiled.request_kind

        def work(tx: Transaction) -> tuple[list[Message], CachedChannelRows | CommitResult, Tip]:
            if tx.is_retry and (done := find_earlier_commit(tx, compiled, there, entries)) is not None:
                return done  # it may have released the lease
            if lease is not None:
                check_lease_and_prefetch_channel(tx, lease, compiled.channel)
            if not there and (said := append_at_tip(tx, compiled, entries)) is not None:
                at, number, version, attempt = sight.tip, sight.channel, sight.version, None
                stored = [said]
            else:
                at, number, version, attempt = locate_reply(tx, compiled)
                found = load_streamed(tx, compiled, at, there) if there else []
                stored = [*found, *message_log.insert_messages(tx, compiled.channel.conversation, at, entries)]
            written = write_commit(
                tx,
                compiled,
                self.counter,
                number=number,
                version=version,
                branch=at.branch,
                messages=stored,
                usage=usage,
                session=ProviderSession(session_id, cursor) if session_id else None,
                notes=notes,
                shortened=shortened,
                head_is_stored=(compiled.head.hash, version) == self._heads_stored.get(number),
                open_attempt=find_remaining_attempt(compiled, attempt),
                facts=facts,
            )
            save_counts(tx, self.counter.tokenizer, compiled.new_token_counts)
            if calibration is not None:
                stored_before = self.loader.is_calibrated(kind)
                save_calibration(tx, self.provider.model_id + kind, calibration, is_stored=stored_before)
            if in_transaction is not None:
                in_transaction(tx, stored)
            return stored, written, at.followed_by(stored[-1]) if entries else at

        stored, written, end = self.store.write(work, repeatable=True)
        shown = written if isinstance(written, CachedChannelRows) else build_cache_entry(compiled, written, stored, end)
        if calibration is not None and self.loader.calibrations is not None:
            self.loader.calibrations[kind] = calibration
        if len(self._heads_stored) >= MAX_KNOWN_HEADS:
            self._heads_stored.clear()
        self._heads_stored[shown.number] = compiled.head.hash, shown.version
        self._cache.put(compiled.channel, shown)
        self.loader.keep_unsent(compiled.channel, None)
        cache_tip(self.store, compiled.channel.conversation, end)
        if not log.isEnabledFor(logging.INFO):
            return stored
        log.info(
            "%s: stored request %d for %s (%s, epoch %d)", *_log_fields(compiled), compiled.mode, compiled.state.epoch
        )
        for message in stored if log.isEnabledFor(logging.DEBUG) else ():
            text = to_plain_text(message)
            log.debug("%s: content of message %d: %s", compiled.channel.conversation, message.seq, text)
        return stored

    def abort(self, compiled: Compiled, error: BaseException | str = "aborted", *, usage: Usage | None = None) -> int:
        """Close the attempt. The ledger does not change; the next request handles what a session may have kept of this
        one.

        `usage` is what the provider counted, if anything. Returns the number under which `explain` and `rebuild` find
        the request; 0 if it is not stored, because some of its content was deleted or redacted meanwhile.
        """
        self._check(compiled)
        check_usage(usage)
        said = mask_secrets(fix_surrogates(error if isinstance(error, str) else describe_error(error)))

        def work(tx: Transaction) -> int:
            found = ledger.find_channel(tx, compiled.channel)
            if found is None:
                return 0
            attempt = ledger.decode_attempt(found.attempt)
            if tx.is_retry and attempt is not None and attempt.token == compiled.token and attempt.kept:
                return attempt.kept  # the previous try was committed, and only its confirmation was lost
            kept = save_unanswered(tx, compiled, usage)
            quoted = said[:2000] if kept else ""  # an error may quote what was redacted meanwhile
            ledger.save_failure(tx, found.number, compiled.token, quoted, kept)
            return kept

        kept = self.store.write(work, repeatable=True)
        log.info("%s: aborted request %d for %s", *_log_fields(compiled))
        return kept

    @contextmanager
    def attempt(self, compiled: Compiled, *, lease: Lease | None = None) -> Generator[Attempt]:
        """Begin a request. Commit it inside the block; a block that ends without a commit aborts it."""
        self.begin(compiled, lease=lease)
        attempt = Attempt(self, compiled, lease)
        try:
            yield attempt
        except BaseException as error:
            if not attempt.committed:
                with suppress(ContextcError):  # the error of the block is more important
                    self.abort(compiled, error)
            raise
        if not attempt.committed:
            self.abort(compiled, "the attempt ended without a reply")

    # ── summaries ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def compact(
        self,
        conversation: str,
        summarize: Summarizer,
        *,
        instructions: str = "",
        system_prompt: Instructions | None = None,
        max_input_tokens: int | None = None,
        **asked: Unpack[ViewArguments],
    ) -> CompactionResult | None:
        """Summarize the old part of a conversation as one agent sees it. The next request begins with the summary.

        `summarize` receives the messages and the previous summary, and returns a text; it may call a model.
        `instructions` say what the summary should keep, for a function that has a parameter of this name. The other
        arguments are those of `compile`, which decide what is old, with the agent's instructions as `system_prompt`.
        Returns None if there is nothing to summarize.
        """
        check_summarizer(summarize, instructions)
        view: AgentArguments = {**asked, "instructions": system_prompt}
        steps = self.compaction(conversation, view, max_input_tokens=max_input_tokens, instructions=instructions)
        return complete_compaction(steps, summarize)

    def compaction(
        self,
        conversation: str,
        arguments: AgentArguments | None = None,
        *,
        max_input_tokens: int | None = None,
        instructions: str = "",
        from_cache: bool = False,
        waits: bool = False,
        in_transaction: WithCompaction | None = None,
    ) -> CompactionSteps:
        """Return the steps of a compaction, for callers that create the summaries themselves, as on an event loop.

        `arguments` are those of `compile`, `instructions` say what the summary should keep. With `from_cache`, a step
        may contain a request of this channel that asks for the summary. A summary that `waits` is used only where the
        context is trimmed next. `in_transaction` is called where it is stored.
        """
        asked: CompileArguments = {**(arguments or {}), "max_input_tokens": max_input_tokens}
        context = load_compaction_context(self, conversation, asked, from_cache=from_cache)
        return (yield from run_compaction_steps(context, instructions, waits, in_transaction))

    def preview_compaction(
        self, conversation: str, *, from_cache: bool = False, **asked: Unpack[CompileArguments]
    ) -> CompactionPreview | None:
        """Return what a compaction would replace, and what it costs. Nothing is stored, and no model is called."""
        return preview_compaction(load_compaction_context(self, conversation, asked, from_cache=from_cache))

    def compactions(self, conversation: str, *, name: str = DEFAULT_AGENT) -> list[StoredCompaction]:
        """Return the summaries that are in use, newest first, each with its receipt: what it has kept, and lost."""
        return load_compactions(self.store, conversation, name)

    def undo_compaction(self, conversation: str, *, name: str = DEFAULT_AGENT) -> int | None:
        """Take the latest summary of an agent's view out of use. The next request begins an epoch with the original
        messages, as far as they fit, and with the summary before it, if there is one.

        Returns the number of the last message that it covers; None if there is no summary.
        """
        return undo_compaction(self.store, conversation, name)

    @property
    def factor(self) -> float:
        """Calibration factor for this model's token counts, learned from the usage that its provider reports.

        It is that of requests without tools, schema and reasoning; each other kind of request has its own.
        """
        return self.loader.factor("")

    # ── past requests, left-out results ───────────────────────────────────────────────────────────────────────────────

    def channel(self, conversation: str, *, name: str = DEFAULT_AGENT, directory: str | None = None) -> Channel:
        """Return the channel that `compile` uses for these arguments."""
        where = os.path.realpath(directory or ".") if self.provider.directory_bound else ""
        return Channel(conversation, name, self.provider.name, self.provider.model_id, where)

    def explain(
        self, conversation: str, request: int | None = None, *, name: str = DEFAULT_AGENT, directory: str | None = None
    ) -> Manifest:
        """Return the manifest of a committed request; by default of the last one."""
        self.store.conversation(conversation)
        return past_requests.explain(self.store, self.channel(conversation, name=name, directory=directory), request)

    def rebuild(
        self, conversation: str, request: int | None = None, *, name: str = DEFAULT_AGENT, directory: str | None = None
    ) -> bytes:
        """Return the bytes of a committed request exactly as they were sent; by default of the last one."""
        self.store.conversation(conversation)
        channel = self.channel(conversation, name=name, directory=directory)
        return past_requests.rebuild(self.store, channel, self.provider.formatter, request)

    def fetch(
        self,
        conversation: str,
        call: ToolCall,
        *,
        name: str = DEFAULT_AGENT,
        run: str | None = None,
        running: Iterable[str] | None = None,
    ) -> str:
        """Return the result of the model's call of `search_history` or `fetch_result`: only what the agent may see."""
        viewer = self._viewer(conversation, name, run, running)
        return answer_history_call(self.store, conversation, call, viewer, self.counter)

    def search_history(
        self,
        conversation: str,
        query: str,
        *,
        name: str = DEFAULT_AGENT,
        run: str | None = None,
        running: Iterable[str] | None = None,
        max_tokens: int = MAX_TOKENS,
    ) -> list[HistoryPassage]:
        """Return passages of what an agent may see, in its window or not. Messages of `running` runs are hidden."""
        viewer = self._viewer(conversation, name, run, running)
        return search_history(self.store, conversation, query, viewer, self.counter, max_tokens)

    def _viewer(self, conversation: str, name: str, run: str | None, running: Iterable[str] | None) -> Viewer:
        channel, hides_failed = self.channel(conversation, name=name), self.options.failed == "exclude"
        return Viewer(channel.author, run, channel.audiences, not hides_failed, frozenset(running or ()).__contains__)

    # ── what commit is made of ────────────────────────────────────────────────────────────────────────────────────────

    def _check(self, compiled: Compiled) -> None:
        if not isinstance(compiled, Compiled):
            raise InvalidInput(
                f"compiled must be a Compiled, got {type(compiled).__name__}", fix="Pass what compile() returned."
            )
        if compiled.provider is not self.provider and compiled.provider != self.provider:
            raise InvalidInput(
                f"This request was compiled for {compiled.channel} by another compiler", fix="Commit it with that one."
            )
        if compiled.dry_run:
            raise InvalidInput(
                "This request was compiled with dry_run=True and must not be sent", fix="Compile again without dry_run."
            )


def _log_fields(compiled: Compiled) -> tuple[str, int, Channel]:
    return compiled.channel.conversation, compiled.request, compiled.channel
