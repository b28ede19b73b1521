"""Registry of providers: resolve "provider:model" to a model, a wire format and the provider's session behaviour.

Providers differ only in data, so no code branches on a provider's name. The data is in `providers.toml`. A
`[providers.name]` table in the user's `contextc.toml` takes precedence. A provider that is in neither is stateless and
uses OpenAI's chat format, as most endpoints do. Providers are values: equal providers share one formatter.
"""

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from functools import cache, lru_cache
from typing import NamedTuple, Unpack, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import fields, replace

from contextc._json import JSON, JSONObject
from contextc._plugins import PROVIDERS as PLUGIN_PROVIDERS
from contextc._plugins import data_files, load_plugin, plugins
from contextc._sequence_comparison import find_near_names
from contextc.config import PROVIDERS, check_provider_trust, mask_secrets, read_providers
from contextc.errors import FailureKind, InvalidSetting, UnknownModel
from contextc.formats.base import Formatter
from contextc.formats.registry import format_names, is_format
from contextc.formats.registry import formatter as formatter_named
from contextc.models.model_info import FACT_NAMES as MODEL_FACTS
from contextc.models.model_info import (
    Model,
    ModelFacts,
    find_close_names,
    find_configured_facts,
    find_entry,
    has_open_weights,
    is_vendor_name,
    list_vendor_models,
    model,
)

DEFAULT_FORMAT = "openai_chat"
UNLIMITED_WINDOW = 1 << 30
DEFAULT_MODEL = "default"
"""Model name for a provider that selects the model itself, such as a CLI agent with its own configuration."""
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\r\n\0]*")
VARIABLE_NAME = re.compile(r"(?!sk_|pk_|rk_|gsk_|xai_|AIza)[A-Za-z_][A-Za-z0-9_]*")
SPEC_HELP = 'Write it as "anthropic:claude-opus-5-5": the provider, a colon, the model.'


class Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, cache_hash=True):
    """A provider and the model that is requested from it.

    - `model_id`: the model's id at this provider. "default" leaves the choice to the program.
    - `runs_tools`: the provider has its own tools and runs them.
    - `session_resumption`: the provider stores the conversation in a session. The next flags describe such sessions.
    - `directory_bound`: a session belongs to a working directory.
    - `system_in_session`: a resumed session accepts a new system message with a turn.
    - `reverts`: a session can be reverted after a failed prompt.
    - `keeps_static`: a session keeps its first system prompt and ignores later ones.
    - `compacts_itself`: the provider shortens the history of a session.
    - `resends_head`: system prompt and tools are sent with every request.
    - `session_field`: the request setting that names the session, if there is one. Replies return its id in it, too.
    - `speaks`: a formatter that replaces the one derived from the other fields.
    - `betas`: beta flags that are sent, such as "inline-tools-2026-09-15". A feature that needs another is not used.
    - `refused_betas`: beta flags that it has refused. A feature that needs one of them is not used.
    - `headers`: more headers of its requests, as pairs. They are never stored or printed.
    - `client`: the module of `contextc.providers` that sends the requests.
    - `url`: the base URL. "" uses the default of the vendor's SDK.
    - `key`: the name of the environment variable that holds the API key, never the key itself. If it is "", the
      vendor's SDK looks for a key, but none is sent to a custom `url`.
    """

    name: str
    model: Model
    format: str
    model_id: str
    runs_tools: bool = False
    session_resumption: bool = False
    directory_bound: bool = False
    system_in_session: bool = False
    reverts: bool = False
    keeps_static: bool = False
    compacts_itself: bool = False
    resends_head: bool = False
    session_field: str = ""
    client: str = ""
    url: str = ""
    key: str = ""
    betas: tuple[str, ...] = ()
    refused_betas: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    speaks: Formatter | None = None

    def __post_init__(self) -> None:
        if self.key and not VARIABLE_NAME.fullmatch(self.key):  # the value may be a real key, so the error omits it
            raise InvalidSetting(
                "key: must be the name of the environment variable that holds the API key, not the key itself",
                fix="Pass a name such as OPENAI_API_KEY.",
            )

    def __repr__(self) -> str:
        """Return the name of the provider and the model, without credentials that the URL may contain."""
        return f"Provider({self.title!r}{f', url={mask_secrets(self.url)!r}' if self.url else ''})"

    @property
    def title(self) -> str:
        """The provider and the model in one word: `anthropic:claude-opus-5-5`."""
        return f"{self.name}:{self.model_id}"

    @property
    def formatter(self) -> Formatter:
        """The formatter for this provider and model. Equal providers share one."""
        return self.speaks or _formatter(self)

    @property
    def settings(self) -> JSONObject:
        """Settings added to every request so that no state is lost between two steps."""
        return self._table_value("settings") | (self._table_value("reasoning_settings") if self.model.reasoning else {})

    @property
    def stream_settings(self) -> JSONObject:
        """Settings added to a request whose reply is streamed."""
        return self._table_value("stream_settings")

    @property
    def prose_settings(self) -> JSONObject:
        """Settings added to a request without tools."""
        return self._table_value("prose_settings")

    @property
    def features(self) -> frozenset[str]:
        """Features that requests may use: what provider and model have, and `betas` allows."""
        found = self._table_value("features")
        return frozenset([name for name in self.model.features if name in found and self._is_allowed(found[name])])

    def offers(self, feature: str) -> bool:
        """Return True if the provider has a feature that requests use where it is asked for, whatever the model."""
        flags = self._table_value("features").get(feature)
        return flags is not None and (not flags or not set(flags) <= set(self.refused_betas))

    @property
    def has_system_between(self) -> bool:
        """True if requests may have system messages between others, in a format of the model's vendor or a table."""
        known = self.formatter.system_between
        is_own = known is None and self.formatter.rules.vendor == self.model.vendor
        return self.model.system_between and (known or is_own)

    def flags_of(self, features: Collection[str]) -> tuple[str, ...]:
        """Return the beta flags to send with requests that use these features, sorted."""
        if not features:
            return ()
        needed = [flags for name, flags in self._table_value("features").items() if name in features and flags]
        return tuple(sorted({self._choose_flag(flags) for flags in needed}))

    def _choose_flag(self, flags: Sequence[str]) -> str:
        """Return the flag to send of those of which a feature needs one."""
        usable = [flag for flag in flags if flag not in self.refused_betas] or flags
        return next((flag for flag in usable if flag in self.betas), usable[0])

    @property
    def beta_header(self) -> str:
        """The header that beta flags are sent in; "" if none is known."""
        return _tables().calls.get(self.format, {}).get("beta_header", "")

    @property
    def beta_field(self) -> str:
        """The field of a request's body that beta flags are sent in; "" if they are sent in a header."""
        return _tables().calls.get(self.format, {}).get("beta_field", "")

    def headers_with(self, betas: Collection[str]) -> dict[str, str]:
        """Return the headers of a request with these beta flags."""
        return {**self.beta_headers(betas), **dict(self.headers)}

    def beta_headers(self, betas: Collection[str]) -> dict[str, str]:
        """Return the header that these beta flags are sent in, if there is one."""
        return {self.beta_header: ",".join(betas)} if betas and self.beta_header else {}

    def settings_with_betas(self, settings: JSONObject) -> JSONObject:
        """Return settings with the beta flags, if they belong in the body. Flags that it has are kept."""
        if not self.betas or not self.beta_field:
            return settings
        outer, _, inner = self.beta_field.partition(".")
        fields = cast(JSONObject, found) if isinstance(found := settings.get(outer), dict) else {}
        given = cast(list[JSON], flags) if isinstance(flags := fields.get(inner), list) else []
        return {**settings, outer: {**fields, inner: [*dict.fromkeys([*given, *self.betas])]}}

    def sending(self, betas: object = None, headers: object = None) -> "Provider":
        """Return this provider with more beta flags and headers."""
        more = _check_betas(betas) if betas is not None else ()
        more_headers = dict(_check_headers(headers) if headers is not None else ())
        replaced = {name.lower() for name in more_headers}
        added = {name: text for name, text in self.headers if name.lower() not in replaced} | more_headers
        found = replace(self, betas=tuple(dict.fromkeys((*self.betas, *more))), headers=tuple(added.items()))
        if found.betas and not (found.beta_header or found.beta_field):
            raise InvalidSetting(
                f"betas: no header for beta flags of {self.name} is known", fix='Pass it: headers={"…": "…"}.'
            )
        program = _tables().programs.get(found.client)
        if added and program is not None and not program.get("takes_headers"):
            raise InvalidSetting(
                f"headers: {program['command']} sends none that its caller adds", fix="Set them in its configuration."
            )
        header = found.beta_header.lower()
        if taken := next((name for name in added if header and name.lower() == header), None):
            raise InvalidSetting(f"headers: {taken} is written from betas", fix='Pass betas=["…"].')
        return found

    def without_betas(self, refused: Collection[str]) -> "Provider":
        """Return this provider without beta flags that it has refused."""
        if {*refused} <= {*self.refused_betas}:
            return self
        kept = tuple([flag for flag in self.betas if flag not in refused])
        return replace(self, betas=kept, refused_betas=tuple(sorted({*self.refused_betas, *refused})))

    def _is_allowed(self, flags: list[str]) -> bool:
        return not flags or not set(flags).isdisjoint(self.betas)

    @property
    def path(self) -> str:
        """URL path of its format, relative to `url`."""
        return _tables().calls.get(self.format, {}).get("path", "")

    @property
    def cache_lifetimes(self) -> tuple[str, ...]:
        """Lifetimes that a request can ask the prompt cache for, the shortest first. Empty if there is no choice."""
        found: JSONObject = self._native_facts.get("cache_lifetimes", {}) if self.model.cache_points else {}
        return tuple(found.get(self.model.vendor, ()))

    @property
    def takes_cache_key(self) -> bool:
        """True if requests can name what they are cached under, in a field of their body."""
        return self._native_facts.get("cache_key", False)

    @property
    def cache_comparison(self) -> tuple[str, ...]:
        """The setting that asks why the cache missed, by the id of the reply before. Empty if there is none here."""
        found = self._native_facts.get("cache_comparison", ()) if self.model.cache_points else ()
        return tuple(found) if self.has_own_address else ()

    @property
    def has_own_address(self) -> bool:
        """True if requests go to the provider's own address, not to another server with its API."""
        return self.url == _tables().providers.get(self.name, {}).get("url", "")

    @property
    def tool_search(self) -> JSONObject:
        """The provider's own tool that searches deferred tools, as it is sent. Empty if it has none."""
        return deepcopy(self._native_facts.get("tool_search", {}))

    @property
    def conversation_header(self) -> str:
        """Header that identifies the conversation, so that the provider routes its requests to one machine."""
        return _tables().providers.get(self.name, {}).get("conversation_header", "")

    @property
    def refusal_codes(self) -> dict[str, FailureKind]:
        """Failure kinds by the provider's own error codes."""
        return cast(dict[str, FailureKind], self._table_value("codes"))

    @property
    def refusal_words(self) -> dict[str, FailureKind]:
        """Failure kinds by patterns in the provider's error messages. The first match counts."""
        return cast(dict[str, FailureKind], self._table_value("words"))

    @property
    def _native_facts(self) -> JSONObject:
        """Registered facts that hold in the provider's own format only."""
        found = _tables().providers.get(self.name, {})
        return found if found.get("format") == self.format else {}

    def _table_value(self, name: str) -> JSONObject:
        known = _tables().providers.get(self.name, {})
        found: JSONObject = known.get(name, _tables().calls.get(self.format, {}).get(name, {}))
        return deepcopy(found)


