"""`contextc watch` and `contextc proxy` (Guarantee 16.15)."""

import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from msgspec.structs import replace

import contextc as cc
from contextc.cli import watch
from contextc.cli.server_access import WebUIProcess
from contextc.proxy.proxy_status import TrafficSummary
from contextc.proxy.recorder_process import RecordedExchange
from contextc.store.conversation_list import list_names_in
from contextc.store.ledger_schema import channel_id
from tests.fake_vendors import KEY, FakeVendors, Scripted, faults, listed
from tests.forked_commands import read_link, run_contextc
from tests.observation.test_observe import answer, chat
from tests.proxy.raw_servers import post
from tests.web.sse_reader import listening, until

SECONDS = 120.0
PROGRAM = """
import json, os, sys, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
for text in sys.argv[2:]:
    body = {"model": "claude-opus-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as reply:
        print(json.load(reply)["content"][0]["text"])
sys.stdout.flush()
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 15)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "agent.py"
    path.write_text(PROGRAM.replace("KEY", repr(KEY)))
    return path


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "SSL_CERT_FILE") if name in os.environ}
    return {**kept, "HOME": str(tmp_path), "COLUMNS": "100", **more}


def test_a_program_that_a_signal_ended_and_one_without_requests(tmp_path: Path, program: Path) -> None:
    command = ("watch", "--no-web", "--", sys.executable, str(program), "killed")
    done = run_contextc(*command, cwd=tmp_path, env=environment(tmp_path))
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr.startswith("\ncontextc recorded no model request")
    assert "not recorded, because the program called none of the addresses that were set." in done.stderr


def test_a_recorded_session_knows_where_its_program_ran(tmp_path: Path, program: Path) -> None:
    """Guarantee 20.12."""
    address, elsewhere = f"sqlite:///{tmp_path}/watched.db", tmp_path / "elsewhere"
    with FakeVendors(Scripted(["First."])) as fake:
        command = ("watch", "--no-web", "--store", address, "--", sys.executable, str(program), "0", "one")
        done = run_contextc(*command, cwd=tmp_path, env=environment(tmp_path, ANTHROPIC_BASE_URL=fake.url()))
    assert done.returncode == 0, done.stderr
    with cc.open_store(address) as store:
        assert len(store.read(lambda tx: list_names_in(tx, str(tmp_path)))) == 1
        assert store.read(lambda tx: list_names_in(tx, str(elsewhere))) == []


def test_the_reason_is_given_if_nothing_was_recorded(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_BASE_URL=http://127.0.0.1:9/v1\n")
    done = run_contextc("watch", "--no-web", "--", "true", cwd=tmp_path, env=environment(tmp_path))
    assert f"not recorded, because {tmp_path}/.env sets OPENAI_BASE_URL" in done.stderr


def test_the_exit_code_is_the_programs_if_standard_error_is_full(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "contextc", "watch", "--no-web", "--", "sh", "-c", "exit 7"],
            cwd=tmp_path, env=environment(tmp_path), stderr=full, check=False,
        )  # fmt: skip
    assert done.returncode == 7


DAEMON = """
import os, runpy, sys
if os.fork():
    os._exit(7)
