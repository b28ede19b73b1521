"""Sessions of Claude Code and Codex, recorded by record_sessions.py."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fake_vendors import KEY, FakeVendors, Fault, Reply, faults
from tests.fake_vendors.replies import ScriptedCall
from tests.fake_vendors.vendor import AcceptedRequest
from tests.observation.session_recorder import Recorder, Wire, log

# ── Claude Code ───────────────────────────────────────────────────────────────────────────────────────────────────────


class ClaudeCode:
    """The program in a home of its own."""

    def __init__(self, home: Path) -> None:
        import claude_agent_sdk

        self.program = str(Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude")
        self.home, self.work = home, home / "work"
        self.work.mkdir(parents=True)
        (self.work / "notes.txt").write_text("one\ntwo\n")
        (home / "claude").mkdir()
        project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        settings = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "bypassPermissionsModeAccepted": True,
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
            "projects": {str(self.work): project},
        }
        (home / "claude" / ".claude.json").write_text(json.dumps(settings))

    def environment(self, standin: FakeVendors, extra: dict[str, str]) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "CLAUDE_CONFIG_DIR": str(self.home / "claude"),
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1",
            "IS_SANDBOX": "1",
            "TERM": "xterm-256color",
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": standin.url(),
            **extra,
        }

    def ask(self, standin: FakeVendors, *arguments: str, model: str = "claude-sonnet-4-5", **extra: str) -> Wire:
        """Run one turn without a terminal."""
        command = [self.program, "-p", "--output-format", "json", "--model", model, "--dangerously-skip-permissions"]
        done = subprocess.run(
            [*command, *arguments], env=self.environment(standin, extra), cwd=self.work, capture_output=True,
            text=True, timeout=90, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        log("  claude", arguments[-1][:60], done.returncode, done.stderr[-200:])
        return json.loads(done.stdout or "{}")

    def type_in(self, standin: FakeVendors, *arguments: str, said: Sequence[tuple[str, float]], **extra: str) -> None:
        """Run the program in a terminal. Each text is typed, then some seconds pass."""
        pid, line = pty.fork()
        if not pid:
            os.chdir(self.work)
            command = [self.program, "--model", "claude-sonnet-4-5", "--dangerously-skip-permissions", *arguments]
            os.execve(self.program, command, self.environment(standin, extra))
        fcntl.ioctl(line, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 140, 0, 0))
        drain(line, 4)
        for text, seconds in said:
            os.write(line, text.encode())
            drain(line, 0.7)
            os.write(line, b"\r")
            drain(line, seconds)
        os.kill(pid, signal.SIGTERM)
        os.close(line)
        os.waitpid(pid, 0)


def drain(line: int, seconds: float) -> None:
    end = time.time() + seconds
    while time.time() < end:
        if select.select([line], [], [], 0.1)[0]:
            try:
                os.read(line, 65_536)
            except OSError:
                return


def call(name: str, **arguments: Any) -> ScriptedCall:
    return ScriptedCall(name, arguments)


def agent(prompt: str, type: str = "general-purpose", **more: Any) -> ScriptedCall:
    return call("Agent", description="Look around", prompt=prompt, subagent_type=type, **more)


def record_claude_code(recorder: Recorder, folder: Path) -> None:
    notes = "notes.txt"

    def home() -> ClaudeCode:
        return ClaudeCode(folder / f"home{recorder.session}")

    def new() -> str:
        return str(uuid.uuid4())

    read = Reply("I read it.", [call("Read", file_path=notes)])
    listing = Reply("I list.", [call("Bash", command="ls", description="List files")])
    # 1: tools, then two resumes
    with recorder.run({"#m1": [read, listing], "#m2": [listing], "#m3": [Reply("Three.")]}) as standin:
        program, id = home(), new()
        program.ask(standin, "--session-id", id, "Read the notes. #m1")
        program.ask(standin, "--resume", id, "List again. #m2")
        program.ask(standin, "--resume", id, "And the third. #m3")
    # 2: the same prompts as 1, in another session
    with recorder.run({"#m1": [read, listing], "#m2": [listing]}) as standin:
        program, id = home(), new()
        program.ask(standin, "--session-id", id, "Read the notes. #m1")
        program.ask(standin, "--resume", id, "List again. #m2")
    # 3: one sub-agent
    plans = {"#m1": [Reply("I ask.", [agent("Read the notes. #a1")])], "#a1": [read, Reply("Two lines.")]}
    with recorder.run(plans) as standin:
        program, id = home(), new()
        program.ask(standin, "--session-id", id, "Ask an agent. #m1")
        program.ask(standin, "--resume", id, "Thank you. #m2")
    # 4: two sub-agents at once, with the same task but for the mark
    both = Reply("I ask two.", [agent("Read the notes. #a1"), agent("Read the notes. #a2")])
    plans = {"#m1": [both], "#a1": [read, listing], "#a2": [read, Reply("Two.")], "#m2": []}
    with recorder.run(plans) as standin:
        program, id = home(), new()
        program.ask(standin, "--session-id", id, "Ask two agents. #m1")
        program.ask(standin, "--resume", id, "Thank you. #m2")
    # 5: a sub-agent that starts a sub-agent; and one of another type
    plans = {
        "#m1": [Reply("I ask.", [agent("Delegate it. #a1")])],
        "#a1": [Reply("I delegate.", [agent("Read the notes. #a2")])],
        "#a2": [read, Reply("Two.")],
        "#m2": [Reply("I explore.", [agent("Explore the folder. #a3", "Explore")])],
        "#a3": [listing],
    }
    with recorder.run(plans) as standin:
        program, id = home(), new()
        program.ask(standin, "--session-id", id, "Ask an agent. #m1")
        program.ask(standin, "--resume", id, "Explore. #m2")
    # 6: a fork of the conversation as a sub-agent
    plans = {"#m1": [read], "#m2": [Reply("I fork.", [agent("Read the notes again. #a1", "fork")])], "#a1": [listing]}
    with recorder.run(plans) as standin:
        program, id = home(), new()
        program.ask(standin, "--session-id", id, "Read the notes. #m1")
        program.ask(standin, "--resume", id, "Fork. #m2")
    # 7: compaction on request
    with recorder.run({"#m1": [read], "#m2": [listing], "#m3": [read]}) as standin:
        program, id = home(), new()
        program.ask(standin, "--session-id", id, "Read the notes. #m1")
        program.ask(standin, "--resume", id, "List. #m2")
        program.ask(standin, "--resume", id, "/compact")
        program.ask(standin, "--resume", id, "Go on. #m3")
        program.ask(standin, "--resume", id, "And on. #m4")
    # 8: in a terminal: titles, a sub-agent, compaction, token counting
    plans = {"#m1": [read], "#m2": [Reply("I ask.", [agent("Read the notes. #a1")])], "#a1": [read]}
    with recorder.run(plans) as standin:
        said = [
            ("Read the notes. #m1", 4),
            ("Ask an agent. #m2", 6),
            ("/compact", 4),
            ("/context", 4),
            ("Go on. #m3", 4),
        ]
        home().type_in(standin, "--session-id", new(), said=said)
    # 9: in a terminal twice, the second time resumed
    with recorder.run({"#m1": [read], "#m2": [listing], "#m3": [read]}) as standin:
        program, id = home(), new()
        program.type_in(standin, "--session-id", id, said=[("Read the notes. #m1", 4), ("List. #m2", 4)])
        program.type_in(standin, "--resume", id, said=[("Once more. #m3", 4)])
    # 10: no tools, a system prompt of the caller
    with recorder.run() as standin:
        program, id = home(), new()
        bare = ["--bare", "--tools", "", "--system-prompt", "Be brief."]
        program.ask(standin, *bare, "--session-id", id, "Hello. #m1")
        program.ask(standin, *bare, "--resume", id, "Again. #m2")
    # 11: an overloaded server, retried by the client
    tries: list[int] = []

    def overloaded(ask: AcceptedRequest) -> Fault | None:
        tries.append(1)
        return faults.overloaded() if len(tries) in (1, 3) else None

    with recorder.run({"#m1": [read]}, plan=overloaded) as standin:
        program, id = home(), new()
        program.ask(standin, "--session-id", id, "Read the notes. #m1")
        program.ask(standin, "--resume", id, "Go on. #m2")
    # 12: a fork of a session, which gets an id of its own
    with recorder.run({"#m1": [read]}) as standin:
        program, id = home(), new()
        program.ask(standin, "--session-id", id, "Read the notes. #m1")
        recorder.session += 1
        program.ask(standin, "--resume", id, "--fork-session", "Go another way. #m2")
        recorder.session -= 1
        program.ask(standin, "--resume", id, "Go on. #m3")
        recorder.session += 1
    # 14: a web search, which is a request of its own
    search = Reply("I search.", [call("WebSearch", query="notes")])
    with recorder.run({"#m1": [search]}) as standin:
        program, id = home(), new()
        program.ask(standin, "--tools", "WebSearch,Read", "--session-id", id, "Search the web. #m1")
        program.ask(standin, "--tools", "WebSearch,Read", "--resume", id, "Thank you. #m2")
    # 15: compaction by the client itself, because the prompt is too long
    with recorder.run({"#m1": [listing], "#m2": [listing]}) as standin:
        program, id = home(), new()
        (program.work / "long.txt").write_text("word " * 4_000)
        program.ask(standin, "--session-id", id, "Read the notes. #m1")
        standin.desk.window = 26_000
        program.ask(standin, "--resume", id, "word " * 6_000 + "#m2")
        standin.desk.window = None
        program.ask(standin, "--resume", id, "Go on. #m3")
    # 16: another model in the middle
    with recorder.run({"#m1": [read], "#m2": [listing]}) as standin:
        program, id = home(), new()
        program.ask(standin, "--session-id", id, "Read the notes. #m1")
        program.ask(standin, "--resume", id, "List. #m2", model="claude-opus-4-5")


# ── Codex ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Codex:
    def __init__(self, home: Path, standin: FakeVendors, settings: str = "") -> None:
        from codex_cli_bin import bundled_codex_path  # pyright: ignore[reportMissingTypeStubs]

        self.program, self.home, self.work = str(bundled_codex_path()), home, home / "work"
        self.work.mkdir(parents=True)
        (self.work / "notes.txt").write_text("one\ntwo\n")
        (home / "config.toml").write_text(
            f'model = "gpt-5.4"\nmodel_provider = "local"\n{settings}\n[model_providers.local]\nname = "local"\n'
            f'base_url = "{standin.url("openai_responses")}"\nwire_api = "responses"\nenv_key = "CODEX_TEST_KEY"\n'
            "[features]\nplugins = false\nmulti_agent = true\n"
        )
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home), "CODEX_TEST_KEY": KEY,
        }  # fmt: skip

    def ask(self, *arguments: str) -> str:
        options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        done = subprocess.run(
            [self.program, "exec", *options, *arguments], env=self.environment, cwd=self.work, capture_output=True,
            text=True, timeout=90, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        log("  codex", arguments[-1][:60], done.returncode, done.stderr[-300:] if done.returncode else "")
        return json.loads(done.stdout.splitlines()[0])["thread_id"]


def record_codex(recorder: Recorder, folder: Path) -> None:
    run = Reply("I read.", [call("exec_command", cmd="cat notes.txt")])
    listing = Reply("I list.", [call("exec_command", cmd="ls")])
    spaces = {name: "multi_agent_v1" for name in ("spawn_agent", "wait_agent", "close_agent", "send_input")}

    def home(standin: FakeVendors, settings: str = "") -> Codex:
        return Codex(folder / f"home{recorder.session}", standin, settings)

    # 1: tools and two resumes
    with recorder.run({"#m1": [run, listing], "#m2": [listing]}) as standin:
        program = home(standin)
        id = program.ask("Read the notes. #m1")
        program.ask("resume", id, "List. #m2")
        program.ask("resume", id, "Thank you. #m3")
    # 2: the same prompts
    with recorder.run({"#m1": [run, listing], "#m2": [listing]}) as standin:
        program = home(standin)
        id = program.ask("Read the notes. #m1")
        program.ask("resume", id, "List. #m2")
    # 3: one sub-agent
    spawn = Reply("I ask.", [call("spawn_agent", message="Read the notes. #a1")])
    wait = Reply("I wait.", [call("exec_command", cmd="sleep 1.5")])
    with recorder.run({"#m1": [spawn, wait], "#a1": [run]}, namespace=spaces) as standin:
        program = home(standin)
        id = program.ask("Ask an agent. #m1")
        program.ask("resume", id, "Thank you. #m2")
    # 4: two sub-agents, one of them with the history
    both = Reply("I ask.", [
        call("spawn_agent", message="Read the notes. #a1"),
        call("spawn_agent", message="Go on with it. #a2", fork_context=True),
    ])  # fmt: skip
    with recorder.run({"#m1": [run, both, wait], "#a1": [run], "#a2": [listing]}, namespace=spaces) as standin:
        program = home(standin)
        id = program.ask("Ask two agents. #m1")
        program.ask("resume", id, "Thank you. #m2")
    # 5: compaction
    with recorder.run({"#m1": [run, listing], "#m2": [run, listing]}) as standin:
        program = home(standin, "model_auto_compact_token_limit = 9000")
        id = program.ask("Read the notes. " + "word " * 1_500 + " #m1")
        program.ask("resume", id, "Go on. #m2")
        program.ask("resume", id, "And on. #m3")
    # 6: an overloaded server
    tries: list[int] = []

    def overloaded(ask: AcceptedRequest) -> Fault | None:
        tries.append(1)
        return faults.overloaded() if len(tries) == 2 else None

    with recorder.run({"#m1": [run]}, plan=overloaded) as standin:
        program = home(standin)
        id = program.ask("Read the notes. #m1")
        program.ask("resume", id, "Go on. #m2")
