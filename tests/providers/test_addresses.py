"""How a provider is called, as data: which client, where, and the name of its key."""

import pytest

import contextc as cc
from contextc.errors import InvalidSetting
from contextc.providers import provider_names


def test_every_provider_that_is_listed_has_a_client() -> None:
    """SPEC 9.11: whoever can be written to can be called."""
    clients = {name: cc.provider(f"{name}:own", window=9_000).client for name in provider_names()}
    assert set(clients.values()) <= {"openai", "anthropic", "gemini", "local", "replay", "claude_code", "codex"}
    assert clients["openai"] == clients["openai-chat"] == clients["openrouter"] == "openai"
    assert (clients["anthropic"], clients["gemini"], clients["local"]) == ("anthropic", "gemini", "local")
    assert cc.provider("vllm:own", window=9_000).client == "openai"


def test_an_address_of_ones_own_is_told_with_the_provider() -> None:
    """SPEC 9.11: any compatible endpoint."""
    mine = cc.provider("mine:qwen3", url="http://127.0.0.1:9999/v1", window=32_000, key="MINE_KEY")
    assert (mine.client, mine.url, mine.key) == ("openai", "http://127.0.0.1:9999/v1", "MINE_KEY")
    router = cc.provider("openrouter:qwen/qwen3", window=32_000)
    assert router.url.startswith("https://")
    assert router.key == "OPENROUTER_API_KEY"


def test_the_key_of_one_place_is_not_given_to_another() -> None:
    """SPEC 13.3."""
    assert cc.provider("openrouter:x", window=9_000, url="http://127.0.0.1/v1").key == ""
    spoken_otherwise = cc.provider("deepseek:deepseek-v4-flash", format="anthropic")
    assert (spoken_otherwise.client, spoken_otherwise.url, spoken_otherwise.key) == ("anthropic", "", "")


def test_what_a_request_must_say_to_be_streamed() -> None:
    """SPEC 11.1: it is part of what is compiled, so what is rebuilt equals what was sent."""
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
    """Without a stored response, OpenAI's reasoning goes back encrypted, and must be asked for."""
    assert cc.provider("openai:gpt-6.1-terra").settings == {"store": False, "include": ["reasoning.encrypted_content"]}
    assert cc.provider("openai-session:gpt-6.1-terra").settings == {}
    assert cc.provider("anthropic:claude-opus-5-5").settings == {}


def test_settings_of_a_provider_are_a_copy() -> None:
    cc.provider("openai:gpt-6.1-terra").settings["include"].append("x")
    assert cc.provider("openai:gpt-6.1-terra").settings["include"] == ["reasoning.encrypted_content"]


def test_an_address_is_text() -> None:
    with pytest.raises(InvalidSetting, match="url is text"):
        cc.provider("mine:own", url=9999, window=9_000)
