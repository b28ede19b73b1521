"""Select and render the new messages as one agent sees them, and group tool calls with their results.

Runs first, so that later passes do not count hidden messages. Only new messages are processed. What was sent keeps its
form, even if a second person has joined since.

    The log                                As agent `coder` sees it
    user ann      "Build it."              user       Build it.
    coder         calls read_file          assistant  calls read_file
    user bob      "Hurry."                 tool       the result
    coder         result of read_file      user       [@bob] Hurry.
    tester        "All green."             user       [@tester] All green.
    tester        calls deploy             (hidden: another agent's tools)
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import cast

from msgspec.structs import replace

from contextc._json import as_object
from contextc.compiler.draft import (
    Draft,
    DraftEntry,
    LeftOutMessage,
    apply_reasoning_policy,
    has_signed_reasoning,
    list_media,
    needs_no_escaping,
    read_compaction,
    render_item,
    select_results,
    write_text_files,
)
from contextc.formats.message_preparation import bytes_of, describe_media, describe_text_file
from contextc.messages import (
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Viewer,
    escape_markers,
    read_text_file,
)
from contextc.models.model_info import find_entry
from contextc.models.tokens import TokenCounter
from contextc.store.ledger_schema import ChannelState, Item, LeftOutReason
from contextc.store.message_log import SEQ_MASK

UNNAMED_AUTHOR = ""
PLACEHOLDER_TOKENS = 40  # estimated tokens of a placeholder result


def select_agent_view(draft: Draft) -> Draft:
    found = None
    if not draft.revealed:
        counts = partial(_known_tokens, draft.token_counts, draft.counter)
        found = view_results(draft.standing, draft.log, draft.agent, draft.run, counts, draft.oversized)
    if found is None:
        return _view_of_log(draft)
    return replace(draft, tail=tuple(found), new=len(found) - 1)


def _known_tokens(known: Mapping[int, int], counter: TokenCounter, where: int, message: Message) -> int:
    return known.get(where) or counter.count_message(message)


def view_results(
    standing: ChannelState,
    log: Sequence[tuple[int, Message]],
    agent: str,
    run: str | None,
    count: Callable[[int, Message], int],
    oversized: int,
) -> list[DraftEntry] | None:
    """Return the entries of the usual step of an agent: its reply, and plain text results of all its calls. None if the
    log has anything else.
    """
    if standing.answered or len(standing.produced) != 1 or len(log) < 2:
        return None
    reply, said = standing.produced[0], log[0][1]
    calls = {part.id for part in said.parts if type(part) is ToolCall}
    if reply.place != log[0][0] or not reply.tokens or not calls or render_item(reply, said) is not said:
        return None
    if len(calls) != len(said.tool_calls) or not _is_plain(said, agent, run, standing):
        return None
    entries = [DraftEntry(reply, said)]
    for where, message in log[1:]:
        if message.role != "tool" or not _is_plain(message, agent, run, standing):
            return None
        for part in message.parts:
            if type(part) is not ToolResult or type(part.content) is not str or part.call_id not in calls:
                return None
            calls.remove(part.call_id)
        tokens = count(where, message)
        if tokens > oversized:
            return None
        entries.append(DraftEntry(Item(where, "tool", tokens, results=len(message.parts)), message))
    return None if calls else entries


def _is_plain(message: Message, agent: str, run: str | None, standing: ChannelState) -> bool:
    """Return True if a message is the agent's own, of this run or of none, and can be sent as it is."""
    return (
        (message.author is None or message.author == agent)
        and (message.run is None or (message.run == run and message.run in standing.going))
        and message.status == "sent"
        and message.audience is None
        and message.as_role is None
        and not message.redacted
    )


