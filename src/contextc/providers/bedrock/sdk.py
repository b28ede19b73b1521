"""The modules of AWS's SDK, loaded when they are used. It makes its classes from descriptions, and has no types."""

from importlib import import_module
from typing import Any


def botocore(module: str) -> Any:
    return import_module(f"botocore.{module}")
