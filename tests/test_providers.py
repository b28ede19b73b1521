"""Provider data: names, session support, and formatters."""

from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import UnknownModel
from contextc.formats import format_names
from contextc.formats.anthropic import AnthropicFormatter
from contextc.formats.gemini import GeminiFormatter
from contextc.formats.openai_chat import OpenAIFormatter
from contextc.providers import provider, provider_names


@pytest.fixture(autouse=True)
def nothing_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.mark.parametrize(
    ("spec", "name", "format", "asks_for"),
    [
        ("openai:gpt-6.1-terra", "openai", "openai_responses", "gpt-6.1-terra"),
        ("openai-chat:gpt-4.1", "openai-chat", "openai_chat", "gpt-4.1"),
        ("openai_chat:gpt-4.1", "openai-chat", "openai_chat", "gpt-4.1"),
        ("openai-session:gpt-6.1-sol", "openai-session", "openai_responses", "gpt-6.1-sol"),
        ("anthropic:claude-opus-4-5-20251101", "anthropic", "anthropic", "claude-opus-4-5-20251101"),
        ("Anthropic: claude-opus-5-5", "anthropic", "anthropic", "claude-opus-5-5"),
        ("gemini:gemini-3.6-flash", "gemini", "gemini", "gemini-3.6-flash"),
        ("google:models/gemini-2.5-pro", "gemini", "gemini", "models/gemini-2.5-pro"),
        (
            "openrouter:anthropic/claude-3.7-sonnet:thinking",
            "openrouter",
            "openai_chat",
            "anthropic/claude-3.7-sonnet:thinking",
        ),
        ("vercel:anthropic/claude-opus-5.5", "vercel-gateway", "openai_chat", "anthropic/claude-opus-5.5"),
        ("groq:llama-3.3-70b-versatile", "groq", "openai_chat", "llama-3.3-70b-versatile"),
        ("my_vllm:gpt-oss:20b", "my-vllm", "openai_chat", "gpt-oss:20b"),
        ("claude-opus-5-5", "anthropic", "anthropic", "claude-opus-5-5"),
        ("gpt-6.1-terra", "openai", "openai_responses", "gpt-6.1-terra"),
        ("gemini-3-pro-preview", "gemini", "gemini", "gemini-3-pro-preview"),
        ("deepseek-v4-flash", "deepseek", "openai_chat", "deepseek-v4-flash"),
        ("local", "local", "openai_chat", "SmolLM2-135M-Instruct"),
    ],
)
def test_a_provider_is_found_by_its_name_or_its_model(spec: str, name: str, format: str, asks_for: str) -> None:
    """Guarantee 9.11: OpenAI by Responses unless chat is requested; an unknown one uses OpenAI's chat format."""
    found = provider(spec)
    assert (found.name, found.format, found.model_id) == (name, format, asks_for)
    assert found.formatter.name == format


def test_an_endpoint_of_ones_own_may_have_a_model_that_is_known_by_a_path() -> None:
    """Guarantee 9.11: the provider precedes the colon, unless the text after it is not a model by itself."""
    own = cc.provider("someone:anthropic/claude-opus-5.5", url="http://127.0.0.1:1/v1")
    assert (own.name, own.format, own.url, own.key) == ("someone", "openai_chat", "http://127.0.0.1:1/v1", "")
    assert (own.model_id, own.model.name) == ("anthropic/claude-opus-5.5", "claude-opus-5-5")
    with pytest.raises(cc.errors.InvalidSetting, match=r'Prefix it with a provider: "…:gpt-oss:20b"'):
        provider("gpt-oss:20b", url="http://127.0.0.1:1/v1")


def test_every_provider_that_is_listed_can_be_called() -> None:
    assert {"openai", "openai-chat", "openai-session", "anthropic", "gemini", "openrouter"} <= set(provider_names())
    for name in provider_names():
        found = provider(f"{name}:own", window=32_000)
        assert found.formatter.encode_request(found.formatter.decode_request([]))
    assert ("claude-code" in provider_names()) is ("claude_code" in format_names())


def test_most_providers_remember_nothing() -> None:
    """Guarantee 9.11: an unknown one is stateless."""
    stateful = {name for name in provider_names() if provider(f"{name}:own", window=9_000).session_resumption}
    assert stateful <= {"openai-session", "openai-conversation", "claude-code", "codex"}
    assert not provider("acme:own", window=9_000).session_resumption


