"""Who can be asked from here, and for which models: whose key is set, whose program is installed.

No key is handed out. One that is set may be wrong, and a program may have nobody logged in: asking finds that out.
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
"""Where the SDKs look by themselves, by the client that uses them."""
RECORDINGS = "replay"


class Known(Struct, frozen=True, kw_only=True):
    """A provider, the models that are known to be its own, and whether it can be asked.

    `also` are other names of it, `variables` those one of which holds its key: never what is in them.
    """

    name: str
    also: list[str]
    models: list[str]
    needs_key: bool
    is_ready: bool
    variables: list[str]


def key_variables(known: Provider) -> tuple[str, ...]:
    """The environment variables one of which holds its key; none where it needs none."""
    if known.key:
        return (known.key,)
    return () if known.url else SDK_KEYS.get(known.client, ())


def known_providers() -> list[Known]:
    """Everybody who can be named, except recordings, which are named by their file."""
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
