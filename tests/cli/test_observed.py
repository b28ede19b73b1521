"""Commands on observed conversations: list, explain, lint, compile, fork and export."""

import json
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from tests.cli.conftest import Run
from tests.observation.test_continue_observed import PROMPT, SONNET, TALK, TOOLS, body, observe_talk
from tests.observation.test_conversation_match import claude, claude_answer

HEADERS = {"x-claude-code-session-id": "s1"}


@pytest.fixture
def address(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path / 'a.db'}"
    with cc.open_store(found) as store:
        observe_talk(store)
        store.append("own", cc.user("hi"))
        cc.observe(store, request=claude("a"), reply=claude_answer("b"), format="anthropic", headers=HEADERS)
        side = {**HEADERS, "x-claude-code-auxiliary-type": "title"}
        cc.observe(store, request=claude("t"), reply=claude_answer("b"), format="anthropic", headers=side)
    return found


def test_list_shows_the_client(run: Run, address: str) -> None:
    lines = run("list", "--store", address).stdout.splitlines()
    assert lines[0].split() == ["conversation", "messages", "branches", "started", "client", "title"]
    clients = {line.split()[0]: line[lines[0].index("client") : lines[0].index("title")].strip() for line in lines[1:]}
    assert (clients["x"], clients["own"], clients["claude-code-s1"]) == ("observed", "", "claude-code")
    assert [client for name, client in clients.items() if "-side-" in name] == ["claude-code (side)"]
    listed = {each["name"]: each for each in json.loads(run("list", "--json", "--store", address).stdout)}
    assert listed["claude-code-s1"]["observed"]["client"] == "claude-code"
    assert "observed" not in listed["own"]


def test_explain_shows_what_was_sent(run: Run, address: str) -> None:
    shown = run("explain", "x", "--store", address)
    assert shown.returncode == 0, shown.stderr
    assert "observed" in shown.stdout
    assert "status ok" in shown.stdout
    requests = run("explain", "x", "--requests", "--store", address)
    assert (requests.returncode, requests.stdout.count("observed")) == (0, 2)
    sent = run("explain", "x", "--body", "--store", address).stdout
    assert sent.strip().encode() == body(TALK)
    facts = json.loads(run("explain", "x", "1", "--json", "--store", address).stdout)
    assert facts["mode"] == "observed"
    assert facts["observed"]["began"] > 0


def test_lint_of_a_stored_request(run: Run, address: str) -> None:
    found = run("lint", "--conversation", "x", "--store", address)
    assert (found.returncode, found.stdout) == (0, "no violations\n")
    with cc.open_store(address) as store:
        lost = [*TALK[:2], {"role": "user", "content": "no result"}]
        cc.observe(store, request=body(lost), format="anthropic", conversation="bad")
    found = run("lint", "-c", "bad", "--json", "--store", address)
    assert found.returncode == 1
    assert json.loads(found.stdout)[0]["code"]
    assert run("lint", "-c", "bad", "--request", "1", "--store", address).returncode == 1
    for wrong in (("lint",), ("lint", "-", "-c", "x"), ("lint", "-", "--request", "1")):
        assert run(*wrong, text="{}").returncode == 2


def test_compile_keeps_the_prompt_the_tools_and_the_prefix(run: Run, address: str, tmp_path: Path) -> None:
    with cc.open_store(address) as store:
        store.append("x", cc.user("go on"))
    assert run("fork", "x", "y", "--store", address).returncode == 0
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    for arguments in (("x",), ("y", "--model", SONNET, "--system", PROMPT, "--tools", "tools.json")):
        done = run("compile", *arguments, "--json", "--store", address)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout).get("why", "") == ""
        sent: Any = json.loads(run("compile", *arguments, "--body", "--store", address).stdout)
        assert sent["messages"][:3] == TALK
        assert [each["name"] for each in sent["tools"]] == ["add"]


def test_doctor(run: Run, address: str) -> None:
    done = run("doctor", "--store", address)
    assert done.returncode == 0
    assert "no faults" in done.stdout


def test_a_body_that_is_not_json_is_explained(run: Run, address: str) -> None:
    with cc.open_store(address) as store:
        cut = b'{"model": "gpt-5", "messages": ['
        cc.observe(store, request=cut, format="openai_chat", conversation="cut")
        for number, body in enumerate((b"[1, 2]", b'{"model": "gpt-5"}')):
            cc.observe(store, request=body, format="openai_chat", conversation=f"odd{number}")
    assert "The body is not JSON: Input data was truncated" in run("explain", "cut", "--store", address).stdout
    assert "The body is not a JSON object." in run("explain", "odd0", "--store", address).stdout
    assert "The body has no field 'messages'." in run("explain", "odd1", "--store", address).stdout
    linted = run("lint", "-c", "cut", "--store", address)
    assert (linted.returncode, "is not JSON: Input data was truncated" in linted.stderr) == (2, True)
    compiled = run("compile", "cut", "--store", address)
    assert "Traceback" not in compiled.stderr


def test_requests_of_all_channels_are_listed(run: Run, address: str) -> None:
    with cc.open_store(address) as store:
        sent = claude("a", model="claude-opus-5-5")
        cc.observe(store, request=sent, reply=claude_answer("b"), format="anthropic", conversation="x")
    assert "list all with --requests" in run("explain", "x", "--store", address).stdout
    assert run("explain", "x", "--requests", "--store", address).stdout.count("observed") == 3


def test_export_of_an_unknown_conversation(run: Run, address: str) -> None:
    failed = run("export", "ghost", "--format", "har", "--store", address)
    assert failed.returncode == 2
    assert "not found" in failed.stderr
