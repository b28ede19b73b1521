from pydantic_ai import Agent


def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"18 °C and rain in {city}"


agent = Agent("openai:gpt-5.5", tools=[get_weather])
print(agent.run_sync("How is the weather in Paris?").output)
