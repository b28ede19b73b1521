"""What goes back over the line, step by step, and what is kept of the exchange.

An answer is a value: bytes, and between them what may happen to a line. The server and the in-process transport each
act it out in their own way; a fault is a change to it. Status 0 means that not even a head is sent.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct

from contextc._json import JSON, JSONObject, encode
from tests.standin.reply import Reply, Tokens

Outcome: TypeAlias = Literal["done", "refused", "broken"]
"""How an exchange ended; where the line broke, nobody knows what became of the reply."""
Headers: TypeAlias = tuple[tuple[str, str], ...]
SECRETS = ("authorization", "api-key", "cookie", "proxy-authorization", "x-amz-security-token")
"""Headers that are never kept, and neither are those that a vendor has its key in."""


class Head(NamedTuple):
    """A request without its body. Names of headers are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]


class Event(NamedTuple):
    """One event of a stream; `name` where the vendor names its events outside the data. A vendor puts it in a frame.

    Data that is text is what stands there already, and may be no JSON.
    """

    data: JSON
    name: str = ""

    @property
    def written(self) -> bytes:
        """The data as bytes."""
        return self.data.encode() if isinstance(self.data, str) else encode(self.data)


class Pause(NamedTuple):
    """Nothing is sent for a while."""

    seconds: float


class Silence(NamedTuple):
    """Nothing is sent ever again; the client has to give up."""


class Drop(NamedTuple):
    """The line is gone: closed, or reset."""

    reset: bool = False


Step: TypeAlias = bytes | Pause | Silence | Drop


class Refusal(NamedTuple):
    """A status other than 200, with the vendor's own body."""

    status: int
    body: JSONObject
    headers: Headers = ()

    @property
    def said(self) -> str:
        """Its words, wherever the vendor has them."""
        error: JSON = self.body.get("error", self.body)
        return str(cast(JSONObject, error).get("message")) if isinstance(error, dict) else str(error)


class Record(Struct, kw_only=True):
    """One request as it came, and what became of it. Keys are not kept.

    `refused` says why it was turned away, in the vendor's words; `fault` what was done to the answer, and `spoiled`
    that it is none any more. `completed`: the last byte of a good one went out. `defects`: what no vendor refuses and
    nobody means to send.
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
    """What the vendor does when it is over."""

    def sent(self) -> None:
        """The last of the answer is on its way."""
        self.completed = self.status == 200 and not self.spoiled
        self.over()

    def over(self) -> None:
        """Nothing more is sent, for whatever reason."""
        then, self.then = self.then, None
        if then is not None:
            then("done" if self.completed else "refused" if self.status >= 400 else "broken")


class Answer(Struct, frozen=True, kw_only=True):
    """What is sent. `length` is the one that is announced, where that is not the length of what follows.

    `events` are what a stream was made of, in order, each of them a step; what a fault does to the steps does not
    change them.
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
        """All headers."""
        if self.streamed:
            return (("content-type", self.kind), ("cache-control", "no-cache"), *self.headers)
        length = self.length
        if length is None:
            length = sum(len(step) for step in self.steps if isinstance(step, bytes))
        return (("content-type", self.kind), ("content-length", str(length)), *self.headers)


def refused(refusal: Refusal) -> Answer:
    return Answer(status=refusal.status, steps=(encode(refusal.body),), headers=refusal.headers)
