"""Select the model: the named one, otherwise the configured one, otherwise the local one.

`replay:FILE` replies from recordings. Options may follow: the format of the recordings, as in
`replay:FILE?format=anthropic`, and the seconds between two events, as in `replay:FILE?seconds=0.1`.
"""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from contextc._json import JSONObject
from contextc.config import NO_VARIABLE, is_variable, read_settings
from contextc.errors import InvalidSetting
from contextc.providers import Provider, provider
from contextc.providers.named import has_address, no_provider

LOCAL = "local"
ANY = 1 << 30  # a placeholder, so that the provider is checked before the context window is looked up
RECORDED = "replay:"
RECORDED_WINDOW, RECORDED_OUTPUT = 32_000, 4_000
FACTS = ("format", "window", "output", "model", "seconds")


class Whom(NamedTuple):
    """A provider, the options of its client, and a remark about the choice for the user."""

    provider: Provider
    options: dict[str, object]
    remark: str = ""


def find(named: str | None, *, url: str | None = None, window: int | None = None, key: str | None = None) -> Whom:
    spec = (named or read_settings().model.value).strip()
    given = {"url": url, "window": window, "key": key}
    if key is not None and not is_variable(key):
        raise InvalidSetting(f"key {NO_VARIABLE}")
    if not spec:
        if options := [option for option, value in given.items() if value is not None]:
            raise InvalidSetting(f"{options[0]} requires a model, got none", fix="Name it, as provider:model.")
        found = provider(LOCAL)
        return Whom(
            found,
            {},
            f"No model is configured: using {found.asks_for} on this machine. Set CONTEXTC_MODEL to use another.",
        )
    if spec.startswith(RECORDED):
        if url is not None or key is not None:
            raise InvalidSetting("replay: recordings have no url and no key", fix="Omit url and key.")
        return _recorded(spec.removeprefix(RECORDED), window)
    facts: JSONObject = {fact: value for fact, value in (("url", url), ("key", key)) if value is not None}
    _check(spec, provider(spec, window=window or ANY, **facts))
    return Whom(provider(spec, window=window, **facts), {})


def _check(spec: str, found: Provider) -> None:
    """Check that the provider can be called and has this model, before the model's context window is looked up."""
    if not found.client or not has_address(found):
        problem, fix = no_provider(found.name)
        raise InvalidSetting(problem, fix=fix, case="provider", detail=found.name)
    if found.client == LOCAL and not found.url and not read_settings().local_model.value:
        there = provider(LOCAL)
        if found.model.name != there.model.name:
            raise InvalidSetting(
                f"{spec!r}: the local model is {there.asks_for}",
                fix="To use another one, set its GGUF file: CONTEXTC_LOCAL_MODEL=/path/to.gguf, or local_model in "
                "contextc.toml.",
            )


def _recorded(spec: str, wanted: int | None) -> Whom:
    path, _, query = spec.partition("?")
    facts = dict(parse_qsl(query))
    if strange := [fact for fact in facts if fact not in FACTS]:
        raise InvalidSetting(f"replay: unknown option {strange[0]!r}", fix=f"Use {', '.join(FACTS)}.")
    try:
        window, output = (int(facts[name]) if name in facts else None for name in ("window", "output"))
        seconds = float(facts.get("seconds", 0))
    except ValueError as error:
        raise InvalidSetting(f"replay: invalid option in {query!r}: {error}.") from None
    window = wanted or window
    if "model" not in facts:
        window, output = window or RECORDED_WINDOW, output or RECORDED_OUTPUT
    found = provider(
        f"replay:{facts.get('model') or Path(path).stem}",
        window=window,
        output=output,
        format=facts.get("format"),
        url=path,
    )
    return Whom(found, {"seconds": seconds})
