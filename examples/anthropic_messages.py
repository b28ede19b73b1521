"""A small agent on Anthropic's Messages API: their SDK makes the calls, a MessageManager keeps the conversation.

    pip install 'contextc[anthropic]'
    ANTHROPIC_API_KEY=… python examples/anthropic_messages.py "What is the weather in Paris?"

The SDK takes its key from ANTHROPIC_API_KEY and, if it is to talk to somebody else, its address from
ANTHROPIC_BASE_URL. No temperature is set: the API refuses it since version 2026-10-21.
"""

import sys
from itertools import count
from typing import Any

import anthropic

import contextc as cc

MODEL = "claude-opus-5-5"
SYSTEM_PROMPT = "Answer in one sentence, from what the tools say."
TOOLS: Any = [  # as Anthropic writes a tool
    {
        "name": "get_weather",
        "description": "The weather in a city, right now.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]
WEATHER = {"Paris": "18 °C, rain", "Cairo": "34 °C, clear"}


def get_weather(city: str) -> str:
    if city not in WEATHER:
        raise LookupError(f"There is no weather station in {city}.")
    return WEATHER[city]


def main() -> None:
    client = anthropic.Anthropic()
    manager = cc.MessageManager(cc.AnthropicFormatter(), SYSTEM_PROMPT)
    manager.add_user_message(" ".join(sys.argv[1:]) or "What is the weather in Paris?")
    for step in count(1):
        messages: Any = manager.get_formatted_messages()  # plain data, where the SDK has types of its own
        reply = client.messages.create(
            model=MODEL,
            max_tokens=1024,
            system=manager.get_formatted_system_prompt() or anthropic.omit,
            messages=messages,
            tools=TOOLS,
        )
        # The reply as it came, thinking and signatures too, becomes a message of ours.
        message = manager.add_reply(reply)
        print(f"step {step}: {message.text}")
        for call in message.tool_calls:
            try:
                result, failed = get_weather(**call.arguments), False
            except Exception as error:  # whatever it was, the model should know
                result, failed = str(error), True
            print(f"  {call.name} {call.arguments}: {result}")
            manager.add_tool_result(call.id, call.name, result, is_error=failed)
        if not message.tool_calls:
            break


if __name__ == "__main__":
    main()
