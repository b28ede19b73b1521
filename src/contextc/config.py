"""What is configured, and where each setting came from.

Arguments win over environment variables, these over `contextc.toml` in the project, that over the one in the user's
configuration folder, and that over the defaults. With nothing configured there is a SQLite file in the user's data
folder.
"""

import os
import sys
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from contextc.errors import InvalidSetting

FILE = "contextc.toml"
UNITS = {"d": "days", "h": "hours"}


class Setting(NamedTuple):
    value: str
    source: str


class Settings(NamedTuple):
    store: Setting
    retention: Setting

    def retention_age(self) -> timedelta | None:
        """How old a message may become before its content is redacted; None keeps everything."""
        text = self.retention.value
        if not text:
            return None
        if not text[:-1].isdigit() or text[-1] not in UNITS or int(text[:-1]) == 0:
            raise InvalidSetting(f"retention {text!r} ({self.retention.source}): write days or hours, like 90d or 12h.")
        return timedelta(**{UNITS[text[-1]]: int(text[:-1])})


def read_settings(
    store: str | None = None, *, environment: Mapping[str, str] = os.environ, folder: str | None = None
) -> Settings:
    """The settings in force, for a command that was given `store` or not."""
    found: dict[str, Setting] = {
        "store": Setting(f"sqlite:///{os.path.join(data_folder(environment), 'contextc.db')}", "default"),
        "retention": Setting("", "default"),
    }
    for path in (os.path.join(config_folder(environment), FILE), os.path.join(folder or os.getcwd(), FILE)):
        found |= _from_file(path, set(found))
    for name in found:
        if value := environment.get(f"CONTEXTC_{name.upper()}"):
            found[name] = Setting(value, f"CONTEXTC_{name.upper()}")
    if store:
        found["store"] = Setting(store, "argument")
    return Settings(**found)


def masked(address: str) -> str:
    """An address without its password."""
    scheme, separator, rest = address.partition("://")
    login, at, host = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    return f"{scheme}{separator}{user}{colon and ':***'}{at}{host}"


def data_folder(environment: Mapping[str, str]) -> str:
    return _folder(environment, "XDG_DATA_HOME", "LOCALAPPDATA", "~/.local/share")


def config_folder(environment: Mapping[str, str]) -> str:
    return _folder(environment, "XDG_CONFIG_HOME", "APPDATA", "~/.config")


def _folder(environment: Mapping[str, str], unix: str, windows: str, default: str) -> str:
    home = environment.get("HOME") or os.path.expanduser("~")
    if base := environment.get(windows if sys.platform == "win32" else unix):
        return os.path.join(base, "contextc")
    if sys.platform == "darwin":
        default = "~/Library/Application Support"
    return os.path.join(default.replace("~", home, 1), "contextc")


def _from_file(path: str, names: set[str]) -> dict[str, Setting]:
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidSetting(f"{path} cannot be read: {error}.") from error
    for name, value in content.items():
        if name not in names or not isinstance(value, str):
            raise InvalidSetting(
                f"{path}: {name} = {value!r} is no setting. There are: {', '.join(sorted(names))}, all text."
            )
    return {name: Setting(value, path) for name, value in content.items()}
