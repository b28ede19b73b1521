"""Test data of each format: one module per format.

`known(name)` gives what a module says, and what is usual where it says nothing; `having` names the formats of which
something is known. A format without a module here fails the tests that run over all formats.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Protocol, TypeAlias, cast

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats import formatter
from contextc.formats.base import Formatter
from contextc.tools.definitions import NativeTool
from tests.formats import traffic
from tests.formats.judging import Problem, sentence

Blocks: TypeAlias = tuple[tuple[str, JSON], ...]
"""Blocks that only their provider knows, each under its name."""
Refused: TypeAlias = tuple[str, JSON, str]
"""A place in a good conversation, what is put there (`...` takes it away), and how the objection begins."""
PARTIAL = '{"path": "a.'
"""Arguments that were cut off."""


class Known(Protocol):
    """Contents of a module here. Fields without a default are required.

    In the material of random histories, `*` is a placeholder for a text that is searched for later.
    """

    SETTINGS: JSONObject
    """What makes a request one of the model that has the most rules."""
    MODEL: str
    """A provider and its model, as `cc.provider` takes them; "" where no stateless provider speaks the format."""
    UNANSWERED: str
    """The code of the rule against a call without its result; "" where both are one thing."""
    ORPHAN: str
    """The code of the rule against a result without its call; "" where both are one thing."""
    arguments: Callable[[JSONObject], JSON]
    """Where a call has its arguments on the wire, in a piece that the sketch calls a call."""
    problems: Callable[[JSONObject], list[Problem]]
    """What the vendor's own types have against a body; bare messages come as one."""

    OVERHEAD: int = 0
    """How many tokens a request of `MODEL` takes before anything is said, once there are calls in it."""
    RESULTS_ANYWHERE: bool = False
    """Whether a result may stand anywhere after its call."""
    BLANK_REFUSED: bool = False
    """Whether a text of nothing but white space is refused."""
    HASHES_IDS: bool = False
    """Whether the id of another provider's call is written as a hash, which nobody can read back."""
    USER_FIRST: str = ""
    """The code of the rule that the user speaks first, where there is one."""
    ADDS: Sequence[str] = ()
    """The keys beside its messages that a body with calls cannot do without."""
    PASSES_ON: Sequence[str] = ()
    """The providers whose reasoning it hands on to them, beside its own."""
    BORROWS: Sequence[str] = ()
    """The formats whose recordings are converted for it, where it has none."""
    VENDOR: str = ""
    """Whose recordings come with the project, whole and as streams: the vendor that its types are held against."""
    events: Callable[[str], list[JSONObject]] = staticmethod(traffic.events)
    """The events of a recorded stream."""

    VARIANTS: Mapping[str, Formatter] = {}
    """Formatters with other options, under a word for each: random histories are written by them too."""
    THOUGHTS: Sequence[cc.Reasoning] = ()
    FILES: Sequence[cc.Media] = ()
    USER_BLOCKS: Blocks = ()
    MODEL_BLOCKS: Blocks = ()
    TOOLS: Sequence[NativeTool] = ()
    """What random histories hold of this provider."""

    OPENED: Mapping[str, JSON] = {}
    """The first message of a history that begins with the assistant's "Hello!"."""
    MALFORMED: Mapping[str, JSON] = {}
    """The call `a` of the tool `look`, whose arguments are PARTIAL, on the wire."""
    ARGUMENTS_AT: Sequence[int | str] = ()
    """Where a message with one call has its arguments, if they have to be an object."""
    HALF_CALL: Sequence[JSONObject] = ()
    """A stream that breaks off in the call `a` of the tool `look`, after PARTIAL."""
    BROKEN: Sequence[JSONObject] = ()
    """A stream that says "half", and then, as an error, "overloaded"."""
    ERRORS: Sequence[JSONObject] = ()
    """Error events, one of each kind."""
    GOOD: Sequence[JSONObject] = ()
    """A conversation with tools that the vendor's types accept."""
    REFUSED: Sequence[Refused] = ()
    """What they refuse in it."""


USUAL = {name: getattr(Known, name) for name in Known.__annotations__ if hasattr(Known, name)}


@cache
def known(name: str) -> Known:
    """What is known of a format."""
    module = import_module(f"{__name__}.{name}")
    return cast(Known, SimpleNamespace(**{**USUAL, **vars(module)}))


def having(fact: str) -> list[str]:
    """The formats of which this is known, and not nothing."""
    return [each.name for each in iter_modules(__path__) if getattr(known(each.name), fact)]


def problems(format: str, body: JSONObject | Sequence[JSONObject]) -> list[str]:
    """What the vendor's types have against a body, or against bare messages. Empty where they accept it."""
    given = body if isinstance(body, dict) else {formatter(format).messages_key: list(body)}
    return [sentence(place, text) for place, text in known(format).problems(given)]
