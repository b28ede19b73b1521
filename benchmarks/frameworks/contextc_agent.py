"""`cc.Agent` in the scenario: the reference, without any framework."""

import os
from functools import partial
from typing import Unpack

from scenario_steps import (
    ANTHROPIC_MODEL,
    GEMINI_MODEL,
    OPENAI_MODEL,
    Assignment,
    play,
    run_variants,
)

import contextc as cc
from contextc.executor.agent import AgentOptions

KEY = "SCENARIO_KEY"
OPTIONS: dict[str, AgentOptions] = {
    "no summaries": {"summarize": None},
    "no words of people": {"compiler": cc.CompilerOptions(keep_words=0.0)},
    "no index": {"compiler": cc.CompilerOptions(keep_index=0.0)},
    "nothing beside summaries": {"compiler": cc.CompilerOptions(keep_summarized=0)},
    "oldest": {"compiler": cc.CompilerOptions(strategy="oldest"), "summarize": None},
}
"""Other ways to stay within the window."""


async def openai(assignment: Assignment, **options: Unpack[AgentOptions]) -> None:
    await _play(assignment, f"openai:{OPENAI_MODEL}", assignment.openai_url, **options)


async def anthropic(assignment: Assignment) -> None:
    await _play(assignment, f"anthropic:{ANTHROPIC_MODEL}", assignment.url)


async def gemini(assignment: Assignment) -> None:
    await _play(assignment, f"gemini:{GEMINI_MODEL}", assignment.url)


async def _play(assignment: Assignment, model: str, url: str, **options: Unpack[AgentOptions]) -> None:
    os.environ[KEY] = assignment.key
    options["limits"] = cc.Limits(steps=5_000, tool_calls=5_000)
    agent = cc.Agent(
        cc.provider(model, url=url, key=KEY, window=assignment.window),
        tools=assignment.tools,
        instructions=assignment.instructions,
        store=f"sqlite:///{assignment.folder}/agent.db",
        triggers=(),
        **options,
    )

    async def ask(prompt: str) -> str:
        return (await agent.run(prompt, conversation="scenario")).text

    async with agent:
        await play(assignment, ask)


if __name__ == "__main__":
    run_variants(
        {"openai": openai, "anthropic": anthropic, "gemini": gemini},
        {f"openai: {name}": partial(openai, **options) for name, options in OPTIONS.items()},
    )
