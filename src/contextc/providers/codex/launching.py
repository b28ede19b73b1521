"""Command line, configuration and environment of the Codex program.

The user's configuration is not modified: overrides are passed on the command line. A thread without a listener is
always unloaded at once, so that another process can resume it. A missing network is always an error, not a reason to
wait. If a URL or a key is given, a model provider of our own is configured, with the given number of retries, and
features that contact other hosts are disabled.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from contextc._json import JSON
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.providers.named import Provider
from contextc.providers.posting import missing_package

MODEL_PROVIDER = "contextc"
"""Name of our model provider in the program's configuration."""
OPENAI_URL = "https://api.openai.com/v1"
"""URL for a key without a URL, because the program would not use the key otherwise."""
BASE_CONFIG: dict[str, JSON] = {"thread_unload_delay_secs": 0, "features.unbounded_connection_retries": False}
CUSTOM_URL_CONFIG: dict[str, JSON] = {
    "features.plugins": False,
    "features.apps": False,
    "features.api_key_model_discovery": False,
    "check_for_update_on_startup": False,
}


class LaunchConfig(Struct, frozen=True):
    """Command and environment of the program. Equal values may share a process."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    @classmethod
    def of(cls, provider: Provider, env: Mapping[str, str], program: str = "", retries: int = 0) -> "LaunchConfig":
        """Return the launch for a provider. `program` replaces the program in the package."""
        environment = {**os.environ, **env}
        settings = dict(BASE_CONFIG)
        if provider.url or provider.key:
            settings |= {**CUSTOM_URL_CONFIG, "model_provider": MODEL_PROVIDER}
            known = _model_provider(provider, retries)
            settings |= {f"model_providers.{MODEL_PROVIDER}.{name}": value for name, value in known.items()}
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
        "name": MODEL_PROVIDER,
        "base_url": provider.url or OPENAI_URL,
        "wire_api": "responses",
        "request_max_retries": retries,
        "stream_max_retries": retries,
    }
    return known | ({"env_key": provider.key} if provider.key else {})


def _bundled(environment: dict[str, str]) -> str:
    """Return the path of the program in the package, and add the folder of its tools to PATH."""
    try:
        from codex_cli_bin import (  # pyright: ignore[reportMissingTypeStubs]
            bundled_codex_path,
            bundled_path_dir,
        )
    except ImportError:
        raise missing_package("openai-codex", "codex") from None
    try:
        program: Path = bundled_codex_path()
        folder: Path | None = bundled_path_dir()
    except FileNotFoundError as error:
        raise InvalidSetting(
            str(error), fix="Reinstall it: pip install --force-reinstall openai-codex-cli-bin"
        ) from None
    if folder is not None:
        environment["PATH"] = os.pathsep.join([str(folder), *filter(None, [environment.get("PATH")])])
    return str(program)


def _toml(value: JSON) -> str:
    """Encode a value as TOML. Strings, numbers and booleans are written as in JSON."""
    return json.dumps(value, ensure_ascii=False)
