"""A store for the tests of this framework, of each kind that several processes may open."""

from collections.abc import Iterator

import pytest

import contextc as cc


@pytest.fixture
def store(shared_address: str) -> Iterator[cc.Store]:
    with cc.open_store(shared_address) as handle:
        yield handle
