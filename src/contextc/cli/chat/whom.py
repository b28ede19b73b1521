"""Whom to talk to: the model that is named, else the one configured, else the one on this machine.

`replay:FILE` answers from recordings. What they pretend to be may follow, as in `replay:FILE?format=anthropic`, and
how many seconds there are between two events: `replay:FILE?seconds=0.1`.
"""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from contextc.config import read_settings
from contextc.errors import InvalidSetting, UnknownModel
from contextc.providers import Provider, provider

LOCAL = "local"
RECORDED = "replay:"
RECORDED_WINDOW, RECORDED_OUTPUT = 32_000, 4_000
FACTS = ("format", "window", "output", "model", "seconds")


class Whom(NamedTuple):
    """A provider, the options of the line to it, and what a person is to be told about the choice."""

    provider: Provider
    options: dict[str, object]
    remark: str = ""


def find(named: str | None, *, url: str | None = None, window: int | None = None) -> Whom:
    spec = named or read_settings().model.value
    if not spec:
        found = provider(LOCAL)
        return Whom(
            found,
            {},
            f"No model is configured, so this is a small one on this machine: {found.asks_for}. Name another with "
            "--model provider:model, or set CONTEXTC_MODEL; --tools read has this one use tools.",
        )
    if spec.startswith(RECORDED):
        return _recorded(spec.removeprefix(RECORDED))
    try:
        if url is not None:
            return Whom(provider(spec, window=window, url=url), {})
        return Whom(provider(spec, window=window), {})
    except UnknownModel as error:
        alike = f" Names that are known and written alike: {', '.join(error.close)}." if error.close else ""
        raise InvalidSetting(
            f"The window of model {error.model!r} is not known. Give it: --window 128000, or write window = 128_000 "
            f'below [models."{error.model}"] in contextc.toml.{alike}'
        ) from error


def _recorded(spec: str) -> Whom:
    path, _, query = spec.partition("?")
    facts = dict(parse_qsl(query))
    if strange := [fact for fact in facts if fact not in FACTS]:
        raise InvalidSetting(f"replay:…?{strange[0]}=: there are {', '.join(FACTS)}.")
    try:
        window, output = (int(facts[name]) if name in facts else None for name in ("window", "output"))
        seconds = float(facts.get("seconds", 0))
    except ValueError as error:
        raise InvalidSetting(f"replay:…?{query}: {error}.") from None
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