class ProviderFacts(ModelFacts, total=False):
    """Facts about a provider and its model as keyword arguments. `Provider` and `Model` describe them."""

    vendor: str | None
    runs_tools: bool
    session_resumption: bool
    directory_bound: bool
    system_in_session: bool
    reverts: bool
    keeps_static: bool
    compacts_itself: bool
    resends_head: bool
    session_field: str
    client: str
    url: str
    key: str
    betas: tuple[str, ...] | list[str]
    headers: Mapping[str, str]


FLAG_FIELDS = tuple(field.name for field in fields(Provider) if field.type is bool)
TEXT_FIELDS = ("client", "url", "key", "session_field")
CALL_FIELDS = ("betas", "headers")
CONFIG_KEYS: dict[str, type] = {
    **dict.fromkeys((*TEXT_FIELDS, "format", "model"), str),
    **dict.fromkeys(("window", "output"), int),
    **dict.fromkeys(FLAG_FIELDS, bool),
    "betas": list,
}
"""Keys of a `[providers.name]` table and their types. `model` is the default model."""


class ProviderTables(NamedTuple):
    """Content of `providers.toml`. `names` maps every alias of a provider to its primary name."""

    providers: dict[str, JSONObject]
    names: dict[str, str]
    vendors: dict[str, str]
    formats: dict[str, dict[str, str]]
    calls: dict[str, JSONObject]
    programs: dict[str, JSONObject]
    snippets: dict[str, JSONObject]
    served: dict[str, JSONObject]


