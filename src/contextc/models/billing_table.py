"""The factors and fees of `billing.toml`: what providers bill beyond the list price of a model."""

import datetime
import re
import tomllib
from functools import cache, lru_cache
from typing import Literal

import msgspec
from msgspec import Struct

from contextc._plugins import data_files


class BillingFactor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of the table, which describes the fields. A price without a factor is unknown."""

    field: Literal["tier", "speed", "region"]
    word: str
    source: str
    date: datetime.date
    vendors: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    factor: float | None = None
    lower_bound: bool = False


class NameFactor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row for models whose requested name has a region."""

    pattern: str
    models: tuple[str, ...]
    factor: float
    source: str
    date: datetime.date


class ToolFee(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row for a tool of the provider, which costs these dollars each time that it is used."""

    kind: str
    vendors: tuple[str, ...]
    dollars: float
    source: str
    date: datetime.date
    lower_bound: bool = False


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    factor: tuple[BillingFactor, ...]
    name: tuple[NameFactor, ...]
    fee: tuple[ToolFee, ...]


@cache
def load_table() -> _Table:
    """Return all rows, in their order."""
    content = tomllib.loads(data_files("contextc.models", ".toml")["billing.toml"])
    return msgspec.convert(content, _Table)


@lru_cache(maxsize=1_024)
def find_factor(field: str, word: str, vendor: str, model: str) -> BillingFactor | None:
    """Return the first row for a word of a reply and a model; None if there is none."""
    for row in load_table().factor:
        is_meant = (not row.vendors or vendor in row.vendors) and (not row.models or model in row.models)
        if (row.field, row.word) == (field, word) and is_meant:
            return row
    return None


def find_fee(kind: str, vendor: str) -> ToolFee | None:
    """Return the fee of a tool at a vendor; None if there is no row."""
    return next((row for row in load_table().fee if row.kind == kind and vendor in row.vendors), None)


def find_name_factor(requested: str, model: str) -> float:
    """Return the factor for a model that was requested by this name; 1 if there is none."""
    name = requested.rsplit("/", 1)[-1].lower()
    return next((row.factor for row in load_table().name if model in row.models and re.match(row.pattern, name)), 1.0)
