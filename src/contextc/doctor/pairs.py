"""Calls and their results along a line, message by message: what `pairing` would put right in every request.

The rules are those of `pairing`: matching is by id, an id may be used again once it was answered, and of two agents
with the same ids each is given its own results. What was redacted or cannot be read may have been a call or a result,
so nothing is said of what it may explain.

A state can be forked where a branch begins, at a cost that does not grow with the history.
"""

from typing import NamedTuple

from contextc._json import canonical
from contextc.doctor.findings import Trouble
from contextc.messages import Hint, Message, Reasoning, Text, ToolCall, ToolResult
from contextc.store.redaction import healed_note


class Asked(NamedTuple):
    """A call that waits for its result. `id` is a new one where its own was taken."""

    seq: int
    message: Message
    call: ToolCall
    id: str


class _Answered:
    """The calls that were answered, with what was said first; a fork sees its parent's up to where it begins."""

    def __init__(self, below: "_Answered | None" = None, upto: int = 0) -> None:
        self._own: dict[str, tuple[int, int]] = {}
        self._below, self._upto = below, upto

    def add(self, name: str, seq: int, content: int) -> None:
        self._own.setdefault(name, (seq, content))

    def get(self, name: str, upto: int | None = None) -> int | None:
        at: _Answered | None = self
        while at is not None:
            found = at._own.get(name)
            if found is not None and (upto is None or found[0] <= upto):
                return found[1]
            at, upto = at._below, at._upto if upto is None else min(upto, at._upto)
        return None


class Pairs:
    def __init__(self) -> None:
        self._waiting: dict[str, list[Asked]] = {}
        self._answered = _Answered()
        self._spoke: dict[str | None, int] = {}  # when an agent last spoke
        self._told = 0  # when anybody else last did
        self._behind: set[str] = set()  # calls that waited when the context was cleared
        self._texted = 0  # where a result last stood that becomes a text
        self._unsure = False

    def fork(self, upto: int) -> "Pairs":
        made = Pairs()
        made._waiting = {name: list(calls) for name, calls in self._waiting.items() if calls}
        made._answered = _Answered(self._answered, upto)
        made._behind = set(self._behind)
        made._spoke, made._unsure = dict(self._spoke), self._unsure
        made._told, made._texted = self._told, self._texted
        return made

    @property
    def open(self) -> list[Asked]:
        """The calls that have no result, in their order."""
        return sorted([asked for calls in self._waiting.values() for asked in calls], key=lambda each: each.seq)

    def clear(self) -> None:
        """The context was cleared here: what still comes for calls before is sent to nobody, and is no trouble."""
        self._behind |= {name for name, calls in self._waiting.items() if calls}
        self._waiting.clear()

    def lose(self) -> None:
        """A message that nobody can read any more: it may have held any call or result."""
        self._unsure = True
        self._waiting.clear()

    def see(self, seq: int, message: Message) -> list[Trouble]:
        """The next message of the line; what is to be said of it."""
        if message.redacted:
            self._see_redacted(message)
            return []
        if is_blank(message):
            return [Trouble("blank-message", seq, f"Nothing is in this message of the {message.role}.")]
        found = [
            trouble
            for index, part in enumerate(message.parts)
            if type(part) is ToolResult
            for trouble in self._result(seq, message, index, part)
        ]
        if any(becomes_text(trouble) for trouble in found):
            self._texted = seq
        if message.status == "sent":  # others are not shown, and part nothing
            if message.role == "assistant":
                self._spoke[message.author] = seq
            elif message.role != "tool":
                self._told = seq
        for index, part in enumerate(message.parts):
            if type(part) is ToolCall:
                found += self._call(seq, message, index, part)
        return found

    def _see_redacted(self, message: Message) -> None:
        if message.role == "assistant":
            self._unsure = True
        elif message.role == "tool":
            for name, calls in self._waiting.items():
                self._waiting[name] = [asked for asked in calls if asked.message.author != message.author]

    def _call(self, seq: int, message: Message, index: int, call: ToolCall) -> list[Trouble]:
        taken = any(asked.message.author == message.author for asked in self._waiting.get(call.id, ()))
        name = self._free(call.id) if taken else call.id
        self._waiting.setdefault(call.id, []).append(Asked(seq, message, call, name))
        if not taken:
            return []
        text = f"Call {call.id!r} of {call.name!r} has the id of a call that still waits for its result."
        return [Trouble("reused-id", seq, text, index, name=name)]

    def _free(self, name: str) -> str:
        number = 2
        new = {asked.id for calls in self._waiting.values() for asked in calls}
        while (free := f"{name}_{number}") in new or self._answered.get(free) is not None:
            number += 1
        return free

    def _result(self, seq: int, message: Message, index: int, result: ToolResult) -> list[Trouble]:
        calls, content = self._waiting.get(result.call_id), hash(canonical(result.content))
        whose = f"of {result.name!r} for call {result.call_id!r}"
        if not calls:
            if result.call_id in self._behind:
                self._behind.discard(result.call_id)
                return []
            first = self._answered.get(result.call_id)
            if first is not None:
                same = ", and says the same" if first == content else ""
                text = f"This result {whose} is not the first one{same}."
                return [Trouble("second-result", seq, text, index, name="" if first == content else "other")]
            if self._unsure:
                return []
            return [Trouble("stray-result", seq, f"The result {whose} has no call before it.", index)]
        own = [at for at, asked in enumerate(calls) if asked.message.author == message.author]
        asked = calls.pop(own[0] if own else 0)
        self._answered.add(result.call_id, seq, content)
        found: list[Trouble] = []
        if asked.id != asked.call.id:
            self._answered.add(asked.id, seq, content)
            found.append(Trouble(RENAMED, seq, "", index, name=asked.id))
        if _is_ours(message):
            return found
        if max(self._told, self._spoke.get(asked.message.author, 0)) > asked.seq:
            text = f"The result {whose} is parted from it, in message {asked.seq}, by other messages."
            found.append(Trouble("parted-result", seq, text, index, call_seq=asked.seq))
        elif self._texted > asked.seq:
            found.append(Trouble(MOVED, seq, "", index, call_seq=asked.seq))
        return found


RENAMED = "renamed-result"
"""A result whose call is given another id. It is no finding of its own."""
MOVED = "moved-result"
"""A result that a text would part from its call, which is a result now. It is no finding of its own."""


def becomes_text(trouble: Trouble) -> bool:
    return trouble.code == "stray-result" or (trouble.code == "second-result" and trouble.name == "other")


def _is_ours(message: Message) -> bool:
    """Whether healing has appended this result, as late as it was."""
    return "open-call" in healed_note(message).get("because", ())


def is_blank(message: Message) -> bool:
    """Whether nothing in a message could be sent, and nothing explains why, as a finish reason or a failure does."""
    if message.status != "sent" or message.finish is not None:
        return False
    for part in message.parts:
        if type(part) is Text:
            if part.text and not part.text.isspace():
                return False
        elif type(part) is Reasoning:
            if part.text or part.data:
                return False
        elif type(part) is not Hint:
            return False
    return True
