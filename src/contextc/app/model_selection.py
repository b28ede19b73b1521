"""Select the model: the named one, otherwise the configured one, otherwise the local one.

`replay:FILE` replies from recordings. Options may follow: the format of the recordings, as in
`replay:FILE?format=anthropic`, and the seconds between two events, as in `replay:FILE?seconds=0.1`.
"""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from contextc._json import JSONObject
from contextc.config import INVALID_KEY_TEXT, is_variable_name, read_settings
from contextc.errors import InvalidSetting
from contextc.providers import Provider, provider
from contextc.providers.registry import has_url, unknown_provider_message

LOCAL_CLIENT = "local"
PLACEHOLDER_WINDOW = 1 << 30  # a placeholder, so that the provider is checked before the context window is looked up
REPLAY_PREFIX = "replay:"
REPLAY_WINDOW, REPLAY_OUTPUT = 32_000, 4_000
REPLAY_OPTIONS = ("format", "window", "output", "model", "seconds")


class ModelChoice(NamedTuple):
    """A provider, the options of its client, and a remark about the choice for the user."""

    provider: Provider
    client_options: dict[str, object]
    remark: str = ""


def resolve_model(
    name: str | None, *, url: str | None = None, window: int | None = None, key: str | None = None
) -> ModelChoice:
    spec = (name or read_settings().model.value).strip()
    given = {"url": url, "window": window, "key": key}
    if key is not None and not is_variable_name(key):
        raise InvalidSetting(f"key {INVALID_KEY_TEXT}")
    if not spec:
        if options := [option for option, value in given.items() if value is not None]:
            raise InvalidSetting(f"{options[0]} requires a model, got none", fix="Name it, as provider:model.")
        found = provider(LOCAL_CLIENT)
        return ModelChoice(
            found,
            {},
            f"No model is configured: using {found.model_id} on this machine. Set CONTEXTC_MODEL to use another.",
        )
    if spec.startswith(REPLAY_PREFIX):
        if url is not None or key is not None:
            raise InvalidSetting("replay: recordings have no url and no key", fix="Omit url and key.")
        return _resolve_replay(spec.removeprefix(REPLAY_PREFIX), window)
    facts: JSONObject = {fact: value for fact, value in (("url", url), ("key", key)) if value is not None}
    _check_callable(spec, provider(spec, window=window or PLACEHOLDER_WINDOW, **facts))
    return ModelChoice(provider(spec, window=window, **facts), {})


def _check_callable(spec: str, found: Provider) -> None:
    """Check that the provider can be called and has this model, before the model's context window is looked up."""
    if not found.client or not has_url(found):
        problem, fix = unknown_provider_message(found.name)
        raise InvalidSetting(problem, fix=fix, case="provider", detail=found.name)
    if found.client == LOCAL_CLIENT and not found.url and not read_settings().local_model.value:
        there = provider(LOCAL_CLIENT)
        if found.model.name != there.model.name:
            raise InvalidSetting(
                f"{spec!r}: the local model is {there.model_id}",
                fix="To use another one, set its GGUF file: CONTEXTC_LOCAL_MODEL=/path/to.gguf, or local_model in "
                "contextc.toml.",
            )


def _resolve_replay(spec: str, window_override: int | None) -> ModelChoice:
    path, _, query = spec.partition("?")
    facts = dict(parse_qsl(query))
    if strange := [fact for fact in facts if fact not in REPLAY_OPTIONS]:
        raise InvalidSetting(f"replay: unknown option {strange[0]!r}", fix=f"Use {', '.join(REPLAY_OPTIONS)}.")
    try:
        window, output = (int(facts[name]) if name in facts else None for name in ("window", "output"))
        seconds = float(facts.get("seconds", 0))
    except ValueError as error:
        raise InvalidSetting(f"replay: invalid option in {query!r}: {error}.") from None
    window = window_override or window
    if "model" not in facts:
        window, output = window or REPLAY_WINDOW, output or REPLAY_OUTPUT
    found = provider(
        f"replay:{facts.get('model') or Path(path).stem}",
        window=window,
        output=output,
        format=facts.get("format"),
        url=path,
    )
    return ModelChoice(found, {"seconds": seconds})
