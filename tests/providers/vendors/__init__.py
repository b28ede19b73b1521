"""Sample requests and "Hello" replies of each API, for our clients. Each module here is discovered automatically."""

from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import requires
from pkgutil import iter_modules
from typing import Any

from msgspec import Struct, field

from contextc._json import JSONObject, encode
from tests.providers.loopback_server import Answer

TEXT: JSONObject = {"role": "user", "content": "Grüß dich 🙂 \u2028"}
OVERLOADED: JSONObject = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def server_sent(event: JSONObject) -> bytes:
    return b"event: x\ndata: " + encode(event) + b"\n\n"


class Vendor(Struct, frozen=True, kw_only=True):
    """One API.

    - `base`, `path`: the provider's base URL path, and the path of a request. `whole_path` is the path of a request
      without streaming, if it differs.
    - `events`, `reply`: the reply "Hello". `last` is sent after the events.
    - `package`: the SDK.
    - `variables`: environment variables that the SDK reads, the key first. Empty if there is no key.
    - `needs_key`: True if the SDK sends nothing without a key.
    - `framed`, `kind`: the encoding of a stream, and its content type.
    - `overloaded`, `code`: an error event, and its code.
    - `garbled`: a malformed event.
    """

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

    @property
    def distribution(self) -> str:
        """Return the name of the SDK's package, as it is installed."""
        return self.package.replace(".", "-")

    @property
    def http_library(self) -> Any:
        """Return the HTTP library that the installed version of the SDK requires: the module httpx2 or httpx."""
        return import_module(
            "httpx2" if any("httpx2" in each for each in requires(self.distribution) or []) else "httpx"
        )

    def streamed(self, events: Iterable[JSONObject] | None = None, *, then: str = "end") -> Answer:
        """Return a stream of these events, one chunk each. Without arguments, all events and `last`."""
        pieces = [self.framed(event) for event in (self.events if events is None else events)]
        return self.sent(*pieces, *([self.last] if self.last and events is None else []), then=then)

    def sent(self, *pieces: bytes, then: str = "end") -> Answer:
        """Return a stream of these bytes."""
        return Answer(pieces, headers=(("content-type", self.kind),), then=then)


def vendors() -> list[Vendor]:
    """Return all APIs."""
    return [import_module(f"{__name__}.{each.name}").VENDOR for each in iter_modules(__path__)]
