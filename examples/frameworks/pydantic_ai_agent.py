"""A pydantic-ai agent whose conversations are in a contextc store, and whose requests fit a window of 16,000 tokens.

    pip install contextc 'pydantic-ai-slim[openai]'
    OPENAI_API_KEY=… python pydantic_ai_agent.py "What is in README.md?"

Start it again: it continues the conversation. `contextc serve --store sqlite:///pydantic.db` shows every request.
"""

import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation

import contextc as cc
from contextc.adapters.pydantic_ai import ContextcConversationStore, PrepareRequests


def read_file(path: str) -> str:
    """Return the content of a file in this folder."""
    file = Path(path).resolve()
    return file.read_text() if file.is_relative_to(Path.cwd()) and file.is_file() else "There is no such file."


async def main(questions: list[str]) -> None:
    with cc.open_store("sqlite:///pydantic.db") as store:
        conversations = ContextcConversationStore(store)
        agent = Agent(
            "openai:gpt-5.5",
            tools=[read_file],
            instructions="Answer in one sentence.",
            capabilities=[PrepareRequests(store, window=16_000)],
        )
        for question in questions:
            conversation = await conversations.load("files") or Conversation(conversation_id="files")
            result = await agent.run(question, conversation=conversation)
            await conversations.save(result)
            print(result.output)
        print(len(store.load("files")), "messages are stored")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["What is in README.md?"]))
