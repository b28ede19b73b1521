"""Availability of providers: which have a key set or a program installed, and their known models.

Keys are never returned. A key that is set may be invalid, and a program may lack a login: only a call finds out.
"""

import os

from msgspec import Struct

from contextc.providers.cli_agent_discovery import known_cli_agents
from contextc.providers.registry import UNLIMITED_WINDOW, Provider, aliases_of, known_models, provider, provider_names

SDK_KEYS = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
}
"""Variables that the SDKs read by default, by client."""
REPLAY = "replay"


class ProviderStatus(Struct, frozen=True, kw_only=True):
    """A provider, its known models, and whether it is available.

    `also` are its aliases. `variables` are the environment variables that may hold its key, without their values.
    """

    name: str
    also: list[str]
    models: list[str]
    needs_key: bool
    is_ready: bool
    variables: list[str]


def key_variables(known: Provider) -> tuple[str, ...]:
    """Return the environment variables that may hold the key. Empty if no key is needed."""
    if known.key:
        return (known.key,)
    return () if known.url else SDK_KEYS.get(known.client, ())


def list_providers() -> list[ProviderStatus]:
    """Return all providers except `replay`, which is named by a file."""
    found: list[ProviderStatus] = []
    for name in provider_names():
        if name == REPLAY:
            continue
        known = provider(f"{name}:any", window=UNLIMITED_WINDOW)
        keys = key_variables(known)
        program = known_cli_agents().get(known.client)
        ready = not keys or any(os.environ.get(variable, "").strip() for variable in keys)
        if program is not None:
            keys, ready = (), program.is_installed and bool(program.path)
        found.append(
            ProviderStatus(
                name=name,
                also=[*aliases_of(name)],
                models=[*known_models(name)],
                needs_key=bool(keys),
                is_ready=ready,
                variables=[*keys],
            )
        )
    return found