def test_a_response_is_continued_with_its_head_sent_again() -> None:
    """Guarantee 9.11: `previous_response_id` carries over neither instructions nor tools."""
    session = provider("openai-session:gpt-6.1-terra")
    assert session.session_resumption
    assert session.resends_head
    assert session.system_in_session
    assert session.reverts
    assert not session.directory_bound
    assert not session.keeps_static


def test_a_conversation_of_openais_cannot_be_brought_back() -> None:
    """Guarantee 9.8: nothing is taken out of it, so after a failure a new one begins."""
    session, conversation = provider("openai-session:gpt-5"), provider("openai-conversation:gpt-5")
    assert (session.session_field, conversation.session_field) == ("previous_response_id", "conversation")
    assert conversation.session_resumption
    assert conversation.resends_head
    assert not conversation.reverts
    assert all("store" not in each.settings for each in (session, conversation))


@pytest.mark.parametrize(("spec", "bound"), [("claude-code:claude-opus-5-5", True), ("codex:gpt-6.1-sol", False)])
def test_the_coding_agents_keep_sessions_of_their_own(spec: str, bound: bool) -> None:
    """Guarantees 9.5 and 9.8: the facts are those that hold for them."""
    agent = provider(spec)
    assert agent.runs_tools
    assert agent.session_resumption
    assert agent.directory_bound is bound
    assert agent.reverts
    assert agent.keeps_static
    assert agent.compacts_itself
    assert not agent.resends_head


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_program_may_choose_its_model_by_itself(name: str) -> None:
    """Guarantee 9.11: named alone, it is asked for the model that it is set to; what was said of it wins."""
    agent = provider(name)
    assert agent.model_id == "default"
    assert agent.model.window >= 200_000
    assert provider(name, window=50_000).model.window == 50_000


def test_reasoning_is_requested_from_reasoning_models() -> None:
    """Others refuse to be asked."""
    assert provider("openai:gpt-5.4").settings == {"store": False, "include": ["reasoning.encrypted_content"]}
    assert provider("openai:gpt-4.1").settings == {"store": False}


def test_the_formatter_follows_from_the_models_facts() -> None:
    """Guarantees 2.4 and 9.3: no code checks the provider's name; the options come from the tables."""
    opus, sonnet = provider("anthropic:claude-opus-5-5").formatter, provider("anthropic:claude-sonnet-5").formatter
    assert isinstance(opus, AnthropicFormatter)
    assert isinstance(sonnet, AnthropicFormatter)
    assert (opus.system_between, sonnet.system_between) == (True, False)
    forced = provider("anthropic:claude-opus-5-5", system_between=False).formatter
    assert isinstance(forced, AnthropicFormatter)
    assert not forced.system_between
    gemini = provider("gemini:gemini-3.6-flash").formatter
    assert isinstance(gemini, GeminiFormatter)
    assert (gemini.provider, gemini.model) == ("google", "gemini-3.6-flash")
    deep = provider("deepseek:deepseek-v4-pro").formatter
    assert isinstance(deep, OpenAIFormatter)
    assert (deep.provider, deep.reasoning_field) == ("deepseek", "reasoning_content")


def test_reasoning_is_sent_back_to_its_vendor_only() -> None:
    """Guarantee 2.4: with a session or without, OpenAI's reasoning is OpenAI's; in another format it has no place."""
    assert (
        provider("openai:gpt-5").formatter.provider == provider("openai-session:gpt-5").formatter.provider == "openai"
    )
    assert provider("openrouter:openai/gpt-5").formatter.provider == "openrouter"
    assert provider("acme:gpt-5").formatter.provider == "acme"
    assert provider("acme:claude-opus-5-5", format="anthropic").formatter.provider == "acme_anthropic"
    assert provider("anthropic:claude-opus-5-5", format="openai_chat").formatter.provider == "anthropic_openai_chat"


def test_providers_are_values_and_equal_ones_share_a_formatter() -> None:
    """Guarantee 9.1: a channel is named by its provider and model, among others."""
    one, same = provider("claude-opus-5-5"), provider("anthropic:claude-opus-5-5")
    assert one == same
    assert hash(one) == hash(same)
    assert one.formatter is same.formatter
    assert one != provider("anthropic:claude-opus-5-5", window=200_000)


def test_facts_of_both_are_given_by_name() -> None:
    own = provider("acme:own", window=32_000, output=2_000, media=["image"], session_resumption=True)
    assert (own.model.window, own.model.output, own.model.media) == (32_000, 2_000, ("image",))
    assert own.session_resumption


