"""Names of the AI SDK's settings: the options of `generateText` and `streamText`."""

from contextc._json import JSON, JSONObject
from contextc.formats.request_settings import RequestSettings, SettingsTable, ToolChoice, object_or_empty

MODES = ("auto", "none", "required")


def read_structured(rest: JSONObject) -> dict[str, object]:
    rest.pop("allowSystemInMessages", None)  # it only concerns the position of the system prompt
    choice: JSON = rest.get("toolChoice")
    if isinstance(choice, str) and choice in MODES:
        del rest["toolChoice"]
        return {"tool_choice": ToolChoice(choice)}
    if isinstance(name := object_or_empty(choice).get("toolName"), str):
        del rest["toolChoice"]
        return {"tool_choice": ToolChoice("named", name)}
    return {}


def write_structured(settings: RequestSettings) -> JSONObject:
    choice = settings.tool_choice
    if choice is None:
        return {}
    return {"toolChoice": {"type": "tool", "toolName": choice.name} if choice.mode == "named" else choice.mode}


SETTINGS = SettingsTable(
    paths={
        "model": "model",
        "max_output_tokens": "maxOutputTokens",
        "temperature": "temperature",
        "top_p": "topP",
        "top_k": "topK",
        "stop": "stopSequences",
        "seed": "seed",
        "frequency_penalty": "frequencyPenalty",
        "presence_penalty": "presencePenalty",
        "effort": "reasoning",
    },
    read_structured=read_structured,
    write_structured=write_structured,
    structured=("tool_choice",),
)
