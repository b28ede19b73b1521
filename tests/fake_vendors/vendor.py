"""Base class of the fake vendors. All other modules are vendor-neutral.

A vendor is a module in `vendors/` with a `VENDOR`. It defines URLs and keys, error responses, and the encoding of a
reply, complete and as events. To add a vendor, add a module.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from hashlib import sha256
from importlib import import_module
from pkgutil import iter_modules
from typing import ClassVar, Literal, TypeAlias

from contextc._json import JSONObject, decode
from contextc.errors import UnknownModel
from contextc.formats.base import Formatter, Request
from contextc.formats.registry import formatter
from contextc.models.model_info import Model
from contextc.models.model_info import model as find_model
from tests.fake_vendors.replies import Reply, ScriptedCall, Tokens
from tests.fake_vendors.responses import Event, FakeError, Outcome, RequestHead

KEY = "stand-in-key-0123456789"
"""The only valid key, for all vendors."""
CREATED = 1_790_000_000
"""Creation time in replies. It is constant, so that a repeated request gets an equal reply."""
Trouble: TypeAlias = Literal["rate", "quota", "overloaded", "internal", "unavailable"]


class Memory:
    """State that a vendor keeps between requests, and the requests that read it. Most vendors keep none."""

    def serves(self, head: RequestHead) -> bool:
        """Return True if this request reads or changes the state, without a model."""
        return False

    def answer(self, head: RequestHead, raw: bytes) -> JSONObject | FakeError:
        """Answer such a request."""
        raise NotImplementedError


class AcceptedRequest:
    """An accepted request, the input of scripts and fault plans.

    `identity` is derived from its content: a repeated request has the same `identity` and the next `attempt`. `number`
    counts the accepted requests. Both counters start at 0. `body` may lack the messages if nothing is checked.
    `request` contains them, and those that the vendor stores.
    """

    def __init__(
        self, vendor: "Vendor", head: RequestHead, raw: bytes, body: JSONObject, memory: Memory | None = None
    ) -> None:
        self.vendor, self.raw, self.body, self.memory = vendor, raw, body, memory
        self.path, self.headers = head.path, head.headers
        self.model = vendor.model(head, body)
        self.stream = vendor.streams(head, body)
        text = sha256(f"{vendor.format} {self.path} ".encode())
        text.update(raw)
        self.identity = text.hexdigest()
        self.number = self.attempt = 0

    @property
    def formatter(self) -> Formatter:
        return self.vendor.formatter

    @cached_property
    def request(self) -> Request:
        """The decoded request, as the model sees it."""
        return self.formatter.decode_request(self.vendor.seen(self, decode(self.raw)))

    @cached_property
    def facts(self) -> Model | None:
        return facts(self.model)


class EncodedReply:
    """A reply that is being encoded by a vendor."""

    def __init__(self, ask: AcceptedRequest, reply: Reply, tokens: Tokens) -> None:
        self.ask, self.body, self.model, self.reply, self.tokens = ask, ask.body, ask.model, reply, tokens

    def name(self, prefix: str, number: int = 0, length: int = 24) -> str:
        """Return an id that is deterministic for this attempt. The next attempt of a request has other ids."""
        answer = f"{self.ask.identity} {prefix} {number}" + (f" {self.ask.attempt}" if self.ask.attempt else "")
        return prefix + sha256(answer.encode()).hexdigest()[:length]

    def calls(self, prefix: str, length: int = 24) -> list[ScriptedCall]:
        """Return the calls with their ids."""
        return [
            ScriptedCall(call.name, call.arguments, call.id or self.name(prefix, number, length))
            for number, call in enumerate(self.reply.calls)
        ]


class Vendor(ABC):
    """One vendor's API."""

    format: ClassVar[str]
    name: ClassVar[str]
    """Its name: that of its format, unless several vendors have the same format."""
    root: ClassVar[str] = ""
    """The part of the path that belongs to the base URL of the SDK."""
    key_headers: ClassVar[tuple[str, ...]] = ("authorization",)
    """Headers that may hold the key. Empty if no key is needed."""
    stream_kind: ClassVar[str] = "text/event-stream; charset=utf-8"
    line_end: ClassVar[str] = "\n"
    ends: ClassVar[str] = ""
    """Bytes after the last event, if any."""
    free_arguments: ClassVar[bool] = False
    """True if arguments of a call are a string, and so may be invalid JSON."""
    reasons: ClassVar[bool] = True
    """True if reasoning is returned in any form."""
    cache_mark: ClassVar[bytes] = b""
    """Bytes that a request must contain for its prefix to be cached. Empty if caching is automatic."""
    cache_rules: ClassVar[str] = ""
    """The rules of its cache: a format of `SimulatedCache`. "" for one that compares bytes."""
    cache_step: ClassVar[int] = 1

    def __init_subclass__(cls) -> None:
        if "format" in vars(cls) and "name" not in vars(cls):
            cls.name = cls.format

    @property
    def formatter(self) -> Formatter:
        """Return the formatter that decodes its bodies. The default is that of its format."""
        return formatter(self.format)

    @abstractmethod
    def serves(self, path: str) -> bool: ...

    @abstractmethod
    def model(self, head: RequestHead, body: JSONObject) -> str: ...

    @abstractmethod
    def streams(self, head: RequestHead, body: JSONObject) -> bool: ...

    def key(self, head: RequestHead) -> str | None:
        """Return the key in the request."""
        found = [head.headers[name] for name in self.key_headers if name in head.headers]
        return found[0].removeprefix("Bearer ") if found else None

    def unauthorized(self, key: str | None) -> FakeError:
        """Return the error for a wrong or missing key. Not called if no key is needed."""
        raise NotImplementedError

    def unwelcome(self, head: RequestHead) -> FakeError | None:
        """Return the problem of the headers, apart from the key."""
        return None

    @abstractmethod
    def invalid(self, message: str, *, path: str = "", status: int = 400) -> FakeError:
        """Return the error for an invalid request."""

    @abstractmethod
    def too_long(self, ask: AcceptedRequest, tokens: int, window: int) -> FakeError: ...

    @abstractmethod
    def trouble(self, kind: Trouble, seconds: float) -> FakeError:
        """Return the error for a temporary failure. `seconds` is the time to wait before a retry."""

    @abstractmethod
    def trouble_inside(self, kind: Trouble, ask: AcceptedRequest, number: int) -> list[Event]:
        """Return the error event for a temporary failure inside a stream, after `number` events."""

    def memory(self) -> Memory:
        """Return new state, which each fake keeps between requests."""
        return Memory()

    def seen(self, ask: AcceptedRequest, body: JSONObject) -> JSONObject:
        """Return the body as the model sees it, with the content that the vendor stored."""
        return body

    def keeps(self, encoded: "EncodedReply") -> Callable[[Outcome], None] | None:
        """Return a callback for the end of a reply."""
        return None

    def judged(self, ask: AcceptedRequest) -> JSONObject:
        """Return the body for our lint rules, with the content that the vendor stored."""
        return ask.body

    def typed(self, ask: AcceptedRequest) -> JSONObject:
        """Return the body for the SDK's types, without fields that only the API accepts."""
        return ask.body

    def must_reason(self, ask: AcceptedRequest) -> bool:
        """Return True if the model returns reasoning."""
        return False

    def objections(self, ask: AcceptedRequest, replies: set[str]) -> Iterable[str | FakeError]:
        """Return vendor-specific problems of a request. `replies` are the ids of its replies so far."""
        return ()

    @abstractmethod
    def reply_id(self, encoded: EncodedReply) -> str: ...

    @abstractmethod
    def call_ids(self, encoded: EncodedReply) -> list[ScriptedCall]:
        """Return the calls with the ids that the client gets, or without ids if it gets none."""

    @abstractmethod
    def whole(self, encoded: EncodedReply) -> JSONObject: ...

    @abstractmethod
    def events(self, encoded: EncodedReply) -> Iterator[Event]: ...

    def framed(self, event: Event) -> bytes:
        """Encode one event. The default is a server-sent event."""
        head = f"event: {event.name}{self.line_end}".encode() if event.name else b""
        return head + b"data: " + event.written + f"{self.line_end}{self.line_end}".encode()


@cache
def facts(name: str) -> Model | None:
    """Return the facts of a model. A fake serves any model."""
    try:
        return find_model(name)
    except UnknownModel:
        return None


@cache
def vendors() -> tuple[Vendor, ...]:
    """All there are."""
    package = import_module("tests.fake_vendors.vendors")
    modules = [import_module(f"{package.__name__}.{each.name}") for each in iter_modules(package.__path__)]
    return tuple(module.VENDOR for module in modules if hasattr(module, "VENDOR"))


def vendor(name: str) -> Vendor:
    return next(each for each in vendors() if each.name == name)
