"""How far off the counts are, against what providers reported for recorded requests: text only, each once.

*Left out* is the error with figures fitted to the other models alone; *in the code* with the figures that are there.
"""

import sys
from pathlib import Path
from statistics import median, quantiles

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.tokens.overhead_fitting import VENDORS, left_out, samples


def main() -> None:
    table = Table("vendor", "model", "n", "left out: median", "90 %", "in the code: median", "90 %", "high")
    for vendor in VENDORS:
        found = samples(vendor)
        errors = left_out(found, words=vendor == "Anthropic")
        for model in (None, *sorted({sample.model for sample in found})):
            fitted = [error for sample, error in errors if model in (None, sample.model)]
            signed = [sample.counted / sample.real - 1 for sample in found if model in (None, sample.model)]
            coded = [abs(each) for each in signed]
            high = sum(each >= -0.02 for each in signed) / len(signed)
            numbers = [median(fitted), tenth(fitted), median(coded), tenth(coded), high]
            table.add_row(vendor, model or "all", str(len(fitted)), *[f"{100 * each:.1f} %" for each in numbers])
    Console(width=130).print(table)


def tenth(errors: list[float]) -> float:
    return quantiles(errors, n=10)[-1] if len(errors) > 1 else errors[0]


if __name__ == "__main__":
    main()
