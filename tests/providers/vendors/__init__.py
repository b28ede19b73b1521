"""How each API is asked over our own lines, and how it answers "Hello": one file for each, found by being there."""

from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules

from msgspec import Struct, field

from contextc._json import JSONObject, encode
from tests.providers.loopback import Answer

TEXT: JSONObject = {"role": "user", "content": "Grüß dich 🙂 \u2028"}
OVERLOADED: JSONObject = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def server_sent(event: JSONObject) -> bytes:
    return b"event: x\ndata: " + encode(event) + b"\n\n"


class Vendor(Struct, frozen=True, kw_only=True):
    """`base` and `path`: the address that a provider is given, and where a request arrives; `whole_path` where one that
    is not streamed arrives elsewhere. `events` and `reply` say "Hello"; `last` is sent behind the events, and belongs
    to none. `package`: the SDK. `variables`: what an SDK reads by itself, first that of the key; none where there is
    no key. `needs_key`: nothing is asked without one. `framed`, `kind`: how a stream is written, and what it is called.
    `overloaded`, `code`: an error event, and the code in it. `garbled`: what looks like an event and is none."""

    spec: str
    base: str = ""
    path: str
    body: JSONObject
    events: list[JSONObject]
    reply: JSONObject
    package: str
    variables: tuple[str, ...] = ()
    needs_key: bool = True
    whole_path: str = ""
    last: bytes = b""
    framed: Callable[[JSONObject], bytes] = server_sent
    kind: str = "text/event-stream"
    overloaded: JSONObject = field(default_factory=lambda: OVERLOADED)
    code: str = "overloaded_error"
    garbled: bytes = b"data: {oh\n\n"

    @property
    def name(self) -> str:
        return self.spec.partition(":")[0]

    def streamed(self, events: Iterable[JSONObject] | None = None, *, then: str = "end") -> Answer:
        """These events as a stream, each in a piece of its own; all and the last word, where none are named."""
        pieces = [self.framed(event) for event in (self.events if events is None else events)]
        return self.sent(*pieces, *([self.last] if self.last and events is None else []), then=then)

    def sent(self, *pieces: bytes, then: str = "end") -> Answer:
        """A stream of these bytes."""
        return Answer(pieces, headers=(("content-type", self.kind),), then=then)


def vendors() -> list[Vendor]:
    """All there are."""
    return [import_module(f"{__name__}.{each.name}").VENDOR for each in iter_modules(__path__)]