def provider(
    spec: str,
    *,
    window: int | None = None,
    output: int | None = None,
    format: str | None = None,
    **facts: Unpack[ProviderFacts],
) -> Provider:
    """Return the provider for "provider:model", or for a model name whose vendor serves it.

    `facts` are any fields of the model or of the provider. They override the registered values.
    """
    if not isinstance(spec, str) or not spec.strip():
        raise InvalidSetting('provider: expected "provider:model"', got=spec, fix=SPEC_HELP)
    model_facts: JSONObject = {"window": window, "output": output}
    own: JSONObject = {}
    sent: dict[str, object] = {}
    for fact, value in facts.items():
        if (fact in FLAG_FIELDS and isinstance(value, bool)) or (fact in TEXT_FIELDS and isinstance(value, str)):
            own[fact] = value
        elif fact in CALL_FIELDS:
            sent[fact] = value
        elif fact in MODEL_FACTS:
            model_facts[fact] = value
        else:
            raise _unknown_field(fact, value)
    name, model_id = _split_spec(spec.strip(), model_facts, format)
    entry = _tables().providers.get(name, {})
    if written := _written_table(name):
        written = {"format": entry.get("format", DEFAULT_FORMAT), **written}
        format = _apply_config(written, model_id, model_facts, own, format)
    if entry.get("facts") and not find_entry(model_id):  # the provider's own choice, or an alias of its own
        given = {fact: value for fact, value in model_facts.items() if value is not None}
        model_facts = {**entry["facts"], **({"output": None} if "window" in given else {}), **given}
    format_name = _check_format(name, format or entry.get("format", DEFAULT_FORMAT))
    known: dict[str, bool | str] = {fact: entry[fact] for fact in (*FLAG_FIELDS, *TEXT_FIELDS) if fact in entry}
    if "url" in own or client_of_format(format_name) != client_of_format(entry.get("format", DEFAULT_FORMAT)):
        known = {fact: value for fact, value in known.items() if fact not in ("url", "key")}  # of another address
    try:
        served = model(
            model_id, open_weights=_has_open_weights(format_name, entry.get("format", DEFAULT_FORMAT)), **model_facts
        )
    except UnknownModel as error:
        if entry or format is not None or "url" in own:
            raise
        problem, fix = unknown_provider_message(name)
        raise UnknownModel(
            model_id, close=error.close, problem=problem, fix=fix, case="provider", detail=name
        ) from None
    plain = Provider(
        name=name, model=served, format=format_name, model_id=model_id, client=client_of_format(format_name)
    )
    found = replace(plain, **known | own)
    if sent or found.betas:
        found = found.sending(**sent)
    if own.get("session_field") and not found.session_resumption:
        raise InvalidSetting(
            "session_field: only providers with sessions have one", fix="Pass session_resumption=True."
        )
    return found


def unknown_provider_message(name: str) -> tuple[str, str]:
    """Return the problem and the fix of the error for an unknown provider."""
    close = find_near_names(name, provider_names())[:1]
    meant = f" Did you mean {close[0]}?" if close else ""
    return (
        f"Provider {name!r} not found.{meant} Known providers: {', '.join(provider_names())}",
        f'For your own endpoint: cc.provider("{name}:…", url="https://…/v1", window=128_000), or set url below '
        f"[providers.{name}] in contextc.toml.",
    )


def provider_names() -> tuple[str, ...]:
    """Return the names of the registered providers, then those of the user's configuration."""
    return tuple(provider_formats())


def provider_formats() -> dict[str, str]:
    """Return the formats of all providers in the order of `provider_names`, "" for those of plugins. This reads the
    configuration once.
    """
    written, formats = _config_tables(), format_names()
    ours = [name for name, facts in _tables().providers.items() if facts["format"] in formats]
    names = dict.fromkeys([*ours, *written, *sorted(plugins(PLUGIN_PROVIDERS))])
    return {name: _format_in(written, name) for name in names}


