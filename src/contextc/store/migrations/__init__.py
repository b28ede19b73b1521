"""The numbered steps from an empty database to today's schema: `0001_name.sql`, each with its reason on top.

A step that has been released is never edited. Stores of any age are brought forward on open, one step after the other
in one transaction; a store that is ahead of us is refused. The text is SQLite's; `Dialect.ddl` turns it into
another's.
"""

import os
from functools import cache
from typing import NamedTuple

FOLDER = os.path.dirname(__file__)


class Migration(NamedTuple):
    version: int
    name: str
    statements: tuple[str, ...]


@cache
def migrations() -> tuple[Migration, ...]:
    return tuple(_read(name) for name in sorted(os.listdir(FOLDER)) if name.endswith(".sql"))


def _read(name: str) -> Migration:
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        code = "".join(line for line in file if not line.startswith("--"))
    statements = tuple(statement.strip() for statement in code.split(";") if statement.strip())
    return Migration(int(name[:4]), name.removesuffix(".sql"), statements)
