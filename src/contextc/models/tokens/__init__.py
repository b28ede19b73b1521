"""Token counting: exact with a vocabulary, otherwise estimated, and calibrated with reported usage."""

from contextc.models.tokens.count_store import (
    MAX_FACTOR,
    MIN_FACTOR,
    Calibration,
    estimate_next_input,
    load_calibration,
    load_counts,
    save_calibration,
    save_counts,
)
from contextc.models.tokens.counter import TokenCounter, get_counter

__all__ = [
    "MAX_FACTOR",
    "MIN_FACTOR",
    "Calibration",
    "TokenCounter",
    "estimate_next_input",
    "get_counter",
    "load_calibration",
    "load_counts",
    "save_calibration",
    "save_counts",
]
