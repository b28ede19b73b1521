"""What a provider would refuse in a request."""

from contextc._json import JSON
from contextc.formats.checking import Violation
from contextc.formats.named import formatter


def lint(body: JSON, *, format: str) -> list[Violation]:
    """What is wrong with a request, or with a bare list of messages, from the first message to the last."""
    return formatter(format).rules.lint(body)
