"""Variables and options that point a program at the proxy (Guarantee 16.15)."""

from pathlib import Path

import pytest

from contextc.proxy.client_setup import find_set_upstreams, set_up_client
from contextc.proxy.spool_folder import find_spool_folder
from contextc.proxy.upstreams import load_upstreams

PROXY = "http://127.0.0.1:4000"


def set_up(command: list[str], **environment: str) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """Return the changed variables, the command, and the URLs of the upstreams that were set."""
    known = load_upstreams()
    already = find_set_upstreams(environment, known)
    setup = set_up_client(
        command, environment, PROXY, {**known, **{each.name: each for each in already.values()}}, already
    )
    assert setup.environment == {**environment, **setup.changed}
    return setup.changed, setup.command, {each.name: each.url for each in already.values()}


def test_variables_of_all_clients_are_set() -> None:
    changed, command, _ = set_up(["agent", "--flag"])
    assert changed == {
        "ANTHROPIC_BASE_URL": f"{PROXY}/anthropic",
        "OPENAI_BASE_URL": f"{PROXY}/openai/v1",
        "OPENAI_API_BASE": f"{PROXY}/openai/v1",
        "GOOGLE_GEMINI_BASE_URL": f"{PROXY}/gemini",
        "OLLAMA_HOST": f"{PROXY}/ollama",
        "ENABLE_TOOL_SEARCH": "true",
    }
    assert command == ["agent", "--flag"]


def test_an_address_that_was_set_becomes_the_upstream() -> None:
    changed, _, upstreams = set_up(
        ["agent"],
        ANTHROPIC_BASE_URL="https://gateway.example/llm/",
        OPENAI_BASE_URL="https://one.example/v1",
        OPENAI_API_BASE="https://two.example/v1",
        AZURE_OPENAI_ENDPOINT="https://mine.openai.azure.com",
        OLLAMA_HOST="10.0.0.5:11434",
    )
    assert upstreams == {
        "anthropic": "https://gateway.example/llm",
        "openai": "https://one.example/v1",
        "openai-2": "https://two.example/v1",
        "azure": "https://mine.openai.azure.com",
        "ollama": "http://10.0.0.5:11434",
    }
    assert changed["ANTHROPIC_BASE_URL"] == f"{PROXY}/anthropic"
    assert changed["OPENAI_BASE_URL"] == f"{PROXY}/openai"
    assert changed["OPENAI_API_BASE"] == f"{PROXY}/openai-2"
    assert changed["AZURE_OPENAI_ENDPOINT"] == f"{PROXY}/azure"


@pytest.mark.parametrize("name", ["ENABLE_TOOL_SEARCH", "ANTHROPIC_BASE_URL"])
def test_tool_search_is_left_as_it_was(name: str) -> None:
    """Behind an own base URL, the program would have turned it off without the proxy as well."""
    changed, _, _ = set_up(["claude"], **{name: "http://x.example"})
    assert "ENABLE_TOOL_SEARCH" not in changed


def test_a_server_keeps_the_address_that_it_listens_on() -> None:
    changed, _, _ = set_up(["/usr/bin/ollama", "serve"], OLLAMA_HOST="0.0.0.0:11434")
    assert "OLLAMA_HOST" not in changed


def test_the_proxy_is_reached_without_the_proxy_of_the_environment() -> None:
    changed, _, _ = set_up(["agent"], http_proxy="http://corporate:3128", NO_PROXY="internal.example,localhost")
    assert changed["NO_PROXY"] == "internal.example,localhost,127.0.0.1"
    assert changed["no_proxy"] == "127.0.0.1,localhost"


@pytest.mark.parametrize(
    ("status", "url"),
    [("Logged in using ChatGPT", "chatgpt/backend-api/codex"), ("Logged in using an API key", "openai/v1")],
)
def test_codex_gets_an_option_for_its_login(tmp_path: Path, status: str, url: str) -> None:
    program = tmp_path / "codex"
    program.write_text(f'#!/bin/sh\n[ "$*" = "login status" ] && echo "{status}" >&2\n')
    program.chmod(0o755)
    _, command, _ = set_up([str(program), "exec", "hello"])
    assert command == [str(program), "-c", f'openai_base_url="{PROXY}/{url}"', "exec", "hello"]


def test_each_store_has_a_spool_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is another store in another folder. With redaction, the spool is in memory where possible."""
    environment = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    monkeypatch.chdir(tmp_path)
    here = find_spool_folder("sqlite:///chat.db", environment=environment)
    assert here == find_spool_folder(f"sqlite:///{tmp_path}/chat.db", environment=environment)
    (tmp_path / "runtime").mkdir()
    monkeypatch.chdir(tmp_path / "runtime")
    assert here != find_spool_folder("sqlite:///chat.db", environment=environment)
    secret = find_spool_folder("sqlite:///chat.db", in_memory=True, environment=environment)
    assert secret.is_relative_to(tmp_path / "runtime")
    assert find_spool_folder("postgresql:///x", in_memory=True, environment={"HOME": "/h"}).is_relative_to("/h")
