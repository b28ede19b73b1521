"""Names of the AI SDK's settings: the options of `generateText` and `streamText`."""

from contextc._json import JSONObject
from contextc.formats.request_settings import (
    ANY_MODE,
    RequestSettings,
    SettingsTable,
    read_tool_choice,
    same_names,
    write_tool_choice,
)


def read_structured(rest: JSONObject) -> dict[str, object]:
    rest.pop("allowSystemInMessages", None)  # it only concerns the position of the system prompt
    return read_tool_choice(rest, "toolChoice", ANY_MODE, lambda choice: choice.get("toolName"))


def write_structured(settings: RequestSettings) -> JSONObject:
    return write_tool_choice(settings.tool_choice, "toolChoice", lambda name: {"type": "tool", "toolName": name})


SETTINGS = SettingsTable(
    paths={
        **same_names("model", "temperature", "seed"),
        "max_output_tokens": "maxOutputTokens",
        "top_p": "topP",
        "top_k": "topK",
        "stop": "stopSequences",
        "frequency_penalty": "frequencyPenalty",
        "presence_penalty": "presencePenalty",
        "effort": "reasoning",
    },
    read_structured=read_structured,
    write_structured=write_structured,
    structured=("tool_choice",),
)
