"""Check of tool calls and results along a chain, message by message: what `pairing` corrects in every request.

The rules are those of `pairing`. Matching is by id. An id may be used again once it was answered. Two agents with equal
ids each get their own results. A redacted or unreadable message may have been a call or a result, so problems that it
may explain are not reported.

A state can be forked where a branch starts, at a cost that does not grow with the history.
"""

from typing import NamedTuple

from contextc._json import encode_canonical
from contextc.doctor.findings import ChainProblem
from contextc.messages import Message, Reasoning, Text, ToolCall, ToolResult, UserNotice
from contextc.store.redaction import get_repair_note


class OpenCall(NamedTuple):
    """A call without a result so far. `id` is a new one if its own was taken."""

    seq: int
    message: Message
    call: ToolCall
    id: str


class _AnsweredCalls:
    """The answered calls, each with a hash of its first result. A fork sees those of its parent up to its start."""

    def __init__(self, below: "_AnsweredCalls | None" = None, upto: int = 0) -> None:
        self._own: dict[str, tuple[int, int]] = {}
        self._below, self._upto = below, upto

    def add(self, name: str, seq: int, content: int) -> None:
        self._own.setdefault(name, (seq, content))

    def get(self, name: str, until: int | None = None) -> int | None:
        at: _AnsweredCalls | None = self
        while at is not None:
            found = at._own.get(name)
            if found is not None and (until is None or found[0] <= until):
                return found[1]
            at, until = at._below, at._upto if until is None else min(until, at._upto)
        return None


class PairState:
    def __init__(self) -> None:
        self._waiting: dict[str, list[OpenCall]] = {}
        self._answered = _AnsweredCalls()
        self._spoke: dict[str | None, int] = {}  # seq of the last message of each agent
        self._last_other_seq = 0  # seq of the last message of another role
        self._behind: set[str] = set()  # calls without a result when the context was cleared
        self._texted = 0  # seq of the last result that becomes a text
        self._unsure = False

    def fork(self, until: int) -> "PairState":
        made = PairState()
        made._waiting = {name: list(calls) for name, calls in self._waiting.items() if calls}
        made._answered = _AnsweredCalls(self._answered, until)
        made._behind = set(self._behind)
        made._spoke, made._unsure = dict(self._spoke), self._unsure
        made._last_other_seq, made._texted = self._last_other_seq, self._texted
        return made

    @property
    def open_calls(self) -> list[OpenCall]:
        """The calls without a result, in their order."""
        return sorted([asked for calls in self._waiting.values() for asked in calls], key=lambda each: each.seq)

    def clear_context(self) -> None:
        """Note that the context was cleared. Later results for earlier calls are never sent, and are not a problem."""
        self._behind |= {name for name, calls in self._waiting.items() if calls}
        self._waiting.clear()

    def add_unreadable(self) -> None:
        """Note an unreadable message, which may have held any call or result."""
        self._unsure = True
        self._waiting.clear()

    def add_message(self, seq: int, message: Message) -> list[ChainProblem]:
        """Process the next message of the chain, and return its problems."""
        if message.redacted:
            self._see_redacted(message)
            return []
        if is_blank(message):
            return [ChainProblem("blank-message", seq, f"The message of role {message.role} is empty.")]
        found = [
            trouble
            for index, part in enumerate(message.parts)
            if type(part) is ToolResult
            for trouble in self._result(seq, message, index, part)
        ]
        if any(becomes_text(trouble) for trouble in found):
            self._texted = seq
        if message.status == "sent":  # others are not sent, and separate nothing
            if message.role == "assistant":
                self._spoke[message.author] = seq
            elif message.role != "tool":
                self._last_other_seq = seq
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

    def _call(self, seq: int, message: Message, index: int, call: ToolCall) -> list[ChainProblem]:
        taken = any(asked.message.author == message.author for asked in self._waiting.get(call.id, ()))
        name = self._free(call.id) if taken else call.id
        self._waiting.setdefault(call.id, []).append(OpenCall(seq, message, call, name))
        if not taken:
            return []
        text = f"Call {call.id!r} of {call.name!r} has the id of a call that has no result yet."
        return [ChainProblem("reused-id", seq, text, index, name=name)]

    def _free(self, name: str) -> str:
        number = 2
        new = {asked.id for calls in self._waiting.values() for asked in calls}
        while (free := f"{name}_{number}") in new or self._answered.get(free) is not None:
            number += 1
        return free

    def _result(self, seq: int, message: Message, index: int, result: ToolResult) -> list[ChainProblem]:
        calls, content = self._waiting.get(result.call_id), hash(encode_canonical(result.content))
        description = f"of {result.name!r} for call {result.call_id!r}"
        if not calls:
            if result.call_id in self._behind:
                self._behind.discard(result.call_id)
                return []
            first = self._answered.get(result.call_id)
            if first is not None:
                same = ", and is equal to it" if first == content else ""
                text = f"This result {description} is not the first one{same}."
                return [ChainProblem("second-result", seq, text, index, name="" if first == content else "other")]
            if self._unsure:
                return []
            return [ChainProblem("stray-result", seq, f"The result {description} has no call before it.", index)]
        own = [at for at, asked in enumerate(calls) if asked.message.author == message.author]
        asked = calls.pop(own[0] if own else 0)
        self._answered.add(result.call_id, seq, content)
        found: list[ChainProblem] = []
        if asked.id != asked.call.id:
            self._answered.add(asked.id, seq, content)
            found.append(ChainProblem(RENAMED_RESULT, seq, "", index, name=asked.id))
        if _is_repair_result(message):
            return found
        if max(self._last_other_seq, self._spoke.get(asked.message.author, 0)) > asked.seq:
            text = f"The result {description} is separated by other messages from its call in message {asked.seq}."
            found.append(ChainProblem("parted-result", seq, text, index, call_seq=asked.seq))
        elif self._texted > asked.seq:
            found.append(ChainProblem(MOVED_RESULT, seq, "", index, call_seq=asked.seq))
        return found


RENAMED_RESULT = "renamed-result"
"""A result whose call gets another id. It is not a finding of its own."""
MOVED_RESULT = "moved-result"
"""A result that would be separated from its call by a result that becomes a text. It is not a finding of its own."""


def becomes_text(trouble: ChainProblem) -> bool:
    return trouble.code == "stray-result" or (trouble.code == "second-result" and trouble.name == "other")


def _is_repair_result(message: Message) -> bool:
    """Return True if a repair appended this result."""
    return "open-call" in get_repair_note(message).get("because", ())


def is_blank(message: Message) -> bool:
    """Return True if nothing in a message can be sent, and no finish reason or failure explains it."""
    if message.status != "sent" or message.finish is not None:
        return False
    for part in message.parts:
        if type(part) is Text:
            if part.text and not part.text.isspace():
                return False
        elif type(part) is Reasoning:
            if part.text or part.data:
                return False
        elif type(part) is not UserNotice:
            return False
    return True
