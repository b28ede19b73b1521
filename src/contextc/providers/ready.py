"""Availability of providers: which have a key set or a program installed, and their known models.

Keys are never returned. A key that is set may be invalid, and a program may lack a login: only a call finds out.
"""

import os

from msgspec import Struct

from contextc.providers.named import MUCH, Provider, models_of, other_names, provider, provider_names
from contextc.providers.programs import programs

SDK_KEYS = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
}
"""Variables that the SDKs read by default, by client."""
RECORDINGS = "replay"


class Known(Struct, frozen=True, kw_only=True):
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


def known_providers() -> list[Known]:
    """Return all providers except `replay`, which is named by a file."""
    found: list[Known] = []
    for name in provider_names():
        if name == RECORDINGS:
            continue
        known = provider(f"{name}:any", window=MUCH)
        keys = key_variables(known)
        program = programs().get(known.client)
        ready = not keys or any(os.environ.get(variable, "").strip() for variable in keys)
        if program is not None:
            keys, ready = (), program.is_installed and bool(program.path)
        found.append(
            Known(
                name=name,
                also=[*other_names(name)],
                models=[*models_of(name)],
                needs_key=bool(keys),
                is_ready=ready,
                variables=[*keys],
            )
        )
    return found
