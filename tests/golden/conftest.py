"""A read-only copy of the golden store for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import contextc as cc
from tests.golden import store_content


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file as it was written, never opened by our code."""
    return store_content.unpack(tmp_path_factory.mktemp("raw"))


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_content.unpack(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="session")
def store(file: Path) -> Iterator[cc.Store]:
    with cc.open_store(file) as opened:
        yield opened
