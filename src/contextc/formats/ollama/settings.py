"""Names of Ollama's settings: request settings are at the top level, runtime parameters in `options`.

The reasoning effort is a level only for models that have levels (gpt-oss). Other models take true or false. There is no
tool choice.
"""

from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.settings import Output, Settings, SettingsTable, inner, nearest

LEVELS = ("low", "medium", "high")
ALL_LEVELS = (*LEVELS, "max")
DEFAULT = "medium"
"""The common effort that corresponds to `think: true`."""
HAS_LEVELS = "gpt-oss"


def take(rest: JSONObject) -> dict[str, object]:
    found: dict[str, object] = {}
    think: JSON = rest.get("think")
    if isinstance(think, bool) or think in ALL_LEVELS:
        found["effort"] = think if isinstance(think, str) else DEFAULT if think else "none"
        del rest["think"]
    limit: JSON = inner(rest.get("options")).get("num_predict")
    if isinstance(limit, int) and limit < 0:  # unlimited, which other formats express by omission
        del rest["options"]["num_predict"]
    form: JSON = rest.get("format")
    if form == "json" or isinstance(form, dict):
        found["output"] = Output(schema=inner(cast(object, form)) or None)
        del rest["format"]
    return found


def put(settings: Settings) -> JSONObject:
    body: JSONObject = {}
    if settings.effort == "none":
        body["think"] = False
    elif settings.effort is not None:
        body["think"] = nearest(settings.effort, LEVELS) if HAS_LEVELS in (settings.model or "") else True
    if settings.output is not None:
        body["format"] = "json" if settings.output.schema is None else settings.output.schema
    return body


SETTINGS = SettingsTable(
    places={
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
    take=take,
    put=put,
    shaped=("effort", "output"),
)
