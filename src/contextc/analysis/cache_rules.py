"""The rules of providers' prompt caches. The facts are in `cache_rules.toml`."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Literal, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object
from contextc._plugins import data_files
from contextc.analysis.request_view import RequestView
from contextc.models import Model

Tier: TypeAlias = Literal["all", "system", "messages"]
"""The part of a prefix that a setting invalidates: everything, system prompt and messages, or messages."""


class CacheRules(Struct, frozen=True, kw_only=True):
    """The rules of one cache; `cache_rules.toml` describes them. Times are in milliseconds."""

    name: str
    explicit: bool = False
    lookback: int = 0
    joined: bool = False
    block: int = 1
    minimum: int = 0
    reports: bool = False
    ignores_attribution: bool = False
    ttl: dict[str, int] = {}
    kept: int = 0
    settings: dict[str, Tier] = {}
    ttl_fields: tuple[str, ...] = ()
    explicit_fields: dict[str, str] = {}
    reasons: dict[str, list[str]] = {}

    def lifetime(self, name: str) -> int:
        """Return how long an entry exists without use, for the ttl of a breakpoint."""
        return self.ttl.get(name, self.ttl[""])

    def agrees(self, reason: str, causes: Iterable[str]) -> bool | None:
        """Return True if the provider's word for a miss means one of these causes; None if it states no cause."""
        return any([each in self.reasons[reason] for each in causes]) if reason in self.reasons else None


class _RuleEntry(Struct, frozen=True):
    """A rule of the file, with the channels that it applies to."""

    rules: CacheRules
    providers: tuple[str, ...]
    vendors: tuple[str, ...]
    formats: tuple[str, ...]
    models: tuple[tuple[re.Pattern[str], CacheRules], ...]


def find_cache_rules(request: RequestView) -> CacheRules | None:
    """Return the rules of the cache that a request uses; None if its provider is not known to have one."""
    model = request.model
    found = _find(request.channel.provider, request.format, request.channel.model, model)
    if found is None:
        return None
    mode = {name: value for name, value in found.explicit_fields.items() if read_field(request.settings, name) == value}
    ttl = next((value for name in found.ttl_fields if (value := read_field(request.settings, name))), None)
    if mode:
        found = replace(found, explicit=True)
    if isinstance(ttl, str) and ttl in found.ttl:
        found = replace(found, ttl={**found.ttl, "": found.ttl[ttl]}, kept=found.ttl[ttl])
    return found


@cache
def _find(provider: str, format: str, model_name: str, model: Model | None) -> CacheRules | None:
    entries = _load()
    vendor = model.vendor if model is not None else ""
    entry = (
        next((each for each in entries if provider in each.providers), None)
        or next((each for each in entries if vendor in each.vendors and format == "openai_chat"), None)
        or next((each for each in entries if format in each.formats), None)
    )
    if entry is None:
        return None
    rules = next((rules for pattern, rules in entry.models if pattern.search(model_name)), entry.rules)
    return replace(rules, minimum=model.cache_minimum) if model is not None and model.cache_minimum else rules


@cache
def _load() -> tuple[_RuleEntry, ...]:
    content = tomllib.loads(data_files("contextc.analysis", ".toml")["cache_rules.toml"])
    return tuple([_read_entry(name, facts) for name, facts in content.items()])


def _read_entry(name: str, facts: JSONObject) -> _RuleEntry:
    options = as_object(facts.get("options"))
    rules = CacheRules(
        name=name,
        explicit=facts.get("explicit", False),
        lookback=facts.get("lookback", 0),
        joined=facts.get("joined", False),
        block=facts.get("block", 1),
        minimum=facts.get("minimum", 0),
        reports=facts.get("reports", False),
        ignores_attribution=facts.get("ignores_attribution", False),
        ttl=_milliseconds(facts["ttl"]),
        kept=facts.get("kept", facts["ttl"][""]) * 1_000,
        settings=cast(dict[str, Tier], facts.get("settings", {})),
        ttl_fields=tuple(options.get("ttl", ())),
        explicit_fields=options.get("explicit", {}),
        reasons=cast(dict[str, list[str]], facts.get("reasons", {})),
    )
    models = [
        (
            re.compile(each["pattern"]),
            replace(rules, ttl=_milliseconds(each["ttl"]), kept=each.get("kept", each["ttl"][""]) * 1_000),
        )
        for each in cast(list[JSONObject], facts.get("models", []))
    ]
    providers, vendors, formats = (tuple(facts.get(each, ())) for each in ("providers", "vendors", "formats"))
    return _RuleEntry(rules, providers, vendors, formats, tuple(models))


def _milliseconds(ttl: dict[str, int]) -> dict[str, int]:
    return {name: seconds * 1_000 for name, seconds in ttl.items()}


def read_field(settings: JSONObject, path: str) -> JSON:
    """Return a field of the settings by its path; None if it is missing."""
    if path in settings:
        return settings[path]
    value: JSON = settings
    for name in path.split("."):
        value = as_object(value).get(name)
    return value


MEDIA = "media"
"""The name that stands for the presence of media among the settings."""


def changed_settings(rules: CacheRules, before: RequestView, now: RequestView) -> Iterator[tuple[str, Tier]]:
    """Return the settings that changed, with the part of the prefix that each invalidates."""
    if MEDIA in rules.settings and (before.rows.media is None) != (now.rows.media is None):
        yield MEDIA, rules.settings[MEDIA]
    if before.settings is now.settings or before.settings == now.settings:
        return
    for path, tier in rules.settings.items():
        if path != MEDIA and read_field(before.settings, path) != read_field(now.settings, path):
            yield path, tier
