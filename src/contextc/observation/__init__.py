"""Record requests that other software made: the same chain, ledger and manifests as requests of our own."""

from contextc.observation.observed_limits import DeletedTraffic, limit_observed
from contextc.observation.observed_request import ObservedRequest
from contextc.observation.recorder import observe
from contextc.observation.tap import tap

__all__ = ["DeletedTraffic", "ObservedRequest", "limit_observed", "observe", "tap"]
