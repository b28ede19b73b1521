"""Find what is known about the model that a request names, for rules that apply to some models only.

A model name is ambiguous where other vendors serve the same model, or another model under a similar name. So facts are
returned only for a model in the catalog, under its vendor's own name, in a request in that vendor's format. For all
other requests no facts are returned, and none of these rules applies.
"""

from typing import cast

from msgspec.structs import fields

from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter
from contextc.formats.lint_engine import UNKNOWN_MODEL, ModelFacts
from contextc.models import model
from contextc.models.model_info import find_entry, has_open_weights, is_vendor_name

FACT_NAMES = tuple(field.name for field in fields(ModelFacts))


def find_model_facts(form: Formatter, body: JSON) -> ModelFacts:
    name: JSON = cast(JSONObject, body).get("model") if isinstance(body, dict) else None
    if not isinstance(name, str) or find_entry(name) is None or not is_vendor_name(name) or has_open_weights(name):
        return UNKNOWN_MODEL
    known = model(name)
    return (
        ModelFacts(**{each: getattr(known, each) for each in FACT_NAMES})
        if known.house == form.rules.vendor
        else UNKNOWN_MODEL
    )
