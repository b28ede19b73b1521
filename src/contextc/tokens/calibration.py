"""What the provider's own figures teach: how far off the estimate for a model is, and how large the next input is.

The factor is learned per model. The first figures move it quickly, later ones slowly, and it stays within a half and
twice: what is further off is an overhead of the channel, and is counted there. Small requests teach nothing, because
overheads rule them.
"""

from msgspec import Struct

LOWEST, HIGHEST = 0.5, 2.0
FEWEST_TOKENS = 50
SLOWEST = 0.05  # the share of a new figure, once many have been seen


class Calibration(Struct, frozen=True, gc=False):
    """By how much the estimates for one model are to be multiplied, and how many requests have said so."""

    factor: float = 1.0
    samples: int = 0

    def learned(self, estimated: int, real: int) -> "Calibration":
        """This calibration after one more request: what was estimated without it, and what the provider counted."""
        if estimated < FEWEST_TOKENS or real < FEWEST_TOKENS:
            return self
        share = max(1 / (self.samples + 1), SLOWEST)
        seen = min(max(real / estimated, LOWEST), HIGHEST)
        return Calibration(self.factor + (seen - self.factor) * share, self.samples + 1)

    def corrected(self, estimated: int) -> int:
        return round(estimated * self.factor)


def next_input(last_input: int, replayed_output: int, new_estimate: int) -> int:
    """The tokens of the next request, from the last real one.

    `last_input` is what the provider counted, cache reads and writes included; `replayed_output` is what of its reply
    goes back to it; `new_estimate` is everything after that, by estimate.
    """
    return last_input + replayed_output + new_estimate
