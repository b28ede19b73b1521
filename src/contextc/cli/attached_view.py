"""`contextc watch --attach`: print a line per request that a proxy, or any other process, records."""

import signal
import sys
from collections.abc import Mapping
from datetime import datetime
from threading import Event
from types import FrameType

from contextc.cli.console import err, escape_markup, out, pluralize
from contextc.observation.observed_request import ObservedRequest
from contextc.observation.recorded_requests import RecordedRequests
from contextc.proxy.proxy_status import FIRST_REQUEST, ProxyStatus, read_statuses
from contextc.store import Store

POLL_SECONDS = 0.5


def follow(store: Store) -> None:
    """Print recorded requests until Ctrl-C or SIGTERM."""
    stop = Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        requests, statuses = RecordedRequests(store), read_statuses(store.address)
        _print_proxies(statuses)
        gaps = count_gaps(statuses)
        while True:
            is_over = stop.wait(POLL_SECONDS)
            for request in requests.read_new():
                out.print(escape_markup(describe_request(request)), soft_wrap=True)
            found = count_gaps(read_statuses(store.address))
            for reason, count in found.items():
                if (new := count - gaps.get(reason, 0)) > 0:
                    text = f"{pluralize(new, 'request')} not recorded: {escape_markup(reason)}"
                    out.print(f"[yellow]warning:[/] {text}", soft_wrap=True)
            gaps = found
            sys.stdout.flush()
            if is_over:
                return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_proxies(statuses: list[ProxyStatus]) -> None:
    for each in statuses:
        missing = sum(each.gaps.values())
        text = f"proxy at {each.address}: {pluralize(each.requests, 'request')}, {each.recorded:,} recorded"
        err.print(escape_markup(text + (f", {missing:,} not recorded" if missing else "")), soft_wrap=True)
    if not statuses:
        err.print("No proxy records to this store at the moment. Requests are shown when one does.", soft_wrap=True)
    err.print("time, conversation, model, tokens, read from the cache, cost, what broke the prefix · Ctrl-C ends")


def count_gaps(statuses: list[ProxyStatus]) -> Mapping[str, int]:
    """Return the gaps of all proxies, by reason."""
    found: dict[str, int] = {}
    for each in statuses:
        for reason, count in each.gaps.items():
            found[reason] = found.get(reason, 0) + count
    return found


def describe_request(request: ObservedRequest) -> str:
    """Return the line of a request."""
    record, usage, cost = request.record, request.usage, request.cost
    facts = record.observed
    time = datetime.fromtimestamp((facts.began if facts is not None and facts.began else record.time) / 1000)
    parts = [f"{time:%H:%M:%S}", request.conversation, f"{request.channel.provider}:{request.channel.model}"]
    if usage is not None:
        parts.append(f"{usage.input:,} in {usage.output:,} out")
        parts += [f"{usage.cache_read / usage.input:.0%} cached"] if usage.input else []
        parts.append("cost unknown" if cost is None else f"${cost:,.4f}")
    if facts is not None and facts.status != "ok":
        parts.append(f"{facts.status} {facts.code}" if facts.code else facts.status)
    if record.why and record.why != FIRST_REQUEST:
        parts.append(f"prefix broken: {record.why}")
    return "  ".join(parts)
