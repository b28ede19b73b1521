"""The program of docs/moving.md that a user of this framework has."""

from pathlib import Path

import pytest

from tests.frameworks.docs_pages import run_before_moving


def test_the_program_before_moving_prints_what_ours_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison with a program that does not run would be wrong."""
    assert run_before_moving("LiteLLM", tmp_path, monkeypatch) == "It is 18 °C, with rain."
