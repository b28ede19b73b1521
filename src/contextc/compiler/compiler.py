"""The only way to a request: a draft, the passes, the formatter, a manifest; then begin, and commit or abort.

`compile` changes nothing. `begin` stores the attempt before a byte leaves. `commit` appends what the model produced,
with its ledger and manifest, in one transaction, or raises and leaves everything as it was.
"""

import logging
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias, cast

from msgspec.structs import replace

from contextc._json import JSONObject, encode
from contextc.compiler import account
from contextc.compiler.assembly import Fetched, blob_names
from contextc.compiler.compaction import Compaction, Summarizer, compact
from contextc.compiler.compilation import AnyTool, Ask, Tools, compiled_from, tool_name
from contextc.compiler.compiled import Compiled, HeadParts
from contextc.compiler.fetching import LONGEST, fetch_result
from contextc.draft import Options
from contextc.errors import ContextcError, InvalidInput, InvalidSetting, NothingNew, StaleCompile
from contextc.ledger import book, overlays
from contextc.ledger.items import Item
from contextc.ledger.look import Sight, look, may_have_overlays, messages_at
from contextc.ledger.overlays import Summary
from contextc.ledger.render import FETCH, has_media, has_reasoning, rendered, replaying
from contextc.ledger.standing import Channel, Sealed, Session, Standing, Stretch, with_rows
from contextc.ledger.warm import Shown, warm
from contextc.manifest import Manifest, record_to_json
from contextc.messages import Message, ToolCall, Usage, admit, content_hash
from contextc.prompts import Prompt, PromptBuilder, PromptFragment, Surroundings, hash_tools
from contextc.providers import Provider
from contextc.providers import provider as provider_named
from contextc.store import Lease, Reference, Store, chain
from contextc.store.base import DEFAULT_AGENT, Transaction
from contextc.store.leases import check as check_lease
from contextc.store.places import SEQ_BITS, SEQ_MASK, find, find_head, head, lineage, place, stretches
from contextc.store.places import Head as Tip
from contextc.todos import Todo
from contextc.tokens import Calibration, Counter, counter, keep, known, load_calibration, save_calibration
from contextc.tools import Tool

Fragments: TypeAlias = Iterable[PromptFragment] | PromptBuilder | Prompt

log = logging.getLogger("contextc.compiler")
TRANSPORT = ("extra_headers", "extra_query", "extra_body", "timeout", "api_key", "http_options")
SECRET = re.compile(r"(?i)(?<![a-z0-9])(?:sk-|bearer\s+|aiza|key[-_])[\w.*-]{6,}")  # errors quote what they refused
EVERY_SAMPLE = 20  # after so many, a calibration is written only where it has moved
KEPT = 64


