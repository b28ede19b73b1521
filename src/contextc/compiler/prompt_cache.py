"""Decide what a request asks of the provider's prompt cache: the lifetime of its entries, and the key of its channel.

A lifetime is asked for by cache breakpoints, or by a setting of the request. Entries that live longer stand before
those that live shorter: providers refuse any other order. So all breakpoints of contextc have one lifetime, and never a
longer one than the caller's own breakpoints before them.

A provider can also be asked why its cache missed, by the id of the reply to compare with.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct

from contextc._json import JSON, JSONObject, as_object, id_text
from contextc.errors import InvalidSetting
from contextc.formats.request_settings import RequestSettings
from contextc.providers import Provider
from contextc.store.ledger_schema import Channel

CacheLifetime: TypeAlias = Literal["auto", "5m", "30m", "1h", "12h", "off"]
"""A request to the prompt cache: `auto` for the provider's default, a lifetime, or `off` for nothing."""
MINUTES = {"": 5, "5m": 5, "30m": 30, "1h": 60, "12h": 720}
"""Lifetimes in minutes. A breakpoint without one lives as long as the shortest."""
KEY_BYTES = 16
REPLY_PLACEHOLDER = "<the reply before>"
"""Placeholder in a head for the id of the reply that the cache is compared with."""
NO_CHOICE = "the cache lifetime {} is not asked for: {} has none to choose"
OTHER_LIFETIME = "the cache lifetime is not {} but {}, which {}: longer lifetimes must stand before shorter ones"


class CacheRequest(Struct, frozen=True):
    """`ttl` is the lifetime of the breakpoints: "" for the provider's default, None to set none."""

    ttl: str | None = None
    settings: JSONObject = {}
    remark: str = ""


def check_lifetime(cache: str, providers: Sequence[Provider]) -> None:
    """Raise InvalidSetting if each of the providers has lifetimes to choose from, and none has this one."""
    offered = [provider.cache_lifetimes for provider in providers]
    if cache in ("auto", "off") or not all(offered) or any(cache in each for each in offered):
        return
    raise InvalidSetting(
        f"cache: the prompt cache of {providers[0].title} has no lifetime {cache!r}",
        fix=f'Pass {", ".join(map(repr, offered[0]))}, "auto" or "off".',
    )


def nearest_lifetime(cache: CacheLifetime, provider: Provider) -> CacheLifetime:
    """Return the lifetime to ask this provider for: the next longer one that it has, or its longest."""
    offered = provider.cache_lifetimes
    if cache in ("auto", "off", *offered) or not offered or cache not in MINUTES:
        return cache
    found = next((each for each in offered if MINUTES[each] > MINUTES[cache]), offered[-1])
    return cast(CacheLifetime, found)


def plan_cache(
    cache: CacheLifetime, provider: Provider, tool_ttls: Sequence[str], settings: JSONObject
) -> CacheRequest:
    """Return what the requests with these tools and settings ask of the cache.

    `tool_ttls` are the lifetimes of the breakpoints that the caller's tools have. An automatic breakpoint in the
    settings decides: it is the last one, and another lifetime on the same block would be refused.
    """
    if cache == "off":
        return CacheRequest()
    formatter, is_asked = provider.formatter, cache != "auto"
    if not provider.model.cache_points:
        return CacheRequest(remark=NO_CHOICE.format(cache, provider.title) if is_asked else "")
    if automatic := formatter.list_cache_lifetimes([settings]):
        remark = OTHER_LIFETIME.format(cache, automatic[0] or "the default", "the settings have")
        return CacheRequest(automatic[0], remark=remark if is_asked and automatic[0] != cache else "")
    if not is_asked or not provider.cache_lifetimes:
        return CacheRequest(
            formatter.default_lifetime, remark=NO_CHOICE.format(cache, provider.title) if is_asked else ""
        )
    longest = min([MINUTES.get(each, MINUTES[cache]) for each in tool_ttls], default=MINUTES[cache])
    if longest >= MINUTES[cache]:
        return CacheRequest(cache, formatter.cache_settings(cache))
    shorter = next((each for each in reversed(provider.cache_lifetimes) if MINUTES[each] <= longest), "")
    return CacheRequest(shorter, remark=OTHER_LIFETIME.format(cache, shorter or "the default", "a tool has"))


def uses_key(cache: CacheLifetime, provider: Provider) -> bool:
    """Return True if requests name their channel to the cache, in a header or in a field."""
    return cache != "off" and (bool(provider.conversation_header) or _has_key_field(cache, provider))


