"""Design document C's examples: a manager with an injected formatter, and the services that use it."""

from collections.abc import Sequence
from typing import Any

import contextc as cc
from contextc.formats import VercelLegacyFormatter

CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}


def ask_about_the_weather(manager: cc.MessageManager) -> None:
    """Fill a history as the document's services do, in its own spelling."""
    manager.add_user_message("How is the weather?")
    manager.add_message({"role": "assistant", "content": None, "toolCalls": [CALL]})
    manager.add_tool_result("call_1", "get_weather", {"degrees": 21})
    manager.add_assistant_message("It is 21 degrees.")


def test_the_vercel_formatter_of_the_document() -> None:
    """Design C prints this list: the prompt first, a `function_call`, and a result with the role `function`. The ids of
    calls are ours: without them, parallel calls cannot be told apart.
    """
    manager = cc.MessageManager(VercelLegacyFormatter(), "Be brief.")
    ask_about_the_weather(manager)

    system, user, asked, result, answer = manager.get_formatted_messages()

    assert system == {"role": "system", "content": "Be brief."}
    assert user == {"role": "user", "content": "How is the weather?"}
    assert (asked["role"], asked["function_call"]) == ("assistant", CALL["function"])
    assert (result["role"], result["name"], result["content"]) == ("function", "get_weather", '{"degrees":21}')
    assert answer == {"role": "assistant", "content": "It is 21 degrees."}
    assert manager.get_formatted_system_prompt() is None


def test_the_anthropic_service_of_the_document() -> None:
    """Design C: the service passes messages and system prompt to the SDK, as two arguments."""
    manager = cc.MessageManager(cc.AnthropicFormatter(), "Be brief.")
    ask_about_the_weather(manager)

    messages, prompt = manager.get_formatted_messages(), manager.get_formatted_system_prompt()

    assert prompt == "Be brief."
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    (use,) = messages[1]["content"]
    assert (use["type"], use["id"], use["input"]) == ("tool_use", "call_1", {"city": "Paris"})
    assert messages[2]["content"][0]["tool_use_id"] == "call_1"


def test_the_history_cannot_be_changed_by_a_formatter() -> None:
    """Design C: a formatter reads the history, `Readonly<InternalMessage[]>`. What it does to it is not stored."""

    class Spoils:
        def format(self, history: Sequence[cc.Message], system_prompt: str | None) -> list[Any]:
            copy = [message.text for message in history]
            if isinstance(history, list):
                history.clear()
            return copy

        def get_system_prompt(self, system_prompt: str | None) -> str | None:
            return system_prompt

    manager = cc.MessageManager(Spoils(), "Be brief.")
    manager.add_user_message("hi")

    assert [manager.get_formatted_messages() for _ in range(2)] == [["hi"], ["hi"]]
    assert [message.text for message in manager.messages] == ["hi"]
