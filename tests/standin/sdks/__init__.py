"""The vendors' own SDKs, pointed at a stand-in: one small way to ask each of them for the same thing.

One file for each, with a `CLIENT`, which is found by being there. What an SDK returns is its own types; what it raises
is left as it is, and nothing is retried. A client also says in which words and classes its vendor's refusals arrive, so
that the tests of the stand-ins know no vendor's name. It need neither stream server-sent events nor take a key.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import httpx2

from contextc._json import JSONObject
from contextc.formats.base import Request
from contextc.formats.named import formatter
from contextc.messages import Message, system
from contextc.tools import Tool
from tests.standin.vendor import KEY, Trouble

LOOK = Tool(
    name="look",
    description="Look at a thing.",
    parameters={
        "type": "object",
        "properties": {"thing": {"type": "string"}, "times": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["thing"],
        "additionalProperties": False,
    },
)
Happened: TypeAlias = Literal["cut", "reset", "cut whole", "reset at once", "closed at once", "silent", "garbled"]
WORDS: Mapping[Happened, str] = MappingProxyType(
    {
        "cut": "incomplete chunked read",
        "reset": "ReadError",
        "cut whole": "without sending complete message body",
        "reset at once": "reset by peer",
        "closed at once": "disconnected",
        "silent": "timed out",
        "garbled": "JSON",
    }
)
"""What an error says that a broken line left behind, or one of its causes: here by httpx, which most SDKs are made on.
"reset at once" and "closed at once": before anything came."""


class Raised(NamedTuple):
    """The class of an error that an SDK raises, and what its text has in it."""

    kind: str
    said: str


class Client(ABC):
    """One SDK. Any: what it takes and gives has a type for every vendor, and here they are used alike."""

    format: ClassVar[str]
    name: ClassVar[str]
    """The vendor it is for; called as its format, unless several speak that."""
    model: ClassVar[str]
    settings: ClassVar[JSONObject] = {}
    specs: ClassVar[tuple[str, ...]] = ()
    """A provider and its model as `cc.provider` takes them, and then another model there: whom an executor is to ask.
    None where no executor asks."""
    overhead: ClassVar[int] = 0
    """How many tokens more than elsewhere the vendor's models take to be told of tools."""
    keeps_ids: ClassVar[bool] = True
    """Whether the SDK passes on the ids of calls, both ways."""
    counts_reasoning: ClassVar[bool] = True
    """Whether the vendor says how many tokens its model reasoned."""

    unknown_key: ClassVar[Raised | None]
    """What comes of the key `sk-wrong-0000`; None where no key is asked for."""
    refused: ClassVar[str] = "BadRequestError"
    """The class of a request that is wrong."""
    orphan: ClassVar[tuple[JSONObject, str]]
    """A message with a result that no call asked for, and what is said to it."""
    strange: ClassVar[JSONObject] = {}
    """Something with a `colour` in it, which only types refuse; nothing where the SDK itself does, before it asks."""
    too_long: ClassVar[str]
    """What is said to an input beyond a window of 100 tokens."""
    troubles: ClassVar[Mapping[Trouble, tuple[int, str]]]
    """The status and the class of "overloaded", "internal", "unavailable" and "rate"."""
    quota: ClassVar[tuple[int, str]]
    """The status of an empty account, and what is said of it."""
    waits: ClassVar[Mapping[str, str]] = {}
    """The headers that say when to come back, for 2.5 seconds."""
    inside: ClassVar[tuple[str, str] | None]
    """What the error says that is raised for "overloaded" and "internal" within a stream; None where none is."""
    words: ClassVar[Mapping[Happened, str]] = WORDS

    def __init_subclass__(cls) -> None:
        if "format" in vars(cls) and "name" not in vars(cls):
            cls.name = cls.format

    def body(self, messages: Sequence[Message], *, prompt: str = "Be brief.", tools: Sequence[Tool] = ()) -> JSONObject:
        """A request as our formatter writes it."""
        request = Request(
            messages=tuple(messages), system=system(prompt), tools=tuple(tools), settings={**self.settings}
        )
        return formatter(self.format).encode_request(request)

    def cached(self, body: JSONObject) -> JSONObject:
        """The request with what it needs for its prefix to be cached."""
        return body

    @abstractmethod
    def whole(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> Any: ...

    @abstractmethod
    def events(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> list[Any]:
        """All events of a stream."""

    @abstractmethod
    def is_event(self, event: JSONObject) -> None:
        """Hold an event against the SDK's own type, strictly; the SDK itself takes almost anything."""

    def status(self, error: Any) -> int:
        """The status that an error carries."""
        return error.status_code

    def headers(self, error: Any) -> Mapping[str, str]:
        """The headers that an error carries, their names in lower case."""
        return error.response.headers


def http(timeout: float) -> httpx2.Client:
    """A client that does not read certificates, which takes most of the time that an SDK needs to begin."""
    return httpx2.Client(verify=False, timeout=timeout)


@cache
def adapter(form: Any) -> Any:  # Any: an adapter of whatever type it is given
    from pydantic import TypeAdapter

    return TypeAdapter(form)


@cache
def clients() -> tuple[Client, ...]:
    """All there are."""
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    return tuple(module.CLIENT for module in modules if hasattr(module, "CLIENT"))


def client_of(name: str) -> Client:
    return next(each for each in clients() if each.name == name)
