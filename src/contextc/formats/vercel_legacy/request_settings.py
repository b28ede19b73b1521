"""Names of the AI SDK's settings in versions with `function_call`."""

from contextc._json import JSONObject
from contextc.formats.request_settings import (
    RequestSettings,
    SettingsTable,
    read_tool_choice,
    same_names,
    write_tool_choice,
)


def read_structured(rest: JSONObject) -> dict[str, object]:
    return read_tool_choice(rest, "function_call", ("auto", "none"), lambda choice: choice.get("name"))


def write_structured(settings: RequestSettings) -> JSONObject:
    choice = settings.tool_choice
    if choice is not None and choice.mode == "required":  # not supported by these versions
        return {}
    return write_tool_choice(choice, "function_call", lambda name: {"name": name})


SETTINGS = SettingsTable(
    paths={
        **same_names("model", "temperature", "top_p", "stop", "seed", "stream", "frequency_penalty"),
        **same_names("presence_penalty", "user"),
        "max_output_tokens": "max_tokens",
    },
    read_structured=read_structured,
    write_structured=write_structured,
    structured=("tool_choice",),
)
