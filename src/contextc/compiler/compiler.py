"""MessageCompiler: compile a request, begin it, then commit or abort it.

`compile` writes nothing. `begin` stores the attempt before anything is sent. `commit` appends what the model produced
together with ledger and manifest in one transaction, or raises and changes nothing.
"""

import logging
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Unpack

from msgspec.structs import replace

from contextc._credential_mask import get_logger, mask_secrets
from contextc._json import JSONObject, fix_surrogates
from contextc.compiler import arguments, past_requests
from contextc.compiler import commit as committing
from contextc.compiler.arguments import ArgumentCache, CompileArguments, PromptSource
from contextc.compiler.compaction import (
    CompactionResult,
    CompactionSteps,
    StoredCompaction,
    WithCompaction,
    complete_compaction,
    load_compaction,
    load_compactions,
    run_compaction_steps,
    undo_compaction,
)
from contextc.compiler.compaction_preview import CompactionPreview, preview_compaction
from contextc.compiler.compiled import Compiled, HeadParts
from contextc.compiler.ledger import repository
from contextc.compiler.ledger.channel_row_cache import ChannelCacheEntry, get_channel_cache
from contextc.compiler.manifest import Manifest
from contextc.compiler.options import CompilerOptionArguments
from contextc.compiler.pipeline import ContextLoader, compile_request
from contextc.compiler.request_head import CompileInput, RequestTerms
from contextc.compiler.search_history import MAX_TOKENS, HistoryPassage, answer_call, search_history
from contextc.compiler.summary_request import Summarizer, check_summarizer
from contextc.compiler.visibility import Viewer
from contextc.errors import ContextcError, InvalidInput, NothingNew, describe_error
from contextc.messages import Message, ToolCall, Usage, validate_message
from contextc.messages.message import to_plain_text
from contextc.models.tokens import TokenCounter, get_counter, save_calibration, save_counts
from contextc.prompts import PromptContext
from contextc.providers import Provider
from contextc.store import Lease, Reference, Store, append_and_load
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_types import DEFAULT_AGENT
from contextc.store.ledger_schema import Channel, ProviderSession
from contextc.store.message_rows import BranchTip as Tip
from contextc.tools.spec import AnyTool

if TYPE_CHECKING:  # importing it loads asyncio
    from contextc.tools import ToolLike

log = get_logger("contextc.compiler")
MAX_KNOWN_HEADS = 1_000


