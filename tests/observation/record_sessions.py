"""Record sessions of real clients against the fake vendors, for test_recorded_sessions.py. No test runs this.

    .venv/bin/python -m tests.observation.record_sessions FOLDER [CLIENT …]

Clients run with a temporary home and the fake key, and reach nothing but the loopback server. A prompt contains a mark,
such as `#m1`, that selects the scripted replies; marks of sub-agents are `#a1`, `#a2`. Frameworks run in another
environment: `FRAMEWORKS_PYTHON` is its Python, `AI_SDK_FOLDER` a folder with the npm packages of tests/sdk_comparison.
Long texts of the vendors are replaced by filler of the same length; see `fill`.
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from contextc._json import decode, encode
from tests.fake_vendors import KEY, FakeVendors, Fault, Reply, faults
from tests.fake_vendors.replies import ScriptedCall
from tests.fake_vendors.responses import FakeResponse, RequestHead, RequestRecord
from tests.fake_vendors.vendor import AcceptedRequest
from tests.observation.recorded_sessions import save

Wire = dict[str, Any]
Plans = dict[str, list[Reply]]
MARK = re.compile(r"#[ma]\d+")
ID_HEADER = re.compile(r"x-claude-code-.*|x-codex-.*|x-openai-.*|x-client-request-id|.*(session|thread|conversation).*")
COUNTING = re.compile(r"/count_tokens$|:countTokens$|/input_tokens$")
LONG = 200
KEPT = 60
KEPT_PARTS = re.compile(r"\n[ \t]*|</?[\w-]{2,40}>|#[ma]\d+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+")
FILLER = "filler text in place of a vendor's "
LITERAL = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def log(*words: object) -> None:
    sys.stderr.write(" ".join([str(word) for word in words]) + "\n")


def fill(text: str) -> str:
    """Return filler for a long text: the first characters, lines, tags, numbers and ids are kept."""
    made, at = [text[:KEPT]], KEPT
    for found in KEPT_PARTS.finditer(text, KEPT):
        made += [_filler(found.start() - at), found[0]]
        at = found.end()
    return "".join([*made, _filler(len(text) - at)])


def _filler(length: int) -> str:
    return (FILLER * (length // len(FILLER) + 1))[:length]


def fill_body(raw: bytes) -> bytes:
    """Return a body with filler in place of its long texts. All other bytes stay."""

    def replace(found: re.Match[bytes]) -> bytes:
        if len(found[0]) <= LONG:
            return found[0]
        text: str = json.loads(found[0])
        is_text = len(text) > LONG and " " in text and not text.startswith("{")
        return json.dumps(fill(text), ensure_ascii=False).encode() if is_text else found[0]

    return LITERAL.sub(replace, raw)


class Script:
    """Replies by the last mark in a request. Summaries and titles are answered as their clients expect."""

    def __init__(self, plans: Plans, name: str) -> None:
        self.plans, self.name, self.steps, self.given = plans, name, dict[str, int](), 0

    def __call__(self, ask: AcceptedRequest) -> Reply:
        self.given += 1
        body = decode(ask.raw)
        last = ask.request.messages[-1].text
        if "title" in str(body.get("output_config")):
            return Reply(json.dumps({"title": f"Notes {self.given}"}))
        if "<summary>" in last or "handoff summary" in last.lower() or "CHECKPOINT COMPACTION" in last:
            return Reply(f"<analysis>All is said.</analysis>\n<summary>\nSummary {self.given} of it.\n</summary>")
        found = [mark for message in ask.request.messages for mark in MARK.findall(user_text(message))]
        plan = self.plans.get(found[-1], []) if found else []
        step = self.steps.get(found[-1], 0) if found else 0
        if found:
            self.steps[found[-1]] = step + 1
        reply = plan[step] if step < len(plan) else Reply(f"Answer {self.given}.")
        return reply if step else Reply(f"{reply.text} ({self.name})", reply.calls)  # as no two replies are alike


def user_text(message: Any) -> str:
    return message.text if message.role in ("user", "system", "developer") and not message.tool_results else ""


class Recorder:
    """The exchanges of all sessions of a client."""

    def __init__(self, client: str) -> None:
        self.client, self.lines, self.session = client, list[Wire](), 0

    @contextmanager
    def run(
        self,
        plans: Plans | None = None,
        *,
        plan: Callable[[AcceptedRequest], Fault | None] | None = None,
        strict: bool = False,
        window: int | None = None,
        namespace: dict[str, str] | None = None,
    ) -> Generator[FakeVendors]:
        """Record one session."""
        self.session += 1
        script = Script(plans or {}, f"{self.client} {self.session}")
        with FakeVendors(script, faults=plan, strict=strict, window=window) as standin:
            answer = standin.desk.answer

            def recorded(head: RequestHead, raw: bytes, connection: int = 0) -> tuple[FakeResponse, RequestRecord]:
                made, record = answer(head, raw, connection)
                if COUNTING.search(head.path):
                    name = "totalTokens" if head.path.endswith(":countTokens") else "input_tokens"
                    made = FakeResponse(status=200, steps=(encode({name: len(raw) // 4}),))
                for name, where in (namespace or {}).items():
                    steps = [named(step, name, where) if isinstance(step, bytes) else step for step in made.steps]
                    made = FakeResponse(status=made.status, steps=tuple(steps), kind=made.kind, streamed=made.streamed)
                self.add(head, raw, made, record)
                return made, record

            standin.desk.answer = recorded
            yield standin

    def add(self, head: RequestHead, raw: bytes, made: FakeResponse, record: RequestRecord) -> None:
        if head.method != "POST":
            return
        reply = b"".join([step for step in made.steps if isinstance(step, bytes)])
        calls = record.reply.calls if record.reply else ()
        self.lines.append({
            "session": self.session,
            **self.label(head, raw, [mark for call in calls for mark in MARK.findall(call.written)]),
            "time": int(record.time * 1000),
            "method": head.method,
            "path": head.path,
            "headers": {name: value for name, value in head.headers.items() if ID_HEADER.fullmatch(name)},
            "request": fill_body(raw).decode(),
            "status": made.status,
            "response": reply.decode(),
        })  # fmt: skip

    def label(self, head: RequestHead, raw: bytes, called: list[str]) -> Wire:
        """Propose labels. `called` has the marks of sub-agents that the reply starts; they are checked by hand."""
        body = decode(raw)
        found = user_marks(body)
        agents = [mark for mark in found if mark.startswith("#a")]
        if COUNTING.search(head.path):
            conversation = "count"
        elif "title" in str(body.get("output_config")):
            conversation = "title"
        elif "web search for the query" in raw.decode():
            conversation = "search"
        else:
            conversation = f"agent {agents[-1][2:]}" if agents else "main"
        return {"conversation": conversation, "called": called}

    def save(self, folder: Path) -> None:
        self.link()
        save(folder / f"{self.client}.jsonl.gz", self.lines)

    def link(self) -> None:
        """Number side requests, and set the line number of each parent request."""
        number = 0
        for at, line in enumerate(self.lines):
            own = [index for index, each in enumerate(self.lines) if each["session"] == line["session"]]
            mains = [index for index in own if self.lines[index]["conversation"] == "main"]
            line["parent"] = None
            if line["conversation"].startswith("agent"):
                mark = f"#a{line['conversation'].split()[1]}"
                line["parent"] = next((index for index in own if mark in self.lines[index]["called"]), None)
            elif line["conversation"] != "main":
                before = [index for index in mains if index < at]
                line["parent"] = before[-1] if before else mains[0] if mains else None
        for line in self.lines:
            line.pop("called")
            if line["conversation"] in ("title", "count", "search"):
                number += 1
                line["conversation"] += f" {number}"


def named(step: bytes, name: str, where: str) -> bytes:
    """Return an event with the namespace of a tool, which the fake vendors do not write."""
    return step.replace(f'"name":"{name}"'.encode(), f'"name":"{name}","namespace":"{where}"'.encode())


def user_marks(value: Any) -> list[str]:
    """Return the marks in the user's texts of a body, not those in calls and results."""
    if isinstance(value, list):
        return [mark for each in cast(list[Any], value) for mark in user_marks(each)]
    if not isinstance(value, dict):
        return MARK.findall(value) if isinstance(value, str) else []
    value = cast(Wire, value)
    if value.get("role") in ("assistant", "model", "tool") or str(value.get("type")) in (
        "tool_result", "function_call", "function_call_output",
    ):  # fmt: skip
        return []
    keys = ("messages", "input", "contents", "content", "parts", "text")
    return [mark for key in keys if key in value for mark in user_marks(value[key])]


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


