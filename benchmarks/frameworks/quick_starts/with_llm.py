import llm


def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"18 °C and rain in {city}"


model = llm.get_model("gpt-4.1")
print(model.chain("How is the weather in Paris?", tools=[get_weather]).text())
