"""Find what is known about the model that a request names, for rules that apply to some models only.

A model name is ambiguous where other vendors serve the same model, or another model under a similar name. So facts are
returned only for a model in the catalog, under its vendor's own name, in a request in that vendor's format. For all
other requests no facts are returned, and none of these rules applies.
"""

from typing import cast

from msgspec.structs import fields

from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter
from contextc.formats.checking import NO_FACTS, Facts
from contextc.models import model
from contextc.models.find import entry_of, is_house_name, is_open

NAMES = tuple(field.name for field in fields(Facts))


def facts_of(form: Formatter, body: JSON) -> Facts:
    name: JSON = cast(JSONObject, body).get("model") if isinstance(body, dict) else None
    if not isinstance(name, str) or entry_of(name) is None or not is_house_name(name) or is_open(name):
        return NO_FACTS
    known = model(name)
    return Facts(**{each: getattr(known, each) for each in NAMES}) if known.house == form.rules.house else NO_FACTS
