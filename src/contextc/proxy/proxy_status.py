"""The figures of a run of the proxy, and the status of running proxies.

A status is a file beside each spool, so that other processes of this user can show it.
"""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread

import msgspec
from msgspec import Struct, field

from contextc._file_lock import is_locked
from contextc.models.model_info import CacheFigures
from contextc.proxy.recorder_process import RecordedExchange
from contextc.proxy.spool import LOCK_FILE, find_spool_folder
from contextc.store.ledger_schema import EpochReason

# ── figures of a run ──────────────────────────────────────────────────────────────────────────────────────────────────
# The figures of a run: requests, tokens, cost, cache share, rewrite factor, and what broke the prefix.


READ_SHARE = 0.9
"""The share of the input that was read from the cache from which on a change has not broken the prefix."""


class ActionFigures(Struct):
    """The requests in which an option of the proxy found or changed something.

    `failed` counts those in which it could not be done, `codes` the lint rules that were broken, `cache_tokens` the
    tokens from the first change on.
    """

    requests: int = 0
    failed: int = 0
    codes: Counter[str] = field(default_factory=Counter[str])
    cache_tokens: int = 0


class TrafficSummary(Struct):
    """Figures of the exchanges that were recorded."""

    requests: int = 0
    failed: int = 0
    output: int = 0
    cost: float = 0.0
    cost_is_lower_bound: bool = False
    without_cost: int = 0
    without_usage: int = 0
    estimate: int = 0
    """The input of requests without usage, by our own count."""
    conversations: dict[str, int] = field(default_factory=dict[str, int])
    recorded: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])
    """Conversation, channel and number of each request."""
    breaks: Counter[str] = field(default_factory=Counter[str])
    actions: dict[str, ActionFigures] = field(default_factory=dict[str, ActionFigures])
    cache: CacheFigures = field(default_factory=CacheFigures)
    _lock: Lock = field(default_factory=Lock)

    def add(self, done: RecordedExchange) -> None:
        with self._lock:
            self.requests += 1
            self.failed += done.status != "ok"
            self.output += done.output
            self.cache.add(
                done.conversation,
                done.model,
                input=done.input,
                cache_read=done.cache_read,
                cache_write=done.cache_write,
            )
            if done.cost is not None:
                self.cost += done.cost
                self.cost_is_lower_bound = self.cost_is_lower_bound or done.cost_is_lower_bound
            elif done.has_usage:
                self.without_cost += 1
            if done.status == "ok" and not done.has_usage:
                self.without_usage += 1
                self.estimate += done.estimate
            self.recorded.add((done.conversation, done.channel, done.request))
            self.conversations[done.conversation] = self.conversations.get(done.conversation, 0) + 1
            is_read = done.cache_read >= READ_SHARE * done.input > 0
            if done.why and done.why != EpochReason.FIRST_REQUEST and not is_read:
                self.breaks[done.why] += 1
            for action in done.actions:
                figures = self.actions.setdefault(action.rule, ActionFigures())
                figures.requests += not action.failed
                figures.failed += action.failed
                figures.codes.update(action.codes)
                figures.cache_tokens += action.cache_tokens

    def describe_actions(self) -> dict[str, dict[str, object]]:
        """Return what options of the proxy found or changed, by option, for the status."""
        with self._lock:
            return {
                rule: {
                    "requests": each.requests,
                    "failed": each.failed,
                    "codes": dict(each.codes),
                    "cache_tokens": each.cache_tokens,
                }
                for rule, each in self.actions.items()
            }

    @property
    def input(self) -> int:
        return self.cache.input

    @property
    def cache_read(self) -> int:
        return self.cache.cache_read

    @property
    def cache_write(self) -> int:
        return self.cache.cache_write

    @property
    def cache_share(self) -> float | None:
        """The share of the input that was read from a cache; None without input."""
        return self.cache.cache_share

    @property
    def rewrite_factor(self) -> float | None:
        """Tokens written to caches, divided by the largest context of each conversation. 1.0 is ideal."""
        return self.cache.rewrite_factor


# ── status files ──────────────────────────────────────────────────────────────────────────────────────────────────────


STATUS_FILE = "status.json"
WRITE_SECONDS = 0.5
CLOSE_SECONDS = 2.0


class ProxyStatus(Struct, frozen=True, kw_only=True):
    """A proxy and its figures. `gaps` are requests that passed and were not recorded, by reason.

    `address` has no token. `error` is why the recorder does not work at the moment.
    """

    address: str
    started: int
    requests: int = 0
    recorded: int = 0
    open: int = 0
    gaps: dict[str, int] = {}
    error: str = ""


_decode_status = msgspec.json.Decoder(ProxyStatus).decode


class StatusWriter:
    """Writes the status of a proxy to its file while it changes, on a thread of its own: the relay never waits."""

    def __init__(self, folder: Path, describe: Callable[[], ProxyStatus]) -> None:
        self._path, self._describe = folder / STATUS_FILE, describe
        self._written: ProxyStatus | None = None
        self._closing = Event()
        self._thread = Thread(target=self._run, name="contextc-proxy-status", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop, and remove the file."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        with suppress(OSError):
            self._path.unlink()

    def _run(self) -> None:
        while True:
            self._write(self._describe())
            if self._closing.wait(WRITE_SECONDS):
                return

    def _write(self, status: ProxyStatus) -> None:
        if status == self._written:
            return
        fresh = self._path.with_suffix(".new")
        with suppress(OSError):
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(status))
            os.replace(fresh, self._path)
            self._written = status


def read_statuses(store: str) -> list[ProxyStatus]:
    """Return the status of each proxy of this user that records to a store, oldest first."""
    folders = {find_spool_folder(store, in_memory=is_private) for is_private in (False, True)}
    found: list[ProxyStatus] = []
    for path in [path for folder in folders for path in folder.glob(f"*/{STATUS_FILE}")]:
        with suppress(OSError, msgspec.DecodeError):  # it has just ended
            if is_locked(path.with_name(LOCK_FILE)):  # the file of a proxy that was killed stays
                found.append(_decode_status(path.read_bytes()))
    return sorted(found, key=lambda each: (each.started, each.address))
