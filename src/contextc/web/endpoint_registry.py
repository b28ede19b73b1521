"""The registry of API endpoints, and the decorator that declares one.

An endpoint is a function in `web/api/` with the decorator `@endpoint(…)`. Its type annotations define both validation
and the OpenAPI document. Its parameters are `app` (the state of the server), the names in its path, `query` and `body`
(a Struct each), and `request`. It returns JSON of its annotated type, a `RawResponse` or an `EventStream`. Its path is
relative to `/api`. A function that is not `async` runs on a worker thread, because the store is synchronous, and always
runs to its end. The constant `TAG` of its module is its OpenAPI tag and the start of its operation id. Clients are
generated from both: do not change it.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_type_hints

from msgspec import Struct

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
EndpointFunction = TypeVar("EndpointFunction", bound=Callable[..., Any])  # endpoints have different parameters
INJECTED_PARAMETERS = ("app", "query", "body", "request")


class RawResponse(NamedTuple):
    """A response that is not JSON of a declared type."""

    data: bytes
    media_type: str
    headers: Mapping[str, str] = {}
    status: int | None = None
    """The status, if it differs from the endpoint's."""


class EventStream(NamedTuple):
    """A streaming response. `events` is closed when the client disconnects."""

    events: AsyncIterator[bytes]
    media_type: str = "text/event-stream"
    headers: Mapping[str, str] = {}


class Endpoint(NamedTuple):
    """A declared endpoint."""

    method: Method
    path: str
    function: Callable[..., Any]
    status: int
    parameter_types: Mapping[str, Any]
    """Types of the parameters, by name."""
    return_type: Any
    media_type: str
    """Media type of the response, if it is not JSON."""
    tag: str
    """OpenAPI tag: the `TAG` of its module."""

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @property
    def path_parameters(self) -> tuple[str, ...]:
        """Names of the path parameters."""
        return tuple([each[1:-1] for each in self.segments if each.startswith("{")])

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)


ENDPOINTS: list[Endpoint] = []


class EmptyObject(Struct, frozen=True, forbid_unknown_fields=True):
    """An empty object."""


def endpoint(
    method: Method, path: str, *, status: int = 200, media_type: str = ""
) -> Callable[[EndpointFunction], EndpointFunction]:
    """Declare a function as an endpoint. `media_type` is that of the response, if it is not JSON."""

    def declare(work: EndpointFunction) -> EndpointFunction:
        parameter_types = get_type_hints(work)
        return_type = parameter_types.pop("return")
        assert not path.startswith("/api/"), f"{path}: path must be relative to /api"
        tag = work.__globals__["TAG"]
        made = Endpoint(method, path, work, status, parameter_types, return_type, media_type, tag)
        assert {*made.path_parameters} == {*parameter_types} - {*INJECTED_PARAMETERS}, (
            f"{method} {path}: path parameters {made.path_parameters} do not match the function: {[*parameter_types]}"
        )
        ENDPOINTS.append(made)
        return work

    return declare
