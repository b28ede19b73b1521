"""Discovery of CLI agents, and the error if the user is not logged in."""

import asyncio
from pathlib import Path

import pytest

import contextc as cc
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.providers import ProviderCall, endpoint
from contextc.providers.availability import known_cli_agents, with_login_fix
from contextc.providers.codex.app_server import OPENAI_URL, LaunchConfig


@pytest.mark.parametrize("client", known_cli_agents())
def test_a_program_is_found_by_the_names_of_its_files(client: str, tmp_path: Path) -> None:
    program = known_cli_agents()[client]
    assert cc.provider(program.provider).client == client
    assert Path(program.path).is_file()
    assert program.version[0].isdecimal()
    assert program.login_command().endswith(f" {program.log_in}")


def test_the_way_to_log_in_is_reported_where_that_would_help() -> None:
    """Guarantee 15.1: not where a key is named, and for no other kind of failure."""
    denied = ProviderFailed("codex", "auth", "who are you?", status=401)
    result = str(with_login_fix(denied, cc.provider("codex")))
    assert ("status 401" in result, known_cli_agents()["codex"].login_command() in result) == (True, True)
    assert with_login_fix(denied, cc.provider("codex", key="SOME_KEY")) is denied
    other = ProviderFailed("codex", "transient", "later")
    assert with_login_fix(other, cc.provider("codex")) is other


def test_codex_reports_at_once_that_a_login_is_missing(tmp_path: Path) -> None:
    """Guarantee 15.1: its API is not asked at all."""

    async def work() -> None:
        env = {"HOME": str(tmp_path), "CODEX_HOME": str(tmp_path), "HTTPS_PROXY": "http://127.0.0.1:1"}
        provider = cc.provider("codex")
        async with endpoint(provider, env=env) as line:
            async for _ in line.stream(ProviderCall(provider=provider, body=b'{"items": []}')):
                pass

    with pytest.raises(ProviderFailed, match="not logged in") as failed:
        asyncio.run(asyncio.wait_for(work(), 60))
    assert failed.value.kind == "auth"


def test_a_key_for_codex_without_an_address_is_for_openais_api() -> None:
    """Codex by itself takes no key from the environment."""
    launch = LaunchConfig.for_provider(cc.provider("codex", key="SOME_KEY"), {"SOME_KEY": "k"}, program="codex")
    assert f'model_providers.contextc.base_url="{OPENAI_URL}"' in launch.command
    assert 'model_providers.contextc.env_key="SOME_KEY"' in launch.command
    assert "model_provider" not in " ".join(
        LaunchConfig.for_provider(cc.provider("codex"), {}, program="codex").command
    )


def test_a_url_without_a_key_is_reported() -> None:
    denied = ProviderFailed("claude-code", "auth", "Invalid API key")
    result = str(with_login_fix(denied, cc.provider("claude-code", url="http://127.0.0.1:9")))
    assert "Name the environment variable with the key for this URL" in result


@pytest.mark.parametrize("name", ["claude-code", "codex"])
@pytest.mark.parametrize("env", [{"A": 1}, {1: "a"}, ["A"]], ids=repr)
def test_an_environment_is_names_and_texts(name: str, env: object) -> None:
    with pytest.raises(InvalidSetting, match="env: must be a dict of strings"):
        cc.endpoint(name, env=env)


def test_an_unknown_option_is_refused_with_a_message() -> None:
    with pytest.raises(InvalidSetting, match="endpoint of codex: unknown option 'enviroment'"):
        cc.endpoint("codex", enviroment={})


def test_a_program_is_named_almost_right() -> None:
    with pytest.raises(InvalidSetting, match="Did you mean 'claude-code'"):
        cc.provider("claudecode")


def test_short_names_of_models_are_the_programs_own() -> None:
    """Claude Code knows what `sonnet` is; we need its window only."""
    named = cc.provider("claude-code:sonnet")
    assert (named.model_id, named.model.window) == ("sonnet", 200_000)
