"""Names of the AI SDK's settings in versions with `function_call`."""

from contextc._json import JSON, JSONObject
from contextc.formats.request_settings import RequestSettings, SettingsTable, ToolChoice, object_or_empty

MODES = ("auto", "none")


def read_structured(rest: JSONObject) -> dict[str, object]:
    choice: JSON = rest.get("function_call")
    if isinstance(choice, str) and choice in MODES:
        del rest["function_call"]
        return {"tool_choice": ToolChoice(choice)}
    if isinstance(name := object_or_empty(choice).get("name"), str):
        del rest["function_call"]
        return {"tool_choice": ToolChoice("named", name)}
    return {}


def write_structured(settings: RequestSettings) -> JSONObject:
    choice = settings.tool_choice
    if choice is None or choice.mode == "required":  # not supported by these versions
        return {}
    return {"function_call": {"name": choice.name} if choice.mode == "named" else choice.mode}


SETTINGS = SettingsTable(
    paths={
        "model": "model",
        "max_output_tokens": "max_tokens",
        "temperature": "temperature",
        "top_p": "top_p",
        "stop": "stop",
        "seed": "seed",
        "stream": "stream",
        "frequency_penalty": "frequency_penalty",
        "presence_penalty": "presence_penalty",
        "user": "user",
    },
    read_structured=read_structured,
    write_structured=write_structured,
    structured=("tool_choice",),
)