# ── SDKs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

LOOK: Wire = {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]}
LOOKS = Reply("I look.", [ScriptedCall("look", {"thing": "door"})])
FUNCTION: Wire = {"name": "look", "description": "Look at a thing.", "parameters": LOOK}


def record_anthropic(recorder: Recorder, folder: Path) -> None:
    import anthropic

    tool: Wire = {"name": "look", "description": "Look at a thing.", "input_schema": LOOK}

    def client_of(standin: FakeVendors) -> Any:
        return anthropic.Anthropic(base_url=standin.url("anthropic"), api_key=KEY)

    def turn(client: Any, messages: list[Wire], text: str, **more: Any) -> None:
        messages.append({"role": "user", "content": text})
        for _ in range(5):
            given: Wire = {"model": "claude-opus-5-5", "max_tokens": 1000, "system": "Be brief.", **more}
            if given.pop("streamed", False):
                with client.messages.stream(messages=messages, **given) as stream:
                    reply = stream.get_final_message()
            else:
                reply = client.messages.create(messages=messages, **given)
            content = [block.model_dump(mode="json", exclude_none=True) for block in reply.content]
            messages.append({"role": "assistant", "content": content})
            calls = [block["id"] for block in content if block["type"] == "tool_use"]
            if not calls:
                return
            results: list[Wire] = [{"type": "tool_result", "tool_use_id": id, "content": "It is open."} for id in calls]
            messages.append({"role": "user", "content": results})

    for streamed in (False, True):
        with recorder.run({"#m1": [LOOKS], "#m2": [LOOKS]}, strict=True) as standin:
            client, messages = client_of(standin), list[Wire]()
            turn(client, messages, "Look at the door. #m1", tools=[tool], streamed=streamed)
            turn(client, messages, "Look again. #m2", tools=[tool], streamed=streamed)
            client.messages.count_tokens(model="claude-opus-5-5", system="Be brief.", messages=messages, tools=[tool])
            turn(client, messages, "Thank you. #m3", tools=[tool], streamed=streamed)
    for user in ("alice", "bob"):  # the same words with an id of the user
        with recorder.run({}, strict=True) as standin:
            client, messages = client_of(standin), list[Wire]()
            for text in ("Hello. #m1", "How are you? #m2", "Bye. #m3"):
                turn(client, messages, f"{text} I am {user}.", metadata={"user_id": user})


