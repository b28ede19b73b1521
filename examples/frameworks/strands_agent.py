"""A Strands agent whose conversation is in a contextc store, and whose requests fit a window of 16,000 tokens.

    pip install contextc 'strands-agents[openai]'
    OPENAI_API_KEY=… python strands_agent.py "What is in README.md?"

A second call continues the conversation. `contextc serve --store sqlite:///strands.db` shows every request.
"""

import sys
from pathlib import Path

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.openai import OpenAIModel

import contextc as cc
from contextc.adapters.strands import ContextcPlugin


@tool
def read_file(path: str) -> str:
    """Return the content of a file in this folder.

    Args:
        path: The path of the file.
    """
    file = Path(path).resolve()
    return file.read_text() if file.is_relative_to(Path.cwd()) and file.is_file() else "There is no such file."


def main(questions: list[str]) -> None:
    with cc.open_store("sqlite:///strands.db") as store:
        plugin = ContextcPlugin(store, "files", window=16_000)
        agent = Agent(
            model=OpenAIModel(model_id="gpt-4.1"),
            tools=[read_file],
            system_prompt="Answer in one sentence.",
            messages=plugin.load(),
            plugins=[plugin],
            conversation_manager=NullConversationManager(),
            callback_handler=None,
        )
        for question in questions:
            print(str(agent(question)).strip())
        print(len(store.load("files")), "messages are stored")


if __name__ == "__main__":
    main(sys.argv[1:] or ["What is in README.md?"])
