"""LangChain agents with two tools."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel

from tests.frameworks.langgraph.scripted_models import add, read_page

# Any: create_agent returns a graph with four type parameters that LangChain does not name for users.


def make_agent(model: BaseChatModel, **options: Any) -> Any:
    return create_agent(model, tools=[read_page, add], system_prompt="Answer from the report.", **options)
