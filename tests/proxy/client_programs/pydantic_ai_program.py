"""Agents of Pydantic AI with a tool, then a stream. Usage: PROGRAM anthropic|openai_chat|openai_responses|gemini."""

import asyncio
import json
import sys

from pydantic_ai import Agent

MODELS = {
    "anthropic": "anthropic:claude-sonnet-4-5",
    "openai_chat": "openai-chat:gpt-4.1",
    "openai_responses": "openai-responses:gpt-5.4",
    "gemini": "google:gemini-2.5-flash",
}
agent = Agent(MODELS[sys.argv[1]], instructions="Be brief.")


@agent.tool_plain
def look(thing: str) -> str:
    """Look at a thing."""
    return f"{thing} is red"


async def main() -> None:
    first = await agent.run("Look at the door. #call")
    async with agent.run_stream("Thank you.", message_history=first.all_messages()) as stream:
        streamed = "".join([part async for part in stream.stream_text(delta=True)])
    print(json.dumps([first.output, streamed]))


asyncio.run(main())
