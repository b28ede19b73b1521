"""Schema migrations: numbered SQL files (`0001_name.sql`) from an empty database to the current schema.

The statements of a released migration never change. Opening an older store applies the missing migrations in one
transaction. A newer store is refused. The SQL is SQLite's; `Dialect.ddl` translates it.
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
