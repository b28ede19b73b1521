"""Fixture that starts the AI SDK process once for all tests."""

from collections.abc import Iterator

import pytest

from tests.conftest import give_up
from tests.sdk_comparison.ai_sdk_process import Sdk, Unavailable, running


@pytest.fixture(scope="session")
def sdk() -> Iterator[Sdk]:
    """The real AI SDK."""
    try:
        with running() as oracle:
            yield oracle
    except Unavailable as reason:
        give_up(f"The AI SDK cannot be asked: {reason}.")
