"""Repairs of what decoding and encoding does not put right by itself: settings that only OpenAI has."""

from contextc._json import JSONObject

RENAMED = {"max_completion_tokens": "max_tokens", "seed": "random_seed"}
OPENAIS = (
    *RENAMED,
    *("audio", "function_call", "functions", "logit_bias", "modalities", "prompt_cache_options", "safety_identifier"),
    *("store", "stream_options", "user", "verbosity", "web_search_options"),
)
"""Settings of Chat Completions that Mistral does not know. What is new at Mistral is in no list of ours, so only these
are known to be refused."""


def without_openais_settings(body: JSONObject) -> JSONObject:
    """The settings under Mistral's names, without those it has none for."""
    kept = {name: value for name, value in body.items() if name not in OPENAIS}
    said = {new: body[old] for old, new in RENAMED.items() if body.get(old) is not None}
    return {**said, **kept}
