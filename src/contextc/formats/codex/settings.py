"""The settings of a Codex turn: the parameters of `thread/start` and `turn/start`."""

from contextc._json import JSONObject
from contextc.formats.settings import Output, Settings, SettingsTable


def take(rest: JSONObject) -> dict[str, object]:
    if not isinstance(rest.get("outputSchema"), dict):
        return {}
    return {"output": Output(schema=rest.pop("outputSchema"))}


def put(settings: Settings) -> JSONObject:
    output = settings.output
    return {"outputSchema": {"type": "object"} if output.schema is None else output.schema} if output else {}


SETTINGS = SettingsTable(
    places={"model": "model", "effort": "effort", "service_tier": "serviceTier"},
    take=take,
    put=put,
    shaped=("output",),
)
