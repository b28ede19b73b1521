"""Measure `cc.findings` on labelled traces: `python -m tests.analysis.traces.measure SET [-v] [NAME…]`.

Each trace is recorded with `cc.observe` into a memory store of its own. The cache-miss findings of its conversations
are compared with the labels, request by request:

right
: The finding has an accepted cause.
wrong
: There was a miss, and the finding has another cause.
missed
: There was a miss, and no finding.
false
: There was no miss, and a finding. `first_request` costs nothing, and is never a false alarm.

First requests are counted apart, because they are easy and many.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from time import process_time
from typing import Any, NamedTuple

import contextc as cc
from contextc.store.ledger_schema import channel_id
from tests.analysis.traces import CAUSES, SETS, Exchange, Trace, load

Findings = Callable[[Any, str], Iterable[Any]]
CODE = "CAC"


class Verdict(NamedTuple):
    """The comparison of one request: its trace, its label, the cause that was found, and what that is."""

    trace: Trace
    request: int
    exchange: Exchange
    found: str | None
    kind: str
    tokens: int = 0

    def __str__(self) -> str:
        wanted = "|".join(sorted([str(each) for each in self.exchange.accepted]))
        numbers = f"read {self.exchange.read:,} of {self.exchange.total:,}, missed {self.exchange.missed:,}"
        return f"{self.kind:6} {self.trace.name}[{self.request}]: found {self.found}, expected {wanted} ({numbers})"


class Result(NamedTuple):
    verdicts: list[Verdict]
    seconds: float = 0.0

    @property
    def misses(self) -> list[Verdict]:
        """Requests with a miss that has a cause other than being the first."""
        return [each for each in self.verdicts if each.exchange.cause not in (None, "first_request")]

    @property
    def share_right(self) -> float:
        misses = self.misses
        return sum([each.kind == "right" for each in misses]) / max(len(misses), 1)

    @property
    def share_false(self) -> float:
        """False alarms as a share of the requests without a miss (first requests included)."""
        hits = [each for each in self.verdicts if each.exchange.cause in (None, "first_request")]
        return sum([each.kind == "false" for each in hits]) / max(len(hits), 1)

    @property
    def share_false_of_findings(self) -> float:
        """False alarms as a share of all findings, without `first_request`."""
        found = [each for each in self.verdicts if each.found not in (None, "first_request")]
        return sum([each.kind == "false" for each in found]) / max(len(found), 1)


def record(store: Any, trace: Trace) -> list[Any]:
    """Record a trace, and return its recorded requests in the order of its exchanges."""
    return [
        cc.observe(
            store, request=each.body, reply=each.reply, format=each.format, url=each.url, headers=each.headers,
            conversation=each.conversation, time=each.began, ended=each.ended, status=each.status,
        )
        for each in trace.exchanges
    ]  # fmt: skip


def judge(trace: Trace, findings: Findings) -> list[Verdict]:
    """Record a trace and compare the findings with its labels."""
    store = cc.open_store("memory:")
    try:
        requests = record(store, trace)
        found: dict[tuple[str, str, int], Any] = {}
        for conversation in dict.fromkeys([each.conversation for each in requests]):
            for finding in findings(store, conversation):
                if finding.code.startswith(CODE):
                    found[key_of_finding(finding)] = finding
        return [compare(trace, at, found.get(key_of(request))) for at, request in enumerate(requests)]
    finally:
        store.close()


def key_of_finding(finding: Any) -> tuple[str, str, int]:
    """Return the conversation, the channel's short id and the number of the request that a finding is about."""
    first = finding.evidence[0]
    return finding.conversation, str(first.channel), int(first.request)


def key_of(request: Any) -> tuple[str, str, int]:
    """Return the same for a recorded request."""
    return request.conversation, channel_id(request.channel), request.request


def compare(trace: Trace, at: int, finding: Any) -> Verdict:
    exchange = trace.exchanges[at]
    cause = None if finding is None else str(finding.cause)
    if cause in exchange.accepted:
        kind = "right"
    elif cause is None:
        kind = "missed"
    elif exchange.cause in (None, "first_request"):
        kind = "right" if cause == "first_request" else "false"
    else:
        kind = "wrong"
    return Verdict(trace, at, exchange, cause, kind, int(getattr(finding, "tokens", 0) or 0))


def measure(traces: Sequence[Trace], findings: Findings | None = None) -> Result:
    """Return the comparison of all requests of some traces."""
    began = process_time()
    call: Findings = findings or cc.findings
    verdicts = [verdict for trace in traces for verdict in judge(trace, call)]
    return Result(verdicts, process_time() - began)


def table(result: Result) -> str:
    """Return a line for each cause, and totals."""
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in result.verdicts:
        rows[each.exchange.cause or "(hit)"][each.kind] += 1
    kinds = ("right", "wrong", "missed", "false")
    lines = [f"{'label':20}{'requests':>10}" + "".join([f"{kind:>8}" for kind in kinds])]
    for cause in (*CAUSES, "(hit)"):
        row = rows[cause]
        lines.append(f"{cause:20}{row.total():>10}" + "".join([f"{row[kind] or '':>8}" for kind in kinds]))
    lines.append(
        f"{len(result.misses):,} misses: {result.share_right:.1%} named right. False alarms: {result.share_false:.1%} "
        f"of requests without a miss, {result.share_false_of_findings:.1%} of findings."
    )
    error = [
        abs(each.tokens - each.exchange.missed) / each.exchange.missed
        for each in result.misses
        if each.kind == "right" and each.found is not None and each.exchange.missed
    ]
    if error:
        lines.append(f"Missed tokens: median error {sorted(error)[len(error) // 2]:.1%}. {result.seconds:.1f} CPU s.")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    names = [each for each in arguments if not each.startswith("-")]
    half = names.pop(0) if names else "tune"
    if half not in SETS:
        raise SystemExit(f"half must be one of {', '.join(SETS)}, got {half!r}.")
    traces = [trace for trace in load(half) if not names or any(name in trace.name for name in names)]
    result = measure(traces)
    lines = [f"{half}: {len(traces)} traces, {len(result.verdicts):,} requests", table(result)]
    if "-v" in arguments or half == "tune":
        lines += [str(verdict) for verdict in result.verdicts if verdict.kind != "right"]
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
