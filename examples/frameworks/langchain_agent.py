"""A LangChain agent whose conversations are in a contextc store, and whose requests fit a window of 16,000 tokens.

    pip install contextc langchain langchain-openai
    OPENAI_API_KEY=… python langchain_agent.py "What is in README.md?"

Afterwards `contextc serve --store sqlite:///langchain.db` shows every request.
"""

import sys
from pathlib import Path

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

import contextc as cc
from contextc.adapters.langchain import ContextcMiddleware


def read_file(path: str) -> str:
    """Return the content of a file in this folder."""
    file = Path(path).resolve()
    return file.read_text() if file.is_relative_to(Path.cwd()) and file.is_file() else "There is no such file."


def main(questions: list[str]) -> None:
    with cc.open_store("sqlite:///langchain.db") as store:
        agent = create_agent(
            "openai:gpt-4.1",
            tools=[read_file],
            system_prompt="Answer in one sentence.",
            middleware=[ContextcMiddleware(store, window=16_000)],
            checkpointer=InMemorySaver(),
        )
        for question in questions:
            input = {"messages": [{"role": "user", "content": question}]}
            state = agent.invoke(input, {"configurable": {"thread_id": "files"}})
            print(state["messages"][-1].text)
        print(len(store.load("files")), "messages are stored")


if __name__ == "__main__":
    main(sys.argv[1:] or ["What is in README.md?"])
