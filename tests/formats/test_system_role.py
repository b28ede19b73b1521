"""Models that do not take a system role among the messages: it is not sent to them, and lint reports it."""

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import BedrockFormatter

OLD, NEW, IGNORES = "claude-sonnet-4-5", "claude-opus-5-5", "claude-sonnet-5"
READ: JSONObject = {"role": "system", "content": "MID"}


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


def test_a_formatter_without_a_model_keeps_the_role_that_it_read() -> None:
    """Guarantee 10.5. A request that is read and written again stays as it was."""
    body: JSONObject = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "u"}, READ]}
    formatter = cc.AnthropicFormatter()
    assert roles(formatter.encode_request(formatter.decode_request(body))["messages"]) == ["user", "system"]


def test_lint_and_fix_know_the_models_that_refuse_it() -> None:
    """Guarantee 10.6. A model that ignores the role accepts the request."""
    for model, expected in ((OLD, ["ANT027"]), (NEW, []), (IGNORES, []), ("unknown", [])):
        messages: list[JSONObject] = [{"role": "user", "content": "u"}, READ]
        body: JSONObject = {"model": model, "max_tokens": 9, "messages": messages}
        assert [each.code for each in cc.lint(body, format="anthropic")] == expected, model
        fixed, _ = cc.fix(body, format="anthropic")
        assert roles(fixed["messages"]) == (["user"] if expected else ["user", "system"])
        assert cc.lint(fixed, format="anthropic") == []
        assert "MID" in str(fixed)
