"""Names of Mistral's settings: mostly those of Chat Completions, with a few of its own."""

from contextc._json import JSONObject
from contextc.formats.openai_chat import settings as chat
from contextc.formats.request_settings import RequestSettings, SettingsTable

LEGACY_REQUIRED = "any"  # the former name of `required`


def read_structured(rest: JSONObject) -> dict[str, object]:
    if rest.get("tool_choice") == LEGACY_REQUIRED:
        rest["tool_choice"] = "required"
    return chat.read_structured(rest)


def write_structured(settings: RequestSettings) -> JSONObject:
    return chat.write_structured(settings) | ({"stop": settings.stop} if settings.stop else {})


SETTINGS = SettingsTable(
    paths={
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
    read_structured=read_structured,
    write_structured=write_structured,
    aliases={"stop": "stop"},
    structured=("tool_choice", "output", "stop"),
)
