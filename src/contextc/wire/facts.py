"""What is known of the model that a request names, for the rules that hold for some models only.

A name says little where others serve the same model, or serve another one under a like name. So facts are given only
for a model of our own table, under the name its house gave it, in a request of that house's own format. Of all others
nothing is known, and none of these rules is broken.
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
