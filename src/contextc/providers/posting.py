"""What the lines to OpenAI, Anthropic and Google have in common: bytes are posted, JSON or a stream of it comes back.

The vendor's SDK sends the request and knows keys, addresses, headers and its own exceptions; it neither tries again nor
looks at what is in the body. The answer is read here, once: an SDK would build its own classes from every event, which
then would have to be taken apart again.
"""

import asyncio
import os
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, ClassVar, NoReturn, Protocol, cast

from contextc._json import JSON, JSONObject, blob_name
from contextc._threads import in_thread
from contextc.errors import ContextcError, InvalidSetting, ProviderFailed
from contextc.formats.reading import is_error
from contextc.providers.endpoint import Call, Endpoint
from contextc.providers.failures import Table, failure, masked, with_own
from contextc.providers.named import Provider
from contextc.providers.sse import Events, MalformedEvent, parsed
from contextc.providers.waiting import chain, waited

DRAIN_SECONDS = 0.2
SHORT = 32
PAGES = ("text/html", "application/xhtml+xml")


class Answer(Protocol):
    """What we need of the response of an HTTP client: httpx2's, or the older httpx's."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def is_closed(self) -> bool: ...

    def aiter_bytes(self) -> AsyncGenerator[bytes, None]: ...

    async def aread(self) -> bytes: ...

    async def aclose(self) -> None: ...


class Frames(Protocol):
    """Takes the bytes of a stream as they come, and gives its events. `done`: the last one was heard."""

    done: bool

    def feed(self, chunk: bytes) -> list[JSONObject]: ...

    def end(self) -> list[JSONObject]: ...


class Posting(Endpoint):
    """A line over HTTP, through a vendor's SDK. A client says how a request is posted, and what its exceptions mean.

    `table` is how those say no who speak its format natively; `frames` how a stream of theirs is cut into events.
    """

    table: ClassVar[Table]
    frames: ClassVar[type[Frames]] = Events

    def __init__(
        self, provider: Provider, *, http_client: object = None, timeout: object = None, store: object = None
    ) -> None:
        if timeout is not None and (not isinstance(timeout, int | float) or isinstance(timeout, bool) or timeout <= 0):
            raise InvalidSetting(f"timeout = {timeout!r}: give a number of seconds.")
        if provider.url and not provider.url.startswith(("http://", "https://")):
            raise InvalidSetting(f"url = {provider.url!r}: an address begins with http:// or https://.")
        self.provider, self.http_client, self.timeout = provider, http_client, timeout
        self.refusals = with_own(self.table, provider)
        self._omitted: JSONObject = {}
        """Headers that the SDK would send, and must not."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_open, self._opening = False, asyncio.Lock()
        self._open: AsyncGenerator[None, None] | None = None

    @abstractmethod
    async def _post(self, call: Call) -> Answer:
        """Send it, and come back with the head of the answer."""

    @abstractmethod
    def _opened(self) -> object:
        """The SDK's client, made when it is first asked for; the SDK is loaded then, which takes a while."""

    @abstractmethod
    def _forget(self) -> Callable[[], Awaitable[object]] | None:
        """Let go of the SDK's client, and return what closes it; the caller's own is not closed."""

    @abstractmethod
    def _failure(self, error: Exception) -> ProviderFailed | None:
        """What an exception of the SDK means; None where it is none of its."""

    async def stream(self, call: Call) -> AsyncGenerator[JSONObject, None]:
        await self._on_this_loop()
        try:
            if not self._is_open:
                await self._load()
            answer = await self._post(call)
        except ContextcError:
            raise
        except Exception as error:
            self._fail(error, call)
        try:
            self._check_kind(answer)
            async with aclosing(_events(answer, call.stream, self.frames())) as events:
                async for event in events:
                    yield event
                    if is_error(event):
                        raise failure(self.provider.name, self.refusals, event, secrets=self._secrets())
        except ContextcError:
            raise
        except MalformedEvent as error:
            raise self._transient(f"what came is {error}") from None
        except Exception as error:
            self._fail(error, call)
        finally:
            await answer.aclose()

    async def _on_this_loop(self) -> None:
        """A client belongs to one event loop: with another loop comes another client."""
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._forget()
            self._loop, self._open = loop, self._until_the_loop_ends()
            self._is_open, self._opening = False, asyncio.Lock()
            await anext(self._open)

    async def _load(self) -> None:
        """Have the client made on a thread: a loop that stands still for seconds keeps everybody waiting."""
        async with self._opening:
            if not self._is_open:
                await in_thread(self._opened)
            self._is_open = True

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        """A loop that ends closes its generators: so a line that nobody closed is closed with it."""
        try:
            yield
        finally:
            if (closing := self._forget()) is not None:
                await closing()

    async def close(self) -> None:
        found, self._open = self._open, None
        if found is not None and self._loop is asyncio.get_running_loop():
            await found.aclose()
        self._loop = None

    def _fail(self, error: Exception, call: Call) -> NoReturn:
        """Raise what the exception means; what is none of the network's goes on as it is.

        Its own words are shown with it, unless there is a key in them.
        """
        failed = self._failure(error)
        if failed is None:
            if not _is_of_the_network(error):
                raise error
            failed = self._unreached(error)
        if failed.kind == "transient" and failed.status is None:
            given = cast(float | None, call.timeout or self.timeout)
            if late := waited(error, given, usual=self.http_client is None):
                failed = ProviderFailed(failed.provider, failed.kind, late, way_out=failed.way_out)
        said = str(error)
        raise failed from (error if masked(said, self._secrets()) == said else None)

    async def _sent(self, client: Any, path: str, call: Call, stream_class: Any) -> Answer:
        """Post by a client of OpenAI's or Anthropic's SDK (Any: two classes of one make); the answer is unread."""
        found = await client.post(
            path, content=call.body, cast_to=object, options=self._options(call), stream=True, stream_cls=stream_class
        )
        return cast(Answer, found.response)

    def _options(self, call: Call) -> Any:  # of a private class of each SDK
        """Headers and time limit of one call, as those SDKs take them."""
        headers = {**self._omitted, **_of_conversation(call), **call.headers}
        options: JSONObject = {"headers": headers} if headers else {}
        return options if call.timeout is None else options | {"timeout": call.timeout}

    def _transient(self, said: str) -> ProviderFailed:
        return ProviderFailed(self.provider.name, "transient", masked(said, self._secrets())[:300])

    def _unreached(self, error: Exception) -> ProviderFailed:
        """The connection failed. Where there was none at all, the address may be wrong."""
        way_out = f"Check the address ({self._address()}) and the network." if _found_nobody(error) else ""
        said = masked(reason(error), self._secrets())[:300]
        return ProviderFailed(self.provider.name, "transient", said, way_out=way_out)

    def _check_kind(self, answer: Answer) -> None:
        """A web page is no reply, whatever its status says; nor will it be one the next time."""
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in PAGES:
            raise ProviderFailed(
                self.provider.name,
                "invalid",
                f"it answered with a page ({kind}), and not with a reply",
                status=answer.status_code,
                way_out=f"Check the address: {self._address()}.",
            )

    def _address(self) -> str:
        return masked(self.provider.url) or f"the one that the client `{self.provider.client}` has"

    def _refused(self, body: JSON, status: int, headers: Mapping[str, str]) -> ProviderFailed:
        return failure(self.provider.name, self.refusals, body, status=status, headers=headers, secrets=self._secrets())

    def _key(self) -> str | None:
        """The key that this provider names; "" where none is to be sent; None where the SDK looks for one by itself."""
        name = self.provider.key
        if not name:
            return "" if self.provider.url else None
        if not (key := os.environ.get(name, "").strip()):
            raise self._keyless(f"the environment variable {name} is not set")
        return key

    def _keyless(self, said: str, names: str = "") -> ProviderFailed:
        way_out = f"Set {names or self.provider.key}, or name another variable: cc.provider(…, key=…)."
        return ProviderFailed(
            self.provider.name, "auth", said, way_out=way_out, case="key", detail=names or self.provider.key
        )

    def _secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, [os.environ.get(self.provider.key, "").strip()])) if self.provider.key else ()