def record_openai(recorder: Recorder, folder: Path) -> None:
    import openai

    def client_of(standin: FakeVendors) -> Any:
        return openai.OpenAI(base_url=standin.url("openai_chat"), api_key=KEY)

    def chat(client: Any, messages: list[Wire], text: str, **more: Any) -> None:
        messages.append({"role": "user", "content": text})
        for _ in range(5):
            reply = client.chat.completions.create(model="gpt-4.1", messages=messages, **more).choices[0].message
            messages.append(reply.model_dump(mode="json", exclude_none=True, exclude={"annotations", "refusal"}))
            if not reply.tool_calls:
                return
            for each in reply.tool_calls:
                messages.append({"role": "tool", "tool_call_id": each.id, "content": "It is open."})

    tools = [{"type": "function", "function": FUNCTION}]
    for name in ("one", "two"):  # both begin alike
        with recorder.run({"#m1": [LOOKS], "#m2": [Reply(f"Number {name}.")]}, strict=True) as standin:
            messages: list[Wire] = [{"role": "system", "content": "Be brief."}]
            for text in ("Look at the door. #m1", "Which number? #m2", f"It is {name}. #m3"):
                chat(client_of(standin), messages, text, tools=tools)
    with recorder.run({"#m1": [LOOKS]}, strict=True) as standin:  # the cache key of an application, and a stream
        messages = [{"role": "system", "content": "Be brief."}]
        for text in ("Look at the house. #m1", "Again. #m2", "Thank you. #m3"):
            chat(client_of(standin), messages, text, tools=tools, prompt_cache_key="application")
    with recorder.run({}, strict=True) as standin:
        messages = [{"role": "system", "content": "Be brief."}]
        for text in ("Tell me of houses. #m1", "More. #m2"):
            messages.append({"role": "user", "content": text})
            stream = client_of(standin).chat.completions.create(model="gpt-4.1", messages=messages, stream=True)
            said = "".join([event.choices[0].delta.content or "" for event in stream if event.choices])
            messages.append({"role": "assistant", "content": said})

    function = {"type": "function", **FUNCTION, "strict": False}
    for name in ("one", "two"):  # no state at the provider
        with recorder.run({"#m1": [LOOKS], "#m2": [Reply(f"Number {name}.")]}, strict=True) as standin:
            items: list[Wire] = []
            for text in ("Look at the door. #m1", "Which number? #m2", f"It is {name}. #m3"):
                items.append({"role": "user", "content": text})
                for _ in range(5):
                    reply = client_of(standin).responses.create(
                        model="gpt-5.6", instructions="Be brief.", input=items, tools=[function], store=False
                    )
                    items += [each.model_dump(mode="json", exclude_none=True) for each in reply.output]
                    calls = [each for each in reply.output if each.type == "function_call"]
                    items += [
                        {"type": "function_call_output", "call_id": each.call_id, "output": "Open."} for each in calls
                    ]
                    if not calls:
                        break
    for streamed in (False, True):  # the provider has the state
        with recorder.run({"#m1": [LOOKS], "#m2": []}, strict=True) as standin:
            before, given = None, Wire()
            for text in ("Look at the door. #m1", "Once more. #m2", "Thank you. #m3"):
                sent: Any = text
                for _ in range(5):
                    given = {"model": "gpt-5.6", "input": sent, "tools": [function], "previous_response_id": before}
                    if streamed:
                        with client_of(standin).responses.stream(**given) as stream:
                            reply = stream.get_final_response()
                    else:
                        reply = client_of(standin).responses.create(**given)
                    before = reply.id
                    calls = [each for each in reply.output if each.type == "function_call"]
                    sent = [
                        {"type": "function_call_output", "call_id": each.call_id, "output": "Open."} for each in calls
                    ]
                    if not calls:
                        break


