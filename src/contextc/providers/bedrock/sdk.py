"""Lazy import of botocore modules, which have no types."""

from importlib import import_module
from typing import Any


def import_botocore(module: str) -> Any:
    return import_module(f"botocore.{module}")
