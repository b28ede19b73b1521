"""pydantic-ai in the scenario, alone and with the adapter.

`own processor` is the history processor of its documentation, which keeps the most recent messages; a request begins at
a prompt or a call, because the documentation demands that calls and results stay together. `harness` is
`TieredCompaction` of pydantic-ai-harness as documented, if that is installed: it clears old tool results, then a model
summarizes. It triggers at 80 % of the window.
"""

import importlib.util
from functools import partial
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.capabilities import Caching, ProcessHistory
from pydantic_ai.conversation import Conversation
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits
from scenario_steps import ANTHROPIC_MODEL, OPENAI_MODEL, Assignment, Variant, play, run_variants

LESS = 0.4
"""The share of the window to which a cut goes, in place of 0.5: there are fewer cuts, and the model sees less."""
RECENT = 24
"""The messages that the processor keeps: what fits the window even where results are large."""


def openai(assignment: Assignment) -> Model:
    return OpenAIResponsesModel(
        OPENAI_MODEL, provider=OpenAIProvider(base_url=assignment.openai_url, api_key=assignment.key)
    )


def anthropic(assignment: Assignment) -> Model:
    return AnthropicModel(ANTHROPIC_MODEL, provider=AnthropicProvider(base_url=assignment.url, api_key=assignment.key))


async def run(assignment: Assignment, model: Model, *capabilities: Any) -> None:
    agent = Agent(
        model,
        instructions=assignment.instructions,
        tools=list(assignment.tools),
        capabilities=[Caching(), *capabilities],
    )
    conversation = Conversation(conversation_id="scenario")

    async def ask(prompt: str) -> str:
        nonlocal conversation
        limits = UsageLimits(request_limit=None)
        result = await agent.run(prompt, conversation=conversation, usage_limits=limits)
        conversation = result.conversation
        return result.output

    await play(assignment, ask)


def keep_recent(messages: list[ModelMessage]) -> list[ModelMessage]:
    start = max(0, len(messages) - RECENT)
    while start and isinstance(first := messages[start], ModelRequest):
        if not any(isinstance(part, ToolReturnPart) for part in first.parts):
            break
        start -= 1  # its call comes before it
    return messages[start:]


async def nothing(assignment: Assignment) -> None:
    await run(assignment, openai(assignment))


async def own_processor(assignment: Assignment) -> None:
    await run(assignment, openai(assignment), ProcessHistory(keep_recent))


async def adapter(assignment: Assignment) -> None:
    await run(assignment, openai(assignment), _adapter(assignment))


async def adapter_keeps_less(assignment: Assignment) -> None:
    await run(assignment, openai(assignment), _adapter(assignment, low=LESS))


async def anthropic_nothing(assignment: Assignment) -> None:
    await run(assignment, anthropic(assignment))


async def anthropic_processor(assignment: Assignment) -> None:
    await run(assignment, anthropic(assignment), ProcessHistory(keep_recent))


async def anthropic_adapter(assignment: Assignment) -> None:
    await run(assignment, anthropic(assignment), _adapter(assignment))


async def anthropic_adapter_keeps_less(assignment: Assignment) -> None:
    await run(assignment, anthropic(assignment), _adapter(assignment, low=LESS))


async def harness(assignment: Assignment) -> None:
    await run(assignment, openai(assignment), _harness(assignment, openai(assignment)))


async def anthropic_harness(assignment: Assignment) -> None:
    await run(assignment, anthropic(assignment), _harness(assignment, anthropic(assignment)))


def _adapter(assignment: Assignment, **options: Any) -> Any:
    import contextc as cc
    from contextc.adapters.pydantic_ai import PrepareRequests

    store = cc.open_store(f"sqlite:///{assignment.folder}/agent.db")
    return PrepareRequests(store, window=assignment.window, options=options)


def _harness(assignment: Assignment, model: Model) -> Any:
    package: Any = importlib.import_module("pydantic_ai_harness.compaction")
    summary = package.SummarizingCompaction(model=model, max_messages=1)
    tiers = [package.ClearToolResults(max_tokens=1, keep_pairs=3), summary]
    return package.TieredCompaction(tiers=tiers, target_tokens=assignment.window * 8 // 10)


async def harness_summarizing(assignment: Assignment, *, search: bool = False, **options: Any) -> None:
    package: Any = importlib.import_module("pydantic_ai_harness.compaction")
    model = openai(assignment)
    summary = package.SummarizingCompaction(model=model, max_tokens=assignment.window * 8 // 10, **options)
    await run(assignment, model, *(_search(assignment) if search else ()), summary)


async def harness_clearing(assignment: Assignment) -> None:
    package: Any = importlib.import_module("pydantic_ai_harness.compaction")
    await run(assignment, openai(assignment), package.ClearToolResults(max_tokens=assignment.window * 8 // 10))


async def harness_search(assignment: Assignment) -> None:
    model = openai(assignment)
    await run(assignment, model, *_search(assignment), _harness(assignment, model))


def _search(assignment: Assignment) -> list[Any]:
    search: Any = importlib.import_module("pydantic_ai_harness.conversation_search")
    steps: Any = importlib.import_module("pydantic_ai_harness.step_persistence")
    store = steps.SqliteStepStore(database=f"{assignment.folder}/steps.db")
    source = search.SnapshotHistorySource(store)
    return [steps.StepPersistence(store=store), search.ConversationSearch(source, scope="conversation")]


if __name__ == "__main__":
    variants: dict[str, Variant] = {
        "openai: nothing": nothing,
        "unlimited, openai: nothing": nothing,
        "openai: own processor": own_processor,
        "openai: adapter": adapter,
        "openai: adapter, low 0.4": adapter_keeps_less,
        "anthropic: nothing": anthropic_nothing,
        "unlimited, anthropic: nothing": anthropic_nothing,
        "anthropic: own processor": anthropic_processor,
        "anthropic: adapter": anthropic_adapter,
        "anthropic: adapter, low 0.4": anthropic_adapter_keeps_less,
    }
    if importlib.util.find_spec("pydantic_ai_harness"):
        variants = {"openai: harness": harness, "anthropic: harness": anthropic_harness}
    unlisted: dict[str, Variant] = {
        "openai: harness summarizing": harness_summarizing,
        "openai: harness summarizing, user messages": partial(harness_summarizing, keep_user_messages=True),
        "openai: harness clearing": harness_clearing,
        "openai: harness, search": harness_search,
    }
    run_variants(variants, unlisted)
