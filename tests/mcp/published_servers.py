"""MCP servers as they are published for Node, installed once into a folder of the cache."""

from pathlib import Path

import contextc as cc
from tests.sdk_comparison.ai_sdk_process import find_node, installed

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
