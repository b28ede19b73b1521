"""Real programs with and without `contextc watch`: the requests at their vendors' hosts are equal (Guarantee 16.18).

Each has a home of its own, and a key that counts nowhere. Its user has a proxy, which leads the names of vendors to
stand-ins on this machine, and all other names nowhere. docs/proxy.md has a table of what was compared.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import NamedTuple

import pytest

import contextc as cc
from contextc._json import decode
from contextc.proxy.access_checks import find_processes
from contextc.store.conversation_list import list_names_in
from tests.conftest import give_up
from tests.fake_vendors import KEY, FakeVendors, Reply, ScriptedCall
from tests.fake_vendors.vendor import AcceptedRequest
from tests.forked_commands import run_contextc
from tests.proxy.byte_taps import WireMessage
from tests.proxy.client_environments import (
    AIDER,
    CLINE,
    GEMINI_CLI,
    OPENCODE,
    Unavailable,
    find_ai_sdk,
    find_npm_program,
    find_python,
)
from tests.proxy.vendor_hosts import VendorHosts

SECONDS = 300
END_SECONDS = 60.0
HOSTS = ("api.anthropic.com", "api.openai.com", "chatgpt.com", "generativelanguage.googleapis.com")
ANSWER = "The notes have two lines."
CLIENT_PROGRAMS = Path(__file__).parent / "client_programs"
READING = {
    "Read": "file_path",
    "read_file": "file_path",
    "read": "filePath",
    "exec_command": "cmd",
    "read_files": "files",
}
"""Tools of the programs with which they read a file, and what the path is called."""


class Program(NamedTuple):
    """A program: its command without the task, what else is in its environment, and the files in its home.

    `calls` is the number of its model requests, `client` the beginning of the name of its conversation. `unwatched` is
    what it needs to find the hosts by itself, and `options` are those of `watch`.
    """

    command: Sequence[str]
    calls: int
    client: str
    variables: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    unwatched: Mapping[str, str] = {}
    options: Sequence[str] = ()


def claude_code() -> Program:
    import claude_agent_sdk

    command = [str(Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"), "-p", "--output-format", "json",
               "--model", "claude-sonnet-4-5", "--session-id", "11111111-1111-4111-8111-111111111111",
               "--dangerously-skip-permissions"]  # fmt: skip
    project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    settings = {
        "hasCompletedOnboarding": True, "bypassPermissionsModeAccepted": True, "projects": {"{home}/work": project},
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
    }  # fmt: skip
    variables = {
        "CLAUDE_CONFIG_DIR": "{home}/claude", "ANTHROPIC_API_KEY": KEY, "IS_SANDBOX": "1", "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1", "DISABLE_AUTOUPDATER": "1",
    }  # fmt: skip
    return Program(command, 2, "claude-code-", variables, {"claude/.claude.json": json.dumps(settings)})


def codex() -> Program:
    from codex_cli_bin import bundled_codex_path  # pyright: ignore[reportMissingTypeStubs]

    command = [str(bundled_codex_path()), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    files = {
        "auth.json": json.dumps({"OPENAI_API_KEY": KEY}),
        "config.toml": 'model = "gpt-5.4"\n[features]\nplugins = false\n',
    }
    return Program(command, 2, "codex-", {"CODEX_HOME": "{home}"}, files)


def gemini_cli() -> Program:
    command = [find_npm_program(GEMINI_CLI, ".bin/gemini"), "--yolo", "-m", "gemini-3.6-flash", "-p"]
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}}
    variables = {"GEMINI_API_KEY": KEY, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return Program(command, 2, "gemini-", variables, {".gemini/settings.json": json.dumps(settings)})


def opencode(model: str) -> Program:
    machine = "arm64" if os.uname().machine in ("arm64", "aarch64") else "x64"
    program = find_npm_program(OPENCODE, f"opencode-{os.uname().sysname.lower()}-{machine}/bin/opencode")
    keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY")
    return Program([program, "run", "-m", model], 3, "opencode-", dict.fromkeys(keys, KEY))


def aider(model: str) -> Program:
    options = ["--model", model, "--no-git", "--no-check-update", "--analytics-disable", "--yes-always", "--no-pretty",
               "--no-show-model-warnings", "--no-show-release-notes", "--message"]  # fmt: skip
    variables = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), KEY)
    command = [str(Path(find_python(AIDER)).with_name("aider")), *options]
    return Program(command, 1, "", {**variables, "LITELLM_LOCAL_MODEL_COST_MAP": "True"})


def cline(provider: str, model: str) -> Program:
    command = [find_npm_program(CLINE, "cline/bin/cline"), "-P", provider, "-m", model]
    variables = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), KEY)
    node, _ = find_ai_sdk()
    return Program(command, 2, "", {**variables, "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"})


def ai_sdk() -> Program:
    node, packages = find_ai_sdk()
    command = [str(node), str(CLIENT_PROGRAMS / "ai_sdk_google_program.mjs"), str(packages)]
    variables = {"GOOGLE_GENERATIVE_AI_API_KEY": KEY}
    return Program(command, 2, "", variables, {}, {"NODE_USE_ENV_PROXY": "1"}, ("--via", "proxy"))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "Claude Code": claude_code,
    "Codex": codex,
    "Gemini CLI": gemini_cli,
    "opencode, Anthropic": lambda: opencode("anthropic/claude-sonnet-4-5"),
    "opencode, OpenAI": lambda: opencode("openai/gpt-5.4"),
    "opencode, Google": lambda: opencode("google/gemini-3.6-flash"),
    "aider, Anthropic": lambda: aider("anthropic/claude-sonnet-4-5"),
    "aider, OpenAI": lambda: aider("openai/gpt-4.1"),
    "aider, Google": lambda: aider("gemini/gemini-2.5-flash"),
    "cline, Anthropic": lambda: cline("anthropic", "claude-sonnet-4-5"),
    "cline, OpenAI": lambda: cline("openai-native", "gpt-5.4"),
    "cline, Google": lambda: cline("gemini", "gemini-3.6-flash"),
    "AI SDK, Google": ai_sdk,
}


def reading(work: Path) -> Callable[[AcceptedRequest], Reply]:
    """Return a script that reads a file with the tool that a program has for that, and then answers."""

    def script(ask: AcceptedRequest) -> Reply:
        body, last = decode(ask.raw), ask.request.messages[-1]
        if "title" in str([body.get("output_config"), body.get("text")]):
            return Reply(json.dumps({"title": "Notes"}))
        named = re.findall(r'"name": ?"([^"]+)"', ask.raw.decode())
        tool = next((name for name in READING if name in named), "")
        if not tool or "#call" not in last.text or last.tool_results:
            return Reply(ANSWER)
        path = f"{work}/notes.txt"
        given = {"exec_command": f"cat {path}", "read_files": [{"path": path}]}.get(tool, path)
        return Reply("I look.", [ScriptedCall(tool, {READING[tool]: given})])

    return script


VARYING = re.compile(
    rb"(?:toolu|msg|call|ses|fc)_[\w-]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}|cch=\w+"
    rb'|prev-tool-durations: \S+|(?:unix_ms|create_time)\\?":[\d.]+|Content-Length: \d+'
    rb"|wall time: [\d.]+|chunk id: \w+",
    re.IGNORECASE,
)
"""Ids, hashes and times, which differ between any two runs."""
LATE = re.compile(rb" \(codex_exec; [\d.]+\)")
"""What Codex adds to its name after its start. Early requests of a run may have it or not."""


SKILL_LIST = re.compile(
    rb"<available_skills>.*?</available_skills>|\(Available: [^)]*\)"
    rb'|(?<="properties":\{"name":\{"type":"string",)"enum":\[[^]]*\]',
    re.DOTALL,
)
"""The skills in a request of Gemini CLI: in the system prompt, and in the description and the parameter of a tool."""
SKILL = re.compile(rb"<skill>.*?</skill>|'[\w-]+'|\"[\w-]+\"", re.DOTALL)


def in_one_order(body: bytes) -> bytes:
    """Return a body with the ids of Codex and the skills of Gemini CLI in one order: they write them in any.

    Gemini CLI finds its skills with `glob`, whose walk returns files as they are read: of 3,000 calls of its
    `loadSkillsFromDir`, four had another order.
    """
    body = SKILL_LIST.sub(lambda found: b", ".join(sorted(SKILL.findall(found[0]))), body)
    ids = re.search(rb'"client_metadata":(\{.*\})\}$', body)
    return body if ids is None else body[: ids.start(1)] + json.dumps(json.loads(ids[1]), sort_keys=True).encode()


def essence(messages: Sequence[WireMessage]) -> list[tuple[bytes, tuple[bytes, ...], bytes]]:
    """Return the distinct requests without what differs between any two runs. Some are sent at the same time, and some
    again. Codex asks for a WebSocket first, which a recorded host refuses: then it uses HTTP.
    """
    found = {
        (
            each.start,
            tuple([VARYING.sub(b"*", LATE.sub(b"", line)) for line in each.fields]),
            VARYING.sub(b"*", in_one_order(each.body)),
        )
        for each in messages
        if not any([line.lower() == b"upgrade: websocket" for line in each.fields])
    }
    return sorted(found, key=lambda each: (each[0], len(each[2]), each))


def test_skills_are_compared_without_their_order() -> None:
    """Other skills, or a skill with another text, are a difference."""

    def body(*names: str, text: str = "t") -> bytes:
        skills = "".join([f"<skill><name>{each}</name>{text}</skill>" for each in names])
        available = ", ".join([f"'{each}'" for each in names])
        prompt = f"<available_skills>{skills}</available_skills>"
        parameters = {"properties": {"name": {"type": "string", "enum": names}}}
        return json.dumps([prompt, f"(Available: {available})", parameters], separators=(",", ":")).encode()

    assert in_one_order(body("write", "read-all")) == in_one_order(body("read-all", "write"))
    assert in_one_order(body("write", "read")) != in_one_order(body("write"))
    assert in_one_order(body("write", "read")) != in_one_order(body("read", "write", text="u"))


def certificates_in(home: Path) -> dict[str, int]:
    """Return the files with certificates below a folder. No file has the address of the proxy of a run."""
    found = {each: each.read_bytes() for each in home.rglob("*") if each.is_file()}
    assert [each for each, data in found.items() if b"http://contextc:" in data] == []
    counts = {str(each.relative_to(home)): data.count(b"-----BEGIN CERTIFICATE") for each, data in found.items()}
    return {path: count for path, count in counts.items() if count}


def wait_for_processes(home: Path) -> list[int]:
    """Return the processes that a program of this home has left in the background."""
    until = time.monotonic() + END_SECONDS
    while (left := find_processes(str(home))) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def stop_background(home: Path) -> None:
    """Stop what a program has left in the background."""
    for signal in (SIGTERM, SIGKILL):
        for each in find_processes(str(home)):
            with suppress(ProcessLookupError):
                os.kill(each, signal)
        wait_for_processes(home)


@pytest.mark.thorough
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_sends_the_same_requests_as_unwatched(tmp_path: Path, name: str) -> None:
    """Model requests, settings, lists of models: all of them, with the same header fields, and to the same hosts.
    Nothing of the watch is left: no process, no certificate and no address.
    """
    try:
        program = PROGRAMS[name]()
    except Unavailable as reason:
        give_up(str(reason))
        raise
    sent: list[list[WireMessage]] = []
    opened: list[set[str]] = []
    certificates: list[dict[str, int]] = []
    home, store = tmp_path / "home", f"sqlite:///{tmp_path}/store.db"
    work = home / "work"
    for is_watched in (False, True):
        work.mkdir(parents=True)
        (work / "notes.txt").write_text("one\ntwo\n")
        for path, text in program.files.items():
            (home / path).parent.mkdir(exist_ok=True)
            (home / path).write_text(text.replace("{home}", str(home)))
        with (
            FakeVendors(reading(work), strict=False) as fake,
            VendorHosts(HOSTS, fake.server.port) as hosts,
        ):
            trusted = hosts.write_certificate(tmp_path)
            environment = {
                "PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm-256color",
                **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), hosts.url),
                **dict.fromkeys(("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"), trusted),
                **{name: value.replace("{home}", str(home)) for name, value in program.variables.items()},
            }  # fmt: skip
            command = [*program.command, "Read the notes. #call"]
            if is_watched:
                options = ["--no-web", "--store", store, *program.options]
                done = run_contextc("watch", *options, "--", *command, cwd=work, env=environment)
                assert f"contextc recorded {program.calls} request" in done.stderr
                assert "not recorded" not in done.stderr
            else:
                done = subprocess.run(
                    command, cwd=work, env={**environment, **program.unwatched}, capture_output=True, text=True,
                    check=False, stdin=subprocess.DEVNULL, timeout=SECONDS,
                )  # fmt: skip
            left = wait_for_processes(home) if is_watched else []
            stop_background(home)
            assert left == []
            assert (done.returncode, ANSWER in done.stdout) == (0, True), done.stdout[-900:] + done.stderr[-900:]
            sent.append(hosts.requests)
            opened.append({each.place for each in hosts.opened})
        certificates.append(certificates_in(home))
        home.rename(tmp_path / f"home-{is_watched}")
    unwatched, watched = map(essence, sent)
    assert [each[0] for each in watched] == [each[0] for each in unwatched]
    for one, other in zip(unwatched, watched, strict=True):
        assert one[1] == other[1], one[0]
        assert one[2] == other[2], one[0]
    assert opened[0] == opened[1]
    assert certificates[0] == certificates[1]
    with cc.open_store(store) as handle:
        names = handle.read(lambda tx: list_names_in(tx, str(work)))
    assert [each for each in names if not each.startswith(program.client)] == []


NO_NAMES = "require('node:dns').lookup = (name, options, done) => done(new Error(`${name} is looked up`));"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "the program called none of the addresses that were set. --via proxy also records programs without one."),
        (
            ["--via", "proxy"],
            "the program sent nothing through the proxy in HTTPS_PROXY. Node's own fetch uses it from ",
        ),
    ],
)
def test_a_program_that_calls_its_provider_directly_is_reported(
    tmp_path: Path, options: Sequence[str], reason: str
) -> None:
    """The AI SDK's Google provider knows no address, and Node's `fetch` uses no proxy here, as in earlier versions."""
    try:
        program = ai_sdk()
    except Unavailable as error:
        give_up(str(error))
        raise
    (tmp_path / "no_names.cjs").write_text(NO_NAMES)
    node, *arguments = program.command
    command = [node, "--require", str(tmp_path / "no_names.cjs"), *arguments, "Hi."]
    environment = {
        **program.variables, "PATH": os.environ["PATH"], "HOME": str(tmp_path), "NODE_USE_ENV_PROXY": "0",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }  # fmt: skip
    store = f"sqlite:///{tmp_path}/store.db"
    done = run_contextc("watch", "--no-web", "--store", store, *options, "--", *command, cwd=tmp_path, env=environment)
    assert "generativelanguage.googleapis.com is looked up" in done.stderr
    assert done.returncode == 1
    assert "contextc recorded no model request" in done.stderr
    assert f"not recorded, because {reason}" in done.stderr
