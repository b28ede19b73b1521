"""A store for each back-end that a turn is tried on: the embedded ones everywhere, PostgreSQL where locks matter."""

from collections.abc import Generator
from pathlib import Path

import pytest

import contextc as cc

ON_POSTGRES = ("test_turn", "test_queue", "test_watching", "test_cancelling")
IN_MEMORY = ("test_standing_warnings",)
"""Long turns about what is sent, for which one back-end is enough."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        name = metafunc.definition.path.stem
        backends = ["memory", *(["sqlite"] * (name not in IN_MEMORY)), *(["postgres"] * (name in ON_POSTGRES))]
        metafunc.parametrize("store", backends, indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[cc.Store]:
    addresses = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path / 'turns.db'}"}
    is_postgres = request.param == "postgres"
    address = request.getfixturevalue("postgres_address") if is_postgres else addresses[request.param]
    with cc.open_store(address) as opened:
        yield opened
