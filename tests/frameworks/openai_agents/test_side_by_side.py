"""The programs of OpenAI Agents in docs/side-by-side.md run against the fake vendors."""

from pathlib import Path

import pytest

from tests.frameworks.docs_pages import run_side_by_side


def test_the_programs_beside_ours_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison with a program that does not run would be wrong."""
    topics = run_side_by_side("OpenAI Agents", tmp_path, monkeypatch)
    assert topics == ["A tool", "Dependencies", "Handoff", "Typed output", "Tests without a provider"]
