"""The options of Claude Code's SDK that correspond to request settings. Most of its options are its own."""

from contextc._json import JSONObject
from contextc.formats.anthropic.request_settings import EFFORTS
from contextc.formats.request_settings import (
    OutputFormat,
    RequestSettings,
    SettingsTable,
    nearest_effort,
    object_or_empty,
)


def read_structured(rest: JSONObject) -> dict[str, object]:
    if not (schema := object_or_empty(object_or_empty(rest.get("output_format")).get("schema"))):
        return {}
    del rest["output_format"]
    return {"output": OutputFormat(schema=schema)}


def write_structured(settings: RequestSettings) -> JSONObject:
    body: JSONObject = {}
    if settings.effort != "none" and (effort := nearest_effort(settings.effort, EFFORTS)):
        body["effort"] = effort
    if settings.output is not None and settings.output.schema is not None:
        body["output_format"] = {"type": "json_schema", "schema": settings.output.schema}
    return body


SETTINGS = SettingsTable(
    paths={"model": "model", "stream": "include_partial_messages"},
    read_structured=read_structured,
    write_structured=write_structured,
    aliases={"effort": "effort"},
    structured=("effort", "output"),
)
