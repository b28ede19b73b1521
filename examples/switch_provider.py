"""One conversation, two providers: it begins with Anthropic and goes on with OpenAI, which knows all that was said.

    pip install 'contextc[anthropic,openai]'
    ANTHROPIC_API_KEY=… OPENAI_API_KEY=… python examples/switch_provider.py "How is Paris?" "And Cairo?"

Only the formatter changes. Calls and results go to OpenAI as if it had made them itself; what Anthropic's model
thought is kept in the history, and shown to Anthropic alone.
"""

import sys
from collections.abc import Callable
from typing import Any

import anthropic
import openai

import contextc as cc

SYSTEM_PROMPT = "Answer in one sentence, from what the tools say."
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [cc.Tool(name="get_weather", description="The weather in a city, right now.", parameters=CITY)]
SEALED: Any = ["reasoning.encrypted_content"]  # so that reasoning can go back to OpenAI, which keeps none
WEATHER = {"Paris": "18 °C, rain", "Cairo": "34 °C, clear"}


def ask_anthropic(manager: cc.MessageManager) -> cc.Message:
    system = manager.get_formatted_system_prompt() or anthropic.omit
    messages: Any = manager.get_formatted_messages()
    tools: Any = manager.get_formatted_tools(TOOLS)
    reply = anthropic.Anthropic().messages.create(
        model="claude-opus-5-5", max_tokens=1024, system=system, messages=messages, tools=tools
    )
    return manager.add_reply(reply)


def ask_openai(manager: cc.MessageManager) -> cc.Message:
    prompt = manager.get_formatted_system_prompt()
    items: Any = manager.get_formatted_messages()
    tools: Any = manager.get_formatted_tools(TOOLS)
    reply = openai.OpenAI().responses.create(
        model="gpt-6-sol", instructions=prompt, input=items, tools=tools, store=False, include=SEALED
    )
    return manager.add_reply(reply)


def take_turn(manager: cc.MessageManager, ask: Callable[[cc.MessageManager], cc.Message], question: str) -> None:
    manager.add_user_message(question)
    while True:
        message = ask(manager)
        print(f"{type(manager.formatter).__name__}: {message.text}")
        if not message.tool_calls:
            return
        for call in message.tool_calls:
            result = WEATHER.get(call.arguments.get("city", ""), "There is no weather station there.")
            print(f"  {call.name} {call.arguments}: {result}")
            manager.add_tool_result(call.id, call.name, result)


def main() -> None:
    first, *others = sys.argv[1:] or ("What is the weather in Paris?", "And in Cairo?")
    manager = cc.MessageManager(cc.AnthropicFormatter(), SYSTEM_PROMPT)
    take_turn(manager, ask_anthropic, first)
    manager.formatter = cc.formats.OpenAIResponsesFormatter()
    for question in others:
        take_turn(manager, ask_openai, question)


if __name__ == "__main__":
    main()