def _view_of_log(draft: Draft) -> Draft:
    view = _View(draft)
    produced = {item.place: item for item in draft.standing.produced}
    needed = _unread(draft)
    for _, message in draft.log[needed:]:
        if message.run is not None:
            view.note_run(message)
    for where, message in draft.log:
        if where in produced:
            view.add(produced[where], message)
    for where in draft.standing.waiting:
        if (message := draft.revealed.get(where)) is not None:
            view.see(where, message)
        else:
            view.waiting.append(where)
    for where, message in draft.log[:needed]:  # isolated: the messages between them were not read
        view.answered = draft.standing.answered
        if where not in produced:
            view.see(where, message)
    if needed:
        view.answered = draft.standing.answered and not draft.turn_opening
    for where, message in draft.log[needed:]:
        if where not in produced:
            view.see(where, message)
    return view.result(produced.keys())


def select_visible(draft: Draft, messages: Mapping[int, Message]) -> dict[int, Message]:
    """Return the messages that the agent sees."""
    find_hidden = _View(draft).viewer.find_hidden
    return {where: message for where, message in messages.items() if find_hidden(message) is None}


def view_inserted_messages(
    draft: Draft, inserted: Iterable[tuple[int, Message]]
) -> tuple[dict[int, DraftEntry], tuple[str, ...]]:
    """Return visible messages that a model got within its reply as it sees them, by place, and the people it knows."""
    view, view.answered = _View(draft), False
    for where, message in inserted:
        view.see(where, message)
    return {entry.item.place: entry for entry in view.entries}, tuple(view.humans)


def _unread(draft: Draft) -> int:
    """Return the number of messages at the start of the log that are from the unread part."""
    if not draft.unread_until:
        return 0
    return sum([where & SEQ_MASK <= draft.unread_until for where, _ in draft.log])


