"""Providers as data (format, model, session behaviour), and the clients that send requests to them."""

from contextc.providers.client import Endpoint, ProviderCall, endpoint
from contextc.providers.registry import Provider, provider, provider_names

__all__ = ["Endpoint", "Provider", "ProviderCall", "endpoint", "provider", "provider_names"]
