"""A small agent on OpenAI's Chat Completions, and on the many endpoints that speak it.

    pip install 'contextc[openai]'
    OPENAI_API_KEY=… python examples/openai_chat.py "What is the weather in Paris?"

The SDK takes its key from OPENAI_API_KEY and, if it is to talk to somebody else, its address from OPENAI_BASE_URL.
For OpenAI's own models `openai_responses.py` is the better way: here they use tools only without reasoning.
"""

import sys
from itertools import count
from typing import Any

import openai

import contextc as cc

MODEL = "gpt-6-sol"
SYSTEM_PROMPT = "Answer in one sentence, from what the tools say."
TOOLS: Any = [  # as Chat Completions writes a tool
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city, right now.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
WEATHER = {"Paris": "18 °C, rain", "Cairo": "34 °C, clear"}


def get_weather(city: str) -> str:
    if city not in WEATHER:
        raise LookupError(f"There is no weather station in {city}.")
    return WEATHER[city]


def main() -> None:
    client = openai.OpenAI()
    manager = cc.MessageManager(cc.OpenAIFormatter(), SYSTEM_PROMPT)
    manager.add_user_message(" ".join(sys.argv[1:]) or "What is the weather in Paris?")
    for step in count(1):
        messages: Any = manager.get_formatted_messages()  # the system prompt is among them here
        reply = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS, reasoning_effort="none")
        # The reply as it came becomes a message of ours.
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
