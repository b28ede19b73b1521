"""Providers as data (format, model, session behaviour), and the clients that send requests to them."""

from contextc._lazy import lazy_names
from contextc.providers.client import Endpoint, ProviderCall, endpoint
from contextc.providers.registry import Provider, provider, provider_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.providers.claude_code.sessions import ClaudeSessions

__all__ = ["ClaudeSessions", "Endpoint", "Provider", "ProviderCall", "endpoint", "provider", "provider_names"]

if not TYPE_CHECKING:  # or type checkers would accept every name
    __getattr__ = lazy_names(__name__, {"claude_code.sessions": "ClaudeSessions"})
