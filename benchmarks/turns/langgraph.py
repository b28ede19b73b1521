"""langgraph on Anthropic: the graph of its guide (model, tools), trimming before each call, the SQLite checkpointer.

It is run in its synchronous form, with whole replies and with each checkpoint written before the next step.
"""

import sqlite3
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2

from converters import CLAUDE, TOOL, Said
from transcripts import system_prompt
from trimmers import BUDGET, OUTPUT, LangChain
from turns.script import CONVERSATION, DESCRIPTION, QUESTION, Asked, answering, anthropic_replies

# Any: the peers are not part of this project's environment, so their types are not known here.


class Subject:
    stores = "every step"

    def __init__(self, folder: Path) -> None:
        self.transport, self._results = answering(), iter(list[str]())
        self._said = LangChain()
        anthropic: Any = import_module("anthropic")
        prebuilt: Any = import_module("langgraph.prebuilt")
        model: Any = import_module("langchain_anthropic").ChatAnthropic(
            model=CLAUDE, api_key="none", max_tokens=OUTPUT, max_retries=0
        )
        http_client = httpx2.Client(transport=self.transport)
        model.__dict__["_client"] = anthropic.Anthropic(api_key="none", max_retries=0, http_client=http_client)
        messages: Any = import_module("langchain_core.messages")
        self._trim, self._system = messages.trim_messages, messages.SystemMessage(system_prompt())
        tool: Any = import_module("langchain_core.tools").tool(TOOL, description=DESCRIPTION)(self._tool)
        self._model: Any = model.bind_tools([tool])
        self._connection = sqlite3.connect(folder / "langgraph.db", check_same_thread=False)
        graph: Any = import_module("langgraph.graph")
        builder = graph.StateGraph(graph.MessagesState)
        builder.add_node("model", self._reply)
        builder.add_node("tools", prebuilt.ToolNode([tool]))
        builder.add_edge(graph.START, "model")
        builder.add_conditional_edges("model", prebuilt.tools_condition)
        builder.add_edge("tools", "model")
        saver: Any = import_module("langgraph.checkpoint.sqlite").SqliteSaver(self._connection)
        self._graph: Any = builder.compile(checkpointer=saver)
        self._thread: Any = {"configurable": {"thread_id": CONVERSATION}, "recursion_limit": 1_000}

    def _tool(self, query: str) -> str:
        return next(self._results)

    def _reply(self, state: Any) -> Any:
        trimmed = self._trim(
            [self._system, *state["messages"]],
            strategy="last",
            token_counter="approximate",
            max_tokens=BUDGET,
            start_on="human",
            end_on=("human", "tool"),
            include_system=True,
        )
        return {"messages": [self._model.invoke(trimmed)]}

    def fill(self, history: Sequence[Said]) -> None:
        messages = [self._said.message(each) for each in history]
        self._graph.update_state(self._thread, {"messages": messages}, as_node="model")

    def prepare(self, script: Sequence[Asked]) -> None:
        self._results = iter([asked.result for asked in script])
        self.transport.expect(anthropic_replies(script))

    def turn(self) -> str:
        asked = {"messages": [{"role": "user", "content": QUESTION}]}
        last = self._graph.invoke(asked, self._thread, durability="sync")["messages"][-1]
        return last.text if isinstance(last.text, str) else last.text()

    def close(self) -> None:
        self._connection.close()
