"""Interface of all clients: send a compiled request as bytes, and return the API's events.

An endpoint does not depend on messages, stores or turns. It never retries. Every failure is a `ProviderFailed`, and the
caller decides what to do. Each client is one module of this package, named by `provider.client`. It has a function
`open(provider, **options)`.

An endpoint is used on one event loop, for any number of concurrent calls. To close the connection of a call, close the
generator that `stream` returned, or cancel the task that reads it.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import Protocol, Self, TypeAlias, cast

from msgspec import Struct

from contextc._json import JSONObject, decode
from contextc._sequence_comparison import find_near_names
from contextc.errors import InvalidSetting
from contextc.messages import Message, ToolCall, ToolResult
from contextc.providers.registry import Provider, has_url
from contextc.providers.registry import provider as named

Deliver: TypeAlias = Callable[[Sequence[Message]], Awaitable[bool] | bool]
"""Hands system and user messages to the model of a running reply, in a form that its client chooses.

Returns False if the model did not get them. They are then sent with the next request.
"""


class Host(Protocol):
    """Callbacks for a provider that runs tools during its reply."""

    async def approve(self, call: ToolCall) -> str:
        """Return "" to allow a tool call of the provider, else the reason for the denial."""
        ...

    async def run(self, call: ToolCall) -> ToolResult:
        """Run a tool of the request and return its result."""
        ...

    async def admit(self, call: ToolCall) -> str:
        """Return "" if a limit allows this call, else why not. Then the client denies it and ends the reply.

        The client calls this before each call of a tool of its own, if it can, otherwise when the call has started.
        """
        ...

    async def between_calls(self, deliver: Deliver, results: Collection[str] = ()) -> str:
        """Return "" if the reply shall go on, else why not. Then the client ends it.

        The client calls this when every call so far has its result, before the model reads them. `results` are the ids
        of calls whose results are among the events of the reply, even if they were not read yet. Messages of triggers
        and steering input are stored, and handed to `deliver`.
        """
        ...


class ProviderCall(Struct, frozen=True, kw_only=True):
    """One request, ready to be sent.

    - `body`: the bytes to send. `arguments` returns the same request for an SDK that takes no bytes.
    - `stream`: True if the body requests a stream.
    - `timeout`: seconds to connect, and between two chunks of a response. None uses the timeout of the endpoint.
    - `headers`: added to those of the SDK.
    - `conversation`: the conversation that the request belongs to, or "".

    For a provider with sessions:

    - `session`: the session to resume. "" starts a new one.
    - `cursor`: the position of the session after the last stored reply.
    - `revert`: the session may contain a failed prompt, so revert it to the cursor first.
    - `session_opening`: returns what a session starts with (system prompt, tools). A request that resumes a session
    does not
      repeat it, but a restarted program needs it.
    - `directory`: the working directory of a program. "" is the current one.
    - `host`: approves tool calls and runs the tools of the request.
    """

    provider: Provider
    body: bytes
    arguments: Callable[[], JSONObject] = dict
    stream: bool = True
    timeout: float | None = None
    headers: Mapping[str, str] = {}
    conversation: str = ""
    session: str = ""
    cursor: str = ""
    revert: bool = False
    session_opening: Callable[[], JSONObject] = dict
    directory: str = ""
    host: Host | None = None

    def full_request(self) -> JSONObject:
        """Return the parsed body, completed by the `session_opening` of its session."""
        return {**self.session_opening(), **decode(self.body)}


class Endpoint(ABC):
    """Client of one provider."""

    answers_for: Provider | None = None
    """The provider whose requests it takes, if it is made for one. An agent can have such a client as its model."""

    @abstractmethod
    def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        """Yield the API's events as JSON objects. Without streaming, the complete reply is the only event.

        Raise `ProviderFailed` on failure. An error event inside a stream is yielded first, then raised.
        """

    async def close(self) -> None:
        """Close all connections. Running calls end with an error."""
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class ClientModule(Protocol):
    """Interface of a client module."""

    def open(self, provider: Provider, **options: object) -> Endpoint: ...


def check_settings(names: Iterable[str], known: Collection[str], program: str) -> None:
    """Raise InvalidSetting for a setting that a program does not have, because it might ignore it."""
    for name in names:
        if name not in known:
            close = find_near_names(name, known)[:1]
            hint = f"Did you mean {close[0]!r}?" if close else f"Expected one of: {', '.join(sorted(known))}."
            raise InvalidSetting(f"{name!r}: unknown request setting of {program}", fix=hint)


def check_env(env: object) -> dict[str, str]:
    """Return the variables to add to a program's environment. Raise InvalidSetting if they are not strings."""
    found: dict[object, object] = dict(cast(Mapping[object, object], env)) if isinstance(env, Mapping) else {}
    texts = (*found, *found.values())
    if (env is not None and not isinstance(env, Mapping)) or not all(isinstance(each, str) for each in texts):
        raise InvalidSetting(
            "env: must be a dict of strings", fix='Pass a dict such as {"HTTPS_PROXY": "http://127.0.0.1:8080"}.'
        )
    return cast(dict[str, str], found)


def endpoint(provider: Provider | str, **options: object) -> Endpoint:
    """Open a client for this provider. It belongs to the event loop on which it is first used.

    Options of HTTP clients: `timeout` in seconds, and `http_client`, an HTTP client of the type that the vendor's SDK
    takes (for a proxy or a test). Options of CLI agents: `store` for the transcripts of sessions, and `env`, added to
    the environment. A client may have more options.
    """
    provider = named(provider) if isinstance(provider, str) else provider
    if not provider.client:
        raise InvalidSetting(
            f"provider {provider.name!r}: no client can call it",
            fix='Name a client: cc.provider("…", client="openai"), or compile the request and send it yourself.',
        )
    if not has_url(provider):
        raise InvalidSetting(
            f"Provider {provider.name!r}: no address is known for the format {provider.format!r}",
            fix=f'Pass it: cc.provider("{provider.name}:…", url="https://…/v1", key="THE_VARIABLE_WITH_THE_KEY").',
            case="address",
            detail=provider.name,
        )
    path = provider.client if "." in provider.client else f"contextc.providers.{provider.client}"
    try:
        module = import_module(path)
    except ModuleNotFoundError as error:
        if error.name not in (path, path.partition(".")[0]):
            raise
        raise InvalidSetting(
            "client: expected a module of contextc.providers, or the full path of another module", got=provider.client
        ) from None
    try:
        return cast(ClientModule, module).open(provider, **options)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        option = str(error).rpartition(" ")[2]
        raise InvalidSetting(f"endpoint of {provider.name}: unknown option {option}.") from None