class MessageCompiler:
    """Compiles conversations of one store for one provider. Cheap to make: what it keeps warm belongs to the store."""

    def __init__(self, store: Store, provider: Provider | str, **options: object) -> None:
        self.store = store
        self.provider = provider_named(provider) if isinstance(provider, str) else provider
        try:
            self.options = Options(**options)  # pyright: ignore[reportArgumentType] - checked by the struct
        except TypeError as error:
            raise InvalidSetting(
                f"MessageCompiler: {error}. Options are {', '.join(Options.__struct_fields__)}."
            ) from None
        model = self.provider.model
        self.counter: Counter = counter(model.tokenizer, provider=self.provider.formatter.provider, model=model.name)
        self._heads: dict[object, HeadParts] = {}
        self._heads_stored: set[tuple[int, bytes]] = set()
        self._tools: dict[object, Tools] = {}
        self._systems: dict[str, int] = {}
        self._leads: dict[tuple[int, ...], Prompt] = {}
        self._prompts: dict[tuple[object, ...], tuple[object, Prompt]] = {}
        self._calibration: Calibration | None = None
        self._warm = warm(store)

    # ── compiling ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def compile(
        self,
        conversation: str,
        *,
        agent: str = DEFAULT_AGENT,
        fragments: Fragments = (),
        system_prompt: str | None = None,
        tools: Sequence[AnyTool] = (),
        settings: JSONObject | None = None,
        budget: int | None = None,
        output: int | None = None,
        run: str | None = None,
        running: Iterable[str] | None = None,
        directory: str | None = None,
        surroundings: Surroundings | None = None,
        again: bool = False,
        dry_run: bool = False,
        edit: tuple[Reference, Message] | None = None,
        rewind: Reference | None = None,
    ) -> Compiled:
        """What one model should see now. Nothing is stored, and nothing is sent.

        `budget` caps the whole input; by default it is the model's window, less a reserve for the answer. `dry_run`
        only asks what it would cost, also after an `edit` or a `rewind` that has not happened.
        """
        if (edit is not None or rewind is not None) and not dry_run:
            raise InvalidInput("edit and rewind are for dry_run=True: store.edit and store.rewind do it for real.")
        if foreign := [name for name in settings or () if name in TRANSPORT]:
            raise InvalidInput(
                f"{foreign[0]} belongs to the call and not to a request, which is stored: give it to the vendor's SDK."
            )
        provider = self.provider
        channel = self.channel(conversation, agent=agent, directory=directory)
        prompt = self._prompt(channel, fragments, system_prompt, tools, surroundings, directory)
        seen = self._look(channel, edit, rewind)
        if seen.sight.lead:
            prompt = self._with_lead(prompt, seen.sight.lead)
        ask = Ask(
            provider=provider,
            counter=self.counter,
            options=self.options,
            channel=channel,
            prompt=prompt,
            tools=self._told(tools, seen.sight.standing.tools),
            system_tokens=self._system_tokens(prompt),
            settings=settings or {},
            budget=budget,
            output=output,
            run=run,
            running=None if running is None else frozenset(running),
            sight=seen.sight,
            summary=seen.summary,
            counts=seen.counts,
            factor=self.factor,
            fetch=self.fetch_messages,
            heads=self._heads,
            again=again,
            dry_run=dry_run,
            left_before=lambda sight: account.left_before(
                self.store, channel, sight.at.branch, sight.at.seq, sight.standing.requests + 1
            ),
            elsewhere=self._elsewhere(channel, seen.sight) if dry_run else None,
        )
        compiled = compiled_from(ask)
        compiled.fresh_counts = seen.fresh
        return compiled

    def _told(self, tools: Sequence[AnyTool], order: Sequence[str]) -> Tools:
        """The tools as the model is told about them: in the order they were shown before, with the one that fetches."""
        key = (tuple([id(tool) for tool in tools]), tuple(order))
        found = self._tools.get(key)
        if found is None or any(mine is not given for mine, given in zip(found.given, tools, strict=True)):
            told = list(tools)
            names = [tool.name if isinstance(tool, Tool) else "" for tool in tools]
            if tools and self.options.fetch and FETCH.name not in names:
                told.append(FETCH)
            place_of = {name: index for index, name in enumerate(order)}
            if order and all(tool_name(tool) in place_of for tool in told):
                told.sort(key=lambda tool: place_of[tool_name(tool)])
            if len(self._tools) >= KEPT:
                self._tools.clear()
            encoded = self.provider.formatter.encode_tools(told)
            tokens = self.counter.tools(encoded) if told else 0
            marks = sum(["cache_control" in tool for tool in encoded])
            found = Tools(tuple(told), hash_tools(told) if told else "", tokens, tuple(tools), marks)
            self._tools[key] = found
        return found

    def _system_tokens(self, prompt: Prompt) -> int:
        head = self.options.placement == "head" and bool(prompt.dynamic)
        name = prompt.static_hash + (prompt.dynamic_text if head else "")
        if (found := self._systems.get(name)) is None:
            if len(self._systems) >= KEPT:
                self._systems.clear()
            text = prompt.static_text + (prompt.dynamic_text if head else "")
            found = self._systems[name] = self.counter.system(text) + self.counter.overhead
        return found

    def _prompt(
        self,
        channel: Channel,
        fragments: Fragments,
        system_prompt: str | None,
        tools: Sequence[AnyTool],
        surroundings: Surroundings | None,
        directory: str | None,
    ) -> Prompt:
        if isinstance(fragments, Prompt):
            return fragments
        key: tuple[object, ...] = ()
        if isinstance(fragments, list | tuple):
            key = (system_prompt, *map(id, fragments))
            if (found := self._prompts.get(key)) is not None:
                return found[1]
        builder = fragments if isinstance(fragments, PromptBuilder) else PromptBuilder(fragments)
        if system_prompt:
            builder = PromptBuilder([PromptFragment("system_prompt", system_prompt, priority=0), *builder.fragments])
        if all(isinstance(fragment.text, str) for fragment in builder.fragments):
            rendered = builder.render()
            if key:
                if len(self._prompts) >= KEPT:
                    self._prompts.clear()
                self._prompts[key] = (tuple(builder.fragments), rendered)  # the fragments are held, so their ids stay
            return rendered
        given = surroundings or Surroundings()
        around = replace(
            given,
            conversation=given.conversation or channel.conversation,
            agent=channel.agent,
            provider=channel.provider,
            model=channel.model,
            directory=given.directory or directory,
            tools=given.tools or tuple(tools),
            todos=given.todos or self._todos(channel),
        )
        return builder.render(around)

    def _with_lead(self, prompt: Prompt, lead: Mapping[int, Message]) -> Prompt:
        """The prompt, behind the system messages that the conversation itself begins with."""
        key = tuple(lead)
        if (found := self._leads.get(key)) is None:
            if len(self._leads) >= KEPT:
                self._leads.clear()
            text = "\n\n".join([message.text for message in lead.values()])
            found = self._leads[key] = PromptBuilder([PromptFragment("conversation", text)]).render()
        return replace(prompt, static=found.static + prompt.static)

    def _todos(self, channel: Channel) -> tuple[Todo, ...]:
        with suppress(InvalidInput):
            return tuple(self.store.todos(channel.conversation, channel.agent))
        return ()

    def _look(self, channel: Channel, edit: tuple[Reference, Message] | None, rewind: Reference | None) -> "_Seen":
        room, read, counter = self.provider.model.window, 0, self.counter

        def enough(block: Sequence[Message]) -> bool:
            nonlocal read
            read += sum([counter.message(message) for message in block])
            return read > room

        def work(tx: Transaction) -> _Seen:
            upto = None
            if edit is not None or rewind is not None:
                at = head(tx, channel.conversation)
                where = find(tx, channel.conversation, at, edit[0] if edit is not None else cast(Reference, rewind))
                upto = where.seq - 1 if edit is not None else where.seq
            sight = look(tx, self._warm, channel, room=room, enough=enough, upto=upto)
            if self._calibration is None:
                self._calibration = load_calibration(tx, self.provider.asks_for)
            counts, fresh = self._counts(tx, sight)
            summary = None
            if may_have_overlays(sight.at):
                summary = overlays.latest(tx, channel.agent, sight.at, counter.system)
            return _Seen(sight, summary, counts, fresh)

        seen = self.store.read(work)
        if edit is not None:
            at = seen.sight.at
            written = replace(admit(replace(edit[1], uid="", time=0)).message, seq=at.seq + 1)
            log = (*seen.sight.log, (place(at.branch, written.seq), written))
            seen = seen._replace(sight=replace(seen.sight, log=log))
        return seen

    def _elsewhere(self, channel: Channel, sight: Sight) -> Standing | None:
        """Where the same agent's conversation went last, if it never went here."""
        if sight.standing.requests or sight.standing.layout:
            return None
        channels = self.store.read(lambda tx: book.channels(tx, channel.conversation))
        others = [standing for _, other, standing, _ in channels if other.agent == channel.agent and standing.requests]
        return max(others, key=lambda standing: standing.seen, default=None)

    def _counts(self, tx: Transaction, sight: Sight) -> tuple[dict[int, int], dict[bytes, int]]:
        """Tokens of new messages by their place, and of those by their hash that were never counted before.

        Only where counting is work: an estimate costs less than looking it up.
        """
        if not self.counter.exact or not sight.log:
            return {}, {}
        names = {where: content_hash(message) for where, message in sight.log}
        found = known(tx, self.counter.tokenizer, list(names.values()))
        fresh: dict[bytes, int] = {}
        for where, message in sight.log:
            if (name := names[where]) not in found:
                found[name] = fresh[name] = self.counter.message(message)
        return {where: found[name] for where, name in names.items()}, fresh

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, compiled: Compiled, *, lease: Lease | None = None) -> None:
        """Store the attempt, before a byte leaves."""
        self._check(compiled)
        if not compiled.is_new:
            raise NothingNew(compiled.channel.conversation, compiled.channel)
        attempt = book.OpenAttempt(
            request=compiled.record.request,
            session=compiled.session_id or "",
            head=compiled.record.head,
            chain=compiled.record.chain,
        )

        if lease is None and book.begin_alone(self.store, compiled.sight.channel, compiled.sight.version, attempt):
            return

        def work(tx: Transaction) -> None:
            if lease is not None:
                check_lease(tx, lease, compiled.channel.conversation)
            number, _ = self._row(tx, compiled)
            book.begin(tx, number or book.create(tx, compiled.channel, Standing()), attempt)

        self.store.write(work, repeatable=True)
        log.info("%s: request %d for %s begins", *_named(compiled))

    def commit(
        self,
        compiled: Compiled,
        reply: object = None,
        *,
        session_id: str | None = None,
        cursor: str = "",
        produced: Sequence[Message] = (),
        usage: Usage | None = None,
        lease: Lease | None = None,
    ) -> list[Message]:
        """Store what the model answered, with everything that was shown to it, in one transaction.

        `reply` is what the vendor's SDK returned, its JSON, or a message; `produced` is more than one message.
        `session_id` and `cursor` are a stateful provider's own names for its session and where it stands.
        """
        self._check(compiled)
        messages = [*produced, *([] if reply is None else [self._decoded(compiled, reply)])]
        draft = compiled.draft
        messages = [
            replace(message, author=message.author or draft.agent, run=message.run or draft.run)
            if message.role in ("assistant", "tool")
            else message
            for message in messages
        ]
        usage = usage or next((message.usage for message in reversed(messages) if message.usage), None)
        entries = [chain.entry(admit(message)) for message in messages]
        calibration = self._learned(compiled, usage)

        def work(tx: Transaction) -> tuple[list[Message], Shown, Tip]:
            if lease is not None:
                check_lease(tx, lease, compiled.channel.conversation)
            at = find_head(tx, compiled.channel.conversation, True)
            if at is None:
                raise StaleCompile(compiled.channel.conversation, compiled.channel, "the conversation was deleted")
            if tx.again and (done := self._done_before(tx, compiled, at, entries)) is not None:
                return done
            number, version = self._row(tx, compiled)
            self._check_line(tx, compiled, at)
            stored = chain.place_messages(tx, compiled.channel.conversation, at, entries)
            if not number:
                number, version = book.create(tx, compiled.channel, Standing()), 1
            shown = self._written(tx, compiled, number, version, at, stored, usage, session_id, cursor)
            keep(tx, self.counter.tokenizer, compiled.fresh_counts)
            if calibration is not None:
                save_calibration(tx, self.provider.asks_for, calibration)
            end = (
                Tip(at.conversation, at.tree, at.branch, at.revision, stored[-1].seq, bytes.fromhex(stored[-1].id))
                if stored
                else at
            )
            return stored, shown, end

        stored, shown, end = self.store.write(work, repeatable=True)
        if calibration is not None:
            self._calibration = calibration
        if len(self._heads_stored) >= KEPT:
            self._heads_stored.clear()
        self._heads_stored.add((shown.number, compiled.head.hash))
        self._warm.put(compiled.channel, shown)
        self.store.ends_at(compiled.channel.conversation, end)
        log.info(
            "%s: request %d for %s is stored, %s in epoch %d", *_named(compiled), compiled.mode, compiled.record.epoch
        )
        for message in stored:
            log.debug("%s: message %d says: %s", compiled.channel.conversation, message.seq, message.text)
        return stored

    def abort(self, compiled: Compiled, error: BaseException | str = "aborted") -> None:
        """Close the attempt. The ledger does not move; what a session may have kept of it is dealt with by the next."""
        self._check(compiled)
        said = SECRET.sub("***", error if isinstance(error, str) else f"{type(error).__name__}: {error}")

        def work(tx: Transaction) -> None:
            found = book.find(tx, compiled.channel)
            if found is not None:
                book.fail(tx, found[0], compiled.record.request, said[:2000])

        self.store.write(work, repeatable=True)
        log.info("%s: request %d for %s came to nothing", *_named(compiled))

    @contextmanager
    def attempt(self, compiled: Compiled, *, lease: Lease | None = None) -> Generator["Attempt"]:
        """Begin; then commit inside the block, or have it aborted when the block ends without."""
        self.begin(compiled, lease=lease)
        attempt = Attempt(self, compiled, lease)
        try:
            yield attempt
        except BaseException as error:
            if not attempt.committed:
                with suppress(ContextcError):  # why the block failed is worth more
                    self.abort(compiled, error)
            raise
        if not attempt.committed:
            self.abort(compiled, "the attempt ended without a reply")

    def compact(self, conversation: str, summarize: Summarizer, **asked: Any) -> Compaction | None:
        """Have what is old in a conversation summed up, as one agent sees it; the next request then begins with that.

        `summarize` gets the messages and the summary before them, and returns a text; it may call a model. `asked` is
        what `compile` is called with, because that decides what is old. None where there is nothing to sum up.
        """
        compiled = self.compile(conversation, dry_run=True, **asked)
        return compact(self.store, compiled, summarize, lambda places: self.fetch_messages(places, ()).messages)

    # ── past requests, left-out results ───────────────────────────────────────────────────────────────────────────────

    def channel(self, conversation: str, *, agent: str = DEFAULT_AGENT, directory: str | None = None) -> Channel:
        """The channel that `compile` with these arguments speaks on."""
        where = (directory or "") if self.provider.directory_bound else ""
        return Channel(conversation, agent, self.provider.name, self.provider.asks_for, where)

    def explain(
        self,
        conversation: str,
        request: int | None = None,
        *,
        agent: str = DEFAULT_AGENT,
        directory: str | None = None,
    ) -> Manifest:
        """The account of a request that was committed; by default of the last."""
        return account.explain(self.store, self.channel(conversation, agent=agent, directory=directory), request)

    def rebuild(
        self,
        conversation: str,
        request: int | None = None,
        *,
        agent: str = DEFAULT_AGENT,
        directory: str | None = None,
    ) -> bytes:
        """The bytes of a request that was committed, as they went out; by default of the last."""
        channel = self.channel(conversation, agent=agent, directory=directory)
        return account.rebuild(self.store, channel, self.provider.formatter, request)

    def fetch(self, conversation: str, call: ToolCall) -> str:
        """What `fetch_result` returns to the model for its call."""
        given = call.arguments
        return fetch_result(
            self.store, conversation, given.get("id"), given.get("offset", 0), given.get("length", LONGEST)
        )

    # ── what commit is made of ────────────────────────────────────────────────────────────────────────────────────────

    def _check(self, compiled: Compiled) -> None:
        if not isinstance(compiled, Compiled):
            raise InvalidInput(f"A {type(compiled).__name__} is not what compile returned.")
        if compiled.dry_run:
            raise InvalidInput("This was compiled with dry_run=True, and is not to be sent. Compile again without it.")

    def _decoded(self, compiled: Compiled, reply: object) -> Message:
        if isinstance(reply, Message):
            return reply
        formatter = self.provider.formatter
        return formatter.spelling.named(formatter.decode_reply(reply), compiled.tools)

    def _row(self, tx: Transaction, compiled: Compiled) -> tuple[int, int]:
        """The channel's number and version, if it still stands where this was compiled from; 0 where it has none."""
        found = book.find(tx, compiled.channel)
        number, version = (found[0], found[1]) if found else (0, 0)
        fresh = compiled.sight.version == 0 and version == 1
        if version != compiled.sight.version and not fresh:
            raise StaleCompile(compiled.channel.conversation, compiled.channel, "another request was committed")
        return number, version

    def _check_line(self, tx: Transaction, compiled: Compiled, at: Tip) -> None:
        """What was shown must still be on the conversation's line."""
        was = compiled.sight.at
        if (at.branch, at.revision) == (was.branch, was.revision):
            return
        if self._is_redacted(tx, compiled):
            raise StaleCompile(compiled.channel.conversation, compiled.channel, "a message in it was redacted")
        for branch, first, last in stretches(lineage(tx, at.branch), 0, at.seq):
            if branch == was.branch and (first <= was.seq <= last or was.seq == 0):
                return
            if was.seq < first:
                break
        ends = {branch: last for branch, _, last in stretches(lineage(tx, at.branch), 0, at.seq)}
        mine = list(stretches(lineage(tx, was.branch), 0, was.seq))
        if mine and ends.get(mine[-1][0], -1) >= mine[-1][2]:
            return
        raise StaleCompile(compiled.channel.conversation, compiled.channel, "the conversation was edited or rewound")

    def _is_redacted(self, tx: Transaction, compiled: Compiled) -> bool:
        """Whether the rows about to be written hold words that are gone from the record."""
        wanted = [item.place for row in compiled.assembled.new for item in row.row.items if item.place]
        return any(message.redacted for message in messages_at(tx, wanted).values())

    def _written(
        self,
        tx: Transaction,
        compiled: Compiled,
        number: int,
        version: int,
        at: Tip,
        stored: Sequence[Message],
        usage: Usage | None,
        session_id: str | None,
        cursor: str,
    ) -> Shown:
        """Write the rows, the channel and the manifest; what the channel was shown, as it is now."""
        assembled, record = compiled.assembled, compiled.record
        first = compiled.standing.rows + 1
        book.write_rows(tx, number, first, [(row.row, row.chunk) for row in assembled.new])
        last = first + len(assembled.new) - 1
        fresh = [Sealed(place(number, first + index), row.row, row.chunk) for index, row in enumerate(assembled.new)]
        if assembled.order is None:
            sealed, layout = fresh, with_rows(compiled.standing.layout, number, first, last)
        else:
            sealed = [fresh[each] if isinstance(each, int) else each for each in assembled.order]
            layout = _layout(sealed)
        items = self._produced(compiled, stored, at.branch, usage)
        final = next((message for message in reversed(stored) if message.role == "assistant"), None)
        standing = replace(
            compiled.standing,
            requests=record.request,
            rows=last,
            layout=layout,
            branch=compiled.sight.at.branch,  # as it was compiled: what happened since is looked at by the next
            revision=compiled.sight.at.revision,
            produced=items,
            answered=compiled.standing.answered if final is None else not final.tool_calls,
            session=Session(session_id, cursor) if session_id else None,
            lost="",
            input=usage.input if usage else 0,
            again=final is not None and final.finish == "pause_turn",
        )
        if not book.advance(tx, number, version, standing):
            raise StaleCompile(compiled.channel.conversation, compiled.channel, "another request was committed")
        if record.layout is not None or record.request == 1 or (number, compiled.head.hash) not in self._heads_stored:
            book.keep_head(tx, number, compiled.head.hash, encode(compiled.head.body))
        kept = replace(
            record,
            rows=last,
            layout=None if record.layout is None else layout,
            time=stored[-1].time if stored else chain.now_ms(),
            usage=usage,
            gave=session_id or "",
            produced=tuple([place(at.branch, message.seq) for message in stored]),
        )
        book.keep_manifest(tx, number, record.request, record_to_json(kept))
        if assembled.order is None and compiled.sight.shown.number == number:
            shown = compiled.sight.shown.next(version + 1, standing, sealed)
        else:
            before = () if assembled.order is not None else compiled.sight.shown.sealed
            shown = Shown.of(number, version + 1, standing, sealed, before)
        shown.lead = compiled.sight.lead
        return shown

    def _produced(
        self, compiled: Compiled, stored: Sequence[Message], branch: int, usage: Usage | None
    ) -> tuple[Item, ...]:
        provider = compiled.formatter.provider
        replies = sum([message.role == "assistant" for message in stored])
        items: list[Item] = []
        for message in stored:
            item = Item(
                place=place(branch, message.seq),
                role=message.role,
                signed=has_reasoning(message, provider),
                media=has_media(message),
            )
            item = replaying(item, message, self.options.replay)
            tokens = 0
            if usage is not None and usage.output and replies == 1 and message.role == "assistant":
                tokens = usage.output - (0 if item.signed or item.inline else usage.reasoning)
            items.append(replace(item, tokens=max(tokens, 0) or self.counter.message(rendered(item, message))))
        return tuple(items)

    def _done_before(
        self, tx: Transaction, compiled: Compiled, at: Tip, entries: Sequence[chain.Entry]
    ) -> tuple[list[Message], Shown, Tip] | None:
        """What an earlier try of the same commit left, whose answer was lost on the way."""
        found = book.find(tx, compiled.channel)
        standing = book.stood(tx, compiled.channel)
        if found is None or standing is None or standing.requests != compiled.record.request:
            return None
        if standing.chain != compiled.standing.chain:
            return None
        stored = chain.stored_before(tx, at, entries)
        shown = Shown.of(found[0], found[1], standing, book.load_rows(tx, standing.layout))
        return stored, shown, at

    def _learned(self, compiled: Compiled, usage: Usage | None) -> Calibration | None:
        """The calibration after this request; None where it has not moved enough to be written."""
        if usage is None or not usage.input or self._calibration is None:
            return None
        learned = self._calibration.learned(compiled.estimated, usage.input)
        if learned.samples > EVERY_SAMPLE and abs(learned.factor - self._calibration.factor) < 0.005:
            return None
        return learned

    @property
    def factor(self) -> float:
        return self._calibration.factor if self._calibration is not None else 1.0

    def fetch_messages(self, places: Sequence[int], also: Sequence[Message]) -> Fetched:
        """Messages by their places, and the bytes of their media and of those given."""

        def work(tx: Transaction) -> Fetched:
            messages = messages_at(tx, places)
            names = blob_names([*messages.values(), *also])
            blobs: dict[str, bytes] = {}
            for name in names:
                row = tx.row("SELECT data FROM blob WHERE name = ?", name)
                if row is not None:
                    blobs[name] = bytes(row[0])
            return Fetched(messages, blobs)

        return self.store.read(work)


