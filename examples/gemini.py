"""A small agent on Google's Gemini: their SDK makes the calls, a MessageManager keeps the conversation.

    pip install 'contextc[gemini]'
    GEMINI_API_KEY=… python examples/gemini.py "What is the weather in Paris?"

The SDK takes its key from GEMINI_API_KEY or GOOGLE_API_KEY and, if it is to talk to somebody else, its address from
GOOGLE_GEMINI_BASE_URL.
"""

import sys
from itertools import count
from typing import Any

from google import genai

import contextc as cc

MODEL = "gemini-3.8-flash"
SYSTEM_PROMPT = "Answer in one sentence, from what the tools say."
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER_TOOL = {
    "name": "get_weather",
    "description": "The weather in a city, right now.",
    "parametersJsonSchema": CITY,
}
TOOLS = [{"functionDeclarations": [WEATHER_TOOL]}]  # as Google writes its tools
WEATHER = {"Paris": "18 °C, rain", "Cairo": "34 °C, clear"}


def get_weather(city: str) -> str:
    if city not in WEATHER:
        raise LookupError(f"There is no weather station in {city}.")
    return WEATHER[city]


def main() -> None:
    client: Any = genai.Client()  # its types name those of Pillow, which this does not need
    manager = cc.MessageManager(cc.GeminiFormatter(), SYSTEM_PROMPT)
    manager.add_user_message(" ".join(sys.argv[1:]) or "What is the weather in Paris?")
    for step in count(1):
        reply = client.models.generate_content(
            model=MODEL,
            contents=manager.get_formatted_messages(),
            config={"system_instruction": manager.get_formatted_system_prompt(), "tools": TOOLS},
        )
        # The reply as it came, under Google's own names and with its signatures, becomes a message of ours.
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
