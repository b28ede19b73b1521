"""Fixture that runs each test with a `client` parameter for some vendor SDKs, and for all in `make prove`."""

from collections.abc import Iterator

import pytest

from tests.conftest import some
from tests.fake_vendors import FakeVendors
from tests.fake_vendors.sample_requests import FULL
from tests.fake_vendors.sdks import SDKClient, clients


@pytest.fixture(params=some(clients(), 3), ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> SDKClient:
    return request.param


@pytest.fixture
def standin() -> Iterator[FakeVendors]:
    with FakeVendors(lambda ask: FULL) as running:
        yield running
