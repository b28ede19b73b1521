"""Find what a provider would reject in a request."""

from contextc._json import JSON
from contextc.formats.lint_engine import Violation
from contextc.formats.registry import formatter
from contextc.linting.model_facts import find_model_facts
from contextc.linting.request_coercion import validate_json


def lint(body: JSON, *, format: str) -> list[Violation]:
    """Return the violations in a request, or in a bare list of messages, from the first message to the last.

    If the request names a known model, rules that apply to some models only are checked too.
    """
    form = formatter(format)
    body = validate_json(body)
    return form.rules.lint(body, find_model_facts(form, body))