os.setsid()
open(sys.argv.pop(1)).read()
sys.argv[0:1] = []
runpy.run_path(sys.argv[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the environment of other processes")
def test_a_program_that_goes_to_the_background_keeps_its_proxy(tmp_path: Path, program: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with FakeVendors(Scripted(["From the background."])) as fake:
        process = subprocess.Popen(
            [sys.executable, "-m", "contextc", "watch", "--no-web", "--", sys.executable, "-c", DAEMON, str(fifo),
             str(program), "0", "one"],
            cwd=tmp_path, env=environment(tmp_path, ANTHROPIC_BASE_URL=fake.url()), stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline().startswith("contextc goes on: the program left a process in the background")
        fifo.write_text("go")
        _, errors = process.communicate(timeout=SECONDS)
        assert len(fake.records) == 1
    assert process.returncode == 7
    assert errors.startswith("\ncontextc recorded 1 request in 1 conversation")


def test_options_after_the_program_are_its_own(tmp_path: Path) -> None:
    """Also without `--`, and also where contextc has an option of that name."""
    program = (sys.executable, "-c", "import sys; print(sys.argv[1:])", "--foo", "--quiet")
    done = run_contextc("watch", "--no-web", *program, cwd=tmp_path, env=environment(tmp_path))
    assert (done.returncode, done.stdout) == (0, "['--foo', '--quiet']\n")


def test_an_unknown_program_is_an_error(tmp_path: Path) -> None:
    done = run_contextc("watch", "--", "no-such-program", cwd=tmp_path, env=environment(tmp_path))
    assert done.returncode == 2
    assert "Program not found, got 'no-such-program'" in done.stderr


def test_watch_alone_prints_what_to_set(tmp_path: Path) -> None:
    done = run_contextc("watch", cwd=tmp_path, env=environment(tmp_path))
    assert done.returncode == 0
    assert "export ANTHROPIC_BASE_URL=http://127.0.0.1:8788/t/TOKEN/anthropic " in done.stdout
    assert "openai_base_url=" in done.stdout
    assert not (tmp_path / ".local").exists()


LINK = re.compile(r"(http://127[.]0[.]0[.]1:\d+)/[?]token=(\S+)#/live/(\d+)")
WAIT = "sys.stdin.readline()"
WAITING_PROGRAM = f"import sys\n{WAIT}\n{PROGRAM}".replace("sys.stdout.flush()", f"sys.stdout.flush()\n{WAIT}")
"""It waits for a line before its requests, and for another one before it ends."""


def test_a_watched_program_is_recorded_shown_and_its_exit_code_returned(tmp_path: Path) -> None:
    """Its output is its own, the summary goes to standard error, and no file of the user changes.

    The link to the web UI is printed before the program starts. The web UI ends with the program.
    """
    path = tmp_path / "agent.py"
    path.write_text(WAITING_PROGRAM.replace("KEY", repr(KEY)))
    with FakeVendors(Scripted(["First.", "Second."])) as fake:
        process = subprocess.Popen(
            [sys.executable, "-m", "contextc", "watch", "--", sys.executable, str(path), "7", "one", "two"],
            cwd=tmp_path, env=environment(tmp_path, ANTHROPIC_BASE_URL=fake.url()),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline() == "contextc shows the requests at\n"
        found = LINK.fullmatch(read_link(process.stderr.readline()))
        assert found is not None
        url, token, since = found.groups()
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{url}/api/info", timeout=SECONDS).status_code == 401
        with listening(f"{url}/api/changes", headers=headers) as stream:
            proxies = until(stream, lambda frame: bool(frame.json.get("proxies")))[-1].json["proxies"]
            assert [each["requests"] for each in proxies] == [0]
            assert not fake.records
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            shown: dict[str, Any] = {}
            for frame in stream:
                shown |= {each["title"]: each for each in frame.json.get("conversations", [])}
                if len(shown) == 2:
                    break
            assert shown.keys() == {"one", "two"}
            assert {each["observed"]["kind"] for each in shown.values()} == {"main"}
            assert all([each["spoken"] >= int(since) for each in shown.values()])
            process.stdin.write("\n")
            process.stdin.flush()
            assert [frame.event for frame in stream][-1] == "ended"
        output, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, output) == (7, "First.\nSecond.\n")
        assert len(fake.records) == 2
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
    assert errors.startswith("\ncontextc recorded 2 requests in 2 conversations")
    assert "rewrite factor 1.0" in errors
    assert "contextc serve" in errors
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {name for name in files if not name.startswith(".local/share/contextc/contextc.db")} == {"agent.py"}
    with cc.open_store(f"sqlite:///{tmp_path}/.local/share/contextc/contextc.db") as store:
        assert len(store.read(lambda tx: tx.rows("SELECT * FROM main.manifest"))) == 2


def test_the_summary_names_only_commands_that_are_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = TrafficSummary(requests=1, conversations={"one": 1})
    watch.print_summary(summary, None)
    assert "contextc serve   or: contextc explain one" in capsys.readouterr().err
    monkeypatch.setattr(watch, "is_web_installed", lambda: False)
    watch.print_summary(summary, None)
    assert "look at it: contextc explain one" in capsys.readouterr().err


def test_tokens_that_no_reply_reported_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    """Streams of OpenAI's Chat Completions report no usage unless the client asks for it."""
    summary = TrafficSummary()
    done = RecordedExchange(exchange="r/1", time=1, conversation="one", status="ok", estimate=1200)
    summary.add(done)
    watch.print_summary(summary, None)
    errors = capsys.readouterr().err
    assert "tokens: unknown · unknown cost\n" in errors
    assert "not counted: 1 request for which no usage was reported, with about 1,200 tokens in\n" in errors
    summary.add(replace(done, has_usage=True, input=10, output=2, cost=0.5, cache_read=9, why="tools changed"))
    watch.print_summary(summary, None)
    errors = capsys.readouterr().err
    assert "tokens: 10 in, 2 out · $0.5000\n" in errors
    assert "prefix broken" not in errors, "most of it was read from the cache"


def test_what_cost_most_is_about_requests_of_this_run_that_cost_something(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A session that is resumed has requests of earlier runs."""
    address = f"sqlite:///{tmp_path}/s.db"
    padding, summary = "word " * 3000, TrafficSummary()
    with cc.open_store(address) as store:
        said = [padding]
        for number in range(4):
            body = chat(*said, model="gpt-5", user="u")
            body["messages"][0]["content"] = f"Now: 18:0{min(number, 2)}:12. {padding}"
            seen = cc.observe(
                store, request=body, reply=answer(f"a{number}", input=6000), format="openai_chat", conversation="x",
                time=1_794_940_000_000 + number * 60_000, ended=1_794_940_001_000 + number * 60_000,
            )  # fmt: skip
            said += [f"a{number}", f"q{number}"]
            if number == 2:
                summary.requests += 1
                summary.conversations["x"] = 1
                summary.recorded.add(("x", channel_id(seen.channel), seen.request))
    watch.print_most_expensive(summary, address)
    assert "cost most: The system prompt changed (CAC006, 1 time, $" in capsys.readouterr().err
    summary.recorded.clear()
    summary.recorded.add(("x", "another", 9))
    watch.print_most_expensive(summary, address)
    assert not capsys.readouterr().err


def test_attach_prints_a_line_per_recorded_request(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/s.db"
    with cc.open_store(address) as store:
        observe = partial(cc.observe, store, format="openai_chat", conversation="x")
        observe(request=chat("before"), reply=answer("a"))
        process = subprocess.Popen(
            [sys.executable, "-m", "contextc", "watch", "--attach", "--store", address],
            cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        assert process.stdout is not None
        assert "No proxy records" in process.stderr.readline()
        assert "Ctrl-C ends" in process.stderr.readline()
        observe(request=chat("before", "a", "c"), reply=answer("d", input=2000, cached=500))
        assert re.fullmatch(
            r"\d\d:\d\d:\d\d  x  openai-chat:gpt-5  2,000 in 3 out  25% cached  [$]0[.]\d{4}\n",
            process.stdout.readline(),
        )
        observe(request=chat("after"), reply={"error": {"message": "overloaded"}}, status=529, conversation="y")
        assert process.stdout.readline().endswith("  y  openai-chat:gpt-5  error 529\n")
        observe(request=chat("other"), reply=answer("e"))
        assert "  prefix broken: " in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=SECONDS) == ("", "")
    assert process.returncode == 0


def test_a_page_that_is_opened_while_the_web_ui_starts_waits_for_it(tmp_path: Path) -> None:
    """The link is printed at once, so that the program need not wait."""
    address = f"sqlite:///{tmp_path}/s.db"
    cc.open_store(address).close()
    with WebUIProcess(address) as web:
        headers = {"Authorization": f"Bearer {web.token}"}
        assert httpx.get(f"{web.address}api/info", headers=headers, timeout=SECONDS).status_code == 200
        assert not web.has_failed
    with pytest.raises(httpx.ConnectError):
        httpx.get(web.address)


def test_a_web_ui_that_does_not_start_is_reported_at_the_end(tmp_path: Path) -> None:
    """The program runs nevertheless. A page of the link is refused, and does not wait for ever."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "uvicorn.py").write_text("raise ImportError")
    process = subprocess.Popen(
        [sys.executable, "-m", "contextc", "watch", "--", sys.executable, "-c", f"import sys\n{WAIT}\nprint('ran')"],
        cwd=tmp_path, env=environment(tmp_path, PYTHONPATH=os.pathsep.join([str(broken), *sys.path])),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline() == "contextc shows the requests at\n"
    found = LINK.fullmatch(read_link(process.stderr.readline()))
    assert found is not None
    with pytest.raises(httpx.TransportError):
        httpx.get(found[1], timeout=SECONDS)
    output, errors = process.communicate("\n", timeout=SECONDS)
    assert (process.returncode, output) == (0, "ran\n")
    assert "the web UI did not start" in errors


def test_attach_runs_no_program(tmp_path: Path) -> None:
    done = run_contextc("watch", "--attach", "--", "echo", cwd=tmp_path, env=environment(tmp_path))
    assert (done.returncode, "--attach runs no program" in done.stderr) == (2, True)


def test_serve_with_a_proxy(tmp_path: Path) -> None:
    """The web UI and the proxy have one store, and end together."""
    process = subprocess.Popen(
        [sys.executable, "-m", "contextc", "serve", "--proxy", "--proxy-port", "0", "--port", "0", "--no-open",
         "--no-token", "--store", "sqlite:///s.db", "--model", "openai:gpt-5"],
        cwd=tmp_path, env=environment(tmp_path, PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    addresses: dict[str, str] = {}
    while len(addresses) < 2:
        if found := re.match(r"contextc (proxy )?is at (\S+)", process.stdout.readline()):
            addresses[found[1] or ""] = found[2]
    with listening(f"{addresses['']}api/changes") as stream:
        (status,) = until(stream, lambda frame: bool(frame.json.get("proxies")))[-1].json["proxies"]
    assert status["address"] == addresses["proxy "]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=180)
    assert process.returncode == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(addresses["proxy "])


TERMINAL_PROGRAM = """
import os, signal, sys
signals = {signal.SIGINT, signal.SIGTERM, signal.SIGWINCH}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # each waits until it is asked for
os.write(1, f"{os.isatty(0)} {os.isatty(1)} {os.get_terminal_size()} {os.getppid()}\\n".encode())
while True:
    number = signal.sigwait(signals)
    os.write(1, f"signal {number:d}\\n".encode())
    if number == signal.SIGTERM:
        sys.exit(9)
"""


class InTerminal:
    """`contextc watch` with a terminal of its own."""

    def __init__(self, folder: Path, variables: dict[str, str], *arguments: str) -> None:
        self.pid, self.line = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execve(sys.executable, [sys.executable, "-m", "contextc", "watch", *arguments], variables)
        self._unread = b""

    def read_until(self, text: bytes) -> bytes:
        """Return what was printed up to a text."""
        while text not in self._unread:
            self._unread += os.read(self.line, 1024)
        end = self._unread.index(text) + len(text)
        printed, self._unread = self._unread[:end], self._unread[end:]
        return printed

    def wait(self) -> int:
        with suppress(OSError):  # the other side was closed
            while os.read(self.line, 1024):
                pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.line)
        return os.waitstatus_to_exitcode(status)


def test_the_program_has_the_terminal_to_itself(tmp_path: Path) -> None:
    """Ctrl-C and changes of the window reach the program, which goes on; a signal to `watch` is forwarded."""
    path = tmp_path / "program.py"
    path.write_text(TERMINAL_PROGRAM)
    started = InTerminal(tmp_path, environment(tmp_path), "--quiet", "--", sys.executable, str(path))
    pid, line, read_until = started.pid, started.line, started.read_until
    fcntl.ioctl(line, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    read_until(b"True True os.terminal_size(columns=77, lines=33) %d" % pid)
    os.write(line, b"\x03")
    read_until(b"signal %d" % signal.SIGINT)
    fcntl.ioctl(line, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 90, 0, 0))
    read_until(b"signal %d" % signal.SIGWINCH)
    os.kill(pid, signal.SIGTERM)
    read_until(b"signal %d" % signal.SIGTERM)
    assert started.wait() == 9


@pytest.mark.parametrize("ending", [b"q", pytest.param(b"\x03", marks=pytest.mark.thorough)])
def test_the_web_ui_stays_until_a_key_is_pressed(tmp_path: Path, program: Path, ending: bytes) -> None:
    """The requests of a program can be looked at when it has ended. What was typed before does not end that."""
    with FakeVendors(Scripted(["First."])) as fake:
        started = InTerminal(
            tmp_path, environment(tmp_path, ANTHROPIC_BASE_URL=fake.url()),
            "--", sys.executable, str(program), "7", "one",
        )  # fmt: skip
        os.write(started.line, b"typed ahead\n")
        printed = started.read_until(b"The web UI stays until you press a key: ")
        printed += started.read_until(b"\n")
        assert b"contextc recorded 1 request in 1 conversation" in printed
        first, last = (found.groups() for found in LINK.finditer(printed.decode()))
        assert first == last
        headers = {"Authorization": f"Bearer {last[1]}"}
        shown = httpx.get(f"{last[0]}/api/conversations", headers=headers, timeout=SECONDS).json()
        assert "one" in json.dumps(shown)
        assert os.waitpid(started.pid, os.WNOHANG) == (0, 0)
        os.write(started.line, ending)
        assert started.wait() == 7
    with pytest.raises(httpx.ConnectError):
        httpx.get(last[0])


def test_the_web_ui_ends_with_the_program_if_that_is_asked_for(tmp_path: Path, program: Path) -> None:
    with FakeVendors(Scripted(["First."])) as fake:
        started = InTerminal(
            tmp_path, environment(tmp_path, ANTHROPIC_BASE_URL=fake.url()),
            "--exit", "--", sys.executable, str(program), "7", "one",
        )  # fmt: skip
        assert b"The web UI stays" not in started.read_until(b"contextc explain")
        assert started.wait() == 7


def test_the_web_ui_ends_with_a_program_that_was_stopped(tmp_path: Path, program: Path) -> None:
    """SIGTERM is for `watch`, too."""
    program.write_text(program.read_text().replace("sys.stdout.flush()", "input()"))
    with FakeVendors(Scripted(["First."])) as fake:
        started = InTerminal(
            tmp_path, environment(tmp_path, ANTHROPIC_BASE_URL=fake.url()),
            "--", sys.executable, str(program), "7", "one",
        )  # fmt: skip
        started.read_until(b"First.")
        os.kill(started.pid, signal.SIGTERM)
        assert started.wait() == 128 + signal.SIGTERM


SIGNAL_IN_A_THREAD = """
import signal, sys, threading
from contextc.cli.watch import run_program

def send():
    sys.stdin.readline()  # the program is ready
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

threading.Thread(target=send).start()
sys.exit(run_program(sys.argv[1:], {})[0])
"""


def test_a_signal_that_another_thread_gets_is_forwarded(tmp_path: Path) -> None:
    """The system delivers a signal to any thread, for example if the main thread has not handled the one before."""
    path = tmp_path / "program.py"
    path.write_text(TERMINAL_PROGRAM.replace("{os.get_terminal_size()}", ""))
    command = [sys.executable, "-c", SIGNAL_IN_A_THREAD, sys.executable, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith(b"False False")
        output, _ = watching.communicate(b"ready\n", SECONDS)
    assert (output, watching.returncode) == (b"signal %d\n" % signal.SIGTERM, 9)


def test_the_proxy_runs_until_a_signal(tmp_path: Path) -> None:
    """With a token, as other hosts need it; everything is recorded at the end.

    Guarantee 20.12: what it records belongs to the project that it is given.
    """
    token = "a-token-with-22-letters"
    with FakeVendors(Scripted(["Hello."])) as fake:
        process = subprocess.Popen(
            [sys.executable, "-m", "contextc", "proxy", "--port", "0", "--host", "0.0.0.0", "--token", token,
             "--upstream", f"anthropic={fake.url()}", "--store", "sqlite:///s.db", "--redact", "mail",
             "--directory", "shop"],
            cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        printed = process.stdout.readline()
        while "bedrock" not in printed:
            line = process.stdout.readline()
            assert line, "it has ended"
            printed += line
        url, link = printed.split()[4], read_link(printed.splitlines()[1])
        body = {"model": "claude-opus-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "I am a@b.org"}]}
        headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
        assert (
            httpx2.post(f"{url}/anthropic/v1/messages", json=body, headers=headers, timeout=SECONDS).status_code == 401
        )
        reply = httpx2.post(f"{url}/t/{token}/anthropic/v1/messages", json=body, headers=headers, timeout=SECONDS)
        assert reply.json()["content"][0]["text"] == "Hello."
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=180)
        assert json.loads(fake.records[0].raw) == body
    assert (process.returncode, errors) == (0, "")
    assert token not in printed, "it may be a log"
    assert f"export ANTHROPIC_BASE_URL={url}/u/anthropic " in printed
    assert link == f"{url}/t/{token}/contextc/status"
    with cc.open_store(f"sqlite:///{tmp_path}/s.db") as store:
        (name,) = [row[0] for row in store.read(lambda tx: tx.rows("SELECT name FROM main.conversation"))]
        assert store.load(name)[0].text.startswith("I am [redacted:mail:")
        assert store.read(lambda tx: list_names_in(tx, str(tmp_path / "shop"))) == [name]


def test_a_proxy_without_a_token_is_asked_for(tmp_path: Path) -> None:
    """Guarantee 16.14: never for other hosts, and never where the server's key is spent."""
    for options, problem in (
        (("--host", "0.0.0.0"), "--no-token needs a loopback address"),
        (("--convert", "openai:gpt-5"), "--convert needs a token"),
        (("--token", "a-token-with-22-letters"), "cannot be used together"),
    ):
        done = run_contextc("proxy", "--no-token", *options, cwd=tmp_path, env=environment(tmp_path))
        assert (done.returncode, problem in done.stderr) == (2, True)


def test_a_proxy_that_is_killed_leaves_nothing_unrecorded(tmp_path: Path) -> None:
    """Its recorder goes on alone: it records what is in the spool, also the exchange that was open, and ends.

    Guarantee 16.14: on this machine, too, requests without the token are refused.
    """
    with FakeVendors(Scripted(["Hello.", "Never."]), faults=listed(None, faults.hang())) as fake:
        process = subprocess.Popen(
            [sys.executable, "-m", "contextc", "proxy", "--port", "0", "--upstream", f"anthropic={fake.url()}"],
            cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        url = process.stdout.readline().split()[4]
        base = read_link(process.stdout.readline()).replace("contextc/status", "anthropic")
        assert re.fullmatch(rf"{url}/t/[\w-]{{43}}/anthropic", base)
        body = {"model": "claude-opus-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi."}]}
        headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
        for address, status in ((f"{url}/anthropic", 401), (base, 200)):
            reply = httpx2.post(f"{address}/v1/messages", json=body, headers=headers, timeout=SECONDS)
            assert reply.status_code == status
        lines = [f"{name}: {value}" for name, value in {**headers, "content-type": "application/json"}.items()]
        raw = post(f"{base.removeprefix(url)}/v1/messages", json.dumps(body).replace("Hi.", "Open.").encode(), *lines)
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
            connection.sendall(raw)
            end = time.monotonic() + SECONDS
            while not any(b"Open." in path.read_bytes() for path in tmp_path.rglob("*.frames")):
                assert time.monotonic() < end
                time.sleep(0.01)
            process.kill()
            process.wait()
        process.stdout.close()
    end = time.monotonic() + SECONDS
    while list((tmp_path / ".local" / "share" / "contextc" / "spool").glob("*/*")):
        assert time.monotonic() < end
        time.sleep(0.02)
    with cc.open_store(f"sqlite:///{tmp_path}/.local/share/contextc/contextc.db") as store:
        assert len(store.read(lambda tx: tx.rows("SELECT * FROM main.manifest"))) == 2
        assert store.read(lambda tx: list_names_in(tx, str(tmp_path))) == [], "its clients may work anywhere"
