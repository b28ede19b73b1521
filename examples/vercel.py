"""A page built with the Vercel AI SDK, and a conversation kept in Python.

    python examples/vercel.py "And in Cairo?"

The page's `useChat` posts its whole history as UIMessages. What is printed is the other end: the ModelMessages that
the SDK takes, to be read by whatever calls the model:

    const { instructions, messages } = JSON.parse(printed)
    streamText({ model, tools, instructions, messages })

There is no SDK for Python, and none is needed: this needs neither key nor network.
"""

import json
import sys

import contextc as cc

SYSTEM_PROMPT = "Answer in one sentence, from what the tools say."
PAGE = [  # what the page had shown so far: an answer in two steps, with a tool in the first
    {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "What is the weather in Paris?"}]},
    {
        "id": "m2",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "text", "text": "Let me look.", "state": "done"},
            {
                "type": "tool-get_weather",
                "toolCallId": "call-1",
                "state": "output-available",
                "input": {"city": "Paris"},
                "output": "18 °C, rain",
            },
            {"type": "step-start"},
            {"type": "text", "text": "It rains in Paris, at 18 °C.", "state": "done"},
        ],
    },
]


def main() -> None:
    question = " ".join(sys.argv[1:]) or "And in Cairo?"
    posted = [*PAGE, {"id": "m3", "role": "user", "parts": [{"type": "text", "text": question}]}]

    formatter = cc.formats.VercelFormatter()
    store = cc.open_store("memory:")  # or "sqlite:///chat.db"
    manager = cc.MessageManager(formatter, SYSTEM_PROMPT, store=store, conversation="page")
    for history in (PAGE, posted):  # a page sends everything again each time; only what is new is added
        store.sync("page", formatter.decode_request({"messages": history}).messages)

    for message in manager.messages:
        print(message.seq, message.role, message.text, file=sys.stderr)
    body = {"instructions": manager.get_formatted_system_prompt(), "messages": manager.get_formatted_messages()}
    print(json.dumps(body, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
