"""Names of Mistral's settings: mostly those of Chat Completions, with a few of its own."""

from contextc._json import JSONObject
from contextc.formats.openai_chat import request_settings as chat
from contextc.formats.request_settings import RequestSettings, SettingsTable, same_names

LEGACY_REQUIRED = "any"  # the former name of `required`


def read_structured(rest: JSONObject) -> dict[str, object]:
    if rest.get("tool_choice") == LEGACY_REQUIRED:
        rest["tool_choice"] = "required"
    return chat.read_structured(rest)


def write_structured(settings: RequestSettings) -> JSONObject:
    return chat.write_structured(settings) | ({"stop": settings.stop} if settings.stop else {})


SETTINGS = SettingsTable(
    paths={
        **same_names("model", "temperature", "top_p", "top_k", "stream", "frequency_penalty", "presence_penalty"),
        **same_names("parallel_tool_calls", "metadata"),
        "max_output_tokens": "max_tokens",
        "seed": "random_seed",
        "effort": "reasoning_effort",
        "cache_key": "prompt_cache_key",
    },
    read_structured=read_structured,
    write_structured=write_structured,
    aliases={"stop": "stop"},
    structured=("tool_choice", "output", "stop"),
)
