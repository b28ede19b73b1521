"""A store for the tests of this framework. The core of the adapters is tested on every kind of store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import contextc as cc


@pytest.fixture
def store(tmp_path: Path) -> Iterator[cc.Store]:
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as handle:
        yield handle
