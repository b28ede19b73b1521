"""A store for each back-end that a turn is tried on."""

from collections.abc import Generator
from pathlib import Path

import pytest

import contextc as cc


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[cc.Store]:
    address = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'turns.db'}"
    with cc.open_store(address) as opened:
        yield opened