class _View:
    def __init__(self, draft: Draft) -> None:
        self.draft, self.agent = draft, draft.agent
        standing = draft.standing
        self.humans = list(standing.humans)
        self.going = list(standing.going)
        self.pending = dict(standing.pending)
        self.answered, self.turn = standing.answered, standing.turn
        self.entries: list[DraftEntry] = []
        self.left: list[LeftOutMessage] = []
        self.remarks: list[str] = []
        self.waiting: list[int] = []
        self.formatter, self.media = draft.provider.formatter, draft.provider.model.media
        self.provider = self.formatter.provider
        self.oversized = draft.oversized
        shows_failed = draft.options.failed != "exclude"
        self.viewer = Viewer(self.agent, draft.run, draft.audiences, shows_failed, self._is_going)

    def result(self, produced: Collection[int]) -> Draft:
        draft = self.draft
        held = draft.standing.held if draft.resume else 0
        entries = _with_placeholders(self._grouped(self.entries))
        standing = replace(
            draft.standing,
            humans=tuple(self.humans),
            going=tuple(self.going),
            pending=self.pending,
            waiting=tuple(self.waiting),
            answered=self.answered,
            turn=self.turn,
        )
        return replace(
            draft,
            standing=standing,
            tail=tuple(entries),
            new=sum(
                [
                    item.role != "assistant" and item.place not in produced and item.place & SEQ_MASK > held
                    for item, _ in entries
                ]
            ),
            left=tuple(self.left),
            remarks=(*draft.remarks, *self.remarks),
        )

    def note_run(self, message: Message) -> None:
        """Track which runs of this agent have begun and ended."""
        run = message.run
        if run is None or not self.viewer.is_own(message):
            return
        if message.role == "assistant" and not message.tool_calls and message.finish != "pause":
            if run in self.going:
                self.going.remove(run)
        elif run not in self.going:
            self.going.append(run)

    def see(self, where: int, message: Message) -> None:
        """Add a message as the agent sees it, or record why it is hidden."""
        if self._is_as_said(message) and self._added(where, message):
            return
        if (hidden := self.viewer.find_hidden(message)) is not None:
            if hidden.waits:
                self.waiting.append(where)
            if where not in self.draft.revealed:  # the reason was recorded when it arrived
                self.left.append(LeftOutMessage(where, hidden.why))
            return
        if self._is_foreign_compaction(message):
            self.left.append(LeftOutMessage(where, LeftOutReason.FOREIGN_COMPACTION))
            return
        own = self.viewer.is_own(message)
        if message.as_role is not None:
            role = message.as_role
        elif message.role == "system":
            role = "system"
        elif own:
            is_note = message.role == "assistant" and self.agent in message.recipients and not message.tool_calls
            role = "user" if is_note else message.role
        else:
            role = "user"
        if message.role == "user":
            self._meet(message.author or UNNAMED_AUTHOR)
        signed = role == "assistant" and has_signed_reasoning(message, self.provider)
        foreign = signed and self.draft.provider.model.binds_reasoning and self._is_foreign(message)
        media = list_media(message)
        others = [each for each in media if self._read_file(each) is None]
        item = Item(
            place=where,
            role=role,
            opens=role == "user" and self.answered and (message.role == "user" or message.is_addressed_to(self.agent)),
            prefix="" if own or message.role == "system" else self._prefix(message),
            failed=message.status != "sent",
            media=bool(others),
            blind=not all(map(self._takes, others)),
            texts=len(others) < len(media),
            signed=signed and not foreign,
            bare=foreign,
            compacts=read_compaction(message, self.formatter) if role == "assistant" else "",
        )
        self.add(apply_reasoning_policy(item, message, self.draft.options.reasoning_policy), message)

    def _is_foreign_compaction(self, message: Message) -> bool:
        """Return True if a reply has nothing but a compaction by another provider, whose messages are all sent."""
        return bool(message.parts) and all(
            [
                isinstance(part, ProviderBlock)
                and part.provider != self.provider
                and as_object(part.data).get("type") == "compaction"
                for part in message.parts
            ]
        )

    def _is_as_said(self, message: Message) -> bool:
        """Return True if a message can be sent as it is: the agent's own text, calls and results, or those of the only
        person.

        Valid for `_added` only. All other messages are handled by `see`.
        """
        role = message.role
        if (
            role == "system"
            or (message.author is not None and (message.author != self.agent or role == "user"))
            or (message.run is not None and message.run != self.draft.run and self._is_going(message.run))
            or not message.parts
            or message.recipients
            or message.extra is not None
            or message.audience is not None
            or message.as_role is not None
            or message.status != "sent"
            or message.redacted
        ):
            return False
        for part in message.parts:
            kind = type(part)
            if kind is Text:
                if not cast(Text, part).text:
                    return False
            elif kind is ToolResult:
                if type(cast(ToolResult, part).content) is not str:
                    return False
            elif kind is not ToolCall:
                return False
        if role == "user":
            self._meet(UNNAMED_AUTHOR)
            return len(self.humans) == 1 and needs_no_escaping(message)
        return True

    def _added(self, where: int, message: Message) -> bool:
        """Add a message as it is. Returns False if it is too long."""
        role = message.role
        tokens = self.draft.token_counts.get(where)
        if tokens is None:
            tokens = self.draft.counter.count_message(message)
        if role == "user":
            self.entries.append(DraftEntry(Item(where, role, tokens, "message", self.answered), message))
            self.turn += self.answered
            self.answered = False
        elif role == "assistant":
            self.entries.append(DraftEntry(Item(where, role, tokens), message))
            self.answered = ToolCall not in map(type, message.parts)
        elif tokens > self.oversized:
            return False
        else:
            results = sum([type(part) is ToolResult for part in message.parts])
            self.entries.append(DraftEntry(Item(where, role, tokens, results=results), message))
        return True

    def add(self, item: Item, message: Message) -> None:
        shown = render_item(item, message, fetchable=self.draft.fetchable)
        tokens = item.tokens or (self.draft.token_counts.get(item.place) if shown is message else None)
        if tokens is None or (item.texts and not item.tokens):
            tokens = self.draft.counter.count_message(self._as_sent(item, shown))
        if tokens > self.oversized and (shown.role == "tool" or item.texts or message.trigger):
            texts = [result.text for result in shown.tool_results] or [message.text] * bool(message.trigger)
            texts += [text for media in list_media(message) if (text := self._read_file(media)) is not None]
            limit = find_character_limit(texts, self.oversized, self.draft.counter)
            if limit:
                item = replace(item, limit=limit)
                shown = render_item(item, message, fetchable=self.draft.fetchable)
                tokens = self.draft.counter.count_message(self._as_sent(item, shown))
        results = len(shown.tool_results) if shown.role == "tool" else 1
        if item.tokens != tokens or item.results != results:
            item = replace(item, tokens=tokens, results=results)
        self.entries.append(DraftEntry(item, shown))
        if item.opens:
            self.answered, self.turn = False, self.turn + 1
        elif item.role == "assistant":
            self.answered = not message.tool_calls

    def _is_foreign(self, message: Message) -> bool:
        """Return True if another model signed the reasoning, for a context that this model did not see."""
        mine = self.draft.provider.model_id
        wrote = {part.model for part in message.parts if type(part) is Reasoning and part.model} - {mine}
        return any((find_entry(name) or name) != (find_entry(mine) or mine) for name in wrote)

    def _is_going(self, run: str) -> bool:
        if self.draft.running is not None:
            return run in self.draft.running
        return self.draft.run is not None and run in self.going

    def _meet(self, name: str) -> None:
        if name not in self.humans:
            self.humans.append(name)

    def _prefix(self, message: Message) -> str:
        sender = _display_name(message.author or ("user" if message.role == "user" else "assistant"))
        if message.recipients and self.agent not in message.recipients:
            return f"[{sender} -> {', '.join(_display_name(name) for name in message.recipients)}] "
        if message.role != "user" or len(self.humans) > 1:
            return f"[{sender}] "
        return ""

    def _takes(self, media: Media) -> bool:
        return media.kind in self.media and (not media.blob or self.formatter.takes_media(media.mime_type))

    def _read_file(self, media: Media) -> str | None:
        """Return the text of a text file, or None for other media."""
        return read_text_file(media, bytes_of(media, self.draft.text_files))

    def _as_sent(self, item: Item, shown: Message) -> Message:
        """Return a rendered message with its text files as text."""
        draft = self.draft
        documents = "document" in self.media
        return write_text_files(
            item, shown, self.formatter, draft.text_files, documents=documents, fetchable=draft.fetchable
        )[0]

    def _grouped(self, entries: list[DraftEntry]) -> list[DraftEntry]:
        """Return the entries with every result after its call. Messages between the two move behind the group.

        A result whose call was sent with a placeholder becomes a new message, because what was sent is never changed.
        """
        if _in_order(entries):
            return entries
        missing, home = self._missing(), self._home()
        waiting: dict[str, list[int]] = {}
        answers: dict[int, list[DraftEntry]] = {}
        stays: dict[int, list[DraftEntry]] = {}
        for index, entry in enumerate(entries):
            message = entry.message
            for call in message.tool_calls:
                waiting.setdefault(call.id, []).append(index)
            results = message.tool_results
            if not results:
                stays[index] = [entry]
                if entry.item.role == "assistant":
                    home.clear()  # results after another reply cannot be attached any more
                continue
            callers: dict[int, list[str]] = {}
            for result in results:
                if calls := waiting.get(result.call_id):
                    callers.setdefault(calls.pop(0), []).append(result.call_id)
                elif home.pop(result.call_id, None) is not None:
                    missing.pop(result.call_id, None)
                    stays.setdefault(index, []).append(self._part_of(entry, [result.call_id]))
                elif missing.pop(result.call_id, None) is not None:
                    self.pending.pop(result.call_id, None)
                    stays.setdefault(index, []).append(self._told(entry.item, result))
                else:
                    self.remarks.append(f"left out: a result for {result.call_id} that no call asked for")
            for caller, ids in callers.items():
                answers.setdefault(caller, []).append(self._part_of(entry, ids))
            if not callers and index not in stays:
                self.left.append(LeftOutMessage(entry.item.place, "no call asked for it"))
        order = range(len(entries))
        return [each for index in order for each in (*stays.get(index, ()), *answers.get(index, ()))]

    def _missing(self) -> dict[str, str]:
        """Return calls that were sent with a placeholder result and whose own result was not sent since, with their
        tools.
        """
        kept = self.draft.kept
        stands = None if kept is None else {id(item) for item in kept}
        items = [item for each in self.draft.rows for item in each.row.items] if kept is None else kept
        told = [item.text for item in items if item.kind == "late"]
        rows = [
            each.row
            for each in self.draft.rows
            if stands is None or any(id(item) in stands and item.role == "assistant" for item in each.row.items)
        ]
        missing = {
            name: tool
            for row in rows
            for name, tool in row.open.items()
            if not any(text.startswith(_late_result_title(tool, name)) for text in told)
        }
        return self.pending | missing | {name: "" for name in self.draft.unanswered_calls}

    def _home(self) -> dict[str, int]:
        """Return calls of the last kept reply whose results were removed. New results can still be attached to them."""
        last = next((item.place for item in reversed(self.draft.kept or ()) if item.role == "assistant"), 0)
        return {name: where for name, where in self.draft.unanswered_calls.items() if where == last}

    def _told(self, item: Item, result: ToolResult) -> DraftEntry:
        content = (Text(result.content),) if isinstance(result.content, str) else result.content
        said = "".join([self._late_text(each) for each in content])
        text = f"{_late_result_title(result.name, result.call_id)}\n{said}"
        told = Message(role="user", parts=(Text(text),))
        return DraftEntry(
            Item(place=item.place, kind="late", text=text, tokens=self.draft.counter.count_message(told)), told
        )

    def _late_text(self, part: Text | Media) -> str:
        if isinstance(part, Text):
            return part.text
        text = self._read_file(part)
        return describe_media(part) if text is None else describe_text_file(part, escape_markers(text))

    def _part_of(self, entry: DraftEntry, ids: list[str]) -> DraftEntry:
        """Return the entry restricted to the results for these call ids."""
        item, message = entry
        if len(ids) == len(message.tool_results):
            return entry
        message = replace(message, parts=select_results(message.parts, ids))
        return DraftEntry(
            replace(item, only=tuple(ids), results=len(ids), tokens=self.draft.counter.count_message(message)), message
        )


