"""Frameworks and clients with nothing changed but the address, and with the wire compared at both ends
(Guarantee 16.10).

Each program runs a turn with a tool, then streams another one. Those that cannot be installed beside the project are
left to `make prove`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc.proxy.proxy_server import ProxyServer, listen
from contextc.proxy.upstreams import parse_upstream
from tests.conftest import give_up
from tests.fake_vendors import KEY, FakeVendors, Reply, RequestRecord, ScriptedCall
from tests.fake_vendors.vendor import AcceptedRequest
from tests.proxy import client_environments
from tests.proxy.byte_taps import ByteTaps, WireMessage, running_taps
from tests.proxy.client_environments import AGENTS, AIDER, LITELLM, find_python
from tests.proxy.test_sdk_clients import stored_bodies
from tests.sdk_comparison import ai_sdk_process

SECONDS = 60.0
PROGRAM_SECONDS = 300
PROGRAMS = Path(__file__).parent / "client_programs"
OWN_ID = re.compile(rb'"id": ?"[^"]+"')
TEXTS = ["The door is red.", "You are welcome, and I can look at more things whenever that is needed."]


def script(ask: AcceptedRequest) -> Reply:
    """Answer a text with #call by a call, its result by a text, and anything else by a longer text."""
    last = ask.request.messages[-1]
    if "#call" in last.text:
        return Reply("I look.", [ScriptedCall("look", {"thing": "The door"})])
    return Reply(TEXTS[0] if last.role == "tool" or "is red" in last.text or not last.text else TEXTS[1])


class Setting(NamedTuple):
    """A proxy with taps on both sides. `url` is the address for clients."""

    url: str
    proxy: ProxyServer
    taps: ByteTaps
    fake: FakeVendors
    store: str


@contextmanager
def tapped_proxy(folder: Path, version: str = "") -> Generator[Setting]:
    with FakeVendors(script, strict=False) as fake, running_taps() as taps:
        taps.upstream_side.target = fake.server.port
        store = f"sqlite:///{folder}/store.db"
        upstream = replace(parse_upstream("up", f"http://127.0.0.1:{taps.upstream_side.port}"), version=version)
        proxy = ProxyServer(store, {"up": upstream}, folder=folder / "spool")
        try:
            with listen("127.0.0.1", 0) as listening, proxy.running(listening):
                taps.client_side.target = listening.getsockname()[1]
                yield Setting(f"http://127.0.0.1:{taps.client_side.port}/up", proxy, taps, fake, store)
        finally:
            proxy.close(0)


def environment(url: str, home: Path) -> dict[str, str]:
    """Return an environment in which every client finds this address, and nothing of this machine."""
    addresses = {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_BASE": url, "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1", "GOOGLE_GEMINI_BASE_URL": url, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url,
    }  # fmt: skip
    keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY",
            "AWS_BEARER_TOKEN_BEDROCK")  # fmt: skip
    quiet = {
        "HOME": str(home), "PATH": os.environ["PATH"], "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_AGENTS_DISABLE_TRACING": "1", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    return {**addresses, **dict.fromkeys(keys, KEY), **quiet}


def run(command: Sequence[str], url: str, home: Path, **more: str) -> str:
    """Return what a program printed."""
    variables = {name: value.replace("{url}", url) for name, value in more.items()}
    done = subprocess.run(
        command,
        env={**environment(url, home), **variables},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    return done.stdout


def without_prefix(message: WireMessage) -> WireMessage:
    return message._replace(start=message.start.replace(b" /up/", b" /", 1))


def check_both_ends(setting: Setting) -> None:
    """All messages are equal at both ends, and no event of a stream was held back."""
    here, there = setting.taps.client_side, setting.taps.upstream_side
    assert Counter(map(without_prefix, here.requests)) == Counter(there.requests)
    assert Counter(here.responses) == Counter(there.responses)
    assert len(here.requests) == len(here.responses)
    assert setting.taps.held_back == []
    assert setting.taps.awaited >= 5


def compared(record: RequestRecord) -> tuple[str, str, bytes]:
    """Return what is equal in a direct run. Some clients invent ids of calls where the provider has none."""
    return record.method, record.path, OWN_ID.sub(b"", record.raw) if record.format == "gemini" else record.raw


def check_record(setting: Setting, requests: int, conversations: int, without_usage: int) -> None:
    """Every body is in the store, to the byte, with the usage that the provider reported."""
    proxy, sent = setting.proxy, setting.fake.records
    assert proxy.recorder.wait_for(requests, SECONDS)
    assert proxy.gaps.count == 0
    summary = proxy.summary
    with cc.open_store(setting.store) as store:
        stored = [raw for name in summary.conversations for raw in stored_bodies(store, name)]
    assert sorted(stored) == sorted([each.raw for each in sent])
    tokens = [each.tokens for each in sent if each.tokens is not None]
    assert (summary.requests, summary.failed, summary.without_usage) == (requests, 0, without_usage)
    if not without_usage:
        assert summary.input == sum([each.input for each in tokens])
        assert summary.output == sum([each.output for each in tokens])
    assert len(summary.conversations) == conversations


def check_program(tmp_path: Path, command: Sequence[str], *, without_usage: int = 0, **more: str) -> None:
    """Run a program directly and through the proxy, and compare everything. `more` are variables with addresses."""
    with FakeVendors(script, strict=False) as direct:
        assert json.loads(run(command, direct.url(), tmp_path, **more).splitlines()[-1]) == TEXTS
    with tapped_proxy(tmp_path) as setting:
        assert json.loads(run(command, setting.url, tmp_path, **more).splitlines()[-1]) == TEXTS
        assert [compared(each) for each in setting.fake.records] == [compared(each) for each in direct.records]
        check_both_ends(setting)
        check_record(setting, requests=3, conversations=1, without_usage=without_usage)
        assert setting.proxy.close()


def needs(find: Callable[[], str]) -> str:
    try:
        return find()
    except (client_environments.Unavailable, ai_sdk_process.Unavailable) as reason:
        give_up(str(reason))
        raise


def test_boto3_sends_bearer_tokens_to_https_only(tmp_path: Path) -> None:
    """So it cannot use the proxy at all: its signatures cover the Host header."""
    command = [sys.executable, str(PROGRAMS / "boto3_program.py")]
    with tapped_proxy(tmp_path) as setting:
        done = subprocess.run(command, env=environment(setting.url, tmp_path), capture_output=True, text=True)
        assert "Bearer authorization requires an HTTPS endpoint" in done.stderr
        assert not setting.fake.records


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["anthropic", "openai_chat", "openai_responses"])
def test_langchain(tmp_path: Path, kind: str) -> None:
    python = needs(lambda: find_python(AGENTS))
    check_program(tmp_path, [python, str(PROGRAMS / "langchain_program.py"), kind])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["anthropic", "openai_chat", "openai_responses", "gemini"])
