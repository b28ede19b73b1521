"""Reads the log with one agent's eyes: what it sees, as whose words, with calls and results grouped.

Comes first, so that nothing later counts what is hidden. Only what is new in the log is looked at; what was shown keeps
its form, also where a second person has joined since.

    The log                                As agent `coder` sees it
    user ann      "Build it."              user       Build it.
    coder         calls read_file          assistant  calls read_file
    user bob      "Hurry."                 tool       the result
    coder         result of read_file      user       [@bob] Hurry.
    tester        "All green."             user       [@tester] All green.
    tester        calls deploy             (hidden: another agent's tools)
"""

from collections.abc import Iterable

from msgspec.structs import replace

from contextc.draft import Draft, Entry, Left
from contextc.ledger.items import Item
from contextc.ledger.render import has_media, has_reasoning, rendered, shown_parts
from contextc.messages import Media, Message, Text, ToolResult

NAMELESS = ""


def choose_view(draft: Draft) -> Draft:
    view = _View(draft)
    produced = {item.place: item for item in draft.standing.produced}
    for _, message in draft.log:
        view.note_run(message)
    for where, message in draft.log:
        if where in produced:
            view.add(produced[where], message)
    for where in draft.standing.waiting:
        if (message := draft.late.get(where)) is not None:
            view.see(where, message)
    for where, message in draft.log:
        if where not in produced:
            view.see(where, message)
    return view.result(len(produced))


class _View:
    def __init__(self, draft: Draft) -> None:
        self.draft, self.agent = draft, draft.agent
        standing = draft.standing
        self.humans = list(standing.humans)
        self.going = list(standing.going)
        self.answered, self.turn = standing.answered, standing.turn
        self.entries: list[Entry] = []
        self.left: list[Left] = []
        self.waiting: list[int] = []
        self.provider, self.media = draft.provider.formatter.provider, draft.provider.model.media
        self.oversized = int(draft.budget.available * draft.options.oversized)

    def result(self, produced: int) -> Draft:
        draft = self.draft
        entries = _grouped(self._with_late_results(self.entries))
        standing = replace(
            draft.standing,
            humans=tuple(self.humans),
            going=tuple(self.going),
            waiting=tuple(self.waiting),
            answered=self.answered,
            turn=self.turn,
            produced=(),
        )
        return replace(
            draft, standing=standing, tail=tuple(entries), new=len(entries) - produced, left=tuple(self.left)
        )

    def note_run(self, message: Message) -> None:
        """Follow which runs of this agent have begun and ended."""
        run = message.run
        if run is None or not self._is_own(message):
            return
        if message.role == "assistant" and not message.tool_calls and message.finish != "pause_turn":
            if run in self.going:
                self.going.remove(run)
        elif run not in self.going:
            self.going.append(run)

    def see(self, where: int, message: Message) -> None:
        """Add a message as it is seen, or say why it is not."""
        why = self._hidden(where, message)
        if why:
            self.left.append(Left(where, why))
            return
        own = self._is_own(message)
        if message.as_role is not None:
            role = message.as_role
        elif message.role == "system":
            role = "system"
        elif own:
            role = message.role if self.agent not in message.recipients or message.role == "tool" else "user"
        else:
            role = "user"
        if message.role == "user":
            self._meet(message.author or NAMELESS)
        item = Item(
            place=where,
            role=role,
            opens=message.role == "user" and role == "user" and self.answered,
            prefix="" if own or message.role == "system" else self._prefix(message),
            failed=message.status != "sent",
            media=(media := has_media(message)),
            blind=media and not self._takes_media(message),
            signed=role == "assistant" and has_reasoning(message, self.provider),
        )
        self.add(item, message)

    def add(self, item: Item, message: Message) -> None:
        shown = rendered(item, message, fetchable=self.draft.fetchable)
        tokens = item.tokens or (self.draft.counts.get(item.place) if shown is message else None)
        if tokens is None:
            tokens = self.draft.counter.message(shown)
        if tokens > self.oversized and shown.role == "tool":
            limit = _limit(shown, self.oversized, self.draft)
            if limit:
                item = replace(item, limit=limit)
                shown = rendered(item, message, fetchable=self.draft.fetchable)
                tokens = self.draft.counter.message(shown)
        if item.tokens != tokens:
            item = replace(item, tokens=tokens)
        self.entries.append(Entry(item, shown))
        if item.opens:
            self.answered, self.turn = False, self.turn + 1
        elif item.role == "assistant":
            self.answered = not message.tool_calls

    def _is_own(self, message: Message) -> bool:
        if message.author is not None:
            return message.author == self.agent
        return message.role in ("assistant", "tool")

    def _hidden(self, where: int, message: Message) -> str:
        """Why a message is not shown; empty where it is."""
        if message.redacted:
            return "redacted"
        if message.status == "pending":
            return "still being written"
        if message.status != "sent" and self.draft.options.failed == "exclude":
            return f"it ended as {message.status}"
        if message.audience is not None and message.audience not in self.draft.audiences:
            return f"meant for {message.audience}"
        own = self._is_own(message)
        if own and message.run is not None and message.run != self.draft.run and self._is_going(message.run):
            self.waiting.append(where)
            return f"run {message.run} is still going"
        if not own and message.role == "tool":
            return "another agent's tools"
        if not own and message.role == "assistant":
            if not any(type(part) is Media or (type(part) is Text and part.text.strip()) for part in message.parts):
                return "another agent's tools"
        elif not shown_parts(message):
            return "nothing in it is for a model"
        return ""

    def _is_going(self, run: str) -> bool:
        if self.draft.running is not None:
            return run in self.draft.running
        return self.draft.run is not None and run in self.going

    def _meet(self, name: str) -> None:
        if name not in self.humans:
            self.humans.append(name)

    def _prefix(self, message: Message) -> str:
        sender = message.author or ("user" if message.role == "user" else "assistant")
        if message.recipients and self.agent not in message.recipients:
            return f"[@{sender} -> {', '.join(f'@{name}' for name in message.recipients)}] "
        if message.role != "user" or len(self.humans) > 1:
            return f"[@{sender}] "
        return ""

    def _takes_media(self, message: Message) -> bool:
        kinds = [part.kind for part in message.parts if type(part) is Media]
        kinds += [
            each.kind
            for part in message.parts
            if type(part) is ToolResult and type(part.content) is not str
            for each in part.content
            if type(each) is Media
        ]
        return all(kind in self.media for kind in kinds)

    def _with_late_results(self, entries: list[Entry]) -> list[Entry]:
        """Results whose calls were shown with one of ours are told as a new message; the past is not edited."""
        called = {call.id for entry in entries for call in entry.message.tool_calls}
        if all(result.call_id in called for entry in entries for result in entry.message.tool_results):
            return entries
        missing = {name: tool for each in self.draft.sealed for name, tool in each.row.open.items()}
        found: list[Entry] = []
        for item, message in entries:
            late = [each for each in message.tool_results if each.call_id not in called and each.call_id in missing]
            rest = tuple(part for part in message.parts if part not in late)
            if rest:
                found.append(Entry(item, replace(message, parts=rest) if late else message))
            for result in late:
                text = f"[The result of {result.name}, call {result.call_id}, which was still missing:]\n{result.text}"
                told = Message(role="user", parts=(Text(text),))
                found.append(
                    Entry(Item(place=item.place, kind="late", text=text, tokens=self.draft.counter.message(told)), told)
                )
        return found


