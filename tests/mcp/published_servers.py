"""MCP servers as they are published for Node and for Python, installed once into a folder of the cache.

Those for Node speak the protocol of 2025-11-25, those for Python that of 2026-07-28.
"""

import fcntl
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import contextc as cc
from tests.mcp.forked_servers import forked
from tests.sdk_comparison.ai_sdk_process import CACHE, LONGEST_INSTALL, Unavailable, find_node, installed

HERE = Path(__file__).parent / "published"
PREFIX = "@modelcontextprotocol/server-"
NAMES = ("everything", "filesystem", "memory", "sequential-thinking")


def published(folder: Path) -> list[cc.MCPServer]:
    """Return the servers. One may read and write files of a folder, one keeps its memory there."""
    node = find_node()
    packages = installed(node, HERE) / "node_modules"
    return [
        cc.MCPServer(
            name=name,
            command=str(node.folder / "node"),
            args=[str(packages / f"{PREFIX}{name}" / "dist" / "index.js"), *([str(folder)] * (name == "filesystem"))],
            env={"MEMORY_FILE_PATH": str(folder / "memory.jsonl")} if name == "memory" else {},
        )
        for name in NAMES
    ]


def published_for_python() -> list[cc.MCPServer]:
    """Return the servers of the project for Python. Raises `Unavailable` if they cannot be installed."""
    requirements = HERE / "requirements.txt"
    folder = CACHE / sha256(requirements.read_bytes()).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--python", sys.executable, "--target", str(folder), "-r", str(requirements)]
    with open(CACHE / "lock", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_INSTALL, check=False)
            except (OSError, subprocess.SubprocessError) as error:
                raise Unavailable(f"uv could not install the servers: {error}") from error
            if done.returncode:
                raise Unavailable(f"uv could not install the servers: {done.stderr.strip()[:300]}")
            (folder / "installed").touch()
    return [
        cc.MCPServer(
            name=name, command=sys.executable, args=forked("-m", f"mcp_server_{name}"), env={"PYTHONPATH": str(folder)}
        )
        for name in ("git", "time")
    ]