def aliases_of(name: str) -> tuple[str, ...]:
    """Return the aliases of a provider."""
    return tuple([each for each, first in _tables().names.items() if first == name != each])


def format_of_provider(name: str) -> str:
    """Return the format of the provider with this name or alias, or "" if it is unknown."""
    return _format_in(_config_tables(), name)


def _format_in(written: Mapping[str, JSONObject], name: str) -> str:
    first = _tables().names.get(name.lower().replace("_", "-"), name)
    facts = {**_tables().providers.get(first, {}), **written.get(first, {})}
    return facts.get("format", DEFAULT_FORMAT) if facts else ""


def has_sessions(name: str) -> bool:
    """Return True if the provider with this name or alias stores conversations in sessions."""
    first = _tables().names.get(name.lower().replace("_", "-"), name)
    facts = {**_tables().providers.get(first, {}), **_config_tables().get(first, {})}
    return bool(facts.get("session_resumption"))


def known_models(name: str) -> tuple[str, ...]:
    """Return the known models of a provider: its default model, then those of its vendors."""
    facts = {**_tables().providers.get(name, {}), **_config_tables().get(name, {})}
    kin = _tables().providers.get(name.partition("-")[0], {})  # another provider of the same vendor
    own = [facts["model"]] if facts.get("model") else []
    return tuple(dict.fromkeys([*own, *list_vendor_models(facts.get("vendors") or kin.get("vendors", ()))]))


def beta_headers() -> frozenset[str]:
    """Return the headers that have lists of beta flags, in lower case."""
    names: list[str] = [call.get("beta_header", "") for call in _tables().calls.values()]
    return frozenset([name.lower() for name in names if name])


def client_of_format(format: str) -> str:
    """Return the client that sends requests of a format, or "" if there is none."""
    return _tables().calls.get(format, {}).get("client", "")


def extra_of_format(format: str) -> str:
    """Return the package extra that installs the SDK for a format, or "" if it is named after the client."""
    return _tables().calls.get(format, {}).get("extra", "")


def formats_of_url(url: str) -> tuple[str, ...]:
    """Return the formats that a URL may accept, the most likely first. Empty if the URL is unknown."""
    try:
        host, path = urlsplit(url).hostname, url.partition("?")[0].rstrip("/").lower()
    except ValueError:
        return ()
    written = {
        name: {"format": DEFAULT_FORMAT, **_tables().providers.get(name, {}), **own}
        for name, own in _config_tables().items()
    }
    known = [facts for facts in {**_tables().providers, **written}.values() if host and facts.get("url")]
    served = [facts["format"] for facts in known if urlsplit(facts["url"]).hostname == host]
    ends = {name: (*call.get("at", ()), *filter(None, [call.get("path")])) for name, call in _tables().calls.items()}
    there = sorted((name for name in ends if path.endswith(tuple(ends[name]))), key=lambda name: name != DEFAULT_FORMAT)
    return tuple(dict.fromkeys([name for name in served if name in there or not there] or there))


def format_of_model(model: str) -> str:
    """Return the format of a model's vendor, or "" if the name does not identify the vendor."""
    try:
        return _tables().providers[_provider_of_model(model, {})]["format"]
    except InvalidSetting:
        return ""


def _has_open_weights(*formats: str) -> bool:
    """Return True if one of these formats is used only by servers of open-weight models."""
    return any(_tables().calls.get(format, {}).get("open_weights", False) for format in formats)


def program_tables() -> dict[str, JSONObject]:
    """Return the `[programs]` tables of `providers.toml`, by client."""
    return _tables().programs


def snippet_tables() -> dict[str, JSONObject]:
    """Return the tables for request snippets (`[by_hand]`), by format."""
    return _tables().snippets


def sdk_call_of_format(format: str, betas: Collection[str] = ()) -> str:
    """Return the call of the vendor's SDK that takes a request with these beta flags; "" if there is none."""
    table = snippet_tables().get(format, {})
    return table.get("beta_call" if betas and "beta_call" in table else "call", "")


def local_server_tables() -> dict[str, JSONObject]:
    """Return the tables for servers that contextc starts (`[served]`), by client."""
    return _tables().served


