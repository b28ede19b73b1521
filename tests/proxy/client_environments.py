"""Environments for clients that cannot be installed beside the project, named after their requirements."""

from collections.abc import Sequence
from hashlib import sha256

from tests.package_environments import CACHE, Unavailable, make_environment, resolve

__all__ = ["AGENTS", "AIDER", "LITELLM", "Unavailable", "find_python"]

AGENTS = (
    "openai-agents==0.24.0",
    "langchain-anthropic==1.7.7",
    "langchain-openai==1.7.3",
    "pydantic-ai-slim[anthropic,google,openai]==2.66.0",
)
LITELLM = ("litellm==1.105.3",)
"""It needs openai<3, and openai-agents needs openai>=3."""
AIDER = ("aider-chat==0.86.2",)


def find_python(requirements: Sequence[str]) -> str:
    """Return a Python that has these packages. What they require stays as it was when it was installed."""
    folder = CACHE / "clients" / sha256("\n".join(requirements).encode()).hexdigest()[:16]
    if (folder / "ready").exists():
        return str(folder / "bin" / "python")
    return make_environment(folder, resolve(requirements), with_project=False)
