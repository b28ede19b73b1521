"""The manifest of a request: what it contains, what was left out and why, its tokens, and its shared prefix.

Only what is new is stored with a commit. The rest is read from the ledger on demand. A manifest that is not committed
yet has the same content from memory.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject, decode, encode
from contextc.compiler.draft import Budget, CacheMark, LeftOutMessage
from contextc.messages import Usage
from contextc.models.tokens import MAX_FACTOR
from contextc.providers.registry import UNLIMITED_WINDOW
from contextc.store.ledger_schema import Channel, EpochReason, RowRange

TEXT_WIDTH = 60


class Fragment(Struct, frozen=True, kw_only=True):
    """A prompt fragment of a request."""

    id: str
    lifecycle: str
    shown: bool
    hash: str
    tokens: int = 0


def is_success(code: int) -> bool:
    """Return True if a provider answered with this HTTP status code."""
    return 200 <= code < 300


class ProxyAction(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A finding or a change of the proxy in a request, because an option asked for it.

    `rule` is the option: lint, fix, convert or fit. `codes` are the lint rules that were broken, with the number of
    violations. `changes` has a text for each finding or change; `more` is the number of further ones. `cache_tokens`
    are the tokens from the first changed element on: the provider's cache has none of them from requests without it.
    """

    rule: str
    codes: dict[str, int] = {}
    changes: tuple[str, ...] = ()
    more: int = 0
    cache_tokens: int = 0
    failed: bool = False
    """True if it could not be done. The request was then sent as it arrived."""

    def describe(self) -> tuple[str, ...]:
        """Return the action as remarks, one line each."""
        lines = [f"{self.rule}: {each}" for each in self.changes]
        if self.more:
            lines.append(f"{self.rule}: {self.more:,} more")
        if self.cache_tokens:
            lines.append(f"{self.rule}: {self.cache_tokens:,} tokens from the first change on")
        return tuple(lines)