def has_url(provider: Provider) -> bool:
    """Return True if the provider has a URL, or its client's SDK has a default one for it."""
    entry = _tables().providers.get(provider.name)
    own = entry is not None and client_of_format(entry["format"]) == provider.client
    return bool(provider.url) or own or provider.client not in [each["client"] for each in _tables().calls.values()]


@cache
def _tables() -> ProviderTables:
    content = tomllib.loads(data_files("contextc.providers", ".toml")["providers.toml"])
    providers: dict[str, JSONObject] = content["providers"]
    names = {each: name for name, facts in providers.items() for each in (name, *facts.get("also", ()))}
    vendors = {vendor: name for name, facts in providers.items() for vendor in facts.get("vendors", ())}
    tables = [content[name] for name in ("formats", "calls", "programs", "by_hand", "served")]
    return ProviderTables(providers, names, vendors, *tables)


def check_config_table(name: str, facts: Mapping[str, object], source: str = f"contextc.toml: {PROVIDERS}") -> None:
    """Raise InvalidSetting if a table of the user's configuration has an unknown key or a value of a wrong type."""
    for fact, value in facts.items():
        if not isinstance(value, CONFIG_KEYS.get(fact, ())) or (isinstance(value, bool) and fact not in FLAG_FIELDS):
            raise InvalidSetting(
                f"{source}.{name}: {fact}: unknown key, or a value of a wrong type",
                fix=f"Expected one of: {', '.join(f'{each} ({kind.__name__})' for each, kind in CONFIG_KEYS.items())}.",
            )


def _written_table(name: str) -> JSONObject | None:
    """Return the table of a provider in the user's configuration, or in a plugin, whose tables have the same keys."""
    if (found := _config_tables().get(name)) is not None or name in _tables().names:
        return found
    if name not in plugins(PLUGIN_PROVIDERS):
        return None
    table = load_plugin(PLUGIN_PROVIDERS, name)
    if not isinstance(table, Mapping):
        raise InvalidSetting(f"{PLUGIN_PROVIDERS}: entry point {name!r} must be a mapping of facts", got=table)
    facts = cast(Mapping[str, object], table)
    check_config_table(name, facts, source=PLUGIN_PROVIDERS)
    return dict(facts)


def _config_tables() -> dict[str, JSONObject]:
    """Return the tables of the user's configuration, by primary name. Raise InvalidSetting for an unknown key."""
    names, found = _tables().names, dict[str, JSONObject]()
    for name, facts in read_providers().items():
        check_config_table(name, facts)
        found[names.get(name, name)] = dict(facts)
    return found


def _apply_config(
    written: JSONObject, model_id: str, model_facts: JSONObject, own: JSONObject, format: str | None
) -> str | None:
    """Fill `own` and `model_facts` from the user's configuration and return the format.

    Values that the caller passed win, and so do those in the model's own table.
    """
    elsewhere = "url" in own or (format is not None and client_of_format(format) != client_of_format(written["format"]))
    for fact in (*FLAG_FIELDS, *TEXT_FIELDS):
        if fact in written and not (elsewhere and fact in ("url", "key")):
            own.setdefault(fact, written[fact])
    if "betas" in written:
        own["betas"] = _check_betas(written["betas"])
    for fact in ("window", "output"):
        if fact in written and model_facts[fact] is None and fact not in find_configured_facts(model_id):
            model_facts[fact] = written[fact]
    return format or written["format"]


def _split_spec(spec: str, model_facts: JSONObject, format: str | None) -> tuple[str, str]:
    """Return the provider's primary name and the model id. A model id may contain colons."""
    before, colon, after = (each.strip() for each in spec.partition(":"))
    name = before.lower().replace("_", "-")
    check_provider_trust(name)
    written = _config_tables()
    if name in _tables().names or name in written or name in plugins(PLUGIN_PROVIDERS):
        name = _tables().names.get(name, name)
        facts = {**_tables().providers.get(name, {}), **(_written_table(name) or {})}
        model_id = after or facts.get("model")
        if not model_id:
            raise InvalidSetting(
                "provider: the model is missing",
                got=spec,
                fix=f'Write "{name}:", then the model.',
                case="model-missing",
                detail=name,
            )
        return name, model_id
    if not colon or (find_entry(spec) and not find_entry(after)):  # a model name may contain a colon
        return _provider_of_model(spec, model_facts), spec
    if not before or not after:
        raise InvalidSetting(f"provider: the {'model' if before else 'provider'} is missing", got=spec, fix=SPEC_HELP)
    close = find_near_names(name, [*_tables().names, *written], 0.85)
    if close and format is None:
        raise InvalidSetting(
            f"Provider {before!r} not found",
            fix=(
                f'Did you mean "{close[0]}:{after}"? For your own endpoint of that name, pass '
                f'format="{DEFAULT_FORMAT}".'
            ),
            case="provider-name",
            detail=f"{close[0]}:{after}",
        )
    return name, after


