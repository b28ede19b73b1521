"""What a stand-in has to know of one vendor. Everything else about serving requests knows no vendor's name.

A vendor is a file in `vendors/` with a `VENDOR`: where and how it is asked, how it refuses, and how it writes a reply,
whole and as events. One more vendor is one more file.
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
from contextc.formats.named import formatter
from contextc.models.facts import Model
from contextc.models.find import model as find_model
from tests.standin.answer import Event, Head, Outcome, Refusal
from tests.standin.reply import Call, Reply, Tokens

KEY = "stand-in-key-0123456789"
"""The one key that every vendor here takes."""
CREATED = 1_790_000_000
"""When replies are said to have been made: a constant, so that a repeated request has the same answer."""
Trouble: TypeAlias = Literal["rate", "quota", "overloaded", "internal", "unavailable"]


class Memory:
    """What a vendor keeps between two requests, and how it is asked about that. Most keep nothing."""

    def serves(self, head: Head) -> bool:
        """Whether this is a request that no model is asked for."""
        return False

    def answer(self, head: Head, raw: bytes) -> JSONObject | Refusal:
        """The answer to one of those."""
        raise NotImplementedError


class Ask:
    """A request that has been let in: what a script and a plan of faults decide by.

    `identity` stands for its content: a request that is sent again has the same one, and the next `attempt`. `number`
    counts the requests that were let in. Both begin with 0. `body` may lack the messages, where nothing is checked;
    `request` has them, and those that the vendor holds itself.
    """

    def __init__(
        self, vendor: "Vendor", head: Head, raw: bytes, body: JSONObject, memory: Memory | None = None
    ) -> None:
        self.vendor, self.raw, self.body, self.memory = vendor, raw, body, memory
        self.path = head.path
        self.model = vendor.model(head, body)
        self.stream = vendor.streams(head, body)
        said = sha256(f"{vendor.format} {self.path} ".encode())
        said.update(raw)
        self.identity = said.hexdigest()
        self.number = self.attempt = 0

    @property
    def formatter(self) -> Formatter:
        return self.vendor.formatter

    @cached_property
    def request(self) -> Request:
        """What the model sees, in our terms."""
        return self.formatter.decode_request(self.vendor.seen(self, decode(self.raw)))

    @cached_property
    def facts(self) -> Model | None:
        return facts(self.model)


class Told:
    """A reply on its way into a vendor's shape."""

    def __init__(self, ask: Ask, reply: Reply, tokens: Tokens) -> None:
        self.ask, self.body, self.model, self.reply, self.tokens = ask, ask.body, ask.model, reply, tokens

    def name(self, prefix: str, number: int = 0, length: int = 24) -> str:
        """An id, the same whenever this attempt is answered; the next attempt at a request has others."""
        said = f"{self.ask.identity} {prefix} {number}" + (f" {self.ask.attempt}" if self.ask.attempt else "")
        return prefix + sha256(said.encode()).hexdigest()[:length]

    def calls(self, prefix: str, length: int = 24) -> list[Call]:
        """The calls, each with its id."""
        return [
            Call(call.name, call.arguments, call.id or self.name(prefix, number, length))
            for number, call in enumerate(self.reply.calls)
        ]


