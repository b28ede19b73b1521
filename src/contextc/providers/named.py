"""A provider by its name: a model, the format it is asked in, and what it does with a session.

A provider is facts, so that nobody asks who it is: what differs between providers is a line in `providers.toml`, or in
a `[providers.name]` table of the user's `contextc.toml`, which wins. One that is in neither is stateless and speaks
OpenAI's chat format, as most endpoints do. Providers are values; two that are equal share one formatter.
"""

import re
import tomllib
from collections.abc import Mapping
from copy import deepcopy
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import fields, replace

from contextc._json import JSONObject
from contextc.config import PROVIDERS, check_provider, masked, read_providers
from contextc.errors import FailureKind, InvalidSetting, UnknownModel
from contextc.formats.base import Formatter
from contextc.formats.named import format_names
from contextc.formats.named import formatter as formatter_named
from contextc.models.facts import Model
from contextc.models.find import FACTS as MODEL_FACTS
from contextc.models.find import entry_of, is_house_name, is_open, model, names_of_houses, written_facts

FILE = Path(__file__).parent / "providers.toml"
COMPATIBLE = "openai_chat"
MUCH = 1 << 30
OWN_CHOICE = "default"
"""The model of a provider that chooses by itself, as a program does that has a configuration of its own."""
VARIABLE = re.compile(r"(?!sk_|pk_|rk_|gsk_|xai_|AIza)[A-Za-z_][A-Za-z0-9_]*")
HOW = 'Write it as "anthropic:claude-opus-5-5": the provider, a colon, the model.'


class Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whom we talk to, and about which model.

    `asks_for` is the model's name as this provider takes it; "default" is a program's own choice. `runs_tools`: it has
    tools of its own and runs them by itself. `session_resumption`: it remembers a conversation by itself; the other
    facts are about such sessions. `directory_bound`: they belong to a working directory. `system_in_session`: a resumed
    one takes a system message of its own with a turn. `reverts`: one can be brought back after a failed prompt.
    `keeps_static`: one keeps the system prompt it began with, and ignores another. `compacts_itself`: it shortens its
    own history. `resends_head`: system prompt and tools go along every time. `session_field`: the setting that names
    the session in a request, where it is one. `speaks`: a formatter to be used in place of the one that follows from
    all this.

    How it is called: `client` is the module of `contextc.providers` that does it. `url` is where; "" is as the vendor's
    SDK has it. `key` names the environment variable that holds the key; where it is "", the vendor's SDK looks for one
    by itself, but an address of one's own gets none. A key itself is never in here.
    """

    name: str
    model: Model
    format: str
    asks_for: str
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
    speaks: Formatter | None = None

    def __post_init__(self) -> None:
        if self.key and not VARIABLE.fullmatch(self.key):  # it may be a key, so it is not repeated
            raise InvalidSetting(
                "key is the name of the environment variable that holds the key, such as OPENAI_API_KEY, and not the "
                "key itself. What was given cannot be such a name."
            )

    def __repr__(self) -> str:
        """Without a login that the address may hold."""
        told = {name: getattr(self, name) for name in self.__struct_fields__} | {"url": masked(self.url)}
        return f"Provider({', '.join(f'{name}={value!r}' for name, value in told.items())})"

    @property
    def formatter(self) -> Formatter:
        """The formatter for this provider and model: one for all providers that are equal."""
        return self.speaks or _formatter(self)

    @property
    def settings(self) -> JSONObject:
        """What a request has to say that nobody asked for, so that nothing is lost between two steps."""
        return self._called("settings") | (self._called("reasoning_settings") if self.model.reasoning else {})

    @property
    def stream_settings(self) -> JSONObject:
        """What a request has to say for its reply to be streamed."""
        return self._called("stream_settings")

    @property
    def prose_settings(self) -> JSONObject:
        """What a request says in which there are no tools."""
        return self._called("prose_settings")

    @property
    def path(self) -> str:
        """Where its format is asked for, behind its address."""
        return _book().calls.get(self.format, {}).get("path", "")

    @property
    def conversation_header(self) -> str:
        """The header by which it knows requests of one conversation, and sends them all to the same machine."""
        return _book().providers.get(self.name, {}).get("conversation_header", "")

    @property
    def refusal_codes(self) -> dict[str, FailureKind]:
        """What its own codes of errors mean."""
        return cast(dict[str, FailureKind], self._called("codes"))

    @property
    def refusal_words(self) -> dict[str, FailureKind]:
        """What its own sentences mean: patterns, the first that fits counts."""
        return cast(dict[str, FailureKind], self._called("words"))

    def _called(self, name: str) -> JSONObject:
        known = _book().providers.get(self.name, {})
        found: JSONObject = known.get(name, _book().calls.get(self.format, {}).get(name, {}))
        return deepcopy(found)


FACTS = tuple(field.name for field in fields(Provider) if field.type is bool)
CALLED = ("client", "url", "key")
WRITTEN: dict[str, type] = {
    **dict.fromkeys((*CALLED, "format", "model"), str),
    **dict.fromkeys(("window", "output"), int),
    **dict.fromkeys(FACTS, bool),
}
"""What a `[providers.name]` table may say. `model` is the one it has, where no other is named."""


class Book(NamedTuple):
    """`providers.toml`, with every name of a provider leading to its first one."""

    providers: dict[str, JSONObject]
    names: dict[str, str]
    houses: dict[str, str]
    formats: dict[str, dict[str, str]]
    calls: dict[str, JSONObject]
    programs: dict[str, JSONObject]
    by_hand: dict[str, JSONObject]
    served: dict[str, JSONObject]


def provider(
    spec: str, *, window: int | None = None, output: int | None = None, format: str | None = None, **facts: object
) -> Provider:
    """A provider and a model, from "provider:model", or from the name of a model whose house serves it.

    `facts` are any of the model's and of the provider's, and win over what is known.
    """
    if not isinstance(spec, str) or not spec.strip():
        raise InvalidSetting(f"{spec!r} names no provider. {HOW}")
    told: JSONObject = {"window": window, "output": output}
    own: dict[str, bool | str] = {}
    for fact, value in facts.items():
        if (fact in FACTS and isinstance(value, bool)) or (fact in CALLED and isinstance(value, str)):
            own[fact] = value
        elif fact in MODEL_FACTS:
            told[fact] = value
        else:
            raise InvalidSetting(_no_fact(fact, value))
    name, asks_for = _parted(spec.strip(), told, format)
    entry = _book().providers.get(name, {})
    if written := _written().get(name):
        written = {"format": entry.get("format", COMPATIBLE), **written}
        format = _taken_over(written, asks_for, told, own, format)
    if entry.get("facts") and not entry_of(asks_for):  # its own choice, or a short name that it knows
        given = {fact: value for fact, value in told.items() if value is not None}
        told = {**entry["facts"], **({"output": None} if "window" in given else {}), **given}
    speaks = _spoken(name, format or entry.get("format", COMPATIBLE))
    known: dict[str, bool | str] = {fact: entry[fact] for fact in (*FACTS, *CALLED) if fact in entry}
    if "url" in own or client_of(speaks) != client_of(entry.get("format", COMPATIBLE)):
        known = {
            fact: value for fact, value in known.items() if fact not in ("url", "key")
        }  # they are of another place
    try:
        found = model(asks_for, open_weights=_has_open_weights(speaks, entry.get("format", COMPATIBLE)), **told)
    except UnknownModel as error:
        if entry or format is not None or "url" in own:
            raise
        problem, fix = no_provider(name)
        raise UnknownModel(
            asks_for, close=error.close, problem=problem, fix=fix, case="provider", detail=name
        ) from None
    plain = Provider(
        name=name,
        model=found,
        format=speaks,
        asks_for=asks_for,
        session_field=entry.get("session_field", ""),
        client=client_of(speaks),
    )
    return replace(plain, **known | own)


def no_provider(name: str) -> tuple[str, str]:
    """Return the problem and the fix of the error for an unknown provider."""
    close = get_close_matches(name, provider_names(), n=1)
    meant = f" Did you mean {close[0]}?" if close else ""
    return (
        f"Provider {name!r} not found.{meant} Known providers: {', '.join(provider_names())}",
        f'For your own endpoint: cc.provider("{name}:…", url="https://…/v1", window=128_000), or set url below '
        f"[providers.{name}] in contextc.toml.",
    )


def provider_names() -> tuple[str, ...]:
    """The providers whose format is there, and the user's own."""
    ours = [name for name, facts in _book().providers.items() if facts["format"] in format_names()]
    return tuple(dict.fromkeys([*ours, *_written()]))


def other_names(name: str) -> tuple[str, ...]:
    """What else a provider may be called."""
    return tuple([each for each, first in _book().names.items() if first == name != each])


