"""Names of Ollama's settings: request settings are at the top level, runtime parameters in `options`.

The reasoning effort is a level only for models that have levels (gpt-oss). Other models take true or false. There is no
tool choice.
"""

from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.request_settings import (
    OutputFormat,
    RequestSettings,
    SettingsTable,
    nearest_effort,
    object_or_empty,
)

EFFORT_LEVELS = ("low", "medium", "high")
THINK_LEVELS = (*EFFORT_LEVELS, "max")
DEFAULT_EFFORT = "medium"
"""The common effort that corresponds to `think: true`."""
MODEL_WITH_LEVELS = "gpt-oss"


def read_structured(rest: JSONObject) -> dict[str, object]:
    found: dict[str, object] = {}
    think: JSON = rest.get("think")
    if isinstance(think, bool) or think in THINK_LEVELS:
        found["effort"] = think if isinstance(think, str) else DEFAULT_EFFORT if think else "none"
        del rest["think"]
    limit: JSON = object_or_empty(rest.get("options")).get("num_predict")
    if isinstance(limit, int) and limit < 0:  # unlimited, which other formats express by omission
        del rest["options"]["num_predict"]
    form: JSON = rest.get("format")
    if form == "json" or isinstance(form, dict):
        found["output"] = OutputFormat(schema=object_or_empty(cast(object, form)) or None)
        del rest["format"]
    return found


def write_structured(settings: RequestSettings) -> JSONObject:
    body: JSONObject = {}
    if settings.effort == "none":
        body["think"] = False
    elif settings.effort is not None:
        body["think"] = (
            nearest_effort(settings.effort, EFFORT_LEVELS) if MODEL_WITH_LEVELS in (settings.model or "") else True
        )
    if settings.output is not None:
        body["format"] = "json" if settings.output.schema is None else settings.output.schema
    return body


SETTINGS = SettingsTable(
    paths={
        "model": "model",
        "stream": "stream",
        "max_output_tokens": "options.num_predict",
        "temperature": "options.temperature",
        "top_p": "options.top_p",
        "top_k": "options.top_k",
        "stop": "options.stop",
        "seed": "options.seed",
        "frequency_penalty": "options.frequency_penalty",
        "presence_penalty": "options.presence_penalty",
    },
    read_structured=read_structured,
    write_structured=write_structured,
    structured=("effort", "output"),
)
