"""Stored token counts, by content hash and tokenizer name, and the calibration of estimates.

A stored count never changes: another formula has another name (`Counter.tokenizer`). The functions take a transaction;
the SQL works on SQLite and PostgreSQL.

The calibration factor of a model is learned from the usage that its provider reports. Early samples change it quickly,
later ones slowly. It stays between 0.5 and 2; larger differences are overhead of the channel and counted there. Small
requests are ignored, because overhead dominates them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

MIN_FACTOR, MAX_FACTOR = 0.5, 2.0
MIN_TOKENS = 50
MIN_WEIGHT = 0.05  # the weight of a new sample after many


class Calibration(Struct, frozen=True, gc=False):
    """The correction factor for the estimates of one model, and the number of samples."""

    factor: float = 1.0
    samples: int = 0

    def with_sample(self, estimated: int, real: int) -> "Calibration":
        """Return the calibration after one more request: its uncorrected estimate and its real count."""
        if estimated < MIN_TOKENS or real < MIN_TOKENS:
            return self
        share = max(1 / (self.samples + 1), MIN_WEIGHT)
        seen = min(max(real / estimated, MIN_FACTOR), MAX_FACTOR)
        return Calibration(self.factor + (seen - self.factor) * share, self.samples + 1)

    def apply(self, estimated: int) -> int:
        return round(estimated * self.factor)


def estimate_next_input(last_input: int, replayed_output: int, new_estimate: int) -> int:
    """Return the tokens of the next request, from the real count of the last one.

    `last_input` is the provider's count including cache reads and writes. `replayed_output` is the part of the reply
    that is sent back. `new_estimate` is the estimate of everything after it.
    """
    return last_input + replayed_output + new_estimate


HASHES_PER_QUERY = 500


class Dialect(Protocol):
    @property
    def skip_locked(self) -> str: ...


class Transaction(Protocol):
    """The part of a store's transaction that this module needs."""

    @property
    def dialect(self) -> Dialect: ...

    def send(self, sql: str, *values: object) -> None: ...

    def run_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None: ...

    # drivers do not type the values; the schema determines them
    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]: ...


def load_counts(tx: Transaction, tokenizer: str, hashes: Sequence[bytes]) -> dict[bytes, int]:
    """Return the stored counts of these content hashes."""
    found: dict[bytes, int] = {}
    for start in range(0, len(hashes), HASHES_PER_QUERY):
        some = hashes[start : start + HASHES_PER_QUERY]
        marks = ", ".join("?" * len(some))
        rows = tx.rows(
            f"SELECT hash, tokens FROM token_count WHERE tokenizer = ? AND hash IN ({marks})", tokenizer, *some
        )
        found.update((bytes(name), tokens) for name, tokens in rows)
    return found


def save_counts(tx: Transaction, tokenizer: str, counts: Mapping[bytes, int]) -> None:
    """Store counts. Existing ones are not changed."""
    if counts:
        tx.run_many(
            "INSERT INTO token_count (hash, tokenizer, tokens) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            [(name, tokenizer, tokens) for name, tokens in counts.items()],
        )


def load_calibration(tx: Transaction, model: str) -> Calibration:
    """Return the stored calibration of a model, or the default one."""
    rows = tx.rows("SELECT factor, samples FROM calibration WHERE model = ?", model)
    return Calibration(*rows[0]) if rows else Calibration()


def save_calibration(tx: Transaction, model: str, calibration: Calibration, *, is_stored: bool = False) -> None:
    """Store the calibration of a model. `is_stored` is True if one is known to be stored.

    All conversations share the row. It is skipped while another transaction changes it, so that a writer never waits
    for others that use the model.
    """
    learned = calibration.factor, calibration.samples
    if is_stored or tx.rows("SELECT 1 FROM calibration WHERE model = ?", model):
        tx.send(
            "UPDATE calibration SET factor = ?, samples = ? WHERE model IN"
            f" (SELECT model FROM calibration WHERE model = ?{tx.dialect.skip_locked})",
            *learned,
            model,
        )
    else:
        tx.send(
            "INSERT INTO calibration (model, factor, samples) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", model, *learned
        )
