"""LangChain's `create_agent` in the scenario: alone, with its own middleware, and with the adapter.

`trim_messages` is the recipe of its documentation: the last messages, from a user's message on. `context editing` and
`summarization` are LangChain's own middleware as documented. All of them trigger at 80 % of the window. Every variant
on Anthropic also has `AnthropicPromptCachingMiddleware`. Graphs keep their state with a checkpointer in memory.
"""

from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
    wrap_model_call,
)
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import trim_messages
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from scenario_steps import ANTHROPIC_MODEL, OPENAI_MODEL, Assignment, Variant, play, run_variants

# Any: middleware and graphs have type parameters that LangChain does not name for users.

Middleware = AgentMiddleware[Any, Any, Any]
Make = Callable[[Assignment, BaseChatModel], list[Middleware]]
TRIGGER = 0.8


def openai(assignment: Assignment) -> BaseChatModel:
    return ChatOpenAI(
        model=OPENAI_MODEL,
        base_url=assignment.openai_url,
        api_key=assignment.key,  # pyright: ignore[reportArgumentType]
        max_retries=0,
        use_responses_api=True,
    )


def anthropic(assignment: Assignment) -> BaseChatModel:
    return ChatAnthropic(
        model_name=ANTHROPIC_MODEL,
        base_url=assignment.url,
        api_key=assignment.key,  # pyright: ignore[reportArgumentType]
        max_retries=0,
        max_tokens_to_sample=4_000,
        timeout=None,
        stop=None,
    )


def nothing(assignment: Assignment, model: BaseChatModel) -> list[Middleware]:
    return []


def trimming(assignment: Assignment, model: BaseChatModel) -> list[Middleware]:
    limit = int(assignment.window * TRIGGER)

    @wrap_model_call
    async def trim(request: Any, handler: Any) -> Any:
        kept = trim_messages(
            request.messages,
            max_tokens=limit,
            token_counter="approximate",
            strategy="last",
            start_on="human",
            end_on=("human", "tool"),
        )
        return await handler(request.override(messages=kept))

    return [trim]


def context_editing(assignment: Assignment, model: BaseChatModel) -> list[Middleware]:
    return [ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=int(assignment.window * TRIGGER))])]


def summarization(assignment: Assignment, model: BaseChatModel) -> list[Middleware]:
    return [SummarizationMiddleware(model, trigger=("tokens", int(assignment.window * TRIGGER)))]


def summarization_of_all(assignment: Assignment, model: BaseChatModel) -> list[Middleware]:
    limit = int(assignment.window * TRIGGER)
    return [SummarizationMiddleware(model, trigger=("tokens", limit), trim_tokens_to_summarize=None)]


def adapter(assignment: Assignment, model: BaseChatModel) -> list[Middleware]:
    import contextc as cc
    from contextc.adapters.langchain import ContextcMiddleware

    store = cc.open_store(f"sqlite:///{assignment.folder}/agent.db")
    return [ContextcMiddleware(store, window=assignment.window)]


def variant(model_of: Callable[[Assignment], BaseChatModel], make: Make) -> Variant:
    async def run(assignment: Assignment) -> None:
        model = model_of(assignment)
        middleware = make(assignment, model)
        if isinstance(model, ChatAnthropic):
            middleware.append(AnthropicPromptCachingMiddleware())
        agent: Any = create_agent(
            model,
            tools=list(assignment.tools),
            system_prompt=assignment.instructions,
            middleware=middleware,
            checkpointer=InMemorySaver(),
        )
        thread = {"configurable": {"thread_id": "scenario"}, "recursion_limit": assignment.max_steps}

        async def ask(prompt: str) -> str:
            state = await agent.ainvoke({"messages": [{"role": "user", "content": prompt}]}, thread)
            return state["messages"][-1].text

        await play(assignment, ask)

    return run


if __name__ == "__main__":
    ways: dict[str, Make] = {
        "nothing": nothing,
        "trim_messages": trimming,
        "context editing": context_editing,
        "summarization": summarization,
        "adapter": adapter,
    }
    variants: dict[str, Variant] = {}
    for name, model_of in (("openai", openai), ("anthropic", anthropic)):
        variants |= {f"{name}: {way}": variant(model_of, make) for way, make in ways.items()}
        variants[f"unlimited, {name}: nothing"] = variant(model_of, nothing)
    run_variants(variants, {"openai: summarization of all": variant(openai, summarization_of_all)})
