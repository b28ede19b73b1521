"""Schema migrations: numbered SQL files (`0001_name.sql`) from an empty database to the current schema.

The statements of a released migration never change. Opening an older store applies the missing migrations in one
transaction. A newer store is refused. The SQL is SQLite's; `Dialect.translate_ddl` translates it.
"""

import re
from functools import cache
from typing import NamedTuple

from contextc._plugins import data_files

STATEMENT = re.compile(r"(?:\$\$.*?\$\$|\bBEGIN\b(?:(?!\bBEGIN\b).)*?\bEND\b|'[^']*'|[^;$'])+", re.DOTALL)
"""A statement without the semicolon after it. The body of a function or trigger, and a text, may have some."""


class Migration(NamedTuple):
    version: int
    name: str
    statements: tuple[str, ...]


@cache
def migrations() -> tuple[Migration, ...]:
    return tuple(_parse(name, text) for name, text in data_files(__name__, ".sql").items())


def _parse(name: str, text: str) -> Migration:
    code = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("--"))
    statements = tuple(each.strip() for each in STATEMENT.findall(code) if each.strip())
    return Migration(int(name[:4]), name.removesuffix(".sql"), statements)
