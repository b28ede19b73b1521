"""The figures of all conversations of a store, kept in memory and brought up to date when they are asked for.

A conversation is read again only if its requests have changed. The first answer for a large store would take long, so a
refresh reads for a limited time and reports how many conversations are still missing.
"""

import threading
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct

from contextc.analysis import Finding
from contextc.analysis.session_starts import find_session_starts
from contextc.inspection.usage_by_conversation import (
    QUARTER,
    ConversationState,
    UsagePortion,
    load_conversation_states,
    load_usage,
)
from contextc.store import Store
from contextc.store.conversation_list import list_rows_by_number, load_details
from contextc.store.transaction_engine import Transaction

BATCH = 250
REFRESH_SECONDS = 1.0
OWN, OTHER = "own", "observed"
"""Sources of conversations: contextc itself, and software that is not known."""
STARTS_STATE = (
    "SELECT (SELECT count(*) FROM main.channel), (SELECT max(number) FROM main.channel),"
    " (SELECT sum(revision) FROM main.conversation)"
)
"""Values that change if a session begins, or if one is redacted or deleted."""


class Figures(Struct, frozen=True, kw_only=True):
    """Figures of requests. `failed` of the `requests` have no complete answer.

    `cost` is None if no cost is known; `unpriced` requests are not part of it. With `cost_is_lower_bound` a factor of a
    price is unknown. `cache_share` is the cached share of the input, from 0 to 1, None without input. Tokens are those
    that providers reported; `estimated` is the estimated input of requests for which they reported none.
    """

    requests: int
    failed: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    cache_share: float | None
    cost: float | None
    unpriced: int
    cost_is_lower_bound: bool = False
    estimated: int = 0


class FindingsCount(Struct, frozen=True, kw_only=True):
    """The number of findings that are a loss. `largest` is the cost of the most expensive cause; None if none is known.

    `cost` is the sum of all. It is an upper limit: what different causes have in common is counted more than once.
    """

    count: int
    cost: float | None
    largest: float | None = None
    largest_is_lower_bound: bool = False


class ConversationFigures(NamedTuple):
    """A conversation and the figures of its selected requests. `models` are the models of these."""

    state: ConversationState
    figures: Figures
    models: tuple[str, ...]
    findings: FindingsCount | None

    @property
    def source(self) -> str:
        return source_of(self.state)


class Selection(NamedTuple):
    """The requests and conversations to include. Times are in milliseconds; None: no limit."""

    since: int | None = None
    until: int | None = None
    source: str = ""
    model: str = ""
    search: str = ""


def source_of(state: ConversationState) -> str:
    """Return the client that made a conversation, `own` or `observed`."""
    return OWN if state.client is None else state.client or OTHER


class _KnownConversation(NamedTuple):
    """A conversation with all its portions, their sum and their models."""

    state: ConversationState
    portions: tuple[UsagePortion, ...]
    figures: Figures
    models: tuple[str, ...]