def record_gemini(recorder: Recorder, folder: Path) -> None:
    from google import genai
    from google.genai import types

    def look(thing: str) -> str:
        """Look at a thing."""
        return f"The {thing} is open."

    for name in ("one", "two"):
        with recorder.run({"#m1": [LOOKS], "#m2": [Reply(f"Number {name}.")]}) as standin:
            options: Any = {"base_url": standin.url("gemini")}
            client: Any = genai.Client(api_key=KEY, vertexai=False, http_options=options)
            config = types.GenerateContentConfig(system_instruction="Be brief.", tools=[look])
            chat = client.chats.create(model="gemini-3.6-flash", config=config)
            chat.send_message("Look at the door. #m1")
            chat.send_message("Which number? #m2")
            history: Any = chat.get_history()
            client.models.count_tokens(model="gemini-3.6-flash", contents=history)
            if name == "two":
                for _ in chat.send_message_stream("It is two. #m3"):
                    pass
            else:
                chat.send_message("It is one. #m3")


def record_mistral(recorder: Recorder, folder: Path) -> None:
    from mistralai.client import Mistral

    for name in ("one", "two"):
        with recorder.run({"#m1": [LOOKS], "#m2": [Reply(f"Number {name}.")]}, strict=True) as standin:
            client: Any = Mistral(api_key=KEY, server_url=standin.url("mistral").removesuffix("/v1"))
            messages: list[Any] = [{"role": "system", "content": "Be brief."}]
            for text in ("Look at the door. #m1", "Which number? #m2", f"It is {name}. #m3"):
                messages.append({"role": "user", "content": text})
                for _ in range(5):
                    given = {"model": "mistral-large-latest", "messages": messages}
                    reply = client.chat.complete(**given, tools=[{"type": "function", "function": FUNCTION}])
                    messages.append(reply.choices[0].message)
                    calls: list[Any] = reply.choices[0].message.tool_calls or []
                    messages += [{"role": "tool", "tool_call_id": each.id, "content": "Open."} for each in calls]
                    if not calls:
                        break


