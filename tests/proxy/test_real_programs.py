"""Claude Code and Codex, started with `contextc watch` (Guarantees 16.10, 16.15 and 16.17)."""

import json
import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import decode
from contextc.analysis import store_findings
from tests.fake_vendors import KEY, FakeVendors, Reply, RequestRecord
from tests.fake_vendors.vendor import AcceptedRequest
from tests.forked_commands import run_contextc
from tests.observation.record_cli_sessions import ClaudeCode, agent, call
from tests.observation.session_recorder import Script
from tests.proxy.test_sdk_clients import stored_bodies


def all_bodies(store_url: str) -> list[bytes]:
    """Return the bodies of all requests. All were answered, so none is called a failure, or one that breaks a rule."""
    with cc.open_store(store_url) as store:
        assert [each.code for each in store_findings(store).causes if each.code.startswith("FAI")] == []
        names = [row[0] for row in store.read(lambda tx: tx.rows("SELECT name FROM main.conversation ORDER BY number"))]
        return [raw for name in names for raw in stored_bodies(store, name)]


def posts(fake: FakeVendors) -> list[RequestRecord]:
    return [each for each in fake.records if each.method == "POST" and each.path.endswith(("/messages", "/responses"))]


def watch(folder: Path, environment: dict[str, str], *command: str, options: Sequence[str] = ()) -> str:
    """Run a program with `contextc watch`, and return what it printed."""
    store = f"sqlite:///{folder}/store.db"
    environment = {**environment, "XDG_DATA_HOME": str(folder), "PYTHONWARNINGS": "default"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = run_contextc(
        "watch", "--store", store, *options, "--", *command,
        cwd=folder / "home" / "work", env={**environment, "PATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-500:]
    assert "contextc recorded" in done.stderr
    assert "not recorded" not in done.stderr
    return done.stdout


@pytest.mark.thorough
def test_claude_code_works_the_same_through_the_proxy(tmp_path: Path) -> None:
    """Tools, a sub-agent, a resumed session and a compaction. All requests are in the store, to the byte."""
    read = Reply("I read it.", [call("Read", file_path="notes.txt")])
    plans = {
        "#m1": [read, Reply("I ask.", [agent("Read the notes. #a1")])],
        "#a1": [read, Reply("Two lines.")],
        "#m2": [Reply("I list.", [call("Bash", command="ls", description="List files")])],
    }
    with FakeVendors(Script(plans, "watched"), strict=False) as fake:
        program = ClaudeCode(tmp_path / "home")
        environment = program.environment(fake, {})
        options = ["-p", "--output-format", "json", "--model", "claude-sonnet-4-5", "--dangerously-skip-permissions"]
        id = str(uuid.uuid4())
        for number, text in enumerate(["Begin. #m1", "List. #m2", "/compact", "Go on. #m3"]):
            session = ["--resume" if number else "--session-id", id]
            printed = watch(tmp_path, environment, program.program, *options, *session, text)
            assert json.loads(printed)["is_error"] is False
        sent = posts(fake)
        assert not fake.refused
    stored = all_bodies(f"sqlite:///{tmp_path}/store.db")
    assert sorted(stored) == sorted([each.raw for each in sent])
    assert len(stored) >= 8


@pytest.mark.thorough
def test_codex_works_the_same_through_the_proxy(tmp_path: Path) -> None:
    """It asks for a WebSocket first, falls back to HTTP, runs a tool, and resumes."""
    from codex_cli_bin import bundled_codex_path  # pyright: ignore[reportMissingTypeStubs]

    run = Reply("I read.", [call("exec_command", cmd="cat notes.txt")])
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    (home / "work" / "notes.txt").write_text("one\\ntwo\\n")
    (home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": KEY}))
    (home / "config.toml").write_text('model = "gpt-5.4"\n[features]\nplugins = false\n')
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home)}
    with FakeVendors(Script({"#m1": [run]}, "watched"), strict=False) as fake:
        command = [str(bundled_codex_path())]
        options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        environment["OPENAI_BASE_URL"] = "http://127.0.0.1:9/v1"  # Codex does not read it
        upstream = ["--upstream", f"openai={fake.url()}"]
        printed = watch(tmp_path, environment, *command, "exec", *options, "Read the notes. #m1", options=upstream)
        thread = json.loads(printed.splitlines()[0])["thread_id"]
        watch(tmp_path, environment, *command, "exec", "resume", *options, thread, "Thank you. #m2", options=upstream)
        sent = posts(fake)
        assert len(sent) == 3
        assert not fake.refused
    stored = all_bodies(f"sqlite:///{tmp_path}/store.db")
    assert stored == [each.raw for each in sent]


# ── another provider answers ──────────────────────────────────────────────────────────────────────────────────────────


def titled(script: Script, ask: AcceptedRequest) -> Reply:
    """Return the scripted reply. A request for a title gets one, in whichever format it comes."""
    body = decode(ask.raw)
    wanted = str([body.get("text"), body.get("response_format"), body.get("generationConfig")])
    return Reply(json.dumps({"title": "Notes"})) if "title" in wanted else script(ask)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("openai:gpt-5.4", "/responses"),
        ("openai-chat:gpt-4.1", "/completions"),
        ("gemini:gemini-3.6-flash", "GenerateContent"),
    ],
)
def test_claude_code_works_on_another_provider(tmp_path: Path, target: str, path: str) -> None:
    """Tools, a sub-agent and a resumed session. The strict provider refuses nothing."""
    read = Reply("I read it.", [call("Read", file_path="notes.txt")], reasoning="Let me see.")
    both = [call("Bash", command="ls", description="List files"), call("Bash", command="pwd", description="Where")]
    plans = {
        "#m1": [read, Reply("I ask.", [agent("Read the notes. #a1")])],
        "#a1": [read, Reply("Two lines.")],
        "#m2": [Reply("I list.", both), Reply("It is listed.")],
    }
    script = Script(plans, "converted")
    with FakeVendors(lambda ask: titled(script, ask)) as fake:
        program = ClaudeCode(tmp_path / "home")
        environment = {
            **program.environment(fake, {}),
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": fake.url("openai_chat"),
            "GEMINI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": fake.url("gemini"),
        }
        options = ["-p", "--output-format", "json", "--model", "claude-sonnet-4-5", "--dangerously-skip-permissions"]
        id = str(uuid.uuid4())
        for number, (text, answer) in enumerate([("Begin. #m1", ""), ("List. #m2", "It is listed.")]):
            session = ["--resume" if number else "--session-id", id]
            printed = watch(
                tmp_path, environment, program.program, *options, *session, text, options=["--convert", target]
            )
            done = json.loads(printed)
            assert done["is_error"] is False
            assert answer in done["result"]
        assert not fake.refused
        assert not fake.defects
        sent = [each for each in fake.records if each.method == "POST" and each.path.partition("?")[0].endswith(path)]
        assert len(sent) >= 7
        assert not posts(fake) or path == "/responses"
        assert all("/messages" not in each.path for each in fake.records)
    stored = all_bodies(f"sqlite:///{tmp_path}/store.db")
    assert sorted(stored) == sorted([each.raw for each in sent])


