"""Thirty steps in which ten tools are added and three removed: epochs, shared prefix, the signed reasoning left, bill.

Each vendor is a strict fake that refuses what the vendor refuses. Of each there are three rows: with an epoch for each
change; with changes that are appended where the vendor has a way; and as agents do it, which leave a removed tool
declared where it cannot be removed.
"""

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.compiler.changing_tools import MODELS, STEPS, ChangingTools

WAYS: dict[str, dict[str, Any]] = {  # options of `ChangingTools`
    "epochs": {"appends": False},
    "appended": {},
    "appended, removed ones stay declared": {"removed_tools": "keep"},
}


def main() -> None:
    table = Table(
        "model", "changes", "epochs", "shared prefix", "reasoning left", "bill", title=str(__doc__).partition(":")[0]
    )
    for format, model in MODELS.items():
        for way, options in WAYS.items():
            figures = ChangingTools(format, **options).run()
            shared = f"{figures.shared:,} of {figures.sent:,} bytes ({figures.shared / figures.sent:.0%})"
            bill = f"${figures.dollars:.3f}"
            table.add_row(model, way, str(figures.epochs), shared, f"{figures.reasoning} of {STEPS - 1}", bill)
        table.add_section()
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
