"""The pytest fixture `fake_model`, and the check of sent requests, in every environment with contextc and pytest.

pytest loads this module in every project, so it imports the rest only where it is used.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from contextc.testing import FakeModel


@pytest.fixture
def fake_model() -> "Iterator[Callable[..., FakeModel]]":
    """Make fake models: `fake_model("Hello.")`. The test fails if an answer of one was not asked for."""
    from contextc.testing import FakeModel

    made: list[FakeModel] = []

    def make(*answers: object, **options: object) -> FakeModel:
        made.append(FakeModel(*answers, **options))  # pyright: ignore[reportArgumentType]
        return made[-1]

    yield make
    unused = [model.unused for model in made if model.unused]
    assert not unused, f"{sum(unused)} of the answers of a fake model were not asked for"


MODES = ("fail", "report", "off")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("contextc")
    group.addoption(
        "--contextc-lint",
        choices=MODES,
        help="check every model request that the tests send, by the rules of its provider: fail the test, report, off",
    )
    group.addoption("--contextc-lint-sarif", metavar="FILE", help="also write what was found as SARIF 2.1.0")
    parser.addini("contextc_lint", "fail, report or off: the default of --contextc-lint", default="off")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "contextc_ignore(*codes): requests of this test may break these rules of providers, or any"
    )
    mode: str = config.getoption("--contextc-lint") or config.getini("contextc_lint")
    if mode not in MODES:
        raise pytest.UsageError(f"contextc_lint must be one of {', '.join(MODES)}, got {mode!r}")
    if mode != "off":
        from contextc._pytest_lint import RequestLint

        sarif = config.getoption("--contextc-lint-sarif")
        config.pluginmanager.register(RequestLint(config, fails=mode == "fail", sarif=sarif), "contextc_lint")
