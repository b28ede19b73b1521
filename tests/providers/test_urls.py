"""Provider data: client, URL, and the name of the key."""

import asyncio
from importlib.util import find_spec
from pathlib import Path

import pytest

import contextc as cc
from contextc.errors import InvalidSetting
from contextc.providers import ProviderCall, provider_names


def test_every_provider_that_is_listed_has_a_client() -> None:
    """Guarantee 9.11: every provider with a format can be called."""
    clients = {name: cc.provider(f"{name}:own", window=9_000).client for name in provider_names()}
    assert [each for each in clients.values() if find_spec(f"contextc.providers.{each}") is None] == []
    assert clients["openai"] == clients["openai-chat"] == clients["openrouter"] == "openai"
    assert (clients["anthropic"], clients["gemini"], clients["local"]) == ("anthropic", "gemini", "local")
    assert cc.provider("vllm:own", window=9_000).client == "openai"


def test_an_address_of_ones_own_is_reported_with_the_provider() -> None:
    """Guarantee 9.11: any compatible endpoint."""
    mine = cc.provider("mine:qwen3", url="http://127.0.0.1:9999/v1", window=32_000, key="MINE_KEY")
    assert (mine.client, mine.url, mine.key) == ("openai", "http://127.0.0.1:9999/v1", "MINE_KEY")
    router = cc.provider("openrouter:qwen/qwen3", window=32_000)
    assert router.url.startswith("https://")
    assert router.key == "OPENROUTER_API_KEY"


def test_the_key_of_one_place_is_not_given_to_another() -> None:
    """Guarantee 13.3."""
    assert cc.provider("openrouter:x", window=9_000, url="http://127.0.0.1/v1").key == ""
    spoken_otherwise = cc.provider("deepseek:deepseek-v4-flash", format="anthropic")
    assert (spoken_otherwise.client, spoken_otherwise.url, spoken_otherwise.key) == ("anthropic", "", "")


def test_what_a_request_must_state_to_be_streamed() -> None:
    """Guarantee 11.1: it is part of what is compiled, so what is rebuilt equals what was sent."""
    settings = {
        name: cc.provider(f"{name}:own", window=9_000).stream_settings
        for name in ("openai", "openai-chat", "anthropic", "gemini", "local")
    }
    assert settings == {
        "openai": {"stream": True},
        "openai-chat": {"stream": True, "stream_options": {"include_usage": True}},
        "anthropic": {"stream": True},
        "gemini": {},
        "local": {"stream": True, "stream_options": {"include_usage": True}},
    }


def test_reasoning_survives_where_no_response_is_kept() -> None:
    """Without a stored response, or where one is lost, OpenAI's reasoning goes back encrypted; it is asked for."""
    assert cc.provider("openai:gpt-6.1-terra").settings == {"store": False, "include": ["reasoning.encrypted_content"]}
    assert cc.provider("openai-session:gpt-6.1-terra").settings == {"include": ["reasoning.encrypted_content"]}
    assert cc.provider("anthropic:claude-opus-5-5").settings == {}


def test_settings_of_a_provider_are_a_copy() -> None:
    cc.provider("openai:gpt-6.1-terra").settings["include"].append("x")
    assert cc.provider("openai:gpt-6.1-terra").settings["include"] == ["reasoning.encrypted_content"]


def test_an_address_is_text() -> None:
    with pytest.raises(InvalidSetting, match="url: must be a string"):
        cc.provider("mine:own", url=9999, window=9_000)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def users_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "config" / "contextc"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder / "contextc.toml"


def test_a_provider_in_the_users_file_is_there_by_its_name(users_file: Path) -> None:
    """Guarantee 9.11. Arguments win, and the key of one place is not given to another."""
    users_file.write_text(
        '[providers.groq]\nurl = "https://groq.example/v1"\nkey = "GROQ_API_KEY"\nwindow = 16_000\nmodel = "llama-x"\n'
        '[models."small"]\nwindow = 4_000\n'
    )
    found = cc.provider("groq:own")
    assert (found.name, found.client, found.format) == ("groq", "openai", "openai_chat")
    assert (found.url, found.key, found.model.window) == ("https://groq.example/v1", "GROQ_API_KEY", 16_000)
    assert cc.provider("Groq").model_id == "llama-x"
    assert cc.provider("groq:own", window=8_000, key="OTHER_KEY").key == "OTHER_KEY"
    assert cc.provider("groq:own", window=8_000).model.window == 8_000
    assert cc.provider("groq:small").model.window == 4_000
    assert cc.provider("groq:own", url="http://127.0.0.1/v1").key == ""
    otherwise = cc.provider("groq:own", format="anthropic")
    assert (otherwise.url, otherwise.key) == ("", "")
    assert "groq" in provider_names()


def test_a_provider_that_is_known_can_be_moved(users_file: Path) -> None:
    """A proxy in front of a vendor: it gets no key that was not named for it."""
    users_file.write_text('[providers.claude]\nurl = "https://proxy.example"\n')
    found = cc.provider("anthropic:claude-opus-5-5")
    assert (found.format, found.client, found.url, found.key) == ("anthropic", "anthropic", "https://proxy.example", "")
    users_file.write_text('[providers.openrouter]\nkey = "WORK_KEY"\n')
    router = cc.provider("openrouter:own", window=9_000)
    assert (router.url, router.key) == (cc.provider("openrouter:x", window=9).url, "WORK_KEY")
    assert router.url.startswith("https://")


@pytest.mark.parametrize("key", ["sk-abc123", "sk_live_abc", "AIzaSyAbc", "two words", "9LIVES", "KEY=abc"])
def test_a_key_itself_is_refused_and_not_repeated(key: str) -> None:
    """Guarantee 13.3: what names a variable may be said and stored; a key may not."""
    with pytest.raises(InvalidSetting, match="name of the environment variable") as caught:
        cc.provider("mine:own", url="http://127.0.0.1/v1", key=key, window=9_000)
    assert key not in str(caught.value)


@pytest.mark.parametrize("text", ["colour = 1", "url = 5", 'window = "9"', "window = true", "format = false"])
def test_an_unknown_provider_field_is_refused(users_file: Path, text: str) -> None:
    """Guarantee 15.1: a misspelt fact must not be silently ignored."""
    users_file.write_text(f"[providers.groq]\n{text}\n")
    with pytest.raises(InvalidSetting, match=r"providers\.groq: \w+: unknown key"):
        cc.provider("groq:own", window=9_000)


@pytest.mark.parametrize(
    "spec", ["ollama:qwen3:8b", "openrouter:anthropic/claude-opus-5.5", "bedrock:amazon.nova-pro-v1:0"]
)
def test_a_login_in_an_address_is_not_repeated(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 13.3: neither in a connection error, nor where a provider is shown."""
    for name in ("OPENROUTER_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key-0123456789")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    provider = cc.provider(spec, url="http://bob:s3cr3tpassw0rd@127.0.0.1:9/v1")

    async def ask() -> None:
        async with cc.endpoint(provider) as line:
            async for _ in line.stream(ProviderCall(provider=provider, body=b"{}")):
                pass

    with pytest.raises(cc.errors.ProviderFailed) as failed:
        asyncio.run(ask())
    text = f"{failed.value} {failed.value.__cause__!r} {provider!r}"
    assert "s3cr3tpassw0rd" not in text
    assert "127.0.0.1:9" in str(failed.value)
