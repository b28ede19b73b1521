"""Record requests that other software made: the same chain, ledger and manifests as requests of our own."""

from contextc.observation.recorder import ObservedRequest, observe
from contextc.observation.tap import tap

__all__ = ["ObservedRequest", "observe", "tap"]
