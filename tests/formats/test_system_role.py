"""Models that do not take a system role among the messages: it is not sent to them, and lint reports it."""

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import BedrockFormatter

OLD, NEW, IGNORES = "claude-sonnet-4-5", "claude-opus-5-5", "claude-sonnet-5"


def roles(messages: list[JSONObject]) -> list[str]:
    return [message["role"] for message in messages]


@pytest.mark.parametrize(
    ("formatter", "model", "expected"),
    [
        (cc.AnthropicFormatter(), OLD, ["user"]),
        (cc.AnthropicFormatter(), None, ["user"]),
        (cc.AnthropicFormatter(), "gpt-4o", ["user"]),
        (cc.AnthropicFormatter(), NEW, ["user", "system"]),
        (cc.AnthropicFormatter(system_between=True), OLD, ["user", "system"]),
        (BedrockFormatter(), None, ["user"]),
        (BedrockFormatter(system_between=True), None, ["user", "system"]),
    ],
)
def test_a_manager_sends_the_role_to_models_that_take_it(
    formatter: cc.formats.Formatter, model: str | None, expected: list[str]
) -> None:
    """Guarantees 10.3, 14.2. A dict in the provider's own shape says nothing about the model it is sent to."""
    manager = cc.MessageManager(formatter, "S", model=model)
    manager.add_user_message("u")
    content = "MID" if isinstance(formatter, cc.AnthropicFormatter) else [{"text": "MID"}]
    manager.add_message({"role": "system", "content": content})
    messages = manager.get_formatted_messages()
    assert roles(messages) == expected
    assert "MID" in str(messages)


@pytest.mark.parametrize("spec", [f"anthropic:{OLD}", f"bedrock:anthropic.{OLD}"])
def test_the_compiler_sends_it_as_user_text_to_other_models(spec: str) -> None:
    """Guarantee 10.3. The message was read from a request to a model that takes it."""
    store = cc.open_store("memory:")
    provider = cc.provider(spec)
    read = cc.Message(role="system", parts=(cc.Text("MID"),), extra={provider.formatter.provider: {"between": True}})
    store.extend("demo", [cc.user("u"), read])
    compiled = cc.MessageCompiler(store, provider).compile("demo")
    assert roles(compiled.params["messages"]) == ["user"]
    assert "<system-reminder>" in compiled.body.decode()
