"""Strands agents in the scenario: with its own conversation managers, and with the adapter.

`sliding window` is the default of an agent: it keeps the last 40 messages after each turn, and cuts when a request was
refused as too long. `per_turn` does so before each request, as its documentation recommends for many tool calls.
`summarizing` is `SummarizingConversationManager`, and `proactive` summarizes at 70 % of the window, not only after a
refusal. `auto` is `context_manager="auto"`. `nothing` is `NullConversationManager`, which the adapter has too. Every
variant on Anthropic has `CacheConfig()`, which sets the cache breakpoints. `low=0.4` trims to 40 % of the window.

For a summary, Strands sends OpenAI an empty list of tools. The stand-in refuses that, so it is left out here.
"""

from collections.abc import Callable
from typing import Any

from scenario_steps import ANTHROPIC_MODEL, OPENAI_MODEL, Assignment, Variant, play, run_variants
from strands import Agent, tool
from strands.agent.conversation_manager import (
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.models import CacheConfig, Model
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel

Make = Callable[[Assignment], dict[str, Any]]
"""Returns the arguments of an agent."""


class ModelWithoutEmptyTools(OpenAIModel):
    def format_request(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        request = super().format_request(*arguments, **options)
        return {name: value for name, value in request.items() if name != "tools" or value}


def openai(assignment: Assignment) -> Model:
    client = {"base_url": assignment.openai_url, "api_key": assignment.key}
    return ModelWithoutEmptyTools(client_args=client, model_id=OPENAI_MODEL, context_window_limit=assignment.window)


def anthropic(assignment: Assignment) -> Model:
    return AnthropicModel(
        client_args={"base_url": assignment.url, "api_key": assignment.key},
        model_id=ANTHROPIC_MODEL,
        max_tokens=4_000,
        context_window_limit=assignment.window,
        cache_config=CacheConfig(),
    )


def nothing(assignment: Assignment) -> dict[str, Any]:
    return {"conversation_manager": NullConversationManager()}


def sliding(assignment: Assignment) -> dict[str, Any]:
    return {}


def sliding_per_turn(assignment: Assignment) -> dict[str, Any]:
    return {"conversation_manager": SlidingWindowConversationManager(per_turn=True)}


def summarizing(assignment: Assignment) -> dict[str, Any]:
    return {"conversation_manager": SummarizingConversationManager()}


def proactive(assignment: Assignment) -> dict[str, Any]:
    return {"conversation_manager": SummarizingConversationManager(proactive_compression=True)}


def auto(assignment: Assignment) -> dict[str, Any]:
    return {"context_manager": "auto"}


def adapter(assignment: Assignment, **options: Any) -> dict[str, Any]:
    import contextc as cc
    from contextc.adapters.strands import ContextcPlugin

    store = cc.open_store(f"sqlite:///{assignment.folder}/agent.db")
    plugin = ContextcPlugin(store, "scenario", window=assignment.window, **options)
    return {"conversation_manager": NullConversationManager(), "plugins": [plugin]}


def adapter_low(assignment: Assignment) -> dict[str, Any]:
    return adapter(assignment, low=0.4)


def variant(model_of: Callable[[Assignment], Model], make: Make) -> Variant:
    async def run(assignment: Assignment) -> None:
        agent = Agent(
            model=model_of(assignment),
            tools=[tool(each) for each in assignment.tools],
            system_prompt=assignment.instructions,
            callback_handler=None,
            **make(assignment),
        )

        async def ask(prompt: str) -> str:
            return str(await agent.invoke_async(prompt))

        await play(assignment, ask)

    return run


if __name__ == "__main__":
    ways: dict[str, Make] = {
        "nothing": nothing,
        "sliding window": sliding,
        "sliding window, per_turn": sliding_per_turn,
        "summarizing": summarizing,
        "summarizing, proactive": proactive,
        "auto": auto,
        "adapter": adapter,
        "adapter, low=0.4": adapter_low,
    }
    variants: dict[str, Variant] = {}
    for name, model_of in (("openai", openai), ("anthropic", anthropic)):
        variants |= {f"{name}: {way}": variant(model_of, make) for way, make in ways.items()}
        variants[f"unlimited, {name}: nothing"] = variant(model_of, nothing)
    run_variants(variants)