@pytest.mark.parametrize(
    ("spec", "facts", "expected"),
    [
        ("", {}, 'Write it as "anthropic:claude-opus-5-5"'),
        (":claude-opus-5-5", {}, "the provider is missing"),
        ("acme:", {}, "the model is missing"),
        ("anthropic", {}, 'Write "anthropic:", then the model'),
        ("anthropic:", {}, "the model is missing"),
        ("gpt-oss:20b", {}, r'no default provider, .* Prefix it with a provider: "…:gpt-oss:20b"'),
        ("anthropic/claude-sonnet-4.5", {}, "no default provider"),
        ("us.anthropic.claude-opus-5-5-v1:0", {}, "no default provider"),
        ("own", {"window": 9_000}, "no default provider"),
        (
            "claude-opus-5-5",
            {"colour": "red"},
            "colour: unknown field of a provider or a model. Expected one of: format, ",
        ),
        ("claude-opus-5-5", {"reverts": "yes"}, "must be True or False"),
        ("claude-opus-5-5", {"window": -1}, "window"),
        ("claude-opus-5-5", {"format": "smoke"}, r"format 'smoke' not found, expected one of anthropic, "),
    ],
)
def test_what_names_no_provider_states_the_fix(spec: str, facts: JSONObject, expected: str) -> None:
    """Guarantee 15.1."""
    with pytest.raises(cc.errors.InvalidSetting, match=expected):
        provider(spec, **facts)


def test_an_unknown_provider_is_named_before_the_window_of_its_model() -> None:
    """A misspelt provider must not cause a question about the window."""
    with pytest.raises(UnknownModel, match=r"Provider 'acme' not found\. Known providers: openai, .*window=128_000"):
        provider("acme:own")
    with (
        cc.open_store("memory:") as store,
        pytest.raises(UnknownModel, match="Provider 'acme' not found"),
    ):
        cc.AgentExecutor(store, "acme:own", triggers=())
    endpoints: list[JSONObject] = [{"format": "openai_chat"}, {"url": "http://127.0.0.1:1/v1"}]
    for known in endpoints:
        with pytest.raises(UnknownModel, match=r'cc\.provider\("…:own", window=128_000, output=8_000\)'):
            provider("acme:own", **known)
    assert provider("acme:own", window=9_000).model.output == 2_250


def test_a_provider_whose_format_is_to_come_is_reported() -> None:
    for name in ("mistral", "ollama", "bedrock", "claude-code", "codex"):
        if name not in provider_names():
            with pytest.raises(cc.errors.InvalidSetting, match=r"format .* not found"):
                provider(f"{name}:own", window=9_000)
        assert provider(f"{name}:own", window=9_000, format="openai_chat").format == "openai_chat"


OPEN = [
    ("qwen3:8b", True),
    ("qwen3:30b-a3b-instruct-2507-q4_K_M", False),
    ("gpt-oss:120b-cloud", True),
    ("deepseek-r1:7b", True),
    ("deepseek-v3.1:671b-cloud", True),
    ("magistral:24b", True),
    ("llama3.1:8b", False),
    ("mistral-nemo", False),
]


@pytest.mark.parametrize(("tag", "thinks"), OPEN)
def test_a_server_of_open_weights_is_asked_to_think_only_by_models_that_do(tag: str, thinks: bool) -> None:
    """It refuses `think` for the others."""
    assert ("think" in cc.provider(f"ollama:{tag}").settings) is thinks


@pytest.mark.parametrize(
    "tag", ["mistral-small", "mistral-small:24b", "mistral-large", "codestral", "devstral", "qwen3-max"]
)
def test_a_tag_does_not_take_the_facts_of_a_hosted_model_of_its_name(tag: str) -> None:
    """Guarantee 7.1: a wrong window is worse than none; and unknown settings are not requested."""
    assert cc.model(tag).window > 200_000
    with pytest.raises(UnknownModel, match="window="):
        cc.provider(f"ollama:{tag}")
    with pytest.raises(UnknownModel, match="window="):
        cc.provider(f"mine:{tag}", format="ollama")
    own = cc.provider(f"ollama:{tag}", window=32_768)
    assert (own.model.window, own.model.reasoning, own.model.media, own.model.price) == (32_768, False, (), None)
    assert own.model.vendor == cc.model(tag).vendor
    assert "think" not in own.settings
    assert cc.provider(f"ollama:{tag}", window=32_768, reasoning=True).settings["think"] is True
