"""OpenAI Agents in the scenario, alone and with the adapter.

`last items` is the input filter of its documentation, which keeps the latest items. `whole pairs` is the same filter,
written with care: it also keeps the task, and does not separate calls from results. `session limit` is the limit of its
sessions, which counts between runs only. `compaction session` is its `OpenAIResponsesCompactionSession`, which lets the
provider compact between runs. `output trimmer` is its `ToolOutputTrimmer`, with the values of its documentation: it
shortens large results of earlier turns. `unlimited` has the model's own window. `low=0.4` trims to 40 % of the window,
in place of 50 %.
"""

from typing import Any

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, SessionSettings, SQLiteSession, function_tool
from agents.extensions import ToolOutputTrimmer
from agents.memory import OpenAIResponsesCompactionSession
from agents.run import CallModelData, ModelInputData
from openai import AsyncOpenAI
from scenario_steps import OPENAI_MODEL, Assignment, play, run_variants

COMPACTED_AT, CHARACTERS = 0.5, 4
"""The share of the window from which on `compaction session` compacts after a run, and the characters of a token."""
RECENT = 24
"""The items that `last items` and `session limit` keep: what fits the window even where results are large."""


async def run(assignment: Assignment, session: Any, **options: Any) -> None:
    client = AsyncOpenAI(base_url=assignment.openai_url, api_key=assignment.key)
    agent = Agent(
        name="maintainer",
        instructions=assignment.instructions,
        model=OpenAIResponsesModel(OPENAI_MODEL, client),
        tools=[function_tool(each) for each in assignment.tools],
    )
    config = RunConfig(tracing_disabled=True, call_model_input_filter=options.pop("input_filter", None))

    async def ask(prompt: str) -> str:
        result = await Runner.run(
            agent, prompt, session=session, run_config=config, max_turns=assignment.max_steps, **options
        )
        return str(result.final_output)

    await play(assignment, ask)


async def nothing(assignment: Assignment) -> None:
    await run(assignment, SQLiteSession("scenario"))


async def last_items(assignment: Assignment) -> None:
    def keep_last(data: CallModelData[Any]) -> ModelInputData:
        return ModelInputData(input=data.model_data.input[-RECENT:], instructions=data.model_data.instructions)

    await run(assignment, SQLiteSession("scenario"), input_filter=keep_last)


async def whole_pairs(assignment: Assignment) -> None:
    def keep_last_pairs(data: CallModelData[Any]) -> ModelInputData:
        items: list[Any] = list(data.model_data.input)
        start = max(0, len(items) - RECENT)
        while start and items[start].get("type") == "function_call_output":
            start -= 1
        while start and items[start].get("type") == "function_call" and items[start - 1].get("type") == "function_call":
            start -= 1
        tasks = [index for index, item in enumerate(items) if item.get("role") == "user"]
        first = [items[tasks[-1]]] if tasks and tasks[-1] < start else []
        return ModelInputData(input=[*first, *items[start:]], instructions=data.model_data.instructions)

    await run(assignment, SQLiteSession("scenario"), input_filter=keep_last_pairs)


async def session_limit(assignment: Assignment) -> None:
    await run(assignment, SQLiteSession("scenario", session_settings=SessionSettings(limit=RECENT)))


async def compaction_session(assignment: Assignment) -> None:
    client = AsyncOpenAI(base_url=assignment.openai_url, api_key=assignment.key)

    def is_due(context: dict[str, Any]) -> bool:
        return len(str(context["session_items"])) > COMPACTED_AT * CHARACTERS * assignment.window

    session = OpenAIResponsesCompactionSession(
        "scenario",
        SQLiteSession("scenario"),
        client=client,
        model=OPENAI_MODEL,
        compaction_mode="input",
        should_trigger_compaction=is_due,
    )
    await run(assignment, session)


async def output_trimmer(assignment: Assignment) -> None:
    trimmer = ToolOutputTrimmer(recent_turns=2, max_output_chars=500, preview_chars=200)
    await run(assignment, SQLiteSession("scenario"), input_filter=trimmer)


async def adapter(assignment: Assignment, **options: Any) -> None:
    from contextc.adapters.openai_agents import Session

    session = Session("scenario", f"sqlite:///{assignment.folder}/agents.db")
    fitter = session.fitter(window=assignment.window, **options)
    await run(assignment, session, input_filter=fitter, hooks=fitter)
    session.close()


async def adapter_low(assignment: Assignment) -> None:
    await adapter(assignment, low=0.4)


if __name__ == "__main__":
    run_variants(
        {
            "unlimited": nothing,
            "nothing": nothing,
            "last items": last_items,
            "whole pairs": whole_pairs,
            "session limit": session_limit,
            "output trimmer": output_trimmer,
            "adapter": adapter,
            "adapter, low=0.4": adapter_low,
        },
        {"compaction session": compaction_session},
    )
