"""The options of Claude Code's SDK that correspond to request settings. Most of its options are its own."""

from contextc._json import JSONObject
from contextc.formats.anthropic.settings import EFFORTS
from contextc.formats.settings import Output, Settings, SettingsTable, inner, nearest


def take(rest: JSONObject) -> dict[str, object]:
    if not (schema := inner(inner(rest.get("output_format")).get("schema"))):
        return {}
    del rest["output_format"]
    return {"output": Output(schema=schema)}


def put(settings: Settings) -> JSONObject:
    body: JSONObject = {}
    if settings.effort != "none" and (effort := nearest(settings.effort, EFFORTS)):
        body["effort"] = effort
    if settings.output is not None and settings.output.schema is not None:
        body["output_format"] = {"type": "json_schema", "schema": settings.output.schema}
    return body


SETTINGS = SettingsTable(
    places={"model": "model", "stream": "include_partial_messages"},
    take=take,
    put=put,
    also={"effort": "effort"},
    shaped=("effort", "output"),
)
