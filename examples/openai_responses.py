"""A small agent on OpenAI's Responses API: their SDK makes the calls, a MessageManager keeps the conversation.

    pip install 'contextc[openai]'
    OPENAI_API_KEY=… python examples/openai_responses.py "What is the weather in Paris?"

The SDK takes its key from OPENAI_API_KEY and, if it is to talk to somebody else, its address from OPENAI_BASE_URL.
"""

import sys
from itertools import count
from typing import Any

import openai

import contextc as cc

MODEL = "gpt-6-sol"
SYSTEM_PROMPT = "Answer in one sentence, from what the tools say."
TOOLS: Any = [  # as the Responses API writes a tool
    {
        "type": "function",
        "name": "get_weather",
        "description": "The weather in a city, right now.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": False,
    }
]
WEATHER = {"Paris": "18 °C, rain", "Cairo": "34 °C, clear"}


def get_weather(city: str) -> str:
    if city not in WEATHER:
        raise LookupError(f"There is no weather station in {city}.")
    return WEATHER[city]


def main() -> None:
    client = openai.OpenAI()
    manager = cc.MessageManager(cc.formats.OpenAIResponsesFormatter(), SYSTEM_PROMPT)
    manager.add_user_message(" ".join(sys.argv[1:]) or "What is the weather in Paris?")
    for step in count(1):
        items: Any = manager.get_formatted_messages()  # plain data, where the SDK has types of its own
        reply = client.responses.create(
            model=MODEL,
            instructions=manager.get_formatted_system_prompt(),
            input=items,
            tools=TOOLS,
            store=False,  # we keep the conversation, so OpenAI need not
            include=["reasoning.encrypted_content"],  # and it comes with all that must go back
        )
        # The reply as it came, reasoning and ids too, becomes a message of ours.
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
