"""Environments for clients that cannot be installed beside the project: one folder of the cache for each of them.

It is named after the requirements, and made by the first process that needs it; others wait.
"""

import fcntl
import os
import shutil
import subprocess
import venv
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

CACHE = Path(__file__).parent.parent.parent / ".cache" / "clients"
INSTALL_SECONDS = 900
AGENTS = (
    "openai-agents==0.24.0",
    "langchain-anthropic==1.7.7",
    "langchain-openai==1.7.3",
    "pydantic-ai-slim[anthropic,google,openai]==2.66.0",
)
LITELLM = ("litellm==1.105.3",)
"""It needs openai<3, and openai-agents needs openai>=3."""
AIDER = ("aider-chat==0.86.2",)


class Unavailable(Exception):
    """The packages cannot be installed."""


def find_python(requirements: Sequence[str]) -> str:
    """Return a Python that has these packages."""
    folder = CACHE / sha256("\n".join(requirements).encode()).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{folder.name}.lock", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _install(folder, requirements)
    return str(folder / "bin" / "python")


def _install(folder: Path, requirements: Sequence[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*command, *requirements], capture_output=True, text=True, timeout=INSTALL_SECONDS, env=dict(os.environ)
        )
    except subprocess.SubprocessError as error:
        raise Unavailable(f"{requirements[0]} could not be installed: {error}") from error
    if done.returncode:
        raise Unavailable(f"{requirements[0]} could not be installed: {done.stderr.strip()[-300:]}")
    (folder / "ready").touch()
