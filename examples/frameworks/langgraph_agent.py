"""A graph with a node of its own, whose conversations are in a contextc store, and whose requests fit 16,000 tokens.

    pip install contextc langgraph langchain-openai
    OPENAI_API_KEY=… python langgraph_agent.py "What is in README.md?"

Afterwards `contextc serve --store sqlite:///langgraph.db` shows every request.
"""

import sys
from pathlib import Path
from typing import Any

from langchain_core.messages import SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import contextc as cc
from contextc.adapters.langgraph import fit


def read_file(path: str) -> str:
    """Return the content of a file in this folder."""
    file = Path(path).resolve()
    return file.read_text() if file.is_relative_to(Path.cwd()) and file.is_file() else "There is no such file."


def main(questions: list[str]) -> None:
    with cc.open_store("sqlite:///langgraph.db") as store:
        model = fit(ChatOpenAI(model="gpt-4.1"), store, window=16_000).bind_tools([read_file])

        def chat(state: MessagesState) -> dict[str, Any]:
            return {"messages": [model.invoke([SystemMessage("Answer in one sentence."), *state["messages"]])]}

        builder = StateGraph(MessagesState)
        builder.add_node("chat", chat)
        builder.add_node("tools", ToolNode([read_file]))
        builder.add_edge(START, "chat")
        builder.add_conditional_edges("chat", tools_condition)
        builder.add_edge("tools", "chat")
        graph = builder.compile(checkpointer=InMemorySaver())
        for question in questions:
            input: Any = {"messages": [{"role": "user", "content": question}]}
            state = graph.invoke(input, {"configurable": {"thread_id": "files"}})
            print(state["messages"][-1].text)
        print(len(store.load("files")), "messages are stored")


if __name__ == "__main__":
    main(sys.argv[1:] or ["What is in README.md?"])
