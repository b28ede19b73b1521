"""The real Claude Code and Codex ask `contextc mcp`, and find a fact of an earlier session of theirs.

Their models are scripted stand-ins. Each program has a home of its own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import decode
from contextc.interchange import import_session
from tests.fake_vendors import AcceptedRequest, FakeVendors, Reply, ScriptedCall
from tests.fake_vendors.responses import FakeResponse, RequestHead, RequestRecord
from tests.mcp.forked_servers import forked
from tests.observation.record_cli_sessions import ClaudeCode, Codex
from tests.observation.session_recorder import named

FACT = "The staging database is called heron-42."
SERVER, SHORT = "mcp__contextc", "search_conversations"
TOOL = f"{SERVER}__{SHORT}"
QUESTION, ANSWER = "What is the staging database called?", "It is in an earlier session:"


def model(ask: AcceptedRequest) -> Reply:
    """Say the fact in the first session. In the second one, search for it and repeat what was found.

    Claude Code offers tools of servers only after a search for them.
    """
    results = [each.text for message in ask.request.messages for each in message.tool_results]
    if not any(QUESTION in message.text for message in ask.request.messages):
        return Reply(FACT)
    if any("search-results" in each for each in results) or len(results) > 2:
        return Reply(f"{ANSWER} {results[-1]}")
    tools = decode(ask.raw)["tools"]
    if any(each.get("name") == "ToolSearch" for each in tools) and not results:
        return Reply(calls=[ScriptedCall("ToolSearch", {"query": f"select:{TOOL}", "max_results": 5})])
    name = SHORT if any(each.get("name") == SERVER for each in tools) else TOOL
    return Reply(calls=[ScriptedCall(name, {"query": "staging database"})])


@contextmanager
def in_namespace(standin: FakeVendors) -> Generator[FakeVendors]:
    """Let the calls of the tool name its server, as Codex needs them."""
    answer = standin.desk.answer

    def marked(head: RequestHead, raw: bytes, connection: int = 0) -> tuple[FakeResponse, RequestRecord]:
        made, record = answer(head, raw, connection)
        steps = tuple([named(step, SHORT, SERVER) if isinstance(step, bytes) else step for step in made.steps])
        return FakeResponse(status=made.status, steps=steps, kind=made.kind, streamed=made.streamed), record

    standin.desk.answer = marked
    yield standin


def server_arguments(address: str) -> list[str]:
    return forked("-m", "contextc", "mcp", "--store", address)


def test_claude_code_finds_a_fact_of_its_earlier_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 20.12."""
    address = f"sqlite:///{tmp_path}/chat.db"
    program = ClaudeCode(tmp_path / "home")
    server = {"command": sys.executable, "args": server_arguments(address), "env": python_path()}
    config = json.dumps({"mcpServers": {"contextc": server}})
    with FakeVendors(model, strict=False) as standin:
        assert program.ask(standin, "Remember this.")["result"] == FACT
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(program.home / "claude"))
        with cc.open_store(address) as store:
            import_session(store, "claude-code", directory=str(program.work))
        answer = program.ask(standin, "--strict-mcp-config", "--mcp-config", config, "--", QUESTION)
    assert answer["result"].startswith(ANSWER)
    assert FACT in answer["result"]


def test_codex_finds_a_fact_of_its_earlier_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 20.12."""
    address = f"sqlite:///{tmp_path}/chat.db"
    settings = (
        f"[mcp_servers.contextc]\nrequired = true\nstartup_timeout_sec = 60\ncommand = {json.dumps(sys.executable)}\n"
        f"args = {json.dumps(server_arguments(address))}\n"
        f"env = {{ {', '.join([f'{name} = {json.dumps(value)}' for name, value in python_path().items()])} }}\n"
    )
    cc.open_store(address).close()
    with FakeVendors(model, strict=False) as plain, in_namespace(plain) as standin:
        program = Codex(tmp_path / "home", standin, settings)
        program.ask("Remember this.")
        monkeypatch.setenv("CODEX_HOME", str(program.home))
        with cc.open_store(address) as store:
            import_session(store, "codex", directory=str(program.work))
        done = subprocess.run(
            [program.program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", QUESTION],
            env=program.environment,
            cwd=program.work,
            capture_output=True,
            text=True,
            timeout=90,
            stdin=subprocess.DEVNULL,
            check=True,
        )
    assert ANSWER in done.stdout
    assert FACT in done.stdout


def python_path() -> dict[str, str]:
    """Return what the server needs to find this checkout. The programs pass on nothing else."""
    return {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