def write_key(cache: CacheLifetime, provider: Provider, key: str) -> JSONObject:
    """Return the setting that names the channel to the cache; empty if the provider has none."""
    if not key or not _has_key_field(cache, provider):
        return {}
    return provider.formatter.settings.write(RequestSettings(cache_key=key)).body


def without_key(settings: JSONObject, key: str) -> JSONObject:
    """Return sent settings without what the compiler adds for the cache: the key, and the reply to compare with."""
    found = {name: value for name, value in settings.items() if not key or value != key}
    for name, fields in [(name, as_object(value)) for name, value in settings.items()]:
        if REPLY_PLACEHOLDER in fields.values():
            kept = {field: value for field, value in fields.items() if value != REPLY_PLACEHOLDER}
            found = {**found, name: kept} if kept else {each: found[each] for each in found if each != name}
    return found


def _has_key_field(cache: CacheLifetime, provider: Provider) -> bool:
    """Return True if the body has the key. Other addresses than the provider's own may refuse it: they get it only if a
    lifetime is asked for.
    """
    return provider.takes_cache_key and (cache != "auto" or provider.has_own_address)


def make_cache_key(channel: Channel) -> str:
    """Return the key under which the requests of a channel are cached. It is a hash, so that names stay private."""
    return blake2b(f"{channel.conversation}\0{channel}".encode(), digest_size=KEY_BYTES).hexdigest()


# ── the provider's diagnosis of a cache miss ──────────────────────────────────────────────────────────────────────────
# A request that names the reply before it gets a diagnosis. Anthropic answers in `diagnostics.cache_miss_reason` of a
# message, OpenAI in `prompt_cache_diagnostics` of a response.


DIAGNOSIS_REASON = re.compile(r"[a-z][a-z0-9_]{0,63}")
DIAGNOSED_MISS = "cache_miss"
REPLY_FIELDS = ("message", "response", "delta")
"""Fields of an event that contain a message or a response."""


class CacheDiagnosis(NamedTuple):
    """The provider's reason for a cache miss in its own word, and the tokens that were not read.

    `reason` can also be `cache_hit`, or the reason why the provider made no diagnosis. It is "" if the reply has none.
    """

    reason: str = ""
    missed: int = 0


NO_DIAGNOSIS = CacheDiagnosis()


class ReplyFacts(NamedTuple):
    """The id of a reply, and what it says about the cache."""

    id: str = ""
    diagnosis: CacheDiagnosis = NO_DIAGNOSIS


def read_reply_facts(objects: Sequence[JSONObject]) -> ReplyFacts:
    """Return the facts of a reply: whole, or as its events."""
    found = list_reply_objects(objects)
    ids = [text for each in found if (text := id_text(each.get("id")))]
    return ReplyFacts(ids[0] if ids else "", read_diagnosis(found))


def list_reply_objects(objects: Iterable[JSONObject]) -> list[JSONObject]:
    """Return all objects that can be a message or a response: these, and those inside of them if they are events."""
    found: list[JSONObject] = []
    for each in objects:
        found += [each, *[value for name in REPLY_FIELDS if (value := as_object(each.get(name)))]]
    return found


def read_diagnosis(objects: Iterable[JSONObject]) -> CacheDiagnosis:
    """Return the last diagnosis in messages or responses."""
    found = NO_DIAGNOSIS
    for each in objects:
        found = _read_anthropic(each) or _read_openai(each) or found
    return found


def _read_anthropic(reply: JSONObject) -> CacheDiagnosis | None:
    reason = as_object(as_object(reply.get("diagnostics")).get("cache_miss_reason"))
    return _make_diagnosis(reason.get("type"), reason.get("cache_missed_input_tokens"))


def _read_openai(reply: JSONObject) -> CacheDiagnosis | None:
    found = as_object(reply.get("prompt_cache_diagnostics"))
    kind: JSON = found.get("type")
    return _make_diagnosis(found.get("reason") if kind == DIAGNOSED_MISS else kind, found.get("cache_missed_tokens"))


def _make_diagnosis(reason: JSON, missed: JSON) -> CacheDiagnosis | None:
    """Return a diagnosis; None if the reason does not look like a code, such as `tools_changed`."""
    if not isinstance(reason, str) or not DIAGNOSIS_REASON.fullmatch(reason):
        return None
    return CacheDiagnosis(reason, max(0, missed) if isinstance(missed, int) else 0)
