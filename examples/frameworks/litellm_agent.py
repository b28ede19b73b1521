"""An agent on litellm whose conversation is in a contextc store, and whose requests fit a window of 16,000 tokens.

    pip install contextc litellm
    OPENAI_API_KEY=… python litellm_agent.py "What is in README.md?"

A second call continues the conversation. `contextc serve --store sqlite:///litellm.db` shows every request.
"""

import json
import sys
from pathlib import Path
from typing import Any

import contextc as cc
from contextc.adapters.litellm import Completions

MODEL = "openai/gpt-4.1"
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FUNCTION = {"name": "read_file", "description": "Return the content of a file.", "parameters": PARAMETERS}
SYSTEM = {"role": "system", "content": "Answer in one sentence."}


def read_file(path: str) -> str:
    file = Path(path).resolve()
    return file.read_text() if file.is_relative_to(Path.cwd()) and file.is_file() else "There is no such file."


def answer(completions: Completions, messages: list[Any]) -> str:
    """Call the model until it answers without a tool."""
    while True:
        response = completions.completion(
            conversation="files",
            model=MODEL,
            messages=messages,
            tools=[{"type": "function", "function": FUNCTION}],
        )
        reply = response.choices[0].message
        messages.append(reply.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        if not reply.tool_calls:
            return reply.content
        for call in reply.tool_calls:
            result = read_file(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def main(questions: list[str]) -> None:
    with cc.open_store("sqlite:///litellm.db") as store:
        completions = Completions(store, window=16_000)
        messages = [SYSTEM, *completions.load("files")]
        for question in questions:
            messages.append({"role": "user", "content": question})
            print(answer(completions, messages))
        print(len(store.load("files")), "messages are stored")


if __name__ == "__main__":
    main(sys.argv[1:] or ["What is in README.md?"])
