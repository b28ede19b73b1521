"""Read and write the recorded sessions in tests/data/observed."""

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent.parent / "data" / "observed"
BETWEEN_OBJECTS = re.compile(r"(?<=\}),(?=\{)")
SHORT = 60
"""Pieces of a body that are longer are stored once in a file."""


class Exchange(NamedTuple):
    """One request and its reply, with its labels.

    `session` and `conversation` identify the conversation, `kind` is `main`, `agent` or `side`. `parent` is the index
    of the parent request in `exchanges` of the same client.
    """

    client: str
    session: int
    conversation: str
    parent: int | None
    time: int
    method: str
    path: str
    headers: dict[str, str]
    request: str
    status: int
    response: str

    @property
    def kind(self) -> str:
        first = self.conversation.split()[0]
        return first if first in ("main", "agent") else "side"


@cache
def load(client: str) -> list[Exchange]:
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in gzip.decompress((FOLDER / f"{client}.jsonl.gz").read_bytes()).splitlines()
    ]
    pieces: list[str] = lines[0]["pieces"]
    return [Exchange(client, **_with(line, unpack(line["request"], pieces))) for line in lines[1:]]


def _with(line: dict[str, Any], request: str) -> dict[str, Any]:
    return {**line, "request": request}


def save(path: Path, lines: list[dict[str, Any]]) -> None:
    pieces: dict[str, int] = {}
    packed = [{**line, "request": pack(line["request"], pieces)} for line in lines]
    texts = [json.dumps(line, ensure_ascii=False) + "\n" for line in ({"pieces": list(pieces)}, *packed)]
    path.write_bytes(gzip.compress("".join(texts).encode(), 9, mtime=0))


def pack(request: str, pieces: dict[str, int]) -> list[str | int]:
    """Return a body in pieces, which end between two objects. A long piece is replaced by its number."""
    found = BETWEEN_OBJECTS.split(request)
    return [pieces.setdefault(each, len(pieces)) if len(each) > SHORT else each for each in found]


def unpack(request: list[str | int], pieces: list[str]) -> str:
    return ",".join([pieces[each] if isinstance(each, int) else each for each in request])
