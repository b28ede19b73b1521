"""Find what a provider would reject in a request."""

from typing import cast

from msgspec.structs import fields

from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter
from contextc.formats.lint_engine import UNKNOWN_MODEL, ModelFacts, Violation
from contextc.formats.registry import formatter
from contextc.linting.tolerant_decoding import validate_json
from contextc.models import model
from contextc.models.model_info import find_entry, has_open_weights, is_vendor_name


def lint(body: JSON, *, format: str, answered: bool = False) -> list[Violation]:
    """Return the violations in a request, or in a bare list of messages, from the first message to the last.

    If the request names a known model, rules that apply to some models only are checked too. `answered`: the provider
    answered this request. So it breaks no rule, and a rule that says otherwise is out of date.
    """
    if answered:
        return []
    form = formatter(format)
    body = validate_json(body)
    return form.rules.lint(body, find_model_facts(form, body))


FACT_NAMES = tuple(field.name for field in fields(ModelFacts))


def find_model_facts(form: Formatter, body: JSON) -> ModelFacts:
    """Return the facts about the model that a request names, for rules that apply to some models only.

    A model name is ambiguous where other vendors serve the same model, or another model under a similar name. So facts
    are returned only for a model in the catalog, under its vendor's own name, in a request in that vendor's format. For
    all other requests no facts are returned, and none of these rules applies.
    """
    name: JSON = cast(JSONObject, body).get("model") if isinstance(body, dict) else None
    if not isinstance(name, str) or find_entry(name) is None or not is_vendor_name(name) or has_open_weights(name):
        return UNKNOWN_MODEL
    known = model(name)
    return (
        ModelFacts(**{each: getattr(known, each) for each in FACT_NAMES})
        if known.vendor == form.rules.vendor
        else UNKNOWN_MODEL
    )
