"""Environments for clients that cannot be installed beside the project, named after their requirements."""

import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from tests.package_environments import CACHE, INSTALL_SECONDS, Unavailable, make_environment, resolve
from tests.sdk_comparison import ai_sdk_process
from tests.sdk_comparison.ai_sdk_process import find_node

__all__ = [
    "AGENTS",
    "AIDER",
    "CLINE",
    "GEMINI_CLI",
    "LITELLM",
    "OPENCODE",
    "Unavailable",
    "find_ai_sdk",
    "find_npm_program",
    "find_python",
]

NPM_OPTIONS = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--loglevel=error")

AGENTS = (
    "openai-agents==0.24.0",
    "langchain-anthropic==1.7.7",
    "langchain-openai==1.7.3",
    "pydantic-ai-slim[anthropic,google,openai]==2.66.0",
)
LITELLM = ("litellm==1.105.3",)
"""It needs openai<3, and openai-agents needs openai>=3."""
AIDER = ("aider-chat==0.86.2",)
GEMINI_CLI = "@google/gemini-cli@0.61.0"
OPENCODE = "opencode-ai@1.18.33"
CLINE = "cline@3.0.65"
PROXY_NODE = (22, 21)
"""The first version of Node whose `fetch` can use a proxy. From 22.15 on, cline copies certificates."""


def find_python(requirements: Sequence[str]) -> str:
    """Return a Python that has these packages. What they require stays as it was when it was installed."""
    folder = CACHE / "clients" / sha256("\n".join(requirements).encode()).hexdigest()[:16]
    if (folder / "ready").exists():
        return str(folder / "bin" / "python")
    return make_environment(folder, resolve(requirements), with_project=False)


def find_ai_sdk() -> tuple[Path, Path]:
    """Return a Node whose `fetch` can use a proxy, and the folder with the AI SDK's packages."""
    try:
        node = find_node(PROXY_NODE)
        return node.folder / "node", ai_sdk_process.installed(node)
    except ai_sdk_process.Unavailable as error:
        raise Unavailable(str(error)) from error


def find_npm_program(package: str, program: str) -> str:
    """Return a program of an npm package, such as "opencode-ai@1.18.33". Its install scripts do not run."""
    folder = CACHE / "clients" / sha256(package.encode()).hexdigest()[:16]
    path = folder / "node_modules" / program
    if not path.exists():
        try:
            node = find_node()
        except ai_sdk_process.Unavailable as error:
            raise Unavailable(str(error)) from error
        folder.mkdir(parents=True, exist_ok=True)
        command = [node.folder / "npm", "install", *NPM_OPTIONS, "--prefix", folder, package]
        done = subprocess.run(
            command,
            cwd=folder,
            env=node.environment(),
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if not path.exists():
            raise Unavailable(f"npm could not install {package}: {done.stderr.strip()[:300]}")
    return str(path)
