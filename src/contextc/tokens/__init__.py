"""Token counting: exact with a vocabulary, otherwise estimated, and calibrated with reported usage."""

from contextc.tokens.cache import keep, known, load_calibration, save_calibration
from contextc.tokens.calibration import HIGHEST, LOWEST, Calibration, next_input
from contextc.tokens.counter import Counter, counter

__all__ = [
    "HIGHEST",
    "LOWEST",
    "Calibration",
    "Counter",
    "counter",
    "keep",
    "known",
    "load_calibration",
    "next_input",
    "save_calibration",
]