class ObservedFacts(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The facts of a request that other software sent.

    `gaps` are the separators of its messages: none if all are commas, one if all are equal. `marks` are the cache
    breakpoints by the index of their row, each with its offset. `began` and `ended` are in milliseconds; `ended` is
    when the reply ended. `untimed`: the source states no time, and `began` is when it was stored. `first_chunk` are
    the milliseconds until the first bytes of a streamed reply. `error` is the text of an error reply, `error_type`
    its type or code, and `request_id` the provider's id of the request, if the reply names it. `inexact`: the
    stored body is not the one that was sent. It was put together from a transcript, or text was `redacted` before
    storing. `actions`: what options of the proxy found or changed. `miss_reason` is the word of the provider for
    what it found about its cache, if it was asked and did say; `miss_tokens` are the tokens that it says were not
    read.
    """

    gaps: tuple[str, ...] = ()
    marks: dict[int, tuple[tuple[int, str], ...]] = {}
    status: str = "ok"
    code: int = 0
    error: str = ""
    error_type: str = ""
    request_id: str = ""
    began: int = 0
    untimed: bool = False
    ended: int = 0
    first_chunk: int | None = None
    inexact: bool = False
    redacted: bool = False
    actions: tuple[ProxyAction, ...] = ()
    miss_reason: str = ""
    miss_tokens: int = 0

    @property
    def has_failed(self) -> bool:
        """True if the answer is missing or incomplete. False if it was not recorded, because that is then unknown."""
        return self.status not in ("ok", "unrecorded")

    @property
    def stated_began(self) -> int:
        """When the request was sent, in milliseconds; 0 if that was not recorded."""
        return 0 if self.untimed else self.began

    @property
    def is_answered(self) -> bool:
        """True if the provider accepted the request. It may have broken off its answer."""
        return self.status in ("ok", "unfinished") or is_success(self.code)

    @property
    def latency(self) -> int | None:
        """Milliseconds until the reply ended; None if they are unknown."""
        return self.ended - self.began if self.ended and self.began else None


class SharedHead(NamedTuple):
    """The parts of a changed head before its first change, in the order of the provider's cache: how many, and the
    bytes of those that are system prompt or tools, beside the bytes of all.
    """

    parts: int
    system: int
    all_system: int
    tools: int
    all_tools: int

    def count_tokens(self, budget: Budget) -> int:
        """Return their tokens: the same shares as those of their lines."""
        system = budget.system * self.system // self.all_system if self.all_system else 0
        return system + (budget.tools * self.tools // self.all_tools if self.all_tools else 0)


class RequestRecord(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The stored part of a manifest. `rows` is the last row of its ledger; `layout` is set where an epoch or a fork
    begins.
    """

    request: int
    mode: str
    epoch: int
    why: str = ""
    rows: int
    layout: tuple[RowRange, ...] | None = None
    head: str
    chain: str
    marks: tuple[CacheMark, ...] = ()
    ttl: str = ""
    """The lifetime that the prompt cache is asked for, by the breakpoints if there are any; "" is the default."""
    compared: str = ""
    """The id of the reply that the provider compares the request with, to say why its cache missed."""
    miss_reason: str = ""
    """The provider's word for what it found about its cache. `miss_tokens` were not read."""
    miss_tokens: int = 0
    added: int = 0
    """Number of rows that this request added; for a resumed session, the rows that were sent."""
    session: str = ""
    """The session that was resumed. `gave` is the session id that the provider returned."""
    gave: str = ""
    held: int = 0
    """The seq up to which the session had the log, if a caller set its cursor before this request."""
    new: int = 0
    fragments: tuple[Fragment, ...] = ()
    """The fragments of the prompt, set where an epoch or a fork begins."""
    left: tuple[LeftOutMessage, ...] = ()
    skipped: int = 0
    """Number of further messages that were not read, because they are too far back to fit."""
    remarks: tuple[str, ...] = ()
    budget: Budget
    shared: int = 0
    """Tokens of the prefix that the previous request had too."""
    shared_bytes: int = 0
    shared_counts: tuple[int, int, int] = (0, 0, 0)
    """Of a request of our own, by our own count: the tokens of that prefix before its messages, those of its messages,
    and those of all messages.
    """
    previous_input: int = 0
    """The input of the previous request, as its provider counted it; 0 if that is unknown."""
    signed_lost: int = 0
    features: tuple[str, ...] = ()
    """The features of the provider that its messages use, such as `inline_tools`."""
    betas: tuple[str, ...] = ()
    """The beta flags that are sent with it."""
    branch: int = 0
    tip: int = 0
    time: int = 0
    began: int = 0
    """When a request of our own began, in milliseconds; 0 if that is not known."""
    usage: Usage | None = None
    last_measured: tuple[int, int] = (0, 0)
    """Of an observed request without usage: the input of the last one on its channel that has some, by our own count
    and by the provider's. It calibrates the estimate.
    """
    partial: bool = False
    """True if the provider counted only a part of the input, so its figure is not the size of the request."""
    produced: tuple[int, ...] = ()
    observed: ObservedFacts | None = None
    """Set if other software sent the request."""
    is_bare: bool = False
    """True if it has neither system prompt nor tools: `budget.system` is then its frame and its settings."""
    shared_head: SharedHead | None = None
    """The unchanged parts at the start of a changed head. None if all parts are unchanged, or the first one changed."""

    @property
    def latency(self) -> int | None:
        """Milliseconds from the begin of a request of our own until its reply was stored; None if they are unknown."""
        return self.time - self.began if self.began and self.time >= self.began else None

    @property
    def shares_head(self) -> bool:
        """True if the prefix reaches the messages: the previous request had the whole head."""
        return bool(self.shared) and self.shared_head is None

    @property
    def is_transcript(self) -> bool:
        """True if the body was put together from a transcript, which lacks the tools of its program."""
        facts = self.observed
        return facts is not None and facts.inexact and not facts.redacted and not self.budget.tools

    @property
    def is_input_measured(self) -> bool:
        """True if the input that the provider reported is the size of the request."""
        usage = self.usage
        return usage is not None and usage.input > 0 and not self.partial and not usage.input_differs

    @property
    def unreported_input(self) -> int:
        """The estimated input of a request for which the provider reported no usage; 0 if it reported some, if the
        request failed, or if it only counted tokens.
        """
        facts = self.observed
        if self.usage is not None or (facts is not None and (facts.has_failed or self.is_token_count)):
            return 0
        return self.corrected_budget.input

    @property
    def is_token_count(self) -> bool:
        """True if a request of other software only counted tokens: it was answered with neither usage nor message."""
        return self.observed is not None and self.observed.status == "ok" and self.usage is None and not self.produced

    @property
    def counted_budget(self) -> Budget:
        """The budget by our own count. What the provider counted beyond it, and no factor explains, is overhead.

        Without a system prompt and tools, no line has the tokens of the frame and the settings: they are overhead, too.
        The channel of a request of our own has learned its overhead. A transcript lacks the tools, and mostly the
        system prompt, so all that is counted beyond it is overhead.
        """
        budget, (counted, real) = self.budget, self._measured
        if self.is_bare:
            frame, wanted = budget.system, budget.wanted
            budget = replace(
                budget, system=0, used=budget.used + frame, overhead=budget.overhead + frame,
                wanted=wanted + frame if wanted else 0,
            )  # fmt: skip
        if self.observed is None or real <= (counted if self.is_transcript else counted * MAX_FACTOR):
            return budget
        added = real - counted
        return replace(budget, used=budget.used + added, overhead=budget.overhead + added)

    @property
    def _measured(self) -> tuple[int, int]:
        """The input by our own count and by the provider's: of this request, or of the last one that was measured."""
        if self.usage is not None and self.is_input_measured:
            return self.budget.input, self.usage.input
        return self.last_measured

    @property
    def corrected_budget(self) -> Budget:
        """The budget, distributed according to the provider's own total. If it reported none, it is estimated by the
        last request of the channel that was measured, and not called measured.
        """
        budget, (counted, real) = self.counted_budget, self._measured
        if self.usage is not None and self.is_input_measured:
            return budget.with_total(real)
        if not counted:
            return replace(budget, measured=False, exact=self.budget.exact and not self.budget.measured)
        total = budget.overhead + round(self.budget.input * (real - budget.overhead) / counted)
        return replace(budget.with_total(total), measured=False)

    @property
    def shared_tokens(self) -> int:
        """The tokens of the shared prefix: never more than the previous request had in all."""
        shared = self.listed_shared_tokens
        return min(shared, self.previous_input) if self.previous_input else shared

    @property
    def listed_shared_tokens(self) -> int:
        """`shared`, corrected like the lines of the request: what is before its messages, and those that are shared.
        The overhead is shared too if the whole head is. These are shares of the total of this request, so the previous
        one can have had fewer in all.
        """
        counted, budget = self.budget, self.corrected_budget
        if not counted.input or not self.shared:
            return self.shared
        if self.shared_head is not None:
            return self.shared_head.count_tokens(budget)
        above, same, whole = self.shared_counts
        if self.observed is not None:
            above, same, whole = self.shared, max(0, self.shared - counted.system - counted.tools), counted.used
        elif not whole or not above:  # stored before these counts were, or a fork, whose rows are its parent's
            return self.shared * budget.input // counted.input
        return budget.input - budget.messages + (budget.messages * same // whole if whole else 0)


class ManifestLine(Struct, frozen=True, kw_only=True):
    """One message or inserted text: whether it was included, in which form, and why."""

    seq: int
    kind: str
    role: str
    shown: bool
    sent: bool = True
    """True if it was sent with this request. A resumed session has earlier content already."""
    tokens: int = 0
    why: str = ""
    text: str = ""
    """The text as the model read it; for a message that was left out, the stored text."""
    original: str = ""
    """The stored text, if the model read a different one."""


class Manifest:
    """The account of a request: as figures, as a table (`str`) and as JSON (`as_json`).

    In the table, `+` was sent, `=` was in the session already, `-` was left out.
    """

    def __init__(
        self,
        channel: Channel,
        record: RequestRecord,
        lines: Callable[[], Sequence[ManifestLine]],
        fragments: Callable[[], Sequence[Fragment]] = tuple,
    ) -> None:
        self.channel, self.record = channel, record
        self._read, self._read_fragments = lines, fragments
        self._lines: tuple[ManifestLine, ...] | None = None

    @property
    def lines(self) -> tuple[ManifestLine, ...]:
        """All items in order, then what was left out. Read from the ledger on first use."""
        if self._lines is None:
            self._lines = tuple(self._read())
        return self._lines

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The prompt fragments, and which of them the request contains."""
        return tuple(self._read_fragments())

    @property
    def mode(self) -> str:
        """The mode of the request: `full`, or `resume` if it has only what the session lacks."""
        return self.record.mode

    @property
    def epoch(self) -> int:
        """The number of the epoch that the request belongs to."""
        return self.record.epoch

    @property
    def why(self) -> str:
        """The reason why this request begins an epoch; empty if it extends the previous one."""
        return self.record.why

    @property
    def budget(self) -> Budget:
        """The budget, by the provider's own total if it reported one."""
        return self.record.corrected_budget

    def as_json(self) -> JSONObject:
        """Return the manifest as JSON, as `contextc explain --json` prints it."""
        facts: JSONObject = decode(encode(self.record))
        for name in ("shared_counts", "shared_head", "previous_input", "is_bare"):  # `shared` follows from them
            facts.pop(name, None)
        budget = self.budget
        return {
            **self.channel._asdict(),
            **facts,
            "shared": self.record.shared_tokens,
            "budget": {
                **decode(encode(budget)),
                "available": budget.available,
                "input": budget.input,
                "estimated": self.record.budget.input,
                "share": round(budget.share, 4),
            },
            "fragments": decode(encode(self.fragments)),
            "lines": decode(encode(self.lines)),
        }

    def __repr__(self) -> str:
        asked = f"request {self.record.request} of {self.channel.conversation!r}"
        return f"<Manifest of {asked}: {self.budget.input:,} tokens, {self.mode}; print it for all lines>"

    def __str__(self) -> str:
        record, budget = self.record, self.budget
        how = "exact" if budget.exact else "estimated"
        how = "measured" if budget.measured else how
        begins = f" (a new epoch: {describe_epoch(record.why)})" if record.why else ""
        top = [
            f"{self.channel.conversation}: request {record.request} for {self.channel}",
            f"mode {record.mode}, epoch {record.epoch}{begins}"
            + (f", session {record.session}" if record.session else ""),
            *([describe_observed(record.observed)] if record.observed is not None else []),
            *([f"beta flags: {', '.join(record.betas)}"] if record.betas else []),
            f"input {budget.input:,} tokens ({how}): system {budget.system:,}, tools {budget.tools:,}, messages "
            f"{budget.messages:,}{describe_room(budget)}; reserve {budget.reserve:,}",
            *([f"overhead {budget.overhead:,} tokens: {describe_overhead(record)}"] if budget.overhead else []),
            f"shared with the request before: {record.shared_tokens:,} tokens, {record.shared_bytes:,} bytes",
        ]
        rows = [("", "seq", "role", "tokens", "what", "why")]
        rows += [
            ("+" if each.shown else "=", "", "system", f"{each.tokens:,}", f"{each.lifecycle} fragment {each.id}", "")
            for each in self.fragments
            if each.lifecycle == "static"
        ]
        rows += [
            (
                "+" if line.sent else "=" if line.shown else "-",
                str(line.seq or ""),
                line.role,
                f"{line.tokens:,}" if line.tokens else "",
                line.kind if line.kind != "message" else shorten(line.text),
                line.why,
            )
            for line in self.lines
        ]
        return "\n".join([*top, *(f"! {remark}" for remark in record.remarks), "", *_table(rows)])


def describe_room(budget: Budget) -> str:
    """Return the limit of the messages, and how much of it is used; empty if there is no limit."""
    if (budget.limit or budget.window) >= UNLIMITED_WINDOW:
        return ""
    return f" of {budget.available:,} available ({budget.share:.0%})"


def describe_overhead(record: RequestRecord) -> str:
    if record.is_transcript:
        return "added by the program, not in the transcript"
    return "counted by the provider beyond what is sent"


def describe_epoch(why: str) -> str:
    """Return the reason of an epoch as it is shown: the recorded one, in the words of the glossary."""
    return "context was trimmed" if why == EpochReason.OVER_BUDGET else why


def describe_observed(facts: ObservedFacts) -> str:
    """Return status, error, duration and exactness of an observed request."""
    code = f" {facts.code}" if facts.code else ""
    error = f" ({shorten(facts.error)})" if facts.error else ""
    took = f", {facts.latency:,} ms" if facts.latency is not None else ""
    inexact = "; inexact: text was redacted before it was stored" if facts.redacted else ""
    if facts.inexact and not facts.redacted:
        inexact = "; inexact: the stored body is not the one that was sent"
    return f"status {facts.status}{code}{error}{took}{inexact}"


def describe_mode(facts: ObservedFacts) -> str:
    """Return the mode of an observed request in a table: its status, if it has no complete answer."""
    status = "" if facts.status == "ok" else f", {facts.status}"
    return f"observed{status}{' (inexact)' if facts.inexact else ''}"


def shorten(text: str, width: int = TEXT_WIDTH) -> str:
    """Return a text on one line, cut to a width."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.rjust(width) if column in (1, 3) else cell.ljust(width)
                  for column, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]  # fmt: skip


record_to_json = msgspec.json.Encoder().encode
record_from_json = msgspec.json.Decoder(RequestRecord).decode