@pytest.mark.thorough
def test_codex_works_on_anthropic(tmp_path: Path) -> None:
    from codex_cli_bin import bundled_codex_path  # pyright: ignore[reportMissingTypeStubs]

    run = Reply("I read.", [call("exec_command", cmd="cat notes.txt")])
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    (home / "work" / "notes.txt").write_text("one\\ntwo\\n")
    (home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "of-the-client"}))
    (home / "config.toml").write_text('model = "gpt-5.4"\n[features]\nplugins = false\n')
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home), "ANTHROPIC_API_KEY": KEY}
    with FakeVendors(Script({"#m1": [run, Reply("It is read.")]}, "converted")) as fake:
        environment["ANTHROPIC_BASE_URL"] = fake.url()
        command = [str(bundled_codex_path())]
        options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        converting = ["--convert", "anthropic:claude-sonnet-4-5", "--upstream", f"openai={fake.url()}"]
        printed = watch(tmp_path, environment, *command, "exec", *options, "Read. #m1", options=converting)
        assert "It is read." in printed
        thread = json.loads(printed.splitlines()[0])["thread_id"]
        watch(tmp_path, environment, *command, "exec", "resume", *options, thread, "Thanks. #m2", options=converting)
        sent = posts(fake)
        assert len(sent) == 3
        assert all(each.path.endswith("/messages") for each in sent)
        assert not fake.refused
        assert not fake.defects
    assert all_bodies(f"sqlite:///{tmp_path}/store.db") == [each.raw for each in sent]
