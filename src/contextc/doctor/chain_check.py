"""Check of one chain, from the root to the tip of a branch: all problems that a repair fixes, and where it starts.

The chain is read in one transaction. So a dry run reports exactly what a repair does, unless there is a write in
between.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from contextc._json import encode_canonical, hash_blob
from contextc.doctor.branch_check import BranchRow, branch_lineage
from contextc.doctor.findings import DAMAGE_CODES, ChainProblem
from contextc.errors import StoreCorrupt
from contextc.messages import (
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    UserNotice,
    canonical_content,
    decode_message,
    make_chain_id,
)
from contextc.store.message_log import (
    DECODE_ERRORS,
    SEQ_BITS,
    SEQ_MASK,
    MessageLocation,
    make_place,
    split_by_branch,
    to_id,
)
from contextc.store.redaction import get_repair_note
from contextc.store.transaction_engine import Transaction

# ── rows against their ids ────────────────────────────────────────────────────────────────────────────────────────────
# Verification of the rows of a chain against their ids. An unreadable row is reported, never raised.
#
# After a wrong row, the next one is checked against the most plausible id of it, so that one fault is one finding.


CHUNK = 1000
RawRow: TypeAlias = tuple[int, bytes, bytes]  # place, id, body
Reader: TypeAlias = Callable[[Callable[[Transaction], list[RawRow]]], list[RawRow]]


class ChainRow(NamedTuple):
    """A message of a chain, or the place of a missing one, with its problem."""

    seq: int
    place: int
    id: bytes
    message: Message | None
    problem: ChainProblem | None


class BlobCheck:
    """Check of media bytes: they exist and match their name. Each blob is read once."""

    def __init__(self, fetch: Callable[[str], object]) -> None:
        self._fetch, self._known = fetch, dict[str, str]()

    def find_problems(self, message: Message) -> Iterator[tuple[int, str, str]]:
        """Return the parts of a message with missing or changed bytes: index, blob, code."""
        for index, part in enumerate(message.parts):
            for media in media_of(part):
                if media.blob and (code := self._code(media.blob)):
                    yield index, media.blob, code

    def _code(self, name: str) -> str:
        if name not in self._known:
            data = self._fetch(name)
            is_whole = isinstance(data, bytes) and hash_blob(data) == name
            self._known[name] = "missing-blob" if data is None else "" if is_whole else "changed-blob"
        return self._known[name]


def fetch_blob(tx: Transaction, name: str) -> object:
    """Return the stored value of a blob, of any type; None if it does not exist."""
    row = tx.row("SELECT data FROM main.blob WHERE name = ?", name)
    return None if row is None else row[0]


def media_of(part: object) -> tuple[Media, ...]:
    if isinstance(part, Media):
        return (part,)
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        return tuple([each for each in part.content if isinstance(each, Media)])
    return ()


def read_rows(read: Reader, line: Sequence[tuple[int, int]], after: int, until: int) -> Iterator[RawRow]:
    """Return the rows of a lineage after a seq, up to another, read in chunks."""
    for number, first, last in split_by_branch(line, after, until):
        for low in range(first, last + 1, CHUNK):
            start, stop = make_place(number, low), make_place(number, min(low + CHUNK - 1, last))
            yield from read(lambda tx, start=start, stop=stop: _load_raw_rows(tx, start, stop))


def _load_raw_rows(tx: Transaction, start: int, stop: int) -> list[RawRow]:
    return [
        (where, to_id(identity), body)
        for where, identity, body in tx.rows(
            "SELECT place, id, body FROM main.message WHERE place BETWEEN ? AND ? ORDER BY place", start, stop
        )
    ]


def verify_rows(rows: Iterable[RawRow], before: bytes, after: int, until: int) -> Iterator[ChainRow]:
    """Verify the rows of a chain after message `after`, whose id is `before`, against their ids.

    Consecutive missing messages are one `ChainRow`, also at the end, before `until`.
    """
    expected, known = after + 1, True
    for where, identity, body in rows:
        seq = where & SEQ_MASK
        if seq != expected:
            yield _missing_row(where >> SEQ_BITS, expected, seq - 1)
            known = False
        message, trouble = _decode_row(seq, body)
        if message is not None:
            made = make_chain_id(before, canonical_content(message)) if known and not message.redacted else identity
            if (message.seq, message.id) != (seq, identity.hex()) or made != identity:
                trouble = ChainProblem("broken-link", seq, "Its content or its position does not match its id.")
                identity = made if message.id == made.hex() else identity
        yield ChainRow(seq, where, identity, message, trouble)
        before, expected, known = identity, seq + 1, True
    if expected <= until:
        yield _missing_row(0, expected, until)


def _missing_row(branch: int, first: int, last: int) -> ChainRow:
    what = f"Message {first} is missing." if first == last else f"Messages {first} to {last} are missing."
    return ChainRow(first, make_place(branch, first), b"", None, ChainProblem("gap", first, what))


def _decode_row(seq: int, body: bytes) -> tuple[Message | None, ChainProblem | None]:
    try:
        return decode_message(body), None
    except DECODE_ERRORS as error:
        return None, ChainProblem("unreadable", seq, f"It cannot be read: {str(error).rstrip('.')}.")


# ── tool calls and results ────────────────────────────────────────────────────────────────────────────────────────────
# Check of tool calls and results along a chain, message by message: what the pairing corrects in every request.
#
# The rules are those of the pairing. Matching is by id. An id may be used again once it was answered. Two agents with
# equal ids each get their own results. A redacted or unreadable message may have been a call or a result, so problems
# that it may explain are not reported.
#
# A state can be forked where a branch starts, at a cost that does not grow with the history.


class UnansweredCall(NamedTuple):
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
        self._waiting: dict[str, list[UnansweredCall]] = {}
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
    def open_calls(self) -> list[UnansweredCall]:
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
            if message.role == "assistant":
                self._unsure = True
            elif message.role == "tool":
                for name, calls in self._waiting.items():
                    self._waiting[name] = [asked for asked in calls if asked.message.author != message.author]
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

    def _call(self, seq: int, message: Message, index: int, call: ToolCall) -> list[ChainProblem]:
        taken = any(asked.message.author == message.author for asked in self._waiting.get(call.id, ()))
        name = self._free(call.id) if taken else call.id
        self._waiting.setdefault(call.id, []).append(UnansweredCall(seq, message, call, name))
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
        if "open-call" in get_repair_note(message).get("because", ()):  # a repair appended this result
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


class ChainCheck(NamedTuple):
    """The problems of a chain. A repair starts a branch after `base`, the last message that can stay in place."""

    branch: int
    end: int
    problems: list[ChainProblem]
    open_calls: list[UnansweredCall]
    base: MessageLocation | None

    @property
    def is_damaged(self) -> bool:
        return any(trouble.code in DAMAGE_CODES for trouble in self.problems)

    @property
    def messages_after_base(self) -> int:
        """The number of messages after the base."""
        return self.end - self.base.seq if self.base is not None else 0


def check_chain(tx: Transaction, branches: dict[int, BranchRow], number: int) -> ChainCheck:
    """Check the chain that ends on a branch. Unreadable messages count as lost, as in a repair."""
    end = last_seq(tx, branches[number])
    edges = context_starts(tx, number)
    edge = edges[-1] if edges else 0
    pairs, blobs = PairState(), BlobCheck(lambda name: fetch_blob(tx, name))
    through = [each for each, _, _ in split_by_branch(branch_lineage(branches, number), 0, end)]
    found = [lost for each in dict.fromkeys([*through, number]) if (lost := base_problem(branches[each])) is not None]
    for row in chain_rows(tx, branches, number, 0, end):
        while edges and edges[0] < row.seq:
            pairs.clear_context()
            edges.pop(0)
        found += find_problems(row, pairs, blobs)
    found = [each for each in found if is_relevant(each, edge)]
    first = min([each.first_change for each in found], default=None)
    base = None if first is None else _locate_message(tx, branches, number, first - 1)
    return ChainCheck(number, end, found, [each for each in pairs.open_calls if each.seq > edge], base)


def last_seq(tx: Transaction, branch: BranchRow) -> int:
    """Return the seq of the last message of a branch; if it has none of its own, the seq it starts after."""
    low, high = make_place(branch.number, 0), make_place(branch.number, SEQ_MASK)
    row = tx.row("SELECT max(place) FROM main.message WHERE place BETWEEN ? AND ?", low, high)
    return row[0] & SEQ_MASK if row is not None and row[0] is not None else branch.base


def context_starts(tx: Transaction, branch: int, after: int = 0) -> list[int]:
    """Return the seqs of a branch after which the context was cleared."""
    low, high = make_place(branch, after), make_place(branch, SEQ_MASK)
    rows = tx.rows("SELECT place FROM main.edge WHERE place BETWEEN ? AND ? ORDER BY place", low, high)
    return [where & SEQ_MASK for (where,) in rows]


def chain_rows(
    tx: Transaction, branches: dict[int, BranchRow], number: int, after: int, until: int
) -> Iterator[ChainRow]:
    """Return the messages of a chain after a seq, verified against their ids."""
    line = branch_lineage(branches, number)
    before = _locate_message(tx, branches, number, after).id
    return verify_rows(read_rows(lambda work: work(tx), line, after, until), before, after, until)


def find_problems(row: ChainRow, pairs: PairState, blobs: BlobCheck) -> list[ChainProblem]:
    """Return the problems of one message, alone and in relation to those before it."""
    found = [row.problem] if row.problem is not None else []
    if row.message is None:
        return found
    for index, name, code in blobs.find_problems(row.message):
        what = "is missing" if code == "missing-blob" else "has bytes that do not match its name"
        found.append(ChainProblem(code, row.seq, f"Blob {name} {what}.", index, name=name))
    return found + pairs.add_message(row.seq, row.message)


def is_relevant(problem: ChainProblem, edge: int) -> bool:
    """Return True if it is damage, or part of the context of requests: after the last reset."""
    return problem.code in DAMAGE_CODES or problem.seq > edge


def base_problem(branch: BranchRow) -> ChainProblem | None:
    """Return the problem of a branch whose parent or base is invalid."""
    return ChainProblem("lost-base", branch.base + 1, branch.problem) if branch.problem else None


def _locate_message(tx: Transaction, branches: dict[int, BranchRow], number: int, seq: int) -> MessageLocation:
    for branch, _, _ in split_by_branch(branch_lineage(branches, number), seq - 1, seq):
        row = tx.row("SELECT id FROM main.message WHERE place = ?", make_place(branch, seq))
        if row is not None:
            return MessageLocation(branch, seq, to_id(row[0]))
    root = branches.get(branches[number].tree)
    if root is None:
        raise StoreCorrupt(f"Branch {branches[number].tree}, the root of its tree, is missing", fix="Restore a backup.")
    return MessageLocation(root.number, 0, root.base_id)
