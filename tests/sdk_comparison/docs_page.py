"""Generate docs/sdk-comparison.md from the tables that the tests use."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.sdk_comparison.known_differences import DIFFERENCES, Difference
from tests.sdk_comparison.request_pairs import TARGETS
from tests.sdk_comparison.sdk_limits import LIMITS, Limit

PAGE = Path(__file__).parent.parent.parent / "docs" / "sdk-comparison.md"
HEAD = """# Comparison with the AI SDK

Requests are also compared with those of an independent library: the Vercel AI SDK (`ai` 7 with its packages for the
providers). The same conversations are sent through it, as the `ModelMessage`s that
`formatter("vercel")` makes of them, and through our own formats. Nothing goes over a network; what it would have sent
is caught on its way. The two bodies are the same, to the last value, but for what is listed here. Every row is checked:
a difference that is not listed fails a test, and so does a row that does not show any more.

The conversations are those of the test suite: written for it, recorded from providers, transcripts of agents, and
random ones. This page is made from the tables of the tests (`python -m tests.sdk_comparison.docs_page`).
"""
CUT = """## What only one of both can say

Here a conversation is cut down first. The last column is what the SDK answers to it otherwise; where it is empty, it
sends something else than we do.
"""


def oracle_page() -> str:
    """Return the page as it is in the docs."""
    return "\n".join([HEAD, *(section(name) for name in TARGETS), CUT, *cuts(LIMITS), ""])


def section(format: str) -> str:
    rows = [row for row in DIFFERENCES if format in row.formats]
    lines = [
        f"## {format}",
        "",
        "| | we write | the SDK writes | because |",
        "|---|---|---|---|",
        *map(difference, rows),
    ]
    return "\n".join([*lines, ""])


def difference(row: Difference) -> str:
    return f"| {row.name} | {row.ours} | {row.theirs} | {row.reason} |"


def cuts(limits: Sequence[Limit]) -> Iterable[str]:
    yield from ("| | formats | because | the SDK |", "|---|---|---|---|")
    for limit in limits:
        formats = "all" if limit.formats == tuple(TARGETS) else ", ".join(limit.formats)
        refusals = "; ".join(f"“{text}”" for text in dict.fromkeys(limit.seen.values()) if text)
        yield f"| {limit.name} | {formats} | {limit.reason} | {refusals} |"


if __name__ == "__main__":
    PAGE.write_text(oracle_page())
