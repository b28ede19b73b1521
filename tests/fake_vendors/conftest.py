"""Fixture that runs each test with a `client` parameter once per vendor SDK."""

from collections.abc import Iterator

import pytest

from tests.fake_vendors import FakeVendors
from tests.fake_vendors.sample_requests import FULL
from tests.fake_vendors.sdks import SDKClient, clients


@pytest.fixture(params=clients(), ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> SDKClient:
    return request.param


@pytest.fixture
def standin() -> Iterator[FakeVendors]:
    with FakeVendors(lambda ask: FULL) as running:
        yield running
