"""Codex asks for a WebSocket first. The proxy answers 426, and Codex goes on with HTTP at once (Guarantee 16.10)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from contextc.proxy.proxy_server import ProxyServer, listen
from contextc.proxy.upstreams import parse_upstream
from tests.fake_vendors import KEY, FakeVendors, Reply
from tests.observation.record_cli_sessions import call
from tests.observation.session_recorder import Script
from tests.proxy.byte_taps import running_taps
from tests.proxy.test_real_programs import all_bodies, posts

SECONDS = 60.0


@pytest.mark.thorough
def test_codex_falls_back_at_once_and_loses_nothing(tmp_path: Path) -> None:
    """One refused WebSocket per process, then the same conversation over HTTP: a tool, and a resumed session."""
    from codex_cli_bin import bundled_codex_path  # pyright: ignore[reportMissingTypeStubs]

    run = Reply("I read.", [call("exec_command", cmd="cat notes.txt")])
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    (home / "work" / "notes.txt").write_text("one\ntwo\n")
    (home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": KEY}))
    (home / "config.toml").write_text('model = "gpt-5.4"\n[features]\nplugins = false\n')
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home)}
    options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    store = f"sqlite:///{tmp_path}/store.db"
    with FakeVendors(Script({"#m1": [run]}, "watched"), strict=False) as fake, running_taps() as taps:
        taps.upstream_side.target = fake.server.port
        upstream = parse_upstream("openai", f"http://127.0.0.1:{taps.upstream_side.port}")
        proxy = ProxyServer(store, {"openai": upstream}, folder=tmp_path / "spool")
        with listen("127.0.0.1", 0) as listening, proxy.running(listening):
            taps.client_side.target = listening.getsockname()[1]
            url = f"http://127.0.0.1:{taps.client_side.port}/openai/v1"
            command = [str(bundled_codex_path()), "-c", f'openai_base_url="{url}"', "exec"]

            def codex(*arguments: str) -> str:
                done = subprocess.run(
                    [*command, *arguments],
                    env=environment, cwd=home / "work", stdin=subprocess.DEVNULL, capture_output=True, text=True,
                    timeout=SECONDS,
                )  # fmt: skip
                assert done.returncode == 0, done.stdout[-500:] + done.stderr[-500:]
                return done.stdout

            thread = json.loads(codex(*options, "Read the notes. #m1").splitlines()[0])["thread_id"]
            codex("resume", *options, thread, "Thank you. #m2")
            assert proxy.recorder.wait_for(3, SECONDS)
            assert proxy.close()
        sent = posts(fake)
    starts = [line for _, line in taps.client_side.starts]
    kinds = [line.split(b" ")[0 if line.endswith(b"HTTP/1.1") else 1] for line in starts]
    asked, answered = [b"GET", b"426"], [b"POST", b"200"]
    assert kinds == [*asked, *answered, *answered, *asked, *answered]
    assert len(sent) == 3
    assert not fake.refused
    assert all_bodies(store) == [each.raw for each in sent]
    assert taps.held_back == []
    assert proxy.gaps.count == 0