def _of_conversation(call: Call) -> Mapping[str, str]:
    """The header that keeps a conversation together, where the provider has one: the same name every time, by which
    nobody learns what the conversation is called.
    """
    name = call.provider.conversation_header
    return {name: blob_name(call.conversation.encode())[:SHORT]} if name and call.conversation else {}


def missing(package: str, extra: str) -> InvalidSetting:
    return InvalidSetting(f"The package {package!r} is not installed. Install it: pip install 'contextc[{extra}]'")


async def _events(answer: Answer, streamed: bool, events: Frames) -> AsyncGenerator[JSONObject, None]:
    """The events of an answer; an answer that is not streamed is one."""
    if not streamed or answer.headers.get("content-type", "").startswith("application/json"):
        yield parsed(await answer.aread())
        return
    async with aclosing(answer.aiter_bytes()) as pieces:
        async for piece in pieces:
            for event in events.feed(piece):
                yield event
            if events.done:
                await _drain(pieces)
                return
    for event in events.end():
        yield event


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read to the end after the last word, so that the connection can be used again; but not for long."""
    with suppress(Exception):  # whatever comes now, the reply is complete
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in pieces:
                pass


def _is_of_the_network(error: Exception) -> bool:
    """Whether the connection failed: the exceptions of an HTTP client, of sockets, and of TLS."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, OSError | TimeoutError | EOFError) or bool(names & {"TransportError", "HTTPError"})


def _found_nobody(error: BaseException) -> bool:
    """Whether there was no connection at all: no such name, nobody there, no answer to the first word."""
    names = {kind.__name__ for each in chain(error) for kind in type(each).__mro__}
    return bool(names & {"ConnectError", "ConnectTimeout", "ConnectionRefusedError", "gaierror", "UnsupportedProtocol"})


def reason(error: BaseException) -> str:
    """The innermost reason of an exception, which says more than "Connection error."."""
    found = error
    while (inner := found.__cause__ or found.__context__) is not None and not isinstance(inner, ProviderFailed):
        found = inner
    text = str(found).strip() or type(found).__name__
    said = str(error).strip()
    return text if said in ("", text) else f"{said.rstrip('.')}: {text}"


def body_of(error: Exception) -> JSON:
    """What a status error of OpenAI's or Anthropic's SDK carries: the body as it came."""
    answer = cast(JSON, getattr(error, "response", None))
    try:
        return parsed(answer.content)
    except (MalformedEvent, AttributeError, RuntimeError):
        return cast(JSON, getattr(error, "body", None)) or getattr(answer, "text", "")
