"""Adapters for the vendors' SDKs, connected to the fake vendors: one interface to send the same request with each.

Each module here has a `CLIENT` and is discovered automatically. Results have the SDK's own types, exceptions are
unchanged, and nothing is retried. A client also states the messages and classes of its vendor's errors, so that the
tests are vendor-neutral. It need neither stream server-sent events nor take a key.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from contextc._json import JSONObject
from contextc.formats.base import Request
from contextc.formats.registry import formatter
from contextc.messages import Message, system
from contextc.tools.definitions import Tool
from tests.fake_vendors.vendor import KEY, Trouble

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
"""Messages of errors, or of their causes, after a broken connection. Defaults are those of httpx, which most SDKs use.
"reset at once" and "closed at once" happen before any response."""


class Raised(NamedTuple):
    """Class of an SDK's error, and a part of its text."""

    kind: str
    said: str


class SDKClient(ABC):
    """Adapter of one SDK. Arguments and results are Any, because each SDK has its own types."""

    format: ClassVar[str]
    name: ClassVar[str]
    """Its vendor, named as the format, unless several vendors have the same format."""
    model: ClassVar[str]
    settings: ClassVar[JSONObject] = {}
    specs: ClassVar[tuple[str, ...]] = ()
    """Arguments of `cc.provider` for tests of the executor, then those for another model. None if unused."""
    overhead: ClassVar[int] = 0
    """Additional tokens that the vendor's models need for tools."""
    keeps_ids: ClassVar[bool] = True
    """True if the SDK transmits the ids of calls in both directions."""
    counts_reasoning: ClassVar[bool] = True
    """True if the vendor reports reasoning tokens."""

    unknown_key: ClassVar[Raised | None]
    """Error for the key `sk-wrong-0000`. None if no key is needed."""
    refused: ClassVar[str] = "BadRequestError"
    """Error class for an invalid request."""
    orphan: ClassVar[tuple[JSONObject, str]]
    """A message with a result without a call, and the error for it."""
    strange: ClassVar[JSONObject] = {}
    """A field `colour` that only type checks reject. Empty if the SDK rejects it before sending."""
    too_long: ClassVar[str]
    """Error for an input beyond a window of 100 tokens."""
    troubles: ClassVar[Mapping[Trouble, tuple[int, str]]]
    """Status and error class of "overloaded", "internal", "unavailable" and "rate"."""
    quota: ClassVar[tuple[int, str]]
    """Status and message for an account without credit."""
    waits: ClassVar[Mapping[str, str]] = {}
    """Headers that request a wait of 2.5 seconds."""
    inside: ClassVar[tuple[str, str] | None]
    """Text of the error for "overloaded" and "internal" inside a stream. None if no error is raised."""
    words: ClassVar[Mapping[Happened, str]] = WORDS

    def __init_subclass__(cls) -> None:
        if "format" in vars(cls) and "name" not in vars(cls):
            cls.name = cls.format

    def body(self, messages: Sequence[Message], *, prompt: str = "Be brief.", tools: Sequence[Tool] = ()) -> JSONObject:
        """Return a request that our formatter encoded."""
        request = Request(
            messages=tuple(messages), system=system(prompt), tools=tuple(tools), settings={**self.settings}
        )
        return formatter(self.format).encode_request(request)

    def cached(self, body: JSONObject) -> JSONObject:
        """Return the request with what is needed to cache its prefix."""
        return body

    @abstractmethod
    def whole(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> Any: ...

    @abstractmethod
    def events(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> list[Any]:
        """Return all events of a stream."""

    @abstractmethod
    def is_event(self, event: JSONObject) -> None:
        """Check an event strictly against the SDK's type. The SDK itself accepts almost anything."""

    def status(self, error: Any) -> int:
        """Return the HTTP status of an error."""
        return error.status_code

    def headers(self, error: Any) -> Mapping[str, str]:
        """Return the response headers of an error. Names are in lower case."""
        return error.response.headers


def http(timeout: float) -> Any:
    """Return a client that loads no certificates, which takes most of an SDK's startup time.

    It is one of httpx2, or of httpx where the SDKs are so old that they have not installed httpx2.
    """
    library = import_module("httpx2" if find_spec("httpx2") else "httpx")
    return library.Client(verify=False, timeout=timeout)


@cache
def adapter(form: Any) -> Any:  # Any: an adapter of any type
    from pydantic import TypeAdapter

    return TypeAdapter(form)


@cache
def clients() -> tuple[SDKClient, ...]:
    """Return all clients."""
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    return tuple(module.CLIENT for module in modules if hasattr(module, "CLIENT"))


def client_of(name: str) -> SDKClient:
    return next(each for each in clients() if each.name == name)
