"""`contextc models`: show what a model can do, and what contextc uses of it; or list the known models."""

import asyncio
from collections.abc import Iterable
from datetime import date
from typing import Annotated

from msgspec import Struct
from rich.table import Table

from contextc.cli.command_line import Argument, Option
from contextc.cli.console import JSONOption, escape_markup, out, print_block, print_json
from contextc.errors import InvalidSetting
from contextc.models.billing import PRICE_NAMES
from contextc.models.model_info import find_price_source
from contextc.providers.feature_table import STATE_TEXTS, ModelFeature, list_features
from contextc.providers.models_api import VendorFacts, ask_vendor
from contextc.providers.registry import Provider, known_models, provider, provider_names


class ModelReport(Struct, frozen=True, kw_only=True):
    """A model at a provider. Prices are in dollars per million tokens; `price_date` is the day on which they were
    compared with their source, if they are those of contextc. `vendor` is what its API says, if asked."""

    name: str
    format: str
    window: int
    output: int
    prices: dict[str, float]
    price_source: str = ""
    price_date: date | None = None
    cache_lifetimes: list[str]
    efforts: list[str]
    media: list[str]
    betas: list[str]
    features: list[ModelFeature]
    vendor: VendorFacts | None = None


def run(
    name: Annotated[
        str | None,
        Argument(
            help='Provider and model, as in "anthropic:claude-opus-5-5". A provider alone lists its known models'
            " (default: all of them).",
            show_default=False,
        ),
    ] = None,
    ask: Annotated[
        bool, Option("--ask", help="Also ask the vendor's API, with your key, and show the differences.")
    ] = False,
    window: Annotated[
        int | None, Option("--window", min=1, help="Context window of the model in tokens, if it is not known.")
    ] = None,
    json: JSONOption = False,
) -> None:
    """Show what a model can do: window, prices, features, and which of them contextc uses by itself."""
    if name is None:
        _list(provider_names(), json)
        return
    try:
        found = provider(name, window=window)
    except InvalidSetting as error:
        if error.case != "model-missing":
            raise
        _list([error.detail], json)
        return
    report = describe(found, asyncio.run(ask_vendor(found)) if ask else None)
    if json:
        print_json(report)
    else:
        _print(report)


def _list(providers: Iterable[str], json: bool) -> None:
    """Print the known models of some providers. Those with the same models are printed together."""
    models = {name: known_models(name) for name in providers}
    if json:
        print_json(models)
        return
    for listed in dict.fromkeys(models.values()):
        names = [name for name, each in models.items() if each == listed]
        print_block(f"[bold]{escape_markup(', '.join(names))}[/]", escape_markup(", ".join(listed) or "any model"))
    out.print('\nFor one of them: contextc models "PROVIDER:MODEL". Others work, too.', soft_wrap=True)


def describe(found: Provider, vendor: VendorFacts | None = None) -> ModelReport:
    features, model = list_features(found), found.model
    source = find_price_source(model)
    prices = {name: getattr(model.price, name) for name in PRICE_NAMES} if model.price is not None else {}
    return ModelReport(
        name=found.title,
        format=found.format,
        window=model.window,
        output=model.output,
        prices={name: price for name, price in prices.items() if price is not None},
        price_source=source.source if source is not None else "",
        price_date=source.checked if source is not None else None,
        cache_lifetimes=[*found.cache_lifetimes],
        efforts=[*model.efforts],
        media=[*model.media],
        betas=[*found.betas],
        features=features,
        vendor=vendor,
    )


def _print(report: ModelReport) -> None:
    prices = ", ".join([f"{name.replace('_', ' ')} ${price:g}" for name, price in report.prices.items()])
    facts = {
        "format": report.format,
        "window": f"{report.window:,} tokens",
        "output": f"{report.output:,} tokens",
        "prices": prices and f"{prices} per million tokens",
        "prices from": report.price_source and f"{report.price_source}, {report.price_date}",
        "cache lifetimes": ", ".join(report.cache_lifetimes),
        "efforts": ", ".join(report.efforts),
        "media": ", ".join(report.media),
        "beta flags": ", ".join(report.betas),
    }
    out.print(f"[bold]{escape_markup(report.name)}[/]")
    for fact, value in facts.items():
        if value:
            out.print(f"{fact}: {escape_markup(value)}", soft_wrap=True)
    table = Table("state", "feature, and what you pass", "known from", box=None, header_style="bold")
    for column in table.columns:
        column.overflow = "fold"
    for each in report.features:
        if each.has:
            passed = f"\n[green]{escape_markup(option)}[/]" if (option := _option(each)) else ""
            table.add_row(each.state, escape_markup(each.title) + passed, each.confirmed)
    out.print()
    out.print(table)
    shown = {each.state for each in report.features if each.has}
    texts = [f"{state}: {text}" for state, text in STATE_TEXTS.items() if state in shown]
    out.print("\n" + ". ".join(texts) + ".", soft_wrap=True)
    if missing := [each.title for each in report.features if not each.has]:
        out.print(f"\nnot known for this model: {escape_markup('; '.join(missing))}", soft_wrap=True)
    if report.vendor is not None:
        _print_vendor(report.vendor)


def _option(feature: ModelFeature) -> str:
    if feature.option:
        return feature.option
    return f'betas=["{feature.missing_flags[0]}"]' if feature.missing_flags else ""


def _print_vendor(vendor: VendorFacts) -> None:
    out.print(f"\nThe vendor's API states: {escape_markup(', '.join(vendor.facts) or 'no facts')}", soft_wrap=True)
    for name, value in vendor.lifecycle.items():
        out.print(f"{name.replace('_', ' ')}: {escape_markup(value)}")
    if not vendor.differences:
        out.print("[green]no differences[/]")
        return
    table = Table("fact", "contextc", "vendor", box=None, header_style="bold")
    for each in vendor.differences:
        table.add_row(each.fact, escape_markup(_text(each.ours)), escape_markup(_text(each.vendors)))
    out.print(table)


def _text(value: int | bool | list[str]) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value:,}"