def _provider_of_model(name: str, model_facts: JSONObject) -> str:
    """Return the provider of a model that is named alone: its vendor, if the name is the vendor's own id."""
    vendor = model(name, vendor=model_facts.get("vendor"), window=UNLIMITED_WINDOW).vendor  # the window: later
    if has_open_weights(name) or not is_vendor_name(name) or vendor not in _tables().vendors:
        known = [*_tables().names, *_config_tables()]
        close = find_near_names(name.lower().replace("_", "-"), known, 0.85)
        if close and not find_entry(name):
            raise InvalidSetting(
                "provider: expected a known provider or model", got=name, fix=f"Did you mean {close[0]!r}?"
            )
        similar = () if find_entry(name) else find_close_names(name)
        meant = f"Did you mean {' or '.join(similar)}? If not, prefix" if similar else "Prefix"
        raise InvalidSetting(
            "provider: the model has no default provider", got=name, fix=f'{meant} it with a provider: "…:{name}".'
        )
    return _tables().vendors[vendor]


def _check_format(name: str, format: str) -> str:
    if not is_format(format):
        raise InvalidSetting(
            f"Provider {name!r}: format {format!r} not found, expected one of {', '.join(format_names())}",
            fix=f'Pass another format, as in format="{DEFAULT_FORMAT}".',
            case="provider-format",
        )
    return format


def _check_betas(value: object) -> tuple[str, ...]:
    flags = tuple(cast(Sequence[object], value)) if isinstance(value, list | tuple) else (value,)
    if isinstance(value, str) or not all(isinstance(flag, str) and flag.strip() for flag in flags):
        raise InvalidSetting(
            "betas: must be a list of flags", got=cast(object, value), fix='Pass ["inline-tools-2026-09-15"].'
        )
    return cast(tuple[str, ...], flags)


def _check_headers(value: object) -> tuple[tuple[str, str], ...]:
    pairs = cast(Mapping[object, object], value).items() if isinstance(value, Mapping) else [(value, value)]
    for name, text in pairs:
        if not isinstance(name, str) or not isinstance(text, str) or not HEADER.fullmatch(f"{name}: {text}"):
            raise InvalidSetting(
                "headers must be a dict of names and texts of one line", fix='Pass {"x-team": "search"}.'
            )
    return cast(tuple[tuple[str, str], ...], tuple(pairs))


def _unknown_field(fact: str, value: object) -> InvalidSetting:
    if fact in FLAG_FIELDS:
        return InvalidSetting(f"{fact}: must be True or False", got=value)
    if fact in TEXT_FIELDS:
        return InvalidSetting(f"{fact}: must be a string, got {type(value).__name__}.")
    names = ", ".join(("format", *TEXT_FIELDS, *CALL_FIELDS, *FLAG_FIELDS, *MODEL_FACTS))
    return InvalidSetting(f"{fact}: unknown field of a provider or a model", fix=f"Expected one of: {names}.")


@lru_cache(maxsize=256)
def _formatter(provider: Provider) -> Formatter:
    """Build the formatter from the provider's name, its table in `providers.toml`, and the fields of its model.

    A provider that is used with another format than its own gets another name, because blocks that it produced in one
    format are not valid in the other.
    """
    entry = _tables().providers.get(provider.name, {})
    native = entry.get("format", DEFAULT_FORMAT) == provider.format
    options: JSONObject = {"provider": provider.name if native else f"{provider.name}_{provider.format}"}
    if native:
        options |= entry.get("options", {})
    for option, fact in _tables().formats.get(provider.format, {}).items():
        options[option] = getattr(provider if fact in provider.__struct_fields__ else provider.model, fact)
    return type(formatter_named(provider.format))(**options)
