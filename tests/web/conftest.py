"""Fixtures of the server tests: an app state, an in-process client, and a real server on loopback.

`options` says how the server is wanted; a module that wants another has a fixture of that name. The model of a test is
a recording: `recorded(path, says("hi"))` of `tests.cli.chat_terminal` is what `model` takes.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import contextc as cc
from contextc.web import server as serving
from contextc.web.app_state import AppState, ServerOptions
from contextc.web.application import create_application
from contextc.web.server import listen
from tests.conftest import give_up
from tests.sdk_comparison.ai_sdk_process import Unavailable
from tests.web.clients.client_process import ClientProcess
from tests.web.clients.client_process import running as judging
from tests.web.fast_polling import poll_fast

PATIENCE = 120.0
poll_fast()


class Answer(Protocol):
    """What came back, from whichever client."""

    @property
    def status_code(self) -> int: ...

    @property
    def text(self) -> str: ...

    def json(self) -> Any: ...  # JSON of any kind


class Served(NamedTuple):
    """A running server: its URL, its state, and the address of its store."""

    url: str
    desk: AppState
    address: str
    end: Callable[[], None]
    """Tell it to stop, as a signal does."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home directory without settings."""
    for name in [name for name in os.environ if name.startswith(("CONTEXTC_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    return ServerOptions(root=tmp_path, model="replay:none.jsonl")


@pytest.fixture
def store() -> Iterator[cc.Store]:
    """A store in memory: what differs between stores is tested where they are."""
    with cc.open_store("memory:") as handle:
        yield handle


@pytest.fixture
def client(store: cc.Store, options: ServerOptions) -> Iterator[TestClient]:
    """Asks the application as a browser on this machine would, without a network."""
    with TestClient(
        create_application(store, options), base_url="http://127.0.0.1:8377", raise_server_exceptions=False
    ) as asking:
        yield asking


@pytest.fixture
def desk(client: TestClient) -> AppState:
    """What the application of `client` works with."""
    return cast(AppState, cast(Starlette, client.app).state.app_state)


@pytest.fixture
def server(tmp_path: Path, options: ServerOptions) -> Iterator[Served]:
    """A real server, with a store in a file."""
    address = f"sqlite:///{tmp_path}/served.db"
    with cc.open_store(address) as store:
        app, listening = create_application(store, options), listen("127.0.0.1", 0)
        port, running = listening.getsockname()[1], serving.create_server(app)
        thread = threading.Thread(target=running.run, args=([listening],), name="server")
        thread.start()
        try:
            deadline = time.monotonic() + PATIENCE
            while not running.started and thread.is_alive() and time.monotonic() < deadline:
                time.sleep(0.001)
            assert running.started, "the server did not start"
            yield Served(f"http://127.0.0.1:{port}", running.app_state, address, lambda: running.handle_exit(15, None))
        finally:
            running.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the server did not end"


@pytest.fixture(scope="session")
def judge() -> Iterator[ClientProcess]:
    """The clients' own libraries."""
    try:
        with judging() as found:
            yield found
    except Unavailable as reason:
        give_up(f"The clients' libraries cannot be asked: {reason}.")
