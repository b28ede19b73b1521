"""Who we talk to, as data: which format they speak, and what they remember by themselves; and the line to them."""

from contextc.providers.endpoint import Call, Endpoint, endpoint
from contextc.providers.named import Provider, provider, provider_names

__all__ = ["Call", "Endpoint", "Provider", "endpoint", "provider", "provider_names"]
