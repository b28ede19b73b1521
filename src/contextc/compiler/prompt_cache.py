"""Decide what a request asks of the provider's prompt cache: the lifetime of its entries, and the key of its channel.

A lifetime is asked for by cache breakpoints, or by a setting of the request. Entries that live longer stand before
those that live shorter: providers refuse any other order. So all breakpoints of contextc have one lifetime, and never a
longer one than the caller's own breakpoints before them.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from contextc._json import JSONObject
from contextc.errors import InvalidSetting
from contextc.formats.request_settings import RequestSettings
from contextc.providers import Provider
from contextc.store.ledger_schema import Channel

CacheLifetime: TypeAlias = Literal["auto", "5m", "30m", "1h", "12h", "off"]
"""What is asked of the prompt cache: `auto` for the provider's default, a lifetime, or `off` for nothing."""
MINUTES = {"": 5, "5m": 5, "30m": 30, "1h": 60, "12h": 720}
"""Lifetimes in minutes. A breakpoint without one lives as long as the shortest."""
KEY_BYTES = 16
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


def _has_key_field(cache: CacheLifetime, provider: Provider) -> bool:
    """Return True if the body has the key. Other addresses than the provider's own may refuse it: they get it only if a
    lifetime is asked for.
    """
    return provider.takes_cache_key and (cache != "auto" or provider.has_own_address)


def make_cache_key(channel: Channel) -> str:
    """Return the key under which the requests of a channel are cached. It is a hash, so that names stay private."""
    return blake2b(f"{channel.conversation}\0{channel}".encode(), digest_size=KEY_BYTES).hexdigest()