def record_ollama(recorder: Recorder, folder: Path) -> None:
    from ollama import Client

    for name in ("one", "two"):
        with recorder.run({"#m1": [LOOKS], "#m2": [Reply(f"Number {name}.")]}, strict=True) as standin:
            client: Any = Client(standin.url(), headers={"Authorization": f"Bearer {KEY}"})
            messages: list[Any] = [{"role": "system", "content": "Be brief."}]
            for text in ("Look at the door. #m1", "Which number? #m2", f"It is {name}. #m3"):
                messages.append({"role": "user", "content": text})
                for _ in range(5):
                    tools: Any = [{"type": "function", "function": FUNCTION}]
                    reply = client.chat(model="qwen3:8b", messages=messages, tools=tools, think=False)
                    messages.append(reply.message)
                    calls: list[Any] = reply.message.tool_calls or []
                    messages += [
                        {"role": "tool", "tool_name": each.function.name, "content": "Open."} for each in calls
                    ]
                    if not calls:
                        break


# ── frameworks ────────────────────────────────────────────────────────────────────────────────────────────────────────

PYDANTIC_AI = """
from pydantic_ai import Agent
agent = Agent("openai-chat:gpt-4.1" if {number} else "anthropic:claude-sonnet-4-5", system_prompt="Be brief.")
@agent.tool_plain
def look(thing: str) -> str:
    "Look at a thing."
    return f"The {{thing}} is open."
history = None
for text in ("Look at the door. #m1", "Again. #m2", "Thank you. #m3"):
    history = agent.run_sync(text, message_history=history).all_messages()
"""
OPENAI_AGENTS = """
import agents
agents.set_tracing_disabled(True)
@agents.function_tool
def look(thing: str) -> str:
    "Look at a thing."
    return f"The {{thing}} is open."
helper = agents.Agent(name="Helper", instructions="You help.", tools=[look], model="gpt-5.4")
main = agents.Agent(name="Main", instructions="Be brief.", tools=[look] if {number} else
    [look, helper.as_tool("ask_helper", "Ask the helper.")], model="gpt-5.4")
given = []
for text in ("Look at the door. #m1", "Again. #m2", "Thank you. #m3"):
    result = agents.Runner.run_sync(main, given + [{{"role": "user", "content": text}}])
    given = result.to_input_list()
"""
LANGCHAIN = """
from langchain_core.tools import tool
from langchain_core.messages import SystemMessage, HumanMessage, ToolMessage
@tool
def look(thing: str) -> str:
    "Look at a thing."
    return f"The {{thing}} is open."
if {number}:
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(model="gpt-4.1").bind_tools([look])
else:
    from langchain_anthropic import ChatAnthropic
    model = ChatAnthropic(model="claude-sonnet-4-5").bind_tools([look])
messages = [SystemMessage("Be brief.")]
for text in ("Look at the door. #m1", "Again. #m2", "Thank you. #m3"):
    messages.append(HumanMessage(text))
    while True:
        reply = model.invoke(messages)
        messages.append(reply)
        for call in reply.tool_calls:
            messages.append(ToolMessage(look.invoke(call["args"]), tool_call_id=call["id"]))
        if not reply.tool_calls:
            break
"""
LITELLM = """
import litellm, os
tools = [{{"type": "function", "function": {{"name": "look", "description": "Look at a thing.", "parameters":
    {{"type": "object", "properties": {{"thing": {{"type": "string"}}}}, "required": ["thing"]}}}}}}]
model = "openai/gpt-4.1" if {number} else "anthropic/claude-sonnet-4-5"
messages = [{{"role": "system", "content": "Be brief."}}]
for text in ("Look at the door. #m1", "Again. #m2", "Thank you. #m3"):
    messages.append({{"role": "user", "content": text}})
    while True:
        reply = litellm.completion(model=model, messages=messages, tools=tools).choices[0].message
        messages.append(reply.model_dump())
        for call in reply.tool_calls or []:
            messages.append({{"role": "tool", "tool_call_id": call.id, "content": "Open."}})
        if not reply.tool_calls:
            break
"""
AI_SDK = """
import {{ generateText, tool, jsonSchema, stepCountIs }} from "ai";
import {{ createAnthropic }} from "@ai-sdk/anthropic";
import {{ createOpenAI }} from "@ai-sdk/openai";
const env = process.env;
const model = {number} ? createOpenAI({{ baseURL: env.OPENAI_BASE_URL }})("gpt-5.4")
  : createAnthropic({{ baseURL: env.ANTHROPIC_BASE_URL + "/v1" }})("claude-sonnet-4-5");
const properties = {{ thing: {{ type: "string" }} }};
const inputSchema = jsonSchema({{ type: "object", properties, required: ["thing"] }});
const look = tool({{ description: "Look at a thing.", inputSchema, execute: async () => "Open." }});
let messages = [];
for (const text of ["Look at the door. #m1", "Again. #m2", "Thank you. #m3"]) {{
  messages.push({{ role: "user", content: text }});
  const given = {{ model, system: "Be brief.", messages, tools: {{ look }} }};
  const result = await generateText({{ ...given, stopWhen: stepCountIs(4) }});
  messages = messages.concat(result.response.messages);
}}
"""