def _with_placeholders(entries: list[DraftEntry]) -> list[DraftEntry]:
    """Return the entries, counted with the placeholder results of their unanswered calls."""
    kinds = [type(part) for _, message in entries for part in message.parts]
    if (calls := kinds.count(ToolCall)) == 0 or calls == kinds.count(ToolResult):
        return entries
    answered = {result.call_id for _, message in entries for result in message.tool_results}
    found: list[DraftEntry] = []
    for item, message in entries:
        missing = sum([call.id not in answered for call in message.tool_calls])
        found.append(
            DraftEntry(replace(item, tokens=item.tokens + PLACEHOLDER_TOKENS * missing) if missing else item, message)
        )
    return found


def _display_name(name: str) -> str:
    """Return a name in a form that cannot close a prefix."""
    return "@" + " ".join(name.split()).replace("[", "(").replace("]", ")")


def _late_result_title(tool: str, call_id: str) -> str:
    return f"[The result of {tool}, call {call_id}, which was still missing:]"


def find_character_limit(texts: Iterable[str], tokens: int, counter: TokenCounter) -> int:
    """Return the maximum length in characters for texts above this number of tokens; 0 if there are none."""
    lengths = [(len(text), counted) for text in texts if (counted := counter.count_text(text)) > tokens]
    return max(80, min(length * tokens // counted for length, counted in lengths) * 9 // 10) if lengths else 0


def _in_order(entries: Iterable[DraftEntry]) -> bool:
    calls: set[str] = set()
    for _, message in entries:
        if message.role == "tool":
            for result in message.tool_results:
                if result.call_id not in calls:
                    return False
                calls.discard(result.call_id)
        else:
            calls = {part.id for part in message.parts if type(part) is ToolCall}
    return True
