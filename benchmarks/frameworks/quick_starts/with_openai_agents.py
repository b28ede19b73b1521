from agents import Agent, Runner, function_tool


@function_tool
def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"18 °C and rain in {city}"


agent = Agent(name="Assistant", model="gpt-5.5", tools=[get_weather])
print(Runner.run_sync(agent, "How is the weather in Paris?").final_output)