class StoreOverview:
    """The figures of a store. Its methods block, and may be called from several threads."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._known: dict[int, _KnownConversation] = {}
        self._states: dict[int, ConversationState] = {}
        self._missing: list[ConversationState] = []
        self._titles: dict[int, tuple[object, str]] = {}
        self._findings: dict[int, tuple[tuple[int, ...], FindingsCount]] = {}
        self._starts: tuple[object, list[Finding]] = (None, [])
        self._starts_lock = threading.Lock()

    def refresh(self, *, with_titles: bool = False) -> int:
        """Read what has changed, for a limited time. Return the number of conversations that are not read yet."""
        with self._lock:
            deadline = time.monotonic() + REFRESH_SECONDS
            if not self._missing:
                self._find_missing()
            while self._missing:
                self._read(self._missing[:BATCH])
                del self._missing[:BATCH]
                if time.monotonic() > deadline:
                    break
            if self._missing or not with_titles:
                return len(self._missing)
            return self._read_titles(deadline)

    def _find_missing(self) -> None:
        """Find the conversations that are new or have changed, the most recently active first. Forget deleted ones."""
        states = self._store.read(load_conversation_states)
        self._states = {each.number: each for each in states}
        for gone in [number for number in self._known if number not in self._states]:
            del self._known[gone]
            self._findings.pop(gone, None)
            self._titles.pop(gone, None)
        for each in states:
            known = self._known.get(each.number)
            if known is None or known.state.key != each.key or known.state.name != each.name:
                self._missing.append(each)
            elif known.state != each:
                self._known[each.number] = known._replace(state=each)
        self._missing.sort(key=lambda each: -each.last_active)

    def _read_titles(self, deadline: float) -> int:
        """Read titles, at least some. Return the number of those that are missing."""
        missing = [each for each in self._states.values() if self._find_title(each) is None]
        for start in range(0, len(missing), BATCH):
            if start and time.monotonic() > deadline:
                return len(missing) - start
            some = missing[start : start + BATCH]
            titles = self._store.read(partial(_load_titles, numbers=[each.number for each in some]))
            for each in some:
                self._titles[each.number] = _title_key(each), titles.get(each.number, "").casefold()
        return 0

    def _find_title(self, state: ConversationState) -> str | None:
        """Return the title of a conversation; None if it had none yet, or was not read since it changed."""
        key, title = self._titles.get(state.number, (None, ""))
        return title if title and key == _title_key(state) else None

    def _read(self, some: Sequence[ConversationState]) -> None:
        usage = self._store.read(lambda tx: load_usage(tx, some))
        for each in some:
            mine = usage[each.number]
            self._known[each.number] = _KnownConversation(each, mine, add_up(mine), _models(mine))

    def select(self, wanted: Selection) -> tuple[list[ConversationFigures], list[UsagePortion]]:
        """Return the selected conversations, and the portions that their figures are made of."""
        with self._lock:
            known = list(self._known.values())
            if wanted.search.strip():
                known = self._matching(known, " ".join(wanted.search.split()).casefold())
        found: list[ConversationFigures] = []
        selected: list[UsagePortion] = []
        for state, portions, figures, models in known:
            if wanted.source and source_of(state) != wanted.source:
                continue
            mine = [each for each in portions if _is_selected(each, wanted)]
            if not mine and (wanted.model or not _is_active(state, wanted)):
                continue
            selected += mine
            kept = self._findings.get(state.number)
            summary = kept[1] if kept is not None and kept[0] == state.key else None
            if len(mine) < len(portions):
                figures, models = add_up(mine), _models(mine)
            found.append(ConversationFigures(state, figures, models, summary))
        return found, selected

    def _matching(self, known: Sequence[_KnownConversation], wanted: str) -> list[_KnownConversation]:
        """Return the conversations with a text in their name or title."""
        return [
            each
            for each in known
            if wanted in each.state.name.casefold() or wanted in (self._find_title(each.state) or "")
        ]

    def all_sources(self) -> dict[str, int]:
        """Return the number of conversations of each source."""
        with self._lock:
            return _count([source_of(each.state) for each in self._known.values()])

    def all_models(self) -> dict[str, int]:
        """Return the number of conversations of each model."""
        with self._lock:
            return _count([name for each in self._known.values() for name in each.models])

    def key_of(self, name: str) -> tuple[int, tuple[int, ...]] | None:
        """Return number and key of a conversation; None if it is not known yet."""
        with self._lock:
            found = next((each for each in self._states.values() if each.name == name), None)
            return (found.number, found.key) if found is not None else None

    def session_starts(self, name: str) -> list[Finding]:
        """Return the findings about many sessions that belong to a conversation. All are found again if sessions were
        added, or texts redacted.
        """
        with self._starts_lock:
            state = self._store.read(lambda tx: tx.row(STARTS_STATE))
            if self._starts[0] != state:
                self._starts = state, find_session_starts(self._store)
            return [each for each in self._starts[1] if each.conversation == name]

    def keep_findings(self, number: int, key: tuple[int, ...], summary: FindingsCount) -> None:
        """Keep the findings of a conversation until its requests change."""
        with self._lock:
            self._findings[number] = key, summary


def _title_key(state: ConversationState) -> object:
    """Return what differs after the title of a conversation may have changed."""
    return state.branch, state.revision, state.title


def add_up(portions: Iterable[UsagePortion]) -> Figures:
    """Return the sum of some portions."""
    some = list(portions)
    names = ("requests", "failed", "input", "output", "cache_read", "cache_write", "unpriced", "estimated")
    sums = {name: sum([getattr(each, name) for each in some]) for name in names}
    return Figures(
        **sums,
        cache_share=min(1.0, round(sums["cache_read"] / sums["input"], 4)) if sums["input"] else None,
        cost=sum([each.cost for each in some]) if any([each.priced for each in some]) else None,
        cost_is_lower_bound=any([each.bounded for each in some]),
    )


def add_up_times(
    portions: Iterable[UsagePortion], zone: tzinfo, unit: Literal["day", "hour"]
) -> list[tuple[str, Figures]]:
    """Return the sums of each day or hour that has requests, in a time zone, oldest first."""
    quarters: dict[int, list[UsagePortion]] = {}
    for each in portions:
        quarters.setdefault(each.time, []).append(each)
    times: dict[str, list[UsagePortion]] = {}
    length = len("2026-03-01" if unit == "day" else "2026-03-01T14")
    for start, some in quarters.items():
        times.setdefault(datetime.fromtimestamp(start / 1000, zone).isoformat()[:length], []).extend(some)
    return [(time, add_up(times[time])) for time in sorted(times)]


def add_up_models(portions: Iterable[UsagePortion]) -> list[tuple[str, Figures]]:
    """Return the sums of each model, the most expensive first."""
    models: dict[str, list[UsagePortion]] = {}
    for each in portions:
        models.setdefault(each.model, []).append(each)
    found = [(name, add_up(some)) for name, some in models.items()]
    return sorted(found, key=lambda each: (-(each[1].cost or 0.0), -each[1].input - each[1].estimated, each[0]))


def find_zone(name: str) -> tuple[str, tzinfo]:
    """Return a time zone by its name, and its name. It is UTC if there is none of that name on this machine."""
    try:
        return name, ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return "UTC", UTC


def _is_selected(portion: UsagePortion, wanted: Selection) -> bool:
    return (
        (wanted.since is None or portion.time >= wanted.since - wanted.since % QUARTER)
        and (wanted.until is None or portion.time < wanted.until)
        and (not wanted.model or portion.model == wanted.model)
    )


def _is_active(state: ConversationState, wanted: Selection) -> bool:
    last = max(state.last_active * 1000, 0)
    return (wanted.since is None or last >= wanted.since) and (wanted.until is None or last < wanted.until)


def _models(portions: Iterable[UsagePortion]) -> tuple[str, ...]:
    return tuple(sorted({each.model for each in portions}))


def _count(names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in names:
        found[each] = found.get(each, 0) + 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _load_titles(tx: Transaction, numbers: Sequence[int]) -> dict[int, str]:
    rows = list_rows_by_number(tx, numbers)
    return {row.number: entry.title for row, entry in zip(rows, load_details(tx, rows), strict=True)}
