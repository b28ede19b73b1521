"""Counts that were made before, in a store: by the hash of a content and the name of who counted it.

Functions over a transaction, in SQL that SQLite and PostgreSQL both read. A count is never changed: another formula
has another name (`Counter.tokenizer`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from contextc.tokens.calibration import Calibration

AT_ONCE = 500


class Dialect(Protocol):
    @property
    def unlocked(self) -> str: ...


class Transaction(Protocol):
    """As much of a store's transaction as is needed here."""

    @property
    def dialect(self) -> Dialect: ...

    def run(self, sql: str, *values: object) -> int: ...

    def run_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None: ...

    # a database gives back what the schema says; drivers do not type it
    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]: ...


def known(tx: Transaction, tokenizer: str, hashes: Sequence[bytes]) -> dict[bytes, int]:
    """The counts of these contents, as far as they were kept."""
    found: dict[bytes, int] = {}
    for start in range(0, len(hashes), AT_ONCE):
        some = hashes[start : start + AT_ONCE]
        marks = ", ".join("?" * len(some))
        rows = tx.rows(
            f"SELECT hash, tokens FROM token_count WHERE tokenizer = ? AND hash IN ({marks})", tokenizer, *some
        )
        found.update((bytes(name), tokens) for name, tokens in rows)
    return found


def keep(tx: Transaction, tokenizer: str, counts: Mapping[bytes, int]) -> None:
    """Keep counts; one that is there stays as it is."""
    if counts:
        tx.run_many(
            "INSERT INTO token_count (hash, tokenizer, tokens) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            [(name, tokenizer, tokens) for name, tokens in counts.items()],
        )


def load_calibration(tx: Transaction, model: str) -> Calibration:
    """What was learned about a model; nothing yet, for one that was never used."""
    rows = tx.rows("SELECT factor, samples FROM calibration WHERE model = ?", model)
    return Calibration(*rows[0]) if rows else Calibration()


def save_calibration(tx: Transaction, model: str, calibration: Calibration) -> None:
    """Keep what was learned about a model.

    All conversations share the row, so it is left as it is where another transaction is changing it: a writer must not
    wait for all others that use the model, nor for one that is frozen.
    """
    learned = calibration.factor, calibration.samples
    if tx.rows("SELECT 1 FROM calibration WHERE model = ?", model):
        tx.run(
            "UPDATE calibration SET factor = ?, samples = ? WHERE model IN"
            f" (SELECT model FROM calibration WHERE model = ?{tx.dialect.unlocked})",
            *learned,
            model,
        )
    else:
        tx.run(
            "INSERT INTO calibration (model, factor, samples) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", model, *learned
        )
