"""Seeded random histories. A failing one is minimized."""

from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.formats.histories import History, histories


def each_history(number: int, count: int, check: Callable[[History], None]) -> None:
    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    @given(history=histories())
    def drawn(history: History) -> None:
        check(history)

    drawn()
