"""An agent of Google's ADK with conversations in a contextc store, and requests that fit a window of 16,000 tokens.

    pip install contextc google-adk
    GOOGLE_API_KEY=… python google_adk_agent.py "What is in README.md?"

Afterwards `contextc serve --store sqlite:///google_adk.db` shows every request.
"""

import asyncio
import sys
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.runners import InMemoryRunner

import contextc as cc
from contextc.adapters.google_adk import ContextcPlugin


def read_file(path: str) -> str:
    """Return the content of a file in this folder."""
    file = Path(path).resolve()
    return file.read_text() if file.is_relative_to(Path.cwd()) and file.is_file() else "There is no such file."


async def main(questions: list[str]) -> None:
    with cc.open_store("sqlite:///google_adk.db") as store:
        agent = LlmAgent(
            name="reader", model="gemini-2.5-flash", instruction="Answer in one sentence.", tools=[read_file]
        )
        app = App(name="files", root_agent=agent, plugins=[ContextcPlugin(store, window=16_000)])
        async with InMemoryRunner(app=app) as runner:
            for question in questions:
                events = await runner.run_debug(question, session_id="files", quiet=True)
                content = events[-1].content
                print("".join([part.text or "" for part in (content.parts if content else None) or ()]))
        print(len(store.load("files")), "messages are stored")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["What is in README.md?"]))