def test_pydantic_ai(tmp_path: Path, kind: str) -> None:
    python = needs(lambda: find_python(AGENTS))
    check_program(tmp_path, [python, str(PROGRAMS / "pydantic_ai_program.py"), kind])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["openai_chat", "openai_responses"])
def test_openai_agents(tmp_path: Path, kind: str) -> None:
    python = needs(lambda: find_python(AGENTS))
    command = [python, str(PROGRAMS / "openai_agents_program.py"), kind]
    check_program(tmp_path, command, without_usage=int(kind == "openai_chat"))  # it does not ask for it


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["anthropic", "openai_chat", "openai_responses"])
def test_litellm(tmp_path: Path, kind: str) -> None:
    python = needs(lambda: find_python(LITELLM))
    check_program(tmp_path, [python, str(PROGRAMS / "litellm_program.py"), kind])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["anthropic", "openai_chat", "openai_responses", "gemini", "bedrock"])
def test_ai_sdk(tmp_path: Path, kind: str) -> None:
    node = ai_sdk_process.find_node()
    folder = needs(lambda: str(ai_sdk_process.installed(node)))
    command = [str(node.folder / "node"), str(PROGRAMS / "ai_sdk_program.mjs"), folder, kind]
    check_program(tmp_path, command, ANTHROPIC_BASE_URL="{url}/v1")  # it expects the version in it


@pytest.mark.thorough
def test_ai_sdk_with_the_address_that_watch_sets(tmp_path: Path) -> None:
    """`ANTHROPIC_BASE_URL` has no version there, because the anthropic SDKs add it."""
    node = ai_sdk_process.find_node()
    folder = needs(lambda: str(ai_sdk_process.installed(node)))
    command = [str(node.folder / "node"), str(PROGRAMS / "ai_sdk_program.mjs"), folder, "anthropic"]
    with tapped_proxy(tmp_path, version="/v1") as setting:
        assert json.loads(run(command, setting.url, tmp_path).splitlines()[-1]) == TEXTS
        assert {each.path for each in setting.fake.records} == {"/v1/messages"}
        check_record(setting, requests=3, conversations=1, without_usage=0)
        assert setting.proxy.close()


@pytest.mark.thorough
def test_aider(tmp_path: Path) -> None:
    """It streams, and asks no other model without a repository."""
    python = needs(lambda: find_python(AIDER))
    options = ["--model", "openai/gpt-4.1", "--no-git", "--no-check-update", "--analytics-disable", "--yes-always",
               "--no-pretty", "--no-show-model-warnings", "--no-show-release-notes"]  # fmt: skip
    command = [python, "-m", "aider", *options, "--message", "Thank you."]
    with FakeVendors(script, strict=False) as direct:
        assert TEXTS[1] in run(command, direct.url(), tmp_path)
    for path in tmp_path.glob(".aider*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with tapped_proxy(tmp_path) as setting:
        assert TEXTS[1] in run(command, setting.url, tmp_path)
        assert [compared(each) for each in setting.fake.records] == [compared(each) for each in direct.records]
        check_both_ends(setting)
        check_record(setting, requests=1, conversations=1, without_usage=1)  # it does not ask for it
        assert setting.proxy.close()
