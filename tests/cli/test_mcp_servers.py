"""`chat` uses the MCP servers of a project once a person has approved them (guarantee 24.6)."""

import json
import sys
from pathlib import Path

from tests.cli.chat_terminal import recorded
from tests.cli.conftest import Run
from tests.cli.test_chat import chat
from tests.executor.scripted_provider import call, says

SERVER = Path(__file__).parent.parent / "mcp" / "plain_server.py"
NOT_APPROVED = "MCP servers not started: .mcp.json: not approved. `contextc trust` shows it, and asks.\n"


def test_chat_starts_the_servers_of_a_project_after_they_were_approved(run: Run, tmp_path: Path) -> None:
    """Without approval, the turn goes on without them, and a line says what to do."""
    project = tmp_path / "project"
    project.mkdir()
    server = {"command": sys.executable, "args": [str(SERVER)]}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"plain": server}}))
    replies = (says(call("c1", "plain__echo", text="hello there")), says("Done."))
    model = recorded(project / "a.jsonl", *replies)
    refused = chat(project, "-m", model, "--tools", "all", "-c", "one", "--yes", "go", HOME=str(tmp_path))
    assert (refused.returncode, refused.stdout) == (0, "Done.\n")
    assert NOT_APPROVED in refused.stderr
    assert "There is no tool plain__echo" in refused.stderr
    approved = run("trust", "--yes", str(project))
    assert f"  mcpServers.plain.command = {sys.executable!r}\n" in approved.stderr
    model = recorded(project / "b.jsonl", *replies)
    asked = chat(project, "-m", model, "--tools", "all", "-c", "two", "--yes", "go", HOME=str(tmp_path))
    assert "MCP servers: plain\n" in asked.stderr
    assert "hello there" in asked.stderr
    model = recorded(project / "c.jsonl", *replies)
    unattended = chat(project, "-m", model, "--tools", "all", "-c", "three", "go", HOME=str(tmp_path))
    assert "needs a person's approval" in unattended.stderr
    assert run("trust", "--forget", str(project)).stdout == "trust revoked\n"
    model = recorded(project / "d.jsonl", says("Hi."))
    assert NOT_APPROVED in chat(project, "-m", model, "--tools", "all", "hi", HOME=str(tmp_path)).stderr