def record_frameworks(recorder: Recorder, folder: Path) -> None:
    python, packages = os.environ.get("FRAMEWORKS_PYTHON", ""), os.environ.get("AI_SDK_FOLDER", "")
    programs = {
        "pydantic-ai": [python, "-c", PYDANTIC_AI],
        "openai-agents": [python, "-c", OPENAI_AGENTS],
        "langchain": [python, "-c", LANGCHAIN],
        "litellm": [python, "-c", LITELLM],
        "ai": ["node", "--input-type=module", "-e", AI_SDK],
    }
    for name, (program, *options, source) in programs.items():
        for number in (0, 1):
            helper = Reply("I ask.", [ScriptedCall("ask_helper", {"input": "Look at the window. #a1"})])
            first = [LOOKS, helper] if name == "openai-agents" and not number else [LOOKS]
            with recorder.run({"#m1": first, "#m2": [LOOKS], "#a1": [LOOKS]}) as standin:
                environment = {
                    "PATH": os.environ["PATH"], "HOME": str(folder), "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY,
                    "OPENAI_BASE_URL": standin.url("openai_chat"), "ANTHROPIC_BASE_URL": standin.url(),
                    "ANTHROPIC_API_BASE": standin.url(), "ANTHROPIC_API_URL": standin.url(),
                    "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HTTPS_PROXY": "http://127.0.0.1:9",
                    "NO_PROXY": "127.0.0.1",
                }  # fmt: skip
                done = subprocess.run(
                    [program, *options, source.format(number=number)], env=environment, capture_output=True, text=True,
                    timeout=120, cwd=packages if name == "ai" else folder, check=False,
                )  # fmt: skip
                log("  ", name, number, done.returncode, done.stderr[-600:] if done.returncode else "")


CLIENTS: dict[str, Callable[[Recorder, Path], None]] = {
    "claude_code": record_claude_code,
    "codex": record_codex,
    "anthropic": record_anthropic,
    "openai": record_openai,
    "gemini": record_gemini,
    "mistral": record_mistral,
    "ollama": record_ollama,
    "frameworks": record_frameworks,
}


def main(target: str, *names: str) -> None:
    for name in names or CLIENTS:
        recorder = Recorder(name)
        with tempfile.TemporaryDirectory(prefix="sessions-") as folder:
            CLIENTS[name](recorder, Path(folder))
        recorder.save(Path(target))
        log(name, len(recorder.lines), "requests")


if __name__ == "__main__":
    main(*sys.argv[1:])
