"""Facts about a model from the vendor's own API, beside the tables of contextc.

It is read only on request, with the key that calls would use. Nothing depends on it: it changes no table of contextc.
Most vendors describe little: OpenAI only the existence of a model, Google its limits, Anthropic also capabilities.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from contextc._json import JSONObject, as_object
from contextc.errors import InvalidSetting
from contextc.providers.client import endpoint
from contextc.providers.feature_table import list_features
from contextc.providers.http_client import HTTPEndpoint
from contextc.providers.registry import Provider

WINDOW_FIELDS = ("context_length", "context_window", "max_model_len", "max_context_length")
"""Fields of OpenAI-compatible endpoints with the window of a model."""
CAPABILITY_OF_FEATURE = {
    "compaction_on_demand": "compaction",
    "compaction_threshold": "context_management.compact_20260112",
    "context_editing": "context_management.clear_tool_uses_20250919",
    "programmatic_tools": "code_execution",
}
"""Features by the capability of Anthropic's API that states them."""
LIFECYCLE = ("lifecycle", "deprecated_at", "retires_at", "shutdown_date")


class FactDifference(Struct, frozen=True, kw_only=True):
    """A fact about a model that the vendor's API and the tables of contextc state differently."""

    fact: str
    ours: int | bool | list[str]
    vendors: int | bool | list[str]


class VendorFacts(Struct, frozen=True, kw_only=True):
    """Facts from the vendor's API, by their name here, and the lifecycle in the vendor's words."""

    facts: dict[str, int | bool | list[str]]
    lifecycle: dict[str, str]
    differences: list[FactDifference]


async def ask_vendor(provider: Provider, **options: object) -> VendorFacts:
    """Return what the vendor's API says about the provider's model. `options` are those of `endpoint`."""
    async with endpoint(provider, **options) as client:
        if not isinstance(client, HTTPEndpoint) or provider.client not in READERS:
            raise InvalidSetting(
                f"provider {provider.name!r} has no API that describes its models",
                fix="Use the facts of cc.provider(…).model.",
            )
        reply = await client.load_model_facts()
    facts = READERS[provider.client](reply)
    lifecycle = {name: str(reply[name]) for name in LIFECYCLE if reply.get(name)}
    return VendorFacts(facts=facts, lifecycle=lifecycle, differences=compare_facts(provider, facts))


def compare_facts(provider: Provider, facts: Mapping[str, int | bool | list[str]]) -> list[FactDifference]:
    """Return the facts that differ from the tables of contextc."""
    model = provider.model
    ours: dict[str, int | bool | list[str]] = {
        "window": model.window,
        "output": model.output,
        "reasoning": model.reasoning,
        "efforts": [*model.efforts],
        "media": [*model.media],
        **{each.name: each.has for each in list_features(provider)},
    }
    return [
        FactDifference(fact=name, ours=ours[name], vendors=value)
        for name, value in facts.items()
        if name in ours and _comparable(ours[name]) != _comparable(value)
    ]


def _comparable(value: int | bool | list[str]) -> object:
    return sorted(value) if isinstance(value, list) else value


def _read_anthropic(reply: JSONObject) -> dict[str, int | bool | list[str]]:
    found = _counts({"window": reply.get("max_input_tokens"), "output": reply.get("max_tokens")})
    capabilities = as_object(reply.get("capabilities"))
    if not capabilities:
        return found
    levels = as_object(capabilities.get("effort"))
    media = {"image": "image_input", "document": "pdf_input"}
    found["reasoning"] = _is_supported(capabilities, "thinking")
    found["efforts"] = [name for name, level in levels.items() if as_object(level).get("supported") is True]
    found["media"] = [name for name, capability in media.items() if _is_supported(capabilities, capability)]
    for feature, capability in CAPABILITY_OF_FEATURE.items():
        if _find(capabilities, capability):
            found[feature] = _is_supported(capabilities, capability)
    return found


def _find(capabilities: JSONObject, path: str) -> JSONObject:
    for name in path.split("."):
        capabilities = as_object(capabilities.get(name))
    return capabilities


def _is_supported(capabilities: JSONObject, path: str) -> bool:
    return _find(capabilities, path).get("supported") is True


def _read_openai(reply: JSONObject) -> dict[str, int | bool | list[str]]:
    return _counts({"window": next((reply[name] for name in WINDOW_FIELDS if reply.get(name)), None)})


def _read_gemini(reply: JSONObject) -> dict[str, int | bool | list[str]]:
    return _counts({"window": reply.get("inputTokenLimit"), "output": reply.get("outputTokenLimit")})


def _counts(values: Mapping[str, object]) -> dict[str, int | bool | list[str]]:
    return {name: value for name, value in values.items() if isinstance(value, int) and value > 0}


READERS: dict[str, Callable[[JSONObject], dict[str, int | bool | list[str]]]] = {
    "anthropic": _read_anthropic,
    "openai": _read_openai,
    "gemini": _read_gemini,
}
"""Readers of a reply, by the client of the provider."""
