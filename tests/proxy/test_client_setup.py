"""Variables and options that point a program at the proxy (Guarantee 16.15)."""

from pathlib import Path

import pytest

from contextc.proxy.client_setup import ClientSetup, ProxyAddresses, find_set_upstreams, set_up_client
from contextc.proxy.spool import find_spool_folder
from contextc.proxy.upstreams import load_upstreams

PROXY = "http://127.0.0.1:4000/t/secret"
LISTED = "http://127.0.0.1:4000/u"


def set_up(command: list[str], **environment: str) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """Return the changed variables, the command, and the URLs of the upstreams that were set."""
    setup, upstreams = set_up_in(Path("/"), command, environment)
    return setup.changed, setup.command, upstreams


def set_up_in(
    folder: Path, command: list[str], environment: dict[str, str], *given: str
) -> tuple[ClientSetup, dict[str, str]]:
    """Return the setup of a program in a folder, and the URLs of the upstreams that were set."""
    known = load_upstreams(given)
    already = find_set_upstreams(environment, known)
    upstreams = {**known, **{each.name: each for each in already.values()}}
    setup = set_up_client(command, environment, ProxyAddresses(PROXY, LISTED), upstreams, already, folder=folder)
    assert setup.environment == {**environment, **setup.changed}
    return setup, {each.name: each.url for each in already.values()}


def test_variables_of_all_clients_are_set() -> None:
    changed, command, _ = set_up(["agent", "--flag"])
    assert changed == {
        "ANTHROPIC_BASE_URL": f"{PROXY}/anthropic",
        "OPENAI_BASE_URL": f"{PROXY}/openai/v1",
        "OPENAI_API_BASE": f"{PROXY}/openai/v1",
        "GOOGLE_GEMINI_BASE_URL": f"{PROXY}/gemini",
        "GEMINI_API_BASE": f"{PROXY}/gemini",
        "OPENROUTER_API_BASE": f"{PROXY}/openrouter/api/v1",
        "MISTRAL_API_BASE": f"{PROXY}/mistral/v1",
        "OLLAMA_API_BASE": f"{PROXY}/ollama",
        "OLLAMA_HOST": f"{PROXY}/ollama",
        "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL": "1",
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
        "anthropic-2": "https://gateway.example/llm",
        "openai-2": "https://one.example/v1",
        "openai-3": "https://two.example/v1",
        "azure": "https://mine.openai.azure.com",
        "ollama-2": "http://10.0.0.5:11434",
    }
    assert changed["ANTHROPIC_BASE_URL"] == f"{PROXY}/anthropic-2"
    assert changed["OPENAI_BASE_URL"] == f"{PROXY}/openai-2"
    assert changed["OPENAI_API_BASE"] == f"{PROXY}/openai-3"
    assert changed["AZURE_OPENAI_ENDPOINT"] == f"{PROXY}/azure"
    assert changed["OLLAMA_API_BASE"] == f"{PROXY}/ollama", "litellm does not read OLLAMA_HOST"


@pytest.mark.parametrize(
    ("name", "other"), [("OPENAI_BASE_URL", "OPENAI_API_BASE"), ("OPENAI_API_BASE", "OPENAI_BASE_URL")]
)
def test_a_variable_that_some_programs_prefer_is_not_set_beside_one_that_is(name: str, other: str) -> None:
    """Such a program would call another server than without the proxy."""
    changed, _, _ = set_up(["agent"], **{name: "http://10.0.0.5:8000/v1"})
    assert changed[name] == f"{PROXY}/openai-2"
    assert other not in changed


@pytest.mark.parametrize(
    ("environment", "given", "is_set"),
    [
        ({}, (), True),
        ({"ANTHROPIC_BASE_URL": "https://api.anthropic.com"}, (), True),
        ({"ANTHROPIC_BASE_URL": "https://gateway.example"}, (), False),
        ({}, ("anthropic=https://gateway.example",), False),
        ({"_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL": "0"}, (), False),
    ],
)
def test_claude_code_behaves_as_at_the_vendors_own_address(
    environment: dict[str, str], given: tuple[str, ...], is_set: bool
) -> None:
    """Behind another address it sends other requests. So it would without the proxy if the user set one."""
    setup, _ = set_up_in(Path("/"), ["claude"], environment, *given)
    assert ("_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL" in setup.changed) == is_set


def test_a_server_keeps_the_address_that_it_listens_on() -> None:
    changed, _, _ = set_up(["/usr/bin/ollama", "serve"], OLLAMA_HOST="0.0.0.0:11434")
    assert "OLLAMA_HOST" not in changed


