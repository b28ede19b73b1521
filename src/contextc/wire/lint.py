"""Find what a provider would reject in a request."""

from contextc._json import JSON
from contextc.formats.checking import Violation
from contextc.formats.named import formatter
from contextc.wire.facts import find_model_facts
from contextc.wire.reading import validate_json


def lint(body: JSON, *, format: str) -> list[Violation]:
    """Return the violations in a request, or in a bare list of messages, from the first message to the last.

    If the request names a known model, rules that apply to some models only are checked too.
    """
    form = formatter(format)
    body = validate_json(body)
    return form.rules.lint(body, find_model_facts(form, body))
