"""Who we talk to, as data: which format they speak, and what they remember by themselves."""

from contextc.providers.named import Provider, provider, provider_names

__all__ = ["Provider", "provider", "provider_names"]
