"""How far off the counts are, against what providers reported for recorded requests.

The first table has every request: the share within 10 % or 40 tokens, by vendor and by size. `--before REVISION` adds
the counts of `models/tokens.py` at a revision of the repository. *Known* are the requests whose count follows from
what they contain: no server tool ran, nothing is held by the provider, no file is a link.

The second has the text-only requests. *Left out* is the error with figures fitted to the other models alone, *half*
with figures fitted to the other half of the tests, *in the code* with the figures that are there.
"""

import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.tokens.overhead_fitting import VENDORS, Count, CounterSource, all_counts, halved, left_out, samples

ROOT = Path(__file__).parent.parent
SIZES = (
    ("below 100", 0, 100),
    ("100 to 1,000", 100, 1_000),
    ("1,000 to 10,000", 1_000, 10_000),
    ("more", 10_000, 10**9),
)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--before", metavar="REVISION", help="compare with models/tokens.py at this revision")
    revision = parser.parse_args().before
    console = Console(width=130)
    console.print(compare_all(all_counts(), all_counts(counters_of(revision)) if revision else None))
    console.print(compare_text_only())


def is_of(vendor: str, count: Count) -> bool:
    return count.vendor == vendor


def is_between(low: int, high: int, count: Count) -> bool:
    return low <= count.real < high


def compare_all(now: Sequence[Count], before: Sequence[Count] | None) -> Table:
    """The share of requests that are counted within 10 % or 40 tokens, and the median error."""
    columns = ["requests", "n", *(["before", "median"] if before else []), "near", "median", "known", "near"]
    table = Table(*columns)
    rows: list[tuple[str, Callable[[Count], bool]]] = [
        ("all", lambda each: True),
        *[(vendor, partial(is_of, vendor)) for vendor in sorted({each.vendor for each in now})],
        *[(name, partial(is_between, low, high)) for name, low, high in SIZES],
    ]
    for name, belongs in rows:
        found = [each for each in now if belongs(each)]
        known = [each for each in found if not each.unknown]
        old = [each for each in before or () if belongs(each)]
        table.add_row(
            name,
            str(len(found)),
            *(figures(old) if before else ()),
            *figures(found),
            str(len(known)),
            figures(known)[0],
        )
    return table


def figures(found: Sequence[Count]) -> tuple[str, str]:
    if not found:
        return "", ""
    near = sum(each.is_near for each in found) / len(found)
    return f"{100 * near:.0f} %", f"{100 * median([abs(each.counted / each.real - 1) for each in found]):.1f} %"


class EarlierCounter:
    """A counter of an earlier revision, called as the present one is."""

    def __init__(self, counter: Any) -> None:
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._counter, name)

    def count_settings(self, settings: dict[str, Any], *, has_tools: bool = False) -> int:
        try:
            return self._counter.count_settings(settings, has_tools=has_tools)
        except TypeError:
            return self._counter.count_settings(settings)


def counters_of(revision: str) -> CounterSource:
    """Return the counters of another revision of `models/tokens.py`."""
    path = f"{revision}:src/contextc/models/tokens.py"
    source = subprocess.run(["git", "show", path], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    spec = spec_from_loader("earlier_tokens", None)
    assert spec is not None
    module = sys.modules["earlier_tokens"] = module_from_spec(spec)
    exec(compile(source, path, "exec"), module.__dict__)
    make: Any = module.__dict__["get_counter"]
    return lambda tokenizer, provider, model: EarlierCounter(make(tokenizer, provider=provider, model=model))  # type: ignore[return-value]


def compare_text_only() -> Table:
    """Errors by vendor and model, with the figures in the code and with figures fitted to others."""
    table = Table("text only", "model", "n", "left out", "90 %", "half", "90 %", "in the code", "90 %", "high")
    for vendor in VENDORS:
        found = samples(vendor)
        words = vendor == "Anthropic"
        others, halves = left_out(found, words=words), halved(found, words=words)
        for model in (None, *sorted({sample.model for sample in found})):
            fitted = [error for sample, error in others if model in (None, sample.model)]
            split = [error for sample, error in halves if model in (None, sample.model)]
            signed = [sample.counted / sample.real - 1 for sample in found if model in (None, sample.model)]
            coded = [abs(each) for each in signed]
            high = sum(each >= -0.02 for each in signed) / len(signed)
            errors = [each for some in (fitted, split, coded) for each in (median(some), tenth(some))]
            table.add_row(
                vendor, model or "all", str(len(fitted)), *[f"{100 * each:.1f} %" for each in (*errors, high)]
            )
    return table


def tenth(errors: list[float]) -> float:
    return quantiles(errors, n=10)[-1] if len(errors) > 1 else errors[0]


if __name__ == "__main__":
    main()
