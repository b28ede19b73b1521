"""Calibration of token estimates with the usage that providers report.

The factor is learned per model. Early samples change it quickly, later ones slowly. It stays between 0.5 and 2; larger
differences are overhead of the channel and counted there. Small requests are ignored, because overhead dominates them.
"""

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
