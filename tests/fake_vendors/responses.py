"""Responses of the fake vendors as a list of steps, and the records of requests.

A response is a value: bytes, and connection events between them. The server and the in-process transport each perform
its steps. A fault is a change to a response. Status 0 means that not even the headers are sent.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct

from contextc._json import JSON, JSONObject, encode
from tests.fake_vendors.replies import Reply, Tokens

Outcome: TypeAlias = Literal["done", "refused", "broken"]
"""Outcome of a request. For "broken", the client cannot know whether the reply was completed."""
Headers: TypeAlias = tuple[tuple[str, str], ...]
SECRETS = ("authorization", "api-key", "cookie", "proxy-authorization", "x-amz-security-token")
"""Headers that are never recorded. The headers that hold a vendor's key are not recorded either."""


class RequestHead(NamedTuple):
    """A request without its body. Header names are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]


class Event(NamedTuple):
    """One event of a stream. `name` is set if the vendor names events outside the data. The vendor frames the event.

    Data of type str is sent unchanged and may be invalid JSON.
    """

    data: JSON
    name: str = ""

    @property
    def written(self) -> bytes:
        """Return the data as bytes."""
        return self.data.encode() if isinstance(self.data, str) else encode(self.data)


class Pause(NamedTuple):
    """Pause: nothing is sent for a while."""

    seconds: float


class Silence(NamedTuple):
    """Hang: nothing more is sent, until the client times out."""


class Drop(NamedTuple):
    """End of the connection: closed or reset."""

    reset: bool = False


Step: TypeAlias = bytes | Pause | Silence | Drop


class FakeError(NamedTuple):
    """Error response: a status other than 200, with a body in the vendor's form."""

    status: int
    body: JSONObject
    headers: Headers = ()

    @property
    def said(self) -> str:
        """Return its error message, wherever the vendor puts it."""
        error: JSON = self.body.get("error", self.body)
        return str(cast(JSONObject, error).get("message")) if isinstance(error, dict) else str(error)


class RequestRecord(Struct, kw_only=True):
    """One received request and its outcome. Keys are not recorded.

    `refused` is the vendor's error message for a rejected request. `fault` names the change to the response, and
    `spoiled` is True if the changed response is incomplete. `completed` is True once the last byte of a good response
    is sent. `defects` are mistakes that no vendor rejects, but no client should make.
    """

    number: int
    time: float
    connection: int
    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    format: str = ""
    model: str = ""
    identity: str = ""
    attempt: int = 0
    status: int = 0
    refused: str = ""
    fault: str = ""
    spoiled: bool = False
    completed: bool = False
    reply: Reply | None = None
    tokens: Tokens | None = None
    defects: tuple[str, ...] = ()
    then: Callable[[Outcome], None] | None = None
    """Callback of the vendor for the end of the request."""

    def sent(self) -> None:
        """Record that the last bytes are being sent."""
        self.completed = self.status == 200 and not self.spoiled
        self.over()

    def over(self) -> None:
        """Record that nothing more is sent."""
        then, self.then = self.then, None
        if then is not None:
            then("done" if self.completed else "refused" if self.status >= 400 else "broken")


class FakeResponse(Struct, frozen=True, kw_only=True):
    """A response. `length` is the announced content length, if it differs from the real one.

    `events` are the events of a stream, in order, one per step. A fault changes the steps, but not `events`.
    """

    status: int
    steps: tuple[Step, ...]
    headers: Headers = ()
    kind: str = "application/json"
    streamed: bool = False
    events: tuple[Event, ...] = ()
    length: int | None = None

    @property
    def announced(self) -> Headers:
        """Return all headers."""
        if self.streamed:
            return (("content-type", self.kind), ("cache-control", "no-cache"), *self.headers)
        length = self.length
        if length is None:
            length = sum(len(step) for step in self.steps if isinstance(step, bytes))
        return (("content-type", self.kind), ("content-length", str(length)), *self.headers)


def refused(refusal: FakeError) -> FakeResponse:
    return FakeResponse(status=refusal.status, steps=(encode(refusal.body),), headers=refusal.headers)