class MessageCompiler:
    """Compiles conversations of one store for one provider. Cheap to create, because its caches belong to the store."""

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_cache",
        "_heads",
        "_heads_stored",
        "counter",
        "loader",
        "options",
        "provider",
        "store",
    )  # fmt: skip

    def __init__(self, store: Store, provider: Provider | str, **options: Unpack[CompilerOptionArguments]) -> None:
        arguments.check_store(store)
        self.store = store
        self.provider = arguments.as_provider(provider)
        self.options = arguments.as_options(options)
        if self.provider.keeps_static and self.options.placement == "head":
            self.options = replace(self.options, placement="tail")  # a session keeps its first head
        model = self.provider.model
        self.counter: TokenCounter = get_counter(
            model.tokenizer, provider=self.provider.formatter.provider, model=model.name
        )
        self._heads: dict[object, HeadParts] = {}
        self._heads_stored: dict[int, tuple[bytes, int]] = {}  # only valid at this version: a redaction removes heads
        self._arguments = ArgumentCache(store, self.provider, self.counter, self.options)
        self._cache = get_channel_cache(store)
        self.loader = ContextLoader(store, self.provider, self.counter, self._cache)

    # ── compiling ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def compile(
        self,
        conversation: str,
        *,
        agent: str = DEFAULT_AGENT,
        fragments: PromptSource = (),
        system_prompt: str | None = None,
        tools: "Iterable[AnyTool | ToolLike | JSONObject]" = (),
        settings: JSONObject | None = None,
        budget: int | None = None,
        output: int | None = None,
        run: str | None = None,
        running: Iterable[str] | None = None,
        directory: str | None = None,
        context: PromptContext | None = None,
        retry: bool = False,
        dry_run: bool = False,
        edit: tuple[Reference, Message] | None = None,
        rewind: Reference | None = None,
        upcoming: Sequence[Message] = (),
        headroom: int = 0,
    ) -> Compiled:
        """Compile the request that one model gets now. Nothing is stored, and nothing is sent.

        `budget` limits the whole input; the default is the model's window minus a reserve for the answer. `dry_run`
        compiles without the intention to send, also after an `edit` or a `rewind` that is not stored, or with
        `upcoming` messages. A request that has less than `headroom` tokens left is trimmed as if it were too long.
        """
        arguments.check_compile_arguments(
            agent=agent,
            system_prompt=system_prompt,
            settings=settings,
            budget=budget,
            output=output,
            edit=edit,
            rewind=rewind,
            upcoming=upcoming,
            headroom=headroom,
            dry_run=dry_run,
        )
        provider = self.provider
        running = None if running is None else frozenset(running)
        tools = self._arguments.validate_tools(tools)
        channel = self.channel(conversation, agent=agent, directory=directory)
        prompt = self._arguments.render_prompt(channel, fragments, system_prompt, tools, context, directory)
        runs = f"{run or ''}|{','.join(sorted(running)) if running is not None else None}"
        seen = self.loader.load(channel, runs, edit, rewind, has_instructions=bool(prompt.static))
        if upcoming:
            seen = seen.with_appended(upcoming)
        if seen.snapshot.leading:
            prompt = self._arguments.with_leading_messages(prompt, seen.snapshot.leading)
        stand_in = provider.formatter.placeholder_tool
        if stand_in is not None and (tools or not seen.snapshot.has_calls):
            stand_in = None

        def make_terms(*, renew: bool = False) -> RequestTerms:
            shown = self._arguments.arrange_tools(tools, seen.snapshot, stand_in, settings, budget, renew=renew)
            return self._arguments.build_terms(channel, prompt, shown, settings, budget, output)

        ask = CompileInput(
            provider=provider,
            counter=self.counter,
            options=self.options,
            channel=channel,
            terms=make_terms(),
            run=run,
            running=running,
            runs=runs,
            snapshot=seen.snapshot,
            summary=seen.summary,
            counts=seen.counts,
            factor=self.factor,
            fetch=self.loader.fetch_messages,
            load_earlier=self.loader.load_earlier,
            head_cache=self._heads,
            retry=retry,
            headroom=headroom,
            dry_run=dry_run,
            load_left_out=lambda sight, items: past_requests.load_left_out_reasons(
                self.store, channel, sight.tip.branch, sight.tip.seq, sight.state.requests + 1, items
            ),
            other_channel_state=self.loader.load_other_channel_state(channel, seen.snapshot) if dry_run else None,
        )
        compiled = compile_request(ask, lambda: make_terms(renew=True))
        compiled.new_token_counts = seen.new_counts
        return compiled

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
        attempt = repository.OpenAttempt(
            request=compiled.request,
            token=compiled.token,
            session=compiled.session_id or "",
            head=compiled.head.hash.hex(),
            chain=compiled.state.chain,
        )

        def work(tx: Transaction) -> None:
            if lease is not None:
                committing.check_lease_and_channel(tx, lease, compiled.channel)
            number, _, other = committing.lock_channel(tx, compiled)
            beside = other is not None and other != seen and other.token != compiled.token
            repository.save_attempt(tx, number, replace(attempt, doubtful=True) if beside else attempt)
            if in_transaction is not None:
                in_transaction(tx)

        sight = compiled.snapshot
        seen = sight.attempt
        in_company = lease is not None or in_transaction is not None
        if in_company or not repository.save_attempt_if_unchanged(
            self.store, sight.channel, sight.version, attempt, seen
        ):
            self.store.write(work, repeatable=True)
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
        lease: Lease | None = None,
        in_transaction: Callable[[Transaction, list[Message]], None] | None = None,
    ) -> list[Message]:
        """Store the model's reply, together with everything that was sent, in one transaction.

        `reply` is what the vendor's SDK returned, its JSON, or a message; `produced` is for more than one message. A
        message that was already streamed into the conversation is not stored again. `session_id` and `cursor` are a
        stateful provider's names for its session and its position; set `shortened` if the provider shortened its own
        history. `notes` appear in the manifest. `in_transaction` receives the stored messages and runs in the same
        transaction.
        """
        self._check(compiled)
        arguments.check_commit_arguments(reply, produced, usage, session_id, cursor, notes, shortened)
        messages = [*(produced or ()), *([] if reply is None else [committing.decode_reply(compiled, reply)])]
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
        entries = [append_and_load.prepare_entry(validate_message(message)) for message in messages]
        session_id = session_id or committing.find_session_id(compiled, reply)
        calibration, sight = committing.update_calibration(compiled, usage, self.loader.calibration), compiled.snapshot

        def work(tx: Transaction) -> tuple[list[Message], ChannelCacheEntry | committing.CommitResult, Tip]:
            if lease is not None:
                committing.check_lease_and_channel(tx, lease, compiled.channel)
            if tx.is_retry and (done := committing.find_earlier_commit(tx, compiled, there, entries)) is not None:
                return done
            if not there and (said := committing.append_at_tip(tx, compiled, entries)) is not None:
                at, number, version, attempt = sight.tip, sight.channel, sight.version, None
                stored = [said]
            else:
                at, number, version, attempt = committing.locate_reply(tx, compiled)
                found = committing.load_streamed(tx, compiled, at, there) if there else []
                stored = [*found, *append_and_load.insert_messages(tx, compiled.channel.conversation, at, entries)]
            written = committing.write_commit(
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
                open_attempt=committing.find_remaining_attempt(compiled, attempt),
            )
            save_counts(tx, self.counter.tokenizer, compiled.new_token_counts)
            if calibration is not None:
                save_calibration(tx, self.provider.model_id, calibration, is_stored=self.loader.is_calibrated)
            if in_transaction is not None:
                in_transaction(tx, stored)
            end = (
                Tip(
                    at.conversation,
                    at.tree,
                    at.branch,
                    at.revision,
                    stored[-1].seq,
                    bytes.fromhex(stored[-1].id),
                    stored[-1].time // 1000,
                )
                if entries
                else at
            )
            return stored, written, end

        stored, written, end = self.store.write(work, repeatable=True)
        shown = (
            written
            if isinstance(written, ChannelCacheEntry)
            else committing.build_cache_entry(compiled, written, stored, end)
        )
        if calibration is not None:
            self.loader.calibration = calibration
        if len(self._heads_stored) >= MAX_KNOWN_HEADS:
            self._heads_stored.clear()
        self._heads_stored[shown.number] = compiled.head.hash, shown.version
        self._cache.put(compiled.channel, shown)
        self.store.cache_tip(compiled.channel.conversation, end)
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
        arguments.check_usage(usage)
        said = mask_secrets(fix_surrogates(error if isinstance(error, str) else describe_error(error)))

        def work(tx: Transaction) -> int:
            found = repository.find_channel(tx, compiled.channel)
            if found is None:
                return 0
            attempt = repository.decode_attempt(found.attempt)
            if tx.is_retry and attempt is not None and attempt.token == compiled.token and attempt.kept:
                return attempt.kept  # the previous try was committed, and only its confirmation was lost
            kept = committing.save_unanswered(tx, compiled, usage)
            quoted = said[:2000] if kept else ""  # an error may quote what was redacted meanwhile
            repository.save_failure(tx, found.number, compiled.token, quoted, kept)
            return kept

        kept = self.store.write(work, repeatable=True)
        log.info("%s: aborted request %d for %s", *_log_fields(compiled))
        return kept

    @contextmanager
    def attempt(self, compiled: Compiled, *, lease: Lease | None = None) -> Generator[committing.Attempt]:
        """Begin a request. Commit it inside the block; a block that ends without a commit aborts it."""
        self.begin(compiled, lease=lease)
        attempt = committing.Attempt(self, compiled, lease)
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
        self, conversation: str, summarize: Summarizer, *, instructions: str = "", **asked: Unpack[CompileArguments]
    ) -> CompactionResult | None:
        """Summarize the old part of a conversation as one agent sees it. The next request begins with the summary.

        `summarize` receives the messages and the previous summary, and returns a text; it may call a model.
        `instructions` say what the summary should keep, for a function that has a parameter of this name. `asked` are
        arguments of `compile`, which decide what is old. Returns None if there is nothing to summarize.
        """
        check_summarizer(summarize, instructions)
        return complete_compaction(self.compaction(conversation, instructions=instructions, **asked), summarize)

    def compaction(
        self,
        conversation: str,
        *,
        instructions: str = "",
        from_cache: bool = False,
        waits: bool = False,
        in_transaction: WithCompaction | None = None,
        **arguments: Unpack[CompileArguments],
    ) -> CompactionSteps:
        """Return the steps of a compaction, for callers that create the summaries themselves, as on an event loop.

        With `from_cache`, a step may contain a request of this channel that asks for the summary. A summary that
        `waits` is used only where the context is trimmed next. `in_transaction` is called where it is stored.
        """
        context = load_compaction(self, conversation, arguments, from_cache=from_cache)
        return (yield from run_compaction_steps(context, instructions, waits, in_transaction))

    def preview_compaction(
        self, conversation: str, *, from_cache: bool = False, **asked: Unpack[CompileArguments]
    ) -> CompactionPreview | None:
        """Return what a compaction would replace, and what it costs. Nothing is stored, and no model is called."""
        return preview_compaction(load_compaction(self, conversation, asked, from_cache=from_cache))

    def compactions(self, conversation: str, *, agent: str = DEFAULT_AGENT) -> list[StoredCompaction]:
        """Return the summaries that are in use, newest first, each with its receipt: what it has kept, and lost."""
        return load_compactions(self.store, conversation, agent)

    def undo_compaction(self, conversation: str, *, agent: str = DEFAULT_AGENT) -> int | None:
        """Take the latest summary of an agent's view out of use. The next request begins an epoch with the original
        messages, as far as they fit, and with the summary before it, if there is one.

        Returns the number of the last message that it covers; None if there is no summary.
        """
        return undo_compaction(self.store, conversation, agent)

    @property
    def factor(self) -> float:
        """Calibration factor for this model's token counts, learned from the usage that its provider reports."""
        return self.loader.factor

    # ── past requests, left-out results ───────────────────────────────────────────────────────────────────────────────

    def channel(self, conversation: str, *, agent: str = DEFAULT_AGENT, directory: str | None = None) -> Channel:
        """Return the channel that `compile` uses for these arguments."""
        where = os.path.realpath(directory or ".") if self.provider.directory_bound else ""
        return Channel(conversation, agent, self.provider.name, self.provider.model_id, where)

    def explain(
        self, conversation: str, request: int | None = None, *, agent: str = DEFAULT_AGENT, directory: str | None = None
    ) -> Manifest:
        """Return the manifest of a committed request; by default of the last one."""
        self.store.conversation(conversation)
        return past_requests.explain(self.store, self.channel(conversation, agent=agent, directory=directory), request)

    def rebuild(
        self, conversation: str, request: int | None = None, *, agent: str = DEFAULT_AGENT, directory: str | None = None
    ) -> bytes:
        """Return the bytes of a committed request exactly as they were sent; by default of the last one."""
        self.store.conversation(conversation)
        channel = self.channel(conversation, agent=agent, directory=directory)
        return past_requests.rebuild(self.store, channel, self.provider.formatter, request)

    def fetch(
        self,
        conversation: str,
        call: ToolCall,
        *,
        agent: str = DEFAULT_AGENT,
        run: str | None = None,
        running: Iterable[str] | None = None,
    ) -> str:
        """Return the result of the model's call of `search_history` or `fetch_result`: only what the agent may see."""
        viewer = self._viewer(conversation, agent, run, running)
        return answer_call(self.store, conversation, call, viewer, self.counter)

    def search_history(
        self,
        conversation: str,
        query: str,
        *,
        agent: str = DEFAULT_AGENT,
        run: str | None = None,
        running: Iterable[str] | None = None,
        max_tokens: int = MAX_TOKENS,
    ) -> list[HistoryPassage]:
        """Return passages of what an agent may see, in its window or not. Messages of `running` runs are hidden."""
        viewer = self._viewer(conversation, agent, run, running)
        return search_history(self.store, conversation, query, viewer, self.counter, max_tokens)

    def _viewer(self, conversation: str, agent: str, run: str | None, running: Iterable[str] | None) -> Viewer:
        channel, hides_failed = self.channel(conversation, agent=agent), self.options.failed == "exclude"
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
