"""Names of Mistral's settings: mostly those of Chat Completions, with a few of its own."""

from contextc._json import JSONObject
from contextc.formats.openai_chat import settings as chat
from contextc.formats.settings import Settings, SettingsTable

ANY = "any"  # the former name of `required`


def take(rest: JSONObject) -> dict[str, object]:
    if rest.get("tool_choice") == ANY:
        rest["tool_choice"] = "required"
    return chat.take(rest)


def put(settings: Settings) -> JSONObject:
    return chat.put(settings) | ({"stop": settings.stop} if settings.stop else {})


SETTINGS = SettingsTable(
    places={
        "model": "model",
        "max_output_tokens": "max_tokens",
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "seed": "random_seed",
        "stream": "stream",
        "frequency_penalty": "frequency_penalty",
        "presence_penalty": "presence_penalty",
        "parallel_tool_calls": "parallel_tool_calls",
        "effort": "reasoning_effort",
        "metadata": "metadata",
        "cache_key": "prompt_cache_key",
    },
    take=take,
    put=put,
    also={"stop": "stop"},
    shaped=("tool_choice", "output", "stop"),
)
