"""The settings of a Codex turn: the parameters of `thread/start` and `turn/start`."""

from contextc._json import JSONObject
from contextc.formats.request_settings import OutputFormat, RequestSettings, SettingsTable


def read_structured(rest: JSONObject) -> dict[str, object]:
    if not isinstance(rest.get("outputSchema"), dict):
        return {}
    return {"output": OutputFormat(schema=rest.pop("outputSchema"))}


def write_structured(settings: RequestSettings) -> JSONObject:
    output = settings.output
    return {"outputSchema": {"type": "object"} if output.schema is None else output.schema} if output else {}


SETTINGS = SettingsTable(
    paths={"model": "model", "effort": "effort", "service_tier": "serviceTier"},
    read_structured=read_structured,
    write_structured=write_structured,
    structured=("output",),
)