def test_the_proxy_is_reached_without_the_proxy_of_the_environment() -> None:
    """Also where only HTTPS_PROXY is set: Claude Code uses it for all addresses."""
    for name in ("http_proxy", "HTTPS_PROXY"):
        changed, _, _ = set_up(["agent"], **{name: "http://corporate:3128", "NO_PROXY": "internal.example,localhost"})
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
    assert command == [str(program), "-c", f'openai_base_url="{LISTED}/{url}"', "exec", "hello"]
    assert "secret" not in " ".join(command), "every user of the machine can list arguments"
    _, command, _ = set_up([str(program), "exec", "hello"], CODEX_API_KEY="sk-1")
    assert command[2] == f'openai_base_url="{LISTED}/openai/v1"', "`codex exec` prefers that key to its login"


def test_gemini_cli_is_not_made_to_choose_another_way_to_log_in(tmp_path: Path) -> None:
    """Behind a base URL it would, and would then refuse it, unless the user has chosen one."""
    setup, _ = set_up_in(tmp_path, ["gemini"], {"GEMINI_API_KEY": "k"})
    assert "GOOGLE_GEMINI_BASE_URL" not in setup.changed
    assert "/auth" in setup.unrecorded[0]
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "settings.json").write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
    setup, _ = set_up_in(tmp_path, ["gemini"], {"GEMINI_API_KEY": "k"})
    assert setup.changed["GOOGLE_GEMINI_BASE_URL"] == f"{PROXY}/gemini"
    assert not setup.unrecorded


def test_codex_is_not_led_to_an_address_that_it_does_not_read() -> None:
    """It ignores `OPENAI_BASE_URL`. Programs that it starts do not."""
    changed, command, upstreams = set_up(["codex", "exec"], OPENAI_BASE_URL="https://other.example/v1")
    assert command[2] == f'openai_base_url="{LISTED}/openai/v1"'
    assert (changed["OPENAI_BASE_URL"], upstreams) == (f"{PROXY}/openai-2", {"openai-2": "https://other.example/v1"})


@pytest.mark.parametrize(
    ("program", "file", "text", "variable"),
    [
        ("agent", ".env", "A=1\nexport OPENAI_BASE_URL = http://10.0.0.5/v1\n", "OPENAI_BASE_URL"),
        ("agent", ".env", "OPENAI_API_BASE=http://10.0.0.5/v1\n", "OPENAI_BASE_URL"),
        ("gemini", ".gemini/.env", "GOOGLE_GEMINI_BASE_URL=http://10.0.0.5\n", "GOOGLE_GEMINI_BASE_URL"),
        ("qwen", ".qwen/settings.json", '{"security": {"auth": {"baseUrl": "http://10.0.0.5/v1"}}}', "OPENAI_BASE_URL"),
        ("claude", ".claude/settings.json", '{"env": {"ANTHROPIC_BASE_URL": "http://10.0.0.5"}}', "ANTHROPIC_BASE_URL"),
    ],
)
def test_an_address_in_a_file_of_the_program_stays_in_force(
    tmp_path: Path, program: str, file: str, text: str, variable: str
) -> None:
    """Most programs prefer the environment, so a variable would replace it. The reason is given to the user."""
    work = tmp_path / "project" / "below"
    work.mkdir(parents=True)
    (tmp_path / "project" / file).parent.mkdir(exist_ok=True)
    (tmp_path / "project" / file).write_text(text)
    setup, _ = set_up_in(work, [program], {})
    assert variable not in setup.changed
    assert any([reason.startswith(f"{tmp_path / 'project' / file} sets ") for reason in setup.unrecorded])
    setup, _ = set_up_in(work, [program], {variable: "http://10.0.0.6"})
    assert variable in setup.changed


def test_what_a_comment_or_another_program_names_is_not_in_force(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# OPENAI_BASE_URL=http://10.0.0.5\nMY_OPENAI_BASE_URL=http://10.0.0.5\n")
    (tmp_path / ".qwen").mkdir()
    (tmp_path / ".qwen" / ".env").write_text("OPENAI_BASE_URL=http://10.0.0.5\n")
    setup, _ = set_up_in(tmp_path, ["agent"], {})
    assert (setup.changed["OPENAI_BASE_URL"], setup.unrecorded) == (f"{PROXY}/openai/v1", [])


@pytest.mark.parametrize("file", ["home/.codex/config.toml", "own/config.toml", "own/work.config.toml"])
def test_an_address_in_the_config_of_codex_stays_in_force(tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text('openai_base_url = "https://gateway.example/v1"\n')
    environment = {"HOME": str(tmp_path / "home"), "CODEX_HOME": str(tmp_path / "own")}
    setup, _ = set_up_in(tmp_path, ["codex", "exec"], environment)
    assert setup.command == ["codex", "exec"]
    assert str(path) in setup.unrecorded[0]


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
