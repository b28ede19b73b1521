"""What an endpoint is: a function with types. They are what the server checks, and what its OpenAPI page says.

A function of `web/api/` with `@endpoint(…)` over it is one. Its parameters say what it needs: `desk`, those named in
its path, `query` and `body` (a Struct each), and `request` where it needs the rest. What it returns is JSON of the type
it says, unless that is a `Content` or a `Stream`. Its path is the one below `/api`. One that is not `async` runs on a
worker thread, because the store is synchronous; it is not left before it has ended.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_type_hints

from msgspec import Struct

Method: TypeAlias = Literal["GET", "POST", "PUT", "DELETE"]
Work = TypeVar("Work", bound=Callable[..., Any])  # endpoints differ in what they take, which is read from their types
OWN = ("desk", "query", "body", "request")


class Content(NamedTuple):
    """An answer that is no JSON of ours."""

    data: bytes
    media_type: str
    headers: Mapping[str, str] = {}
    status: int | None = None
    """Where it is not the endpoint's."""


class Stream(NamedTuple):
    """An answer that goes on. Who leaves closes `events`."""

    events: AsyncIterator[bytes]
    media_type: str = "text/event-stream"
    headers: Mapping[str, str] = {}


class Endpoint(NamedTuple):
    method: Method
    path: str
    work: Callable[..., Any]
    status: int
    takes: Mapping[str, Any]
    """The types of its parameters, by name."""
    answer: Any
    media_type: str
    """What it answers with, where that is no JSON."""

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @property
    def named(self) -> tuple[str, ...]:
        """What its path has places for."""
        return tuple([each[1:-1] for each in self.segments if each.startswith("{")])

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.work)


ENDPOINTS: list[Endpoint] = []


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No more is to be said than that it was done."""


def endpoint(method: Method, path: str, *, status: int = 200, media_type: str = "") -> Callable[[Work], Work]:
    """Make a function an endpoint. `media_type` is what it answers with, if that is no JSON."""

    def declare(work: Work) -> Work:
        takes = get_type_hints(work)
        answer = takes.pop("return")
        assert not path.startswith("/api/"), f"{path}: every path is below /api anyway"
        made = Endpoint(method, path, work, status, takes, answer, media_type)
        assert {*made.named} == {*takes} - {*OWN}, f"{method} {path} names {made.named}, and its function {[*takes]}"
        ENDPOINTS.append(made)
        return work

    return declare
