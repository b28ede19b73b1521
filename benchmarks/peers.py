"""Where each peer is installed, and in which version.

Most peers share the environment the benchmark runs in (`requirements.txt`). A peer that cannot stand beside the others
gets an environment of its own under `.cache/bench/`, made the first time it is asked for. contextc is in it too, so
that a benchmark can run there with the same files.
"""

import subprocess
import sys
import venv
from pathlib import Path
from shutil import rmtree

ROOT = Path(__file__).resolve().parent.parent
WORKPLACE = ROOT / ".cache" / "bench"
"""On the disk the project is on, so that a benchmark does not measure a file system in memory."""

APART = {"litellm": "litellm==1.105.3"}
"""litellm needs openai<3, openai-agents needs openai>=3."""
PROXIES = {"litellm-proxy": "litellm[proxy]==1.105.3", "mitmproxy": "mitmproxy==11.0.2"}
"""Programs to measure the proxy beside, without contextc in their environments."""


def interpreter(distribution: str, *, install: bool) -> str | None:
    """The Python that has a peer, or None where there is none (and none may be made)."""
    if distribution not in APART:
        return sys.executable
    return _made(WORKPLACE / distribution, [APART[distribution], "--editable", f"{ROOT}[cli]"], install=install)


def proxy_interpreter(name: str) -> str | None:
    """The Python that has a proxy, or None where it cannot be installed."""
    return _made(WORKPLACE / name, [PROXIES[name]], install=True)


def _made(folder: Path, requirements: list[str], *, install: bool) -> str | None:
    made_of = ", ".join(requirements)
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists() and ready.read_text() == made_of:
        return str(python)
    if not install:
        return None
    rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += requirements
    if subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode:
        return None
    ready.write_text(made_of)
    return str(python)


def version(distribution: str, python: str = sys.executable) -> str | None:
    """The installed version as that Python sees it, or None."""
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    found = subprocess.run([python, "-c", code, distribution], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None