class _Seen(NamedTuple):
    """What the store says, and the tokens of what is new."""

    sight: Sight
    summary: Summary | None
    counts: dict[int, int]
    fresh: dict[bytes, int]


class Attempt:
    """A request that has begun. Commit it, or leave the block and it is aborted."""

    def __init__(self, compiler: MessageCompiler, compiled: Compiled, lease: Lease | None) -> None:
        self.compiler, self.compiled, self.lease = compiler, compiled, lease
        self.committed = False

    def commit(
        self,
        reply: object = None,
        *,
        session_id: str | None = None,
        cursor: str = "",
        produced: Sequence[Message] = (),
        usage: Usage | None = None,
    ) -> list[Message]:
        stored = self.compiler.commit(
            self.compiled,
            reply,
            session_id=session_id,
            cursor=cursor,
            produced=produced,
            usage=usage,
            lease=self.lease,
        )
        self.committed = True
        return stored


def _named(compiled: Compiled) -> tuple[str, int, Channel]:
    return compiled.channel.conversation, compiled.record.request, compiled.channel


def _layout(sealed: Iterable[Sealed]) -> tuple[Stretch, ...]:
    layout: tuple[Stretch, ...] = ()
    for each in sealed:
        channel, number = each.place >> SEQ_BITS, each.place & SEQ_MASK
        layout = with_rows(layout, channel, number, number)
    return layout
