"""`contextc serve` as a process: printed address, authentication and shutdown."""

import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from urllib.parse import unquote

import httpx
import pytest

import contextc as cc
from tests.cli.chat_terminal import home, recorded
from tests.cli.conftest import Run
from tests.conftest import some
from tests.executor.scripted_provider import says
from tests.forked_commands import CommandProcess, read_link
from tests.web.sse_reader import read_events

PATIENCE = 180.0
Serve = Callable[..., "Serving"]


class Serving:
    """A server that was started: its `lines` so far, the `link` with the token, and an `asking` client that has it."""

    def __init__(self, folder: Path, *arguments: str, **more: str) -> None:
        self.process = CommandProcess(
            *["serve", "--port", "0", *arguments],
            cwd=folder,
            env=home(folder, COLUMNS="60", NO_COLOR="1", **more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._printed: Queue[str] = Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.lines: list[str] = [self._line()]
        found = re.search(r"http://\S+:(\d+)/", self.lines[0])
        assert found, self.lines
        self.url = f"http://127.0.0.1:{found[1]}"
        self.link = "" if "--no-token" in arguments else read_link(self._line())
        self.token = unquote(self.link.partition("?token=")[2])
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        self.asking = httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._printed.put(line.rstrip("\n"))
        self._printed.put("")

    def _line(self) -> str:
        line = self._printed.get(timeout=PATIENCE)
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(f"it said nothing: {self.process.stderr.read()}")
        return line

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code, and what it had to say about it."""
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        assert self.process.stderr is not None
        return code, self.process.stderr.read()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[Serving] = []

    def begin(*arguments: str, **more: str) -> Serving:
        started.append(Serving(tmp_path, *arguments, **more))
        return started[-1]

    yield begin
    for each in started:
        each.asking.close()
        each.process.kill()
        each.process.wait()
        for stream in (each.process.stdout, each.process.stderr):
            assert stream is not None
            stream.close()


@pytest.mark.parametrize("how", some([signal.SIGTERM, signal.SIGINT], 1))
def test_it_reports_where_it_is_and_ends_on_request(serve: Serve, tmp_path: Path, how: signal.Signals) -> None:
    server = serve()
    assert re.fullmatch(r"contextc is at http://127\.0\.0\.1:\d+/ · Ctrl-C stops it", server.lines[0])
    made = server.asking.post("/api/conversations", json={"name": "kept"})
    assert made.status_code == 201
    assert httpx.get(server.url).headers["content-type"] == "text/html; charset=utf-8"
    assert server.end(how) == (0, "")
    assert (tmp_path / ".local/share/contextc").is_dir()
    again = serve()
    assert again.asking.get("/api/conversations/kept").json()["name"] == "kept"


def test_a_token_is_reported_once_and_needed(serve: Serve) -> None:
    server = serve("--token", "a token of my own")
    assert server.link == f"{server.url}/?token=a%20token%20of%20my%20own"
    assert not [line for line in server.lines if "of%20my%20own" in line or "of my own" in line], "it may be a log"
    assert httpx.get(f"{server.url}/api/info").status_code == 401
    assert httpx.get(f"{server.url}/api/info", headers={"Authorization": "Bearer a token of my own"}).status_code == 200
    with httpx.Client(follow_redirects=True) as browser:
        assert browser.get(f"{server.url}/?token=a%20token%20of%20my%20own").url == f"{server.url}/"
        assert browser.get(f"{server.url}/api/info").status_code == 200
    assert server.end() == (0, "")


def test_others_than_this_machine_need_a_token_that_is_made_if_none_is_given(serve: Serve) -> None:
    server = serve("--host", "0.0.0.0")
    token = server.token
    assert len(token) >= 40
    assert httpx.get(f"{server.url}/api/info").status_code == 401
    answer = httpx.get(
        f"{server.url}/api/info", headers={"Authorization": f"Bearer {token}", "Host": "whatever.example"}
    )
    assert answer.status_code == 200
    assert token not in answer.text
    code, errors = server.end()
    assert (code, token in errors) == (0, False)


@pytest.mark.thorough
def test_the_token_of_the_environment_is_taken_and_an_origin_may_be_written_in_any_form(serve: Serve) -> None:
    """A browser says an origin in small letters, and without the port that goes without saying. That no browser can be
    opened is not a failure.
    """
    origins = ("--origin", "http://LOCALHOST:3000", "--origin", "https://Chat.example:443/")
    server = serve("--open", *origins, CONTEXTC_TOKEN="from-the-environment", BROWSER=os.devnull, DISPLAY="")
    assert server.token == "from-the-environment"
    assert httpx.get(f"{server.url}/api/info").status_code == 401
    for origin in ("http://localhost:3000", "https://chat.example"):
        answer = server.asking.get("/api/conversations", headers={"Origin": origin})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, origin)
    other = {"Origin": "https://chat.example:80"}
    assert server.asking.get("/api/conversations", headers=other).status_code == 403
    assert server.end()[0] == 0


def test_a_port_that_is_taken_is_reported(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run("serve", "--port", port)
        proxy = run("serve", "--port", "0", "--no-open", "--proxy", "--proxy-port", port)
    assert result.returncode == 2
    assert f"127.0.0.1:{port}" in result.stderr
    assert "0 selects any free port" in result.stderr
    assert proxy.returncode == 2, "it does not go on without a proxy"
    assert f"127.0.0.1:{port}" in proxy.stderr
    assert "--proxy-port 0" in proxy.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--port", "70000"], "0 to 65535"),
        (["--host", "no.such.host.invalid"], "address not found"),
        (["--root", "nowhere"], "directory not found"),
        (
            ["--model", "nobody:knows"],
            "For your own endpoint, set url below [providers.nobody] in contextc.toml",
        ),
        (["--origin", "localhost:3000"], "http://localhost:3000"),
        (["--origin", "http://localhost:3000/chat"], "without a path"),
        (["--origin", "http://joe@localhost:3000"], "without a login"),
        (["--origin", "http://localhost:99999"], "http://localhost:3000"),
        (["--host", "0.0.0.0", "--token", "short"], "--token: a token must have 16 characters or more, got 5"),
        (["--token", "fifteen-letters"], "--token: a token must have 16 characters or more, got 15"),
        (["--host", "0.0.0.0", "--no-token"], "needs a loopback address"),
        (["--token", "a-token-of-mine", "--no-token"], "cannot be used together"),
        (["--system", "@nowhere.txt"], "nowhere.txt"),
        (["--budget", "0"], "--budget must be greater than 0, got 0"),
    ],
)
def test_what_cannot_be_served_is_reported_before_anything_begins(
    run: Run, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    result = run("serve", "--port", "0", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert expected in result.stderr
    assert not (tmp_path / ".local").exists()


def test_a_missing_package_is_named(run: Run, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    (hidden / "starlette").mkdir(parents=True)
    (hidden / "starlette" / "__init__.py").write_text("raise ModuleNotFoundError('gone', name='starlette')")
    result = run("serve", "--port", "0", PYTHONPATH=str(hidden))
    assert result.returncode == 2
    assert "pip install 'contextc[web]', or '.[web]' in a clone" in result.stderr


def read_words(lines: Iterator[str]) -> None:
    """Read until two words were stored."""
    count = 0
    while count < 2:
        count += next(lines).count("word")


def test_event_streams_do_not_delay_shutdown_and_the_partial_answer_stays(serve: Serve, tmp_path: Path) -> None:
    """Guarantee 11.10: a turn that is stopped keeps what was said; here by the end of its server."""
    slow = recorded(tmp_path / "slow.jsonl", says(*["word "] * 10_000))
    server = serve("--model", f"{slow}?seconds=0.05")
    begun = server.asking.post("/api/conversations/demo/turns", json={"input": "talk"})
    assert begun.status_code == 202, begun.text
    with server.asking.stream("GET", "/api/conversations/demo/events") as events:
        lines = events.iter_lines()
        read_words(lines)
        assert server.end()[0] == 0  # the model would talk on for minutes, and somebody listens
        for _ in lines:
            pass
    again = serve("--model", slow)
    found = again.asking.get("/api/conversations/demo").json()
    assert (found["running"], found["pending"]) == (None, None)
    answer = again.asking.get("/api/conversations/demo/messages").json()["messages"]
    assert answer[-1]["role"] == "assistant"
    assert answer[-1]["status"] in ("cancelled", "error")
    assert answer[-1]["parts"][0]["text"].startswith("word word")


@pytest.mark.thorough
@pytest.mark.parametrize("how", some([signal.SIGINT, signal.SIGTERM], 1))
def test_a_second_signal_ends_it_at_once_without_a_traceback(serve: Serve, tmp_path: Path, how: signal.Signals) -> None:
    """Guarantee 11.10: the partial answer is stored then, too."""
    slow = recorded(tmp_path / "slow.jsonl", says(*["word "] * 10_000))
    server = serve("--model", f"{slow}?seconds=0.05")
    begun = server.asking.post("/api/conversations/demo/turns", json={"input": "talk"})
    assert begun.status_code == 202, begun.text
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    with socket.create_connection(address) as unfinished:  # a request that never ends: the server waits for it
        head = f"POST /api/lint HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nAuthorization: Bearer {server.token}\r\n"
        more = "Content-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
        unfinished.sendall(f"{head}{more}".encode())
        assert unfinished.recv(100).startswith(b"HTTP/1.1 100")  # it reads the body
        with server.asking.stream("GET", "/api/conversations/demo/events") as events:
            lines = events.iter_lines()
            read_words(lines)
            server.process.send_signal(how)
            for _ in lines:  # the stream ends: the server is stopping
                pass
        assert server.end(how) == (128 + how, "")
    again = serve("--model", slow)
    found = again.asking.get("/api/conversations/demo/messages").json()["messages"]
    assert found[-1]["parts"][0]["text"].startswith("word word")
    assert found[-1]["status"] in ("cancelled", "error")


def test_by_default_this_machine_needs_a_token_too(serve: Serve) -> None:
    """Every user of this machine reaches a loopback port. Each start makes a token that is not in the process list."""
    first, second = serve(), serve()
    assert len(first.token) >= 40
    assert first.token != second.token
    arguments = Path(f"/proc/{first.process.pid}/cmdline")
    if arguments.exists():
        assert first.token.encode() not in arguments.read_bytes()
    document = first.asking.get("/api/openapi.json").json()
    assert len(document["paths"]) > 30
    with httpx.Client(base_url=f"{first.url}/api", timeout=PATIENCE) as stranger:
        for path, methods in document["paths"].items():
            for method in {*methods} & {"get", "post", "put", "delete"} | {"head"}:
                refused = stranger.request(method, path.replace("{", "").replace("}", ""))
                assert refused.status_code == 401, (method, path)
                assert method == "head" or "Authorization: Bearer <token>" in refused.json()["error"]["message"]
        assert stranger.get("/info", headers={"Authorization": f"Bearer {second.token}"}).status_code == 401
    assert first.end() == (0, "")


def test_a_short_token_of_the_environment_is_refused(run: Run) -> None:
    """Every user of this machine can try to guess it."""
    refused = run("serve", "--port", "0", CONTEXTC_TOKEN="short")
    assert refused.returncode == 2
    assert "CONTEXTC_TOKEN: a token must have 16 characters or more, got 5" in refused.stderr
    assert "short" not in refused.stderr


@pytest.mark.thorough
def test_disabling_the_token_prints_a_warning(serve: Serve) -> None:
    server = serve("--no-token", CONTEXTC_TOKEN="from-the-environment")
    assert httpx.get(f"{server.url}/api/info").status_code == 200
    assert server.end() == (0, "warning: no token: every user of this machine can use this server.\n")


def test_a_browser_is_not_started_with_the_token_in_its_arguments(serve: Serve, tmp_path: Path) -> None:
    """Every user of the machine can list arguments. A file that only this user may read leads on to the link."""
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    os.mkfifo(seen)
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o755)
    server = serve("--open", BROWSER=f"{browser} %s", DISPLAY="")
    opened = seen.read_text().strip()  # waits for the browser
    assert opened.startswith("file://")
    assert server.token not in opened
    page = Path(unquote(opened.removeprefix("file://")))
    assert page.stat().st_mode & 0o777 == 0o600
    assert f'url={server.link}"' in page.read_text()
    assert server.end() == (0, "")
    assert not page.exists()


@pytest.mark.thorough
def test_asked_on_a_server_that_is_killed_answered_elsewhere_and_done_by_the_next_server(
    serve: Serve, tmp_path: Path
) -> None:
    """Guarantees 18.1 and 18.5: the approval is a row, and a server continues a turn that no other one continues."""
    shared = ("--no-token", "--no-open", "--store", f"sqlite:///{tmp_path}/shared.db", "--root", str(tmp_path))
    asks = recorded(tmp_path / "a.jsonl", says(("w1", "write_file", {"path": "note.txt", "content": "hello"})))
    one = serve(*shared, "--model", asks)
    begun = one.asking.post("/api/conversations/demo/turns", json={"input": "Write"})
    assert begun.status_code == 202, begun.text
    read_events(one.url, "demo", last="turn-waiting")
    one.process.kill()
    one.process.wait()
    with cc.open_store(tmp_path / "shared.db") as store:
        (approval,) = store.approvals("demo")
        assert store.answer_approval(approval.id, True, who="ann").conversation == "demo"
    two = serve(*shared, "--model", recorded(tmp_path / "b.jsonl", says("Done.")))
    events = read_events(two.url, "demo")
    assert (events[-1]["type"], events[-1]["finish"]) == ("turn-finish", "stop")
    assert [event["id"] for event in events if event["type"] == "tool-start"] == ["w1"]
    assert (tmp_path / "note.txt").read_text() == "hello"
    assert [event["number"] for event in events] == [*range(1, len(events) + 1)]


def test_it_says_which_instruction_files_its_agent_reads(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    server = serve("--model", recorded(tmp_path / "a.jsonl", says("Hello.")))
    assert "instructions read from AGENTS.md\n" in server.end()[1]
