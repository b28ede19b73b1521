"""Runs one benchmark and writes the tables that it prints to a file, as JSON Lines. For `bench_page.py`.

python benchmarks/record_tables.py FILE PROGRAM [ARGUMENTS]...
"""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_print = Console.print


def plain(value: object) -> str:
    """Return what a cell, title or caption shows, without markup."""
    if value is None:
        return ""
    return value.plain if isinstance(value, Text) else Text.from_markup(str(value)).plain


def as_entry(table: Table) -> dict[str, object]:
    rows = zip(*[map(plain, column.cells) for column in table.columns], strict=True)
    return {
        "title": plain(table.title),
        "caption": plain(table.caption),
        "columns": [plain(column.header) for column in table.columns],
        "rows": [list(row) for row in rows],
    }


def main() -> None:
    output, program, *arguments = sys.argv[1:]

    def printed(self: Console, *objects: Any, **options: Any) -> None:
        with Path(output).open("a", encoding="utf-8") as file:
            for each in objects:
                if isinstance(each, Table):
                    file.write(json.dumps(as_entry(each)) + "\n")
        _print(self, *objects, **options)

    Console.print = printed
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
