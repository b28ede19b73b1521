"""Features of providers, and the use that contextc makes of them: `features.toml`, for one model or as a page.

A fact of a row is about the provider. Whether a model has the feature follows from the fact of the model that the row
needs. Whether it is used follows from the beta flags that the provider is allowed to send.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from contextc._plugins import data_files
from contextc.models.model_info import Model
from contextc.providers.registry import Provider

State: TypeAlias = Literal["sets", "option", "keeps", "unused"]
STATE_TEXTS: dict[State, str] = {
    "sets": "contextc uses it by itself",
    "option": "contextc uses it if you ask for it",
    "keeps": "contextc stores it and sends it back",
    "unused": "contextc does not use it",
}
OPTION_CODE = {
    "betas": "betas=[…]",
    "settings": "settings={…}",
    "cache": 'cache="…"',
    "cache_diagnostics": "cache_diagnostics=True",
    "native": "native=cc.compiler.NativeContext(…)",
    "compact": "agent.compact(…, native=True)",
}
"""Code for the options of a row. Others are commands and providers."""
WITH_FLAGS = ("native", "compact")
"""Options that send the flags by themselves."""
CONFIRMED_TEXTS = {"types": "the vendor's types", "docs": "the vendor's documentation", "stand-in": "a stand-in only"}


class FeatureRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A feature of a provider. `features.toml` describes the fields."""

    feature: str
    provider: str
    fields: str
    state: State
    confirmed: Literal["types", "docs", "stand-in"]
    also: tuple[str, ...] = ()
    option: str = ""
    flags: tuple[str, ...] = ()
    needs: str = ""
    values: tuple[str, ...] = ()
    test: str = ""
    source: str = ""

    @property
    def option_text(self) -> str:
        """The code that a caller passes."""
        flag = f'betas=["{self.flags[0]}"]' if self.flags else ""
        passed = "" if self.option == "betas" else OPTION_CODE.get(self.option, self.option)
        return " and ".join(filter(None, [passed, "" if self.option in WITH_FLAGS else flag]))


class ModelFeature(Struct, frozen=True, kw_only=True):
    """A feature of a provider for one model.

    `has` is False if the model is not known to have it. `missing_flags` are beta flags of which the provider needs one,
    and which it may not send.
    """

    name: str
    title: str
    has: bool
    state: State
    fields: str
    option: str = ""
    flags: tuple[str, ...] = ()
    missing_flags: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    confirmed: str = ""
    source: str = ""


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    titles: dict[str, str]
    row: tuple[FeatureRow, ...]


@cache
def load_table() -> _Table:
    """Return all rows, and the titles of the features."""
    content = tomllib.loads(data_files("contextc.providers", ".toml")["features.toml"])
    return msgspec.convert(content, _Table)


def list_features(provider: Provider) -> list[ModelFeature]:
    """Return what a provider offers for its model, in the order of the table. Other features are not offered."""
    table = load_table()
    rows = {row.feature: row for row in table.row if provider.name in (row.provider, *row.also)}
    return [_feature_of(rows[name], title, provider) for name, title in table.titles.items() if name in rows]


def _feature_of(row: FeatureRow, title: str, provider: Provider) -> ModelFeature:
    is_allowed = not row.flags or not set(row.flags).isdisjoint(provider.betas)
    return ModelFeature(
        name=row.feature,
        title=title,
        has=_has(provider.model, row.needs),
        state=row.state,
        fields=row.fields,
        option=row.option_text if row.state == "option" else "",
        flags=row.flags,
        missing_flags=() if is_allowed or row.state == "unused" or row.option in WITH_FLAGS else row.flags,
        values=row.values,
        confirmed=row.confirmed,
        source=row.source,
    )


def _has(model: Model, needed: str) -> bool:
    return not needed or needed in model.features or bool(getattr(model, needed, False))


# ── the page ──────────────────────────────────────────────────────────────────────────────────────────────────────────


INTRODUCTION = """# What providers offer

<!-- Generated from src/contextc/providers/features.toml: `make rules`. -->

`contextc models anthropic:claude-opus-5-5` shows this for one model, with its window, prices and what is missing.

| word | |
|---|---|
| sets | contextc uses it by itself, where the model has it |
| option | contextc uses it if you ask for it |
| keeps | it is read from histories and replies, stored and sent again, and the linter accepts it |
| unused | contextc neither sends nor reads it |
| - | the provider does not offer it |
"""
DETAILS = """
`settings={…}` is passed to the agent or to `compile`, with the fields of the provider. `betas=[…]` is passed to
the agent or to `cc.provider` ([beta features](../providers.md#beta-features)). `cache="…"`, `cache_diagnostics=True`
and [`native`](../compiler.md#a-providers-own-compaction) are options of the compiler. "Known from" names who accepts
such a request, or describes such a reply: the types in the vendor's SDK, its documentation, or only a stand-in
for the API. The test proves the state.
"""
PROVIDER_NAMES = {
    "anthropic": "Anthropic",
    "openai": "OpenAI",
    "gemini": "Google",
    "bedrock": "Bedrock",
    "mistral": "Mistral",
    "xai": "xAI",
    "deepseek": "DeepSeek",
    "openrouter": "OpenRouter",
}


def render_features() -> str:
    """Return docs/reference/features.md."""
    return "\n".join(["\n".join(_overview()), *["\n".join(_section(name)) for name in PROVIDER_NAMES]]) + "\n"


def _overview() -> Iterator[str]:
    table = load_table()
    states = {(row.feature, row.provider): row.state for row in table.row}
    yield INTRODUCTION
    yield from _lines(["feature", *PROVIDER_NAMES.values()], _overview_rows(table, states))
    yield DETAILS.rstrip()


def _overview_rows(table: _Table, states: Mapping[tuple[str, str], str]) -> Iterator[list[str]]:
    for name, title in table.titles.items():
        yield [title, *[states.get((name, provider), "-") for provider in PROVIDER_NAMES]]


def _section(provider: str) -> Iterator[str]:
    table = load_table()
    rows = {row.feature: row for row in table.row if row.provider == provider}
    yield f"\n## {PROVIDER_NAMES[provider]}\n"
    cells: list[list[str]] = []
    for name, title in table.titles.items():
        if (row := rows.get(name)) is not None:
            flags = ", ".join([f"`{flag}`" for flag in row.flags])
            option = f"`{OPTION_CODE.get(row.option, row.option)}`" if row.option else ""
            values = ", ".join([f"`{value}`" for value in row.values])
            confirmed = f"[{CONFIRMED_TEXTS['docs']}]({row.source})" if row.source.startswith("http") else row.source
            fields = row.fields + (f": {values}" if values else "")
            confirmed = confirmed or CONFIRMED_TEXTS[row.confirmed]
            test = row.test.rpartition("/")[2].replace("::", " ")
            cells.append([title, row.state, fields, option, flags, confirmed, test])
    yield from _lines(["feature", "state", "fields", "pass", "beta flags", "known from", "test"], cells)


def _lines(names: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(names)} |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield f"| {' | '.join([cell.replace('|', chr(92) + '|') for cell in row])} |"
