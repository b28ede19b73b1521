"""`cc.Agent` in the scenario: the reference, without any framework."""

import os

from scenario_steps import (
    ANTHROPIC_MODEL,
    GEMINI_MODEL,
    INSTRUCTIONS,
    OPENAI_MODEL,
    TOOLS,
    Assignment,
    play,
    run_variants,
)

import contextc as cc

KEY = "SCENARIO_KEY"


async def openai(assignment: Assignment) -> None:
    await _play(assignment, f"openai:{OPENAI_MODEL}", assignment.openai_url)


async def anthropic(assignment: Assignment) -> None:
    await _play(assignment, f"anthropic:{ANTHROPIC_MODEL}", assignment.url)


async def gemini(assignment: Assignment) -> None:
    await _play(assignment, f"gemini:{GEMINI_MODEL}", assignment.url)


async def _play(assignment: Assignment, model: str, url: str) -> None:
    os.environ[KEY] = assignment.key
    agent = cc.Agent(
        cc.provider(model, url=url, key=KEY, window=assignment.window),
        tools=TOOLS,
        instructions=INSTRUCTIONS,
        store=f"sqlite:///{assignment.folder}/agent.db",
        triggers=(),
        limits=cc.Limits(steps=1_000, tool_calls=1_000),
    )

    async def ask(prompt: str) -> str:
        return (await agent.run(prompt, conversation="scenario")).text

    async with agent:
        await play(assignment, ask)


if __name__ == "__main__":
    run_variants({"openai": openai, "anthropic": anthropic, "gemini": gemini})