def _limit(shown: Message, tokens: int, draft: Draft) -> int:
    """The length in characters above which a result takes more than so many tokens; 0 where none does."""
    lengths = [
        (len(result.text), counted)
        for result in shown.tool_results
        if (counted := draft.counter.text(result.text)) > tokens
    ]
    return max(80, min(length * tokens // counted for length, counted in lengths) * 9 // 10) if lengths else 0


def _grouped(entries: list[Entry]) -> list[Entry]:
    """The entries with every result behind the call it answers; what stood between comes after the group."""
    if _in_order(entries):
        return entries
    answers: dict[int, list[Entry]] = {}
    waiting: dict[str, list[int]] = {}
    moved: set[int] = set()
    for index, (_, message) in enumerate(entries):
        for call in message.tool_calls:
            waiting.setdefault(call.id, []).append(index)
        for result in message.tool_results:
            if calls := waiting.get(result.call_id):
                caller = calls.pop(0)
                if index not in moved:
                    moved.add(index)
                    answers.setdefault(caller, []).append(entries[index])
    found: list[Entry] = []
    for index, entry in enumerate(entries):
        if index not in moved:
            found += [entry, *answers.get(index, ())]
    return found


def _in_order(entries: Iterable[Entry]) -> bool:
    calls: set[str] = set()
    for _, message in entries:
        if message.role == "tool":
            for result in message.tool_results:
                if result.call_id not in calls:
                    return False
        else:
            calls = {call.id for call in message.tool_calls}
    return True
