"""An agent with a tool, a trigger of its own and a person who is asked, on any provider.

    pip install 'contextc[anthropic]'
    ANTHROPIC_API_KEY=… python examples/agent.py anthropic:claude-opus-5-5 "How is Paris?"

Every step is in agent.db before the next is prepared. Stop it anywhere, even with kill -9, and start it again with the
same words: what was said and done is there, and no tool that ended runs again.
"""

import asyncio
import sys

import contextc as cc
from contextc.events import SystemMessageCreated, TextDelta, ToolFinished, TurnFinish

WEATHER = {"Paris": "18 °C, rain", "Cairo": "34 °C, clear"}


def get_weather(city: str) -> str:
    """The weather in a city, right now."""
    return WEATHER.get(city, "There is no weather station there.")


@cc.tool(approval=True)
def send_postcard(city: str, text: str) -> str:
    """Send a postcard from a city."""
    return f"A postcard from {city} is on its way: {text}"


@cc.trigger("two_calls", once=True)
def two_calls(moment: cc.TriggerContext) -> str | None:
    return "You have asked for the weather twice. Answer now." if moment.tool_calls >= 2 else None


def approve(call: cc.ToolCall, tool: cc.tools.FunctionTool) -> bool | str:
    answer = input(f"{tool.name}({call.arguments})? y/n ")
    return answer == "y" or f"the person said {answer!r}"


async def main() -> None:
    spec, question = sys.argv[1:] or ("local", "How is the weather in Paris?")
    store = cc.open_store("sqlite:///agent.db")
    executor = cc.AgentExecutor(
        store,
        spec,
        tools=[get_weather, send_postcard],
        triggers=[*cc.default_triggers(), two_calls],
        instructions="Answer in one sentence, from what the tools say.",
        approve=approve,
    )
    async with executor:
        async for event in executor.run("weather", question):
            match event:
                case TextDelta():
                    print(event.text, end="", flush=True)
                case ToolFinished():
                    print(f"[{event.name}: {event.text}]")
                case SystemMessageCreated():
                    print(f"[{event.trigger}: {event.text}]")
                case TurnFinish():
                    print(f"\n{event.finish} after {event.steps} steps and {event.tool_calls} tool calls")
                case _:
                    pass


if __name__ == "__main__":
    asyncio.run(main())
