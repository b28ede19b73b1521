"""Record requests that other software made: the same chain, ledger and manifests as requests of our own."""

from contextc.observation.httpx_tap import tap
from contextc.observation.observe_exchange import observe
from contextc.observation.observed_request import ObservedRequest
from contextc.observation.observed_retention import DeletedTraffic, limit_observed

__all__ = ["DeletedTraffic", "ObservedRequest", "limit_observed", "observe", "tap"]