def format_of(name: str) -> str:
    """The format that a provider of this name speaks; "" where there is none of that name."""
    first = _book().names.get(name.lower().replace("_", "-"), name)
    facts = {**_book().providers.get(first, {}), **_written().get(first, {})}
    return facts.get("format", COMPATIBLE) if facts else ""


def keeps_sessions(name: str) -> bool:
    """Whether a provider of this name remembers conversations by itself."""
    first = _book().names.get(name.lower().replace("_", "-"), name)
    facts = {**_book().providers.get(first, {}), **_written().get(first, {})}
    return bool(facts.get("session_resumption"))


def models_of(name: str) -> tuple[str, ...]:
    """The models that are known to be a provider's: the one it has where none is named, and those of its houses."""
    facts = {**_book().providers.get(name, {}), **_written().get(name, {})}
    kin = _book().providers.get(name.partition("-")[0], {})  # another way to the same house
    own = [facts["model"]] if facts.get("model") else []
    return tuple(dict.fromkeys([*own, *names_of_houses(facts.get("houses") or kin.get("houses", ()))]))


def client_of(format: str) -> str:
    """The client of those who speak a format natively; "" where there is none."""
    return _book().calls.get(format, {}).get("client", "")


def extra_of(format: str) -> str:
    """The extra of ours that installs what a format is called by, where that is not named after its client."""
    return _book().calls.get(format, {}).get("extra", "")


def formats_at(url: str) -> tuple[str, ...]:
    """The formats that may be spoken at an address, the likeliest first; none where nothing is known of it."""
    try:
        host, path = urlsplit(url).hostname, url.partition("?")[0].rstrip("/").lower()
    except ValueError:
        return ()
    written = {
        name: {"format": COMPATIBLE, **_book().providers.get(name, {}), **own} for name, own in _written().items()
    }
    known = [facts for facts in {**_book().providers, **written}.values() if host and facts.get("url")]
    served = [facts["format"] for facts in known if urlsplit(facts["url"]).hostname == host]
    ends = {name: (*call.get("at", ()), *filter(None, [call.get("path")])) for name, call in _book().calls.items()}
    there = sorted((name for name in ends if path.endswith(tuple(ends[name]))), key=lambda name: name != COMPATIBLE)
    return tuple(dict.fromkeys([name for name in served if name in there or not there] or there))


def format_for(model: str) -> str:
    """The format that the house of a model speaks; "" where the name does not say whose it is."""
    try:
        return _book().providers[_server(model, {})]["format"]
    except InvalidSetting:
        return ""


def _has_open_weights(*formats: str) -> bool:
    """Whether one of these is only spoken where models are run whose weights are open."""
    return any(_book().calls.get(format, {}).get("open_weights", False) for format in formats)


def program_tables() -> dict[str, JSONObject]:
    """What is written of providers that are programs, by their clients."""
    return _book().programs


def hand_tables() -> dict[str, JSONObject]:
    """What is written of requests that are sent by hand, by their formats."""
    return _book().by_hand


def served_tables() -> dict[str, JSONObject]:
    """What is written of servers that are started here, by their clients."""
    return _book().served


def has_address(provider: Provider) -> bool:
    """Whether it is known where to call: it has an address, or its client's SDK was made for it."""
    entry = _book().providers.get(provider.name)
    own = entry is not None and client_of(entry["format"]) == provider.client
    return bool(provider.url) or own or provider.client not in [each["client"] for each in _book().calls.values()]


@cache
def _book() -> Book:
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    providers: dict[str, JSONObject] = content["providers"]
    names = {each: name for name, facts in providers.items() for each in (name, *facts.get("also", ()))}
    houses = {house: name for name, facts in providers.items() for house in facts.get("houses", ())}
    tables = [content[name] for name in ("formats", "calls", "programs", "by_hand", "served")]
    return Book(providers, names, houses, *tables)


def check_facts(name: str, facts: Mapping[str, object]) -> None:
    """Raise InvalidSetting if a table of the user's own has what is not a fact about a provider."""
    for fact, value in facts.items():
        if not isinstance(value, WRITTEN.get(fact, ())) or (isinstance(value, bool) and fact not in FACTS):
            raise InvalidSetting(
                f"contextc.toml: {PROVIDERS}.{name}: {fact} is no fact, or not of that kind. There are: "
                f"{', '.join(f'{each} ({kind.__name__})' for each, kind in WRITTEN.items())}."
            )


