"""The topology of the compose file as plain processes: its commands, its numbers of servers and workers, PostgreSQL."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import httpx
import pytest

from tests.web.sse_reader import frames
from tests.worker.worker_process import PATIENCE

ROOT = Path(__file__).parent.parent.parent
COMPOSE = (ROOT / "examples" / "fleet" / "compose.yaml").read_text()
TOKEN = "a token of the test"
AGENTS = """
from pathlib import Path
from tests.worker.worker_process import make_agent

agents = {"assistant": lambda store: make_agent(store, Path.cwd(), 30)}
"""


def commands(name: str) -> list[str]:
    """Return the arguments of a command in the compose file, for this machine: loopback, and any port."""
    (found,) = re.findall(rf"command: \[({name}, .*)\]", COMPOSE)
    found = found.replace("127.0.0.1:9100", "127.0.0.1:0").replace("0.0.0.0", "127.0.0.1")
    return shlex.split(found.replace(", ", " "))


def count(pattern: str) -> int:
    return len(re.findall(pattern, COMPOSE, re.MULTILINE))


@contextmanager
def running(
    arguments: list[str], folder: Path, environment: dict[str, str]
) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A process, and the address that its first line names. It must end with 0 after SIGTERM."""
    command = [sys.executable, "-m", "contextc", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://[\w.]+:\d+", process.stdout.readline())
            assert found is not None
            yield process, found[0]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


@pytest.mark.thorough  # parts of it are tested alone
def test_two_servers_and_three_workers(new_postgres_address: str, tmp_path: Path) -> None:
    """Guarantee 19.8: input on one server is run by any worker, and its events are read on the other server."""
    (tmp_path / "agents.py").write_text(AGENTS)
    environment = {**os.environ, "HOME": str(tmp_path), "CONTEXTC_STORE": new_postgres_address, "COLUMNS": "200"}
    environment |= {"CONTEXTC_TOKEN": TOKEN, "PYTHONPATH": str(ROOT)}
    (replicas,) = re.findall(r"replicas: (\d+)", COMPOSE)
    assert (count(r"^    <<: \*server"), int(replicas)) == (2, 3)
    serve, work = [*commands("serve"), "--port", "0"], commands("worker")
    with (
        running(serve, tmp_path, environment) as (_, one),
        running(serve, tmp_path, environment) as (_, two),
        running(work, tmp_path, environment) as (_, first),
        running(work, tmp_path, environment) as (_, second),
        running(work, tmp_path, environment) as (_, third),
        httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE) as client,
    ):
        names = [f"c{number}" for number in range(6)]
        for name in names:
            answer = client.post(f"{one}/api/conversations/{name}/turns", json={"input": "work 0"})
            assert answer.status_code == 202, answer.text
        for name in names:
            path = f"{two}/api/conversations/{name}/events?vocabulary=contextc"
            with client.stream("GET", path) as stream:
                end = next(frame.json for frame in frames(stream.iter_lines()) if frame.event == "turn-finish")
            assert end["finish"] == "stop"
        ended = 0
        for address in (first, second, third):
            with urlopen(f"{address}/metrics", timeout=PATIENCE) as answer:
                ended += int(re.findall(r"^contextc_worker_turns_total (\d+)", answer.read().decode(), re.MULTILINE)[0])
        assert ended == len(names)
