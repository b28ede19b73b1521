"""An open line to a provider: a request goes out as the bytes it was compiled to, and the API's events come back.

An endpoint knows nothing of messages, stores or turns. It never tries again, and says how a call failed in one way for
all providers, `ProviderFailed`: whoever calls decides what to do about it. One module in this folder is one client,
found by `provider.client`; it has a function `open(provider, **options)`, and loads its SDK there.

An endpoint is used on one event loop, for any number of calls at once. Closing the generator that `stream` gives, or
cancelling the task that reads it, closes the connection of that call.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from types import TracebackType
from typing import Protocol, Self, cast

from msgspec import Struct

from contextc._json import JSONObject, decode
from contextc.errors import InvalidSetting
from contextc.messages import ToolCall, ToolResult
from contextc.providers.named import Provider, has_address
from contextc.providers.named import provider as named


def _no_arguments() -> JSONObject:
    return {}


class Host(Protocol):
    """Who serves a provider that runs tools by itself, in the middle of its reply."""

    async def approve(self, call: ToolCall) -> str:
        """Why a tool of the provider's own may not run; "" is yes."""
        ...

    async def run(self, call: ToolCall) -> ToolResult:
        """The result of one of the tools in the request."""
        ...


class Call(Struct, frozen=True, kw_only=True):
    """One request as it leaves. `body` is what is sent; `arguments` are the same for SDKs that take no bytes.

    `stream` says whether the body asks for a stream. `timeout` is in seconds: between two pieces of an answer, and for
    the connection; None is as the endpoint was opened. `headers` are added to those that the SDK sends.

    For a provider that keeps a session: `session` is the one to go on with ("" is a new one), and `cursor` where it
    stood after the last reply that was stored. `revert` says that a prompt may be in it that failed: it goes back to
    the cursor first. `opening` is what a session begins with (system prompt, tools), which a request that goes on with
    one does not say again, and a program that is started anew has to be told. `conversation` is whose it is,
    `directory` where a program runs ("" is where this one does), and `host` who is asked, and who runs the tools in
    the request.
    """

    provider: Provider
    body: bytes
    arguments: Callable[[], JSONObject] = _no_arguments
    stream: bool = True
    timeout: float | None = None
    headers: Mapping[str, str] = {}
    conversation: str = ""
    session: str = ""
    cursor: str = ""
    revert: bool = False
    opening: Callable[[], JSONObject] = _no_arguments
    directory: str = ""
    host: Host | None = None

    def request(self) -> JSONObject:
        """The body as it was meant, with what its session began with."""
        return {**self.opening(), **decode(self.body)}


class Endpoint(ABC):
    """An open line to a provider."""

    @abstractmethod
    def stream(self, call: Call) -> AsyncGenerator[JSONObject, None]:
        """The API's events as plain JSON; where the call asks for no stream, the whole reply as the only one.

        Raises `ProviderFailed`. An error event inside a stream is given as it came, and raised after it.
        """

    async def close(self) -> None:
        """Close what is open. Calls that are still running end with an error."""
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Client(Protocol):
    """What a module in this folder has to have."""

    def open(self, provider: Provider, **options: object) -> Endpoint: ...


def check_settings(given: Iterable[str], known: Collection[str], whose: str) -> None:
    """Refuse what a program does not know, in words: it might pass over it in silence."""
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else f" There are: {', '.join(sorted(known))}."
            raise InvalidSetting(f"{name!r} is no setting of {whose} that a request can have.{hint}")


def checked_env(env: object) -> dict[str, str]:
    """What is added to the environment of a program: texts by their names."""
    found: dict[object, object] = dict(cast(Mapping[object, object], env)) if isinstance(env, Mapping) else {}
    if (env is not None and not isinstance(env, Mapping)) or not all(isinstance(each, str) for each in _flat(found)):
        raise InvalidSetting('env is a dict of names and texts, such as {"HTTPS_PROXY": "http://127.0.0.1:8080"}.')
    return cast(dict[str, str], found)


def _flat(found: Mapping[object, object]) -> list[object]:
    return [*found, *found.values()]


def endpoint(provider: Provider | str, **options: object) -> Endpoint:
    """An open line to this provider, for the event loop it is first used on.

    Options: `timeout` in seconds; `http_client`, a client of the kind the vendor's SDK takes (a proxy, a test's
    transport). For a provider that is a program: `store`, where the record of its sessions is kept; `env`, added to its
    environment. A client may have more.
    """
    provider = named(provider) if isinstance(provider, str) else provider
    if not provider.client:
        raise InvalidSetting(
            f'Nothing here calls the provider {provider.name!r}. Name a client: cc.provider("…", client="openai"), or '
            "compile the request and send it yourself."
        )
    if not has_address(provider):
        raise InvalidSetting(
            f"Provider {provider.name!r}: no address is known for the format {provider.format!r}",
            fix=f'Pass it: cc.provider("{provider.name}:…", url="https://…/v1", key="THE_VARIABLE_WITH_THE_KEY").',
            case="address",
            detail=provider.name,
        )
    try:
        module = import_module(f"contextc.providers.{provider.client}")
    except ModuleNotFoundError as error:
        if error.name != f"contextc.providers.{provider.client}":
            raise
        raise InvalidSetting(f"There is no client {provider.client!r} in contextc.providers.") from None
    try:
        return cast(Client, module).open(provider, **options)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        option = str(error).rpartition(" ")[2]
        raise InvalidSetting(f"The line to {provider.name} has no option {option}.") from None
