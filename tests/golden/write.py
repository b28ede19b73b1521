"""Write the golden files: `python -m tests.golden.write`. Run it only for a new version of the schema.

It makes the store with today's code and records what today's code reads out of it. It refuses to write over files that
exist, because files that are written anew prove nothing.
"""

import gzip
import json
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import contextc as cc
from tests.golden import server_answers, store_content, stored_names
from tests.golden.scenario import play

DEPTH = 3


def write() -> None:
    folder = store_content.GOLDEN
    if (folder / "store.db.gz").exists():
        sys.exit(f"{folder} has golden files already. Delete them first, if they were never released.")
    (folder / "exports").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "made.db"
        with cc.open_store(file) as store:
            sent = play(store, file)
        copy = file.with_suffix(".copy")
        with closing(sqlite3.connect(copy)) as connection, connection:
            connection.execute("UPDATE lease SET expires = 0, holder = 'elsewhere/pid:[1] 1 1' WHERE holder <> ''")
        store_content.STORE.write_bytes(gzip.compress(copy.read_bytes(), mtime=0))
        _save("about.json", {"schema": store_content.SCHEMA, "written": int(time.time() * 1000)})
        time.sleep(0.01)  # what happens from here on is later
        _save("sent.json", [body.decode() for body in sent])
        for name, value in _everything(store_content.unpack(Path(scratch))).items():
            _save(name, value)
        _save("names.json", stored_names.names())


def _everything(file: Path) -> dict[str, Any]:
    """All recorded files of JSON, by name; `file` is a copy of the golden store, which is opened and changed."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, cc.open_store(file) as store:
        root = Path(folder)
        found["stored.json"] = store_content.stored(store)
        found["requests.json"] = store_content.requests(store, file)
        found["next.json"] = store_content.upcoming(store, file)
        found["formats.json"] = store_content.conversions(store)
        found |= store_content.exports(store)
        found["http.json"] = server_answers.http(store, file, root)
        found["streams.json"] = server_answers.streams(store)
        found["turns.json"] = server_answers.turns(root)
        found["commands.json"] = server_answers.commands(file, root)
    return found


def _save(name: str, value: Any) -> None:  # JSON, or bytes
    target = store_content.GOLDEN / name
    if isinstance(value, bytes):
        target.write_bytes(value)
    else:
        target.write_text(_lines(value) + "\n", encoding="utf-8")


def _lines(value: Any, depth: int = 0) -> str:
    """JSON with one entry a line, down to the third level: short, and a changed entry is one changed line."""
    if depth == DEPTH or not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value).items()
        inside = [f"{json.dumps(name, ensure_ascii=False)}: {_lines(each, depth + 1)}" for name, each in fields]
        return "{\n" + ",\n".join(inside) + "\n}"
    return "[\n" + ",\n".join([_lines(each, depth + 1) for each in cast(list[Any], value)]) + "\n]"


if __name__ == "__main__":
    write()
