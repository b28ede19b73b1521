"""Google's ADK in the scenario: alone, with what it has for long histories, and with the adapter.

`context filter` is its `ContextFilterPlugin`, which keeps the last invocations: the turns that users begin.
`compaction` is its token-based compaction, with the retention of its documentation, and a threshold of 80 % of the
window. `compaction, 50 %` has the threshold at half of the window. Every variant on Anthropic has a
`ContextCacheConfig`, with which ADK sets cache breakpoints. Gemini and OpenAI cache prefixes without it.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from anthropic import AsyncAnthropic
from google.adk.agents import LlmAgent
from google.adk.agents.context_cache_config import ContextCacheConfig
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.integrations.openai import OpenAIResponsesLlm
from google.adk.models import BaseLlm, Gemini
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
from google.adk.runners import InMemoryRunner
from google.adk.tools.load_memory_tool import load_memory_tool
from google.genai import types
from scenario_steps import (
    ANTHROPIC_MODEL,
    GEMINI_MODEL,
    OPENAI_MODEL,
    Assignment,
    Variant,
    play,
    run_variants,
)

# Any: the options of an App.

Make = Callable[[Assignment], dict[str, Any]]
"""Returns the options of the App in a variant."""
INVOCATIONS = 2
"""The invocations that `context filter` keeps."""
RETENTION = 5
"""The events that `compaction` keeps, as in ADK's documentation."""
INTERVAL, OVERLAP = 2, 1
"""The invocations after which `compaction by interval` summarizes, and those that two summaries share."""


def gemini(assignment: Assignment) -> BaseLlm:
    return Gemini(model=GEMINI_MODEL, base_url=assignment.url, client_kwargs={"api_key": assignment.key})


def anthropic(assignment: Assignment) -> BaseLlm:
    client = AsyncAnthropic(base_url=assignment.url, api_key=assignment.key, max_retries=0)
    return AnthropicLlm(model=ANTHROPIC_MODEL, client=client, max_tokens=4_000)


def openai(assignment: Assignment) -> BaseLlm:
    return OpenAIResponsesLlm(model=OPENAI_MODEL, base_url=assignment.openai_url, api_key=assignment.key)


def nothing(assignment: Assignment) -> dict[str, Any]:
    return {}


def context_filter(assignment: Assignment) -> dict[str, Any]:
    return {"plugins": [ContextFilterPlugin(num_invocations_to_keep=INVOCATIONS)]}


def compaction(assignment: Assignment, share: float = 0.8) -> dict[str, Any]:
    threshold = int(assignment.window * share)
    config = EventsCompactionConfig(token_threshold=threshold, event_retention_size=RETENTION)
    return {"events_compaction_config": config}


def compaction_by_interval(assignment: Assignment) -> dict[str, Any]:
    return {"events_compaction_config": EventsCompactionConfig(compaction_interval=INTERVAL, overlap_size=OVERLAP)}


def adapter(assignment: Assignment) -> dict[str, Any]:
    import contextc as cc
    from contextc.adapters.google_adk import ContextcPlugin

    store = cc.open_store(f"sqlite:///{assignment.folder}/agent.db")
    return {"plugins": [ContextcPlugin(store, window=assignment.window)]}


def variant(model_of: Callable[[Assignment], BaseLlm], make: Make, *, memory: bool = False) -> Variant:
    async def run(assignment: Assignment) -> None:
        model = model_of(assignment)
        tools: list[Any] = [*assignment.tools, *([load_memory_tool] if memory else [])]
        agent = LlmAgent(name="maintainer", model=model, instruction=assignment.instructions, tools=tools)
        options = make(assignment)
        if isinstance(model, AnthropicLlm):
            options["context_cache_config"] = ContextCacheConfig()
        runner = InMemoryRunner(app=App(name="scenario", root_agent=agent, **options))
        session = await runner.session_service.create_session(app_name="scenario", user_id="ann")
        config = RunConfig(max_llm_calls=assignment.max_steps)

        async def ask(prompt: str) -> str:
            message = types.Content(role="user", parts=[types.Part(text=prompt)])
            answer = ""
            if memory:
                ended = await runner.session_service.get_session(
                    app_name="scenario", user_id="ann", session_id=session.id
                )
                await runner.memory_service.add_session_to_memory(ended)
            async for event in runner.run_async(
                user_id="ann", session_id=session.id, new_message=message, run_config=config
            ):
                if event.is_final_response() and event.content and event.content.parts:
                    answer = "".join([part.text or "" for part in event.content.parts])
            return answer

        await play(assignment, ask)

    return run


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    ways: dict[str, Make] = {
        "nothing": nothing,
        "context filter": context_filter,
        "compaction": compaction,
        "compaction, 50 %": partial(compaction, share=0.5),
        "adapter": adapter,
    }
    variants: dict[str, Variant] = {}
    for name, model_of in (("gemini", gemini), ("anthropic", anthropic), ("openai", openai)):
        variants |= {f"{name}: {way}": variant(model_of, make) for way, make in ways.items()}
        variants[f"unlimited, {name}: nothing"] = variant(model_of, nothing)
    unlisted = {
        "openai: compaction by interval": variant(openai, compaction_by_interval),
        "openai: compaction, memory": variant(openai, compaction, memory=True),
    }
    run_variants(variants, unlisted)
