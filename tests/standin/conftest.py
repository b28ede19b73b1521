"""Fixture that runs each test with a `client` parameter once per vendor SDK."""

from collections.abc import Iterator

import pytest

from tests.standin import FakeVendors
from tests.standin.asking import FULL
from tests.standin.sdks import SDKClient, clients


@pytest.fixture(params=clients(), ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> SDKClient:
    return request.param


@pytest.fixture
def standin() -> Iterator[FakeVendors]:
    with FakeVendors(lambda ask: FULL) as running:
        yield running