def _written() -> dict[str, JSONObject]:
    """The user's own tables, by the first names of the providers. What is no fact in them is refused."""
    names, found = _book().names, dict[str, JSONObject]()
    for name, facts in read_providers().items():
        check_facts(name, facts)
        found[names.get(name, name)] = dict(facts)
    return found


def _taken_over(
    written: JSONObject, asks_for: str, told: JSONObject, own: dict[str, bool | str], format: str | None
) -> str | None:
    """Take what the user's file says where nobody said otherwise; the format. A model's own table says it better."""
    elsewhere = "url" in own or (format is not None and client_of(format) != client_of(written["format"]))
    for fact in (*FACTS, *CALLED):
        if fact in written and not (elsewhere and fact in ("url", "key")):
            own.setdefault(fact, written[fact])
    for fact in ("window", "output"):
        if fact in written and told[fact] is None and fact not in written_facts(asks_for):
            told[fact] = written[fact]
    return format or written["format"]


def _parted(spec: str, told: JSONObject, format: str | None) -> tuple[str, str]:
    """The provider's first name, and the model's name there. A model's name may hold colons too."""
    before, colon, after = (each.strip() for each in spec.partition(":"))
    name = before.lower().replace("_", "-")
    check_provider(name)
    written = _written()
    if name in _book().names or name in written:
        name = _book().names.get(name, name)
        facts = {**_book().providers.get(name, {}), **written.get(name, {})}
        asks_for = after or facts.get("model")
        if not asks_for:
            raise InvalidSetting(f'{spec!r} names no model. Write "{name}:", and the name of a model behind it.')
        return name, asks_for
    if not colon or (entry_of(spec) and not entry_of(after)):  # some names of models have a colon in them
        return _server(spec, told), spec
    if not before or not after:
        raise InvalidSetting(f"{spec!r} names no {'model' if before else 'provider'}. {HOW}")
    close = get_close_matches(name, [*_book().names, *written], n=1, cutoff=0.85)
    if close and format is None:
        raise InvalidSetting(
            f"Provider {before!r} not found",
            fix=f'Did you mean "{close[0]}:{after}"? For your own endpoint of that name, pass format="{COMPATIBLE}".',
            case="provider-name",
            detail=f"{close[0]}:{after}",
        )
    return name, after


def _server(name: str, told: JSONObject) -> str:
    """Who serves a model that is named alone: its house, if the name is the one it gave itself."""
    house = model(name, house=told.get("house"), window=MUCH).house  # its own window is asked for where it is known
    if is_open(name) or not is_house_name(name) or house not in _book().houses:
        close = get_close_matches(name.lower().replace("_", "-"), [*_book().names, *_written()], n=1, cutoff=0.85)
        if close and not entry_of(name):
            raise InvalidSetting(f"{name!r} is no provider and no model. Did you mean {close[0]!r}?")
        raise InvalidSetting(f'{name!r} does not say who serves it. Write the provider in front: "…:{name}".')
    return _book().houses[house]


def _spoken(name: str, format: str) -> str:
    if format not in format_names():
        raise InvalidSetting(
            f"Provider {name!r}: format {format!r} not found, expected one of {', '.join(format_names())}",
            fix=f'Pass another format, as in format="{COMPATIBLE}".',
            case="provider-format",
        )
    return format


def _no_fact(fact: str, value: object) -> str:
    if fact in FACTS:
        return f"{fact} = {value!r}: write True or False."
    if fact in CALLED:
        return f"{fact} is text, and not a {type(value).__name__}."
    names = ", ".join(("format", *CALLED, *FACTS, *MODEL_FACTS))
    return f"{fact} is no fact about a provider or a model. There are: {names}."


@lru_cache(maxsize=256)
def _formatter(provider: Provider) -> Formatter:
    """Its options: whose words go back, what the table says of this provider, and what the format asks of a model.

    A provider that is spoken to in another format than its own has another name there, because what it said in the
    one has no place in the other.
    """
    entry = _book().providers.get(provider.name, {})
    native = entry.get("format", COMPATIBLE) == provider.format
    options: JSONObject = {"provider": provider.name if native else f"{provider.name}_{provider.format}"}
    if native:
        options |= entry.get("options", {})
    for option, fact in _book().formats.get(provider.format, {}).items():
        options[option] = getattr(provider if fact in provider.__struct_fields__ else provider.model, fact)
    return type(formatter_named(provider.format))(**options)