class Vendor(ABC):
    """One vendor's API."""

    format: ClassVar[str]
    name: ClassVar[str]
    """What it is called: as its format, unless several speak that."""
    root: ClassVar[str] = ""
    """What of the path belongs to the address that an SDK is given."""
    key_headers: ClassVar[tuple[str, ...]] = ("authorization",)
    """Where a key may stand; none where no key is asked for."""
    stream_kind: ClassVar[str] = "text/event-stream; charset=utf-8"
    line_end: ClassVar[str] = "\n"
    ends: ClassVar[str] = ""
    """What is sent behind the last event, where something is."""
    free_arguments: ClassVar[bool] = False
    """Whether a call's arguments are text, and so may be anything."""
    reasons: ClassVar[bool] = True
    """Whether reasoning is given out, in whatever form."""
    cache_mark: ClassVar[bytes] = b""
    """What must be in a request for its prefix to be cached; empty where that goes by itself."""
    cache_step: ClassVar[int] = 1

    def __init_subclass__(cls) -> None:
        if "format" in vars(cls) and "name" not in vars(cls):
            cls.name = cls.format

    @property
    def formatter(self) -> Formatter:
        """Which formatter reads its bodies: that of its format, unless the vendor takes more than others do."""
        return formatter(self.format)

    @abstractmethod
    def serves(self, path: str) -> bool: ...

    @abstractmethod
    def model(self, head: Head, body: JSONObject) -> str: ...

    @abstractmethod
    def streams(self, head: Head, body: JSONObject) -> bool: ...

    def key(self, head: Head) -> str | None:
        """The key that was sent."""
        found = [head.headers[name] for name in self.key_headers if name in head.headers]
        return found[0].removeprefix("Bearer ") if found else None

    def unauthorized(self, key: str | None) -> Refusal:
        """What it says to a key that is not the one, or to none; never asked where no key is."""
        raise NotImplementedError

    def unwelcome(self, head: Head) -> Refusal | None:
        """What is wrong with a head, beyond its key."""
        return None

    @abstractmethod
    def invalid(self, message: str, *, path: str = "", status: int = 400) -> Refusal:
        """A refusal for the shape of a request."""

    @abstractmethod
    def too_long(self, ask: Ask, tokens: int, window: int) -> Refusal: ...

    @abstractmethod
    def trouble(self, kind: Trouble, seconds: float) -> Refusal:
        """What it says when it cannot answer now. `seconds`: when to ask again."""

    @abstractmethod
    def trouble_inside(self, kind: Trouble, ask: Ask, number: int) -> list[Event]:
        """The same in the middle of a stream, where `number` events were sent."""

    def memory(self) -> Memory:
        """What it keeps between two requests; every stand-in has one of its own."""
        return Memory()

    def seen(self, ask: Ask, body: JSONObject) -> JSONObject:
        """The body as the model sees it: with what the vendor holds of earlier ones."""
        return body

    def keeps(self, told: "Told") -> Callable[[Outcome], None] | None:
        """A reply is on its way: what is to be done when it is over."""
        return None

    def judged(self, ask: Ask) -> JSONObject:
        """The body as it is held against the rules: with what the vendor knows and the body does not say."""
        return ask.body

    def typed(self, ask: Ask) -> JSONObject:
        """The body as it is held against the SDK's types: without what the vendor takes and its SDK does not know."""
        return ask.body

    def must_reason(self, ask: Ask) -> bool:
        """Whether a model has to say what it thought."""
        return False

    def objections(self, ask: Ask, replies: set[str]) -> Iterable[str | Refusal]:
        """What it refuses beyond rules and types. `replies` are the ids of those it has given."""
        return ()

    @abstractmethod
    def reply_id(self, told: Told) -> str: ...

    @abstractmethod
    def call_ids(self, told: Told) -> list[Call]:
        """The calls with the ids that the client is told; without one where it is told none."""

    @abstractmethod
    def whole(self, told: Told) -> JSONObject: ...

    @abstractmethod
    def events(self, told: Told) -> Iterator[Event]: ...

    def framed(self, event: Event) -> bytes:
        """One event on the line: a server-sent event, unless the vendor streams in another way."""
        head = f"event: {event.name}{self.line_end}".encode() if event.name else b""
        return head + b"data: " + event.written + f"{self.line_end}{self.line_end}".encode()


@cache
def facts(name: str) -> Model | None:
    """What is known about a model; a stand-in serves any."""
    try:
        return find_model(name)
    except UnknownModel:
        return None


@cache
def vendors() -> tuple[Vendor, ...]:
    """All there are."""
    package = import_module("tests.standin.vendors")
    modules = [import_module(f"{package.__name__}.{each.name}") for each in iter_modules(package.__path__)]
    return tuple(module.VENDOR for module in modules if hasattr(module, "VENDOR"))


def vendor(name: str) -> Vendor:
    return next(each for each in vendors() if each.name == name)
