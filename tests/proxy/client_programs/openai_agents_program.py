"""An agent of the OpenAI Agents SDK with a tool, then a stream. Usage: PROGRAM openai_chat|openai_responses."""

import asyncio
import json
import sys

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

set_tracing_disabled(True)
if sys.argv[1] == "openai_chat":
    set_default_openai_api("chat_completions")


@function_tool
def look(thing: str) -> str:
    """Look at a thing."""
    return f"{thing} is red"


async def main() -> None:
    model = "gpt-4.1" if sys.argv[1] == "openai_chat" else "gpt-5.4"
    agent = Agent(name="looker", instructions="Be brief.", tools=[look], model=model)
    first = await Runner.run(agent, "Look at the door. #call")
    history = [*first.to_input_list(), {"role": "user", "content": "Thank you."}]
    second = Runner.run_streamed(agent, history)
    async for _ in second.stream_events():
        pass
    print(json.dumps([first.final_output, second.final_output]))


asyncio.run(main())
