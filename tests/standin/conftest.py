"""Fixture that runs each test with a `client` parameter once per vendor SDK."""

from collections.abc import Iterator

import pytest

from tests.standin import Standin
from tests.standin.asking import FULL
from tests.standin.sdks import Client, clients


@pytest.fixture(params=clients(), ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    return request.param


@pytest.fixture
def standin() -> Iterator[Standin]:
    with Standin(lambda ask: FULL) as running:
        yield running
