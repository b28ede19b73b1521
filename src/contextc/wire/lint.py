"""What a provider would refuse in a request."""

from contextc._json import JSON
from contextc.formats.checking import Violation
from contextc.formats.named import formatter
from contextc.wire.facts import facts_of
from contextc.wire.reading import checked


def lint(body: JSON, *, format: str) -> list[Violation]:
    """What is wrong with a request, or with a bare list of messages, from the first message to the last.

    Where the request names a model that is known, rules that hold for some models only are checked too.
    """
    form = formatter(format)
    body = checked(body)
    return form.rules.lint(body, facts_of(form, body))
