"""Fixtures that run commands as processes with a temporary home directory."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forked_commands import run_contextc

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command in a home of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CONTEXTC_", "XDG_"))}
    environment = {**clean, "HOME": str(tmp_path), "COLUMNS": "200", "NO_COLOR": "1"}

    def command(*arguments: str, text: str | None = None, **more: str) -> "subprocess.CompletedProcess[str]":
        return run_contextc(*arguments, cwd=tmp_path, env={**environment, **more}, text=text)

    return command
