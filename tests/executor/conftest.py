"""Stores for turn tests: PostgreSQL where locks matter, SQLite where durability matters.

`make prove` tries SQLite everywhere.
"""

from collections.abc import Generator
from pathlib import Path

import pytest

import contextc as cc
from tests.conftest import THOROUGH

ON_POSTGRES = (
    "test_turn",
    "test_queue",
    "test_watching",
    "test_cancelling",
    "test_suspended_turns",
    "test_runs_at_once",
    "test_agents_as_tools",
    "test_approval_rules",
)
ON_SQLITE = (
    *ON_POSTGRES,
    "test_cancellation",
    "test_failures",
    "test_late_events",
    "test_lost_leases",
    "test_blocking",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        name = metafunc.definition.path.stem
        backends = ["memory", *(["sqlite"] * (THOROUGH or name in ON_SQLITE)), *(["postgres"] * (name in ON_POSTGRES))]
        metafunc.parametrize("store", backends, indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[cc.Store]:
    addresses = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path / 'turns.db'}"}
    is_postgres = request.param == "postgres"
    address = request.getfixturevalue("postgres_address") if is_postgres else addresses[request.param]
    with cc.open_store(address) as opened:
        yield opened
