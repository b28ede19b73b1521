"""How the program is started: which one, with what configuration, in what environment.

Nothing is written to the user's configuration; what differs from it is said on the command line. Always: a thread that
nobody listens to is let go of at once, so that another process can go on with it; and a network that is away is an
error, not something to wait for without end. Where an address or a key is given: a model provider of our own, which
tries again as often as is said, and none of the features that look up other hosts.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from contextc._json import JSON
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.providers.named import Provider
from contextc.providers.posting import missing

OURS = "contextc"
"""The name of our model provider in the program's configuration."""
API = "https://api.openai.com/v1"
"""Where a key is for that comes without an address: the program by itself would not use it."""
ALWAYS: dict[str, JSON] = {"thread_unload_delay_secs": 0, "features.unbounded_connection_retries": False}
ELSEWHERE: dict[str, JSON] = {
    "features.plugins": False,
    "features.apps": False,
    "features.api_key_model_discovery": False,
    "check_for_update_on_startup": False,
}


class Launch(Struct, frozen=True):
    """A command and its environment. Equal ones may share a process."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    @classmethod
    def of(cls, provider: Provider, env: Mapping[str, str], program: str = "", retries: int = 0) -> "Launch":
        environment = {**os.environ, **env}
        settings = dict(ALWAYS)
        if provider.url or provider.key:
            settings |= {**ELSEWHERE, "model_provider": OURS}
            known = _model_provider(provider, retries)
            settings |= {f"model_providers.{OURS}.{name}": value for name, value in known.items()}
        if provider.key and not environment.get(provider.key, "").strip():
            raise ProviderFailed(
                provider.name,
                "auth",
                f"the environment variable {provider.key} is not set",
                way_out=f"Set {provider.key}, or name another variable: cc.provider(…, key=…).",
                case="key",
                detail=provider.key,
            )
        written = [part for name, value in settings.items() for part in ("-c", f"{name}={_toml(value)}")]
        found = program or _bundled(environment)
        return cls((found, *written, "app-server", "--listen", "stdio://"), environment)


def _model_provider(provider: Provider, retries: int) -> dict[str, JSON]:
    known: dict[str, JSON] = {
        "name": OURS,
        "base_url": provider.url or API,
        "wire_api": "responses",
        "request_max_retries": retries,
        "stream_max_retries": retries,
    }
    return known | ({"env_key": provider.key} if provider.key else {})


def _bundled(environment: dict[str, str]) -> str:
    """The program of the package; the tools that come with it are put where it finds them."""
    try:
        from codex_cli_bin import (  # pyright: ignore[reportMissingTypeStubs]
            bundled_codex_path,
            bundled_path_dir,
        )
    except ImportError:
        raise missing("openai-codex", "codex") from None
    try:
        program: Path = bundled_codex_path()
        folder: Path | None = bundled_path_dir()
    except FileNotFoundError as error:
        raise InvalidSetting(f"{error}. Install it again: pip install --force-reinstall openai-codex-cli-bin") from None
    if folder is not None:
        environment["PATH"] = os.pathsep.join([str(folder), *filter(None, [environment.get("PATH")])])
    return str(program)


def _toml(value: JSON) -> str:
    """Text, numbers and truth are written in TOML as they are in JSON."""
    return json.dumps(value, ensure_ascii=False)
