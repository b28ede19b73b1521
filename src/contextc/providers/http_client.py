"""Base class of the HTTP clients: post the request bytes, and return the JSON reply or the stream of JSON events.

The vendor's SDK sends the request and supplies keys, URLs, headers and exceptions. It neither retries nor reads the
body. The response is parsed here, once: an SDK would build objects from every event, only to be converted back.
"""

import asyncio
import json
import os
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import cache
from inspect import signature
from typing import Any, ClassVar, NoReturn, Protocol, cast
from urllib.parse import urlsplit

from msgspec import DecodeError

from contextc._credential_mask import mask_secrets
from contextc._json import JSON, JSONObject, as_object, decode, parse_object
from contextc._worker_threads import run_in_thread
from contextc.errors import ContextcError, InvalidSetting, ProviderFailed
from contextc.formats.streams import is_error
from contextc.providers.client import Endpoint, ProviderCall
from contextc.providers.error_mapping import (
    ErrorTable,
    describe_timeout,
    exception_chain,
    map_error,
    with_provider_rules,
)
from contextc.providers.registry import Provider

# ── parsers of streams ────────────────────────────────────────────────────────────────────────────────────────────────
# Parsers for streams of JSON from chunks of any size: server-sent events and newline-delimited JSON. No I/O.
#
# OpenAI, Anthropic and Google stream server-sent events. Only `data` is parsed, because it repeats the event name. The
# one exception is the event `error` of some servers. `[DONE]`, which ends an OpenAI stream, is not an event: it sets
# `done`.
#
# Ollama streams newline-delimited JSON, one event per line. A line with `done: true` is the last one of its reply.


class MalformedEvent(ValueError):
    """The received bytes are not an event: the stream was truncated, or has another format."""


class SSEParser:
    """Incremental parser that returns each event as soon as it is complete."""

    def __init__(self) -> None:
        self.done = False
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""

    def feed(self, chunk: bytes) -> list[JSONObject]:
        """Add a chunk and return the events that it completes."""
        is_after_return = bool(self._pieces) and self._pieces[-1].endswith(b"\r")
        if b"\n" not in chunk and b"\r" not in chunk and not is_after_return:
            self._pieces.append(chunk)
            return []
        lines = b"".join([*self._pieces, chunk]).splitlines(keepends=True)
        # A carriage return may be the first half of a line ending. The next byte decides.
        self._pieces = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        return self._read(lines)

    def end(self) -> list[JSONObject]:
        """Return the remaining events at the end of the stream. Some servers omit the last empty line."""
        lines, self._pieces = b"".join(self._pieces).splitlines(keepends=True), []
        return self._read([*lines, b"\n"])

    def _read(self, lines: list[bytes]) -> list[JSONObject]:
        found: list[JSONObject] = []
        for line in lines:
            field, _, value = line.rstrip(b"\r\n").partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif field == b"event":
                self._name = value.strip()
            elif not field and not value and self._data and (event := self._event()) is not None:
                found.append(event)
        return found

    def _event(self) -> JSONObject | None:
        data, name = b"\n".join(self._data), self._name
        self._data, self._name = [], b""
        if data.startswith(b"[DONE]"):
            self.done = True
        if self.done or not data.strip():
            return None
        event = parse_json_object(data, keep_surrogates=True)
        return {"error": event} if name == b"error" and "error" not in event and "type" not in event else event


def parse_json_object(data: bytes, *, keep_surrogates: bool = False) -> JSONObject:
    """Parse one JSON object that may contain lone surrogates.

    With `keep_surrogates`, lone surrogates are kept, because the next event may contain the other half of the
    character.
    """
    try:
        value = decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        text = data.decode("utf-8", "replace")
        value = parse_object(text)
        if keep_surrogates and value is not None:
            value = json.loads(text)
    if not isinstance(value, dict):
        raise MalformedEvent(f"expected a JSON object, got {data[:80]!r}")
    return cast(JSONObject, value)


class NDJSONParser:
    """Incremental parser that returns each event as soon as its line is complete."""

    def __init__(self) -> None:
        self.done = False
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[JSONObject]:
        """Add a chunk and return the events that it completes."""
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._pieces.append(chunk)
            return []
        lines, self._pieces = b"".join([*self._pieces, whole]), [rest] if rest else []
        return self._read(lines)

    def end(self) -> list[JSONObject]:
        """Return the remaining events at the end of the stream. Some servers omit the last newline."""
        lines, self._pieces = b"".join(self._pieces), []
        return self._read(lines)

    def _read(self, lines: bytes) -> list[JSONObject]:
        found: list[JSONObject] = []
        for line in lines.split(b"\n"):
            if self.done or not line.strip():
                continue
            event = parse_json_object(line, keep_surrogates=True)
            self.done = event.get("done") is True
            found.append(event)
        return found


# ── client ────────────────────────────────────────────────────────────────────────────────────────────────────────────


DRAIN_SECONDS = 0.2
REDIRECTS = (301, 302, 303, 307, 308)
HTML_TYPES = ("text/html", "application/xhtml+xml")


class HTTPResponse(Protocol):
    """The part of an HTTP response that is used here. Responses of httpx2 and httpx have it."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def is_closed(self) -> bool: ...

    def aiter_bytes(self) -> AsyncGenerator[bytes, None]: ...

    async def aread(self) -> bytes: ...

    async def aclose(self) -> None: ...


class StreamParser(Protocol):
    """Incremental parser of a stream. `done` is True after the last event."""

    done: bool

    def feed(self, chunk: bytes) -> list[JSONObject]: ...

    def end(self) -> list[JSONObject]: ...


class HTTPEndpoint(Endpoint):
    """HTTP client that uses a vendor's SDK. A subclass posts a request and maps the SDK's exceptions.

    `table` holds the error rules of the API, and `frames` is the parser of its streams.
    """

    table: ClassVar[ErrorTable]
    frames: ClassVar[type[StreamParser]] = SSEParser

    def __init__(
        self, provider: Provider, *, http_client: object = None, timeout: object = None, store: object = None
    ) -> None:
        if timeout is not None and (not isinstance(timeout, int | float) or isinstance(timeout, bool) or timeout <= 0):
            raise InvalidSetting("timeout: must be a number of seconds above 0", got=timeout)
        if provider.url and not provider.url.startswith(("http://", "https://")):
            raise InvalidSetting("url: must start with http:// or https://", got=mask_secrets(provider.url))
        self.provider, self.http_client, self.timeout = provider, http_client, timeout
        self.error_table = with_provider_rules(self.table, provider)
        self._omitted: JSONObject = {}
        """Default headers of the SDK that must not be sent."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_open, self._opening = False, asyncio.Lock()
        self._open: AsyncGenerator[None, None] | None = None

    @abstractmethod
    async def _post(self, call: ProviderCall) -> HTTPResponse:
        """Send the request and return the response before its body is read."""

    @abstractmethod
    def _opened(self) -> object:
        """Return the SDK's client. The first call imports the SDK, which is slow, and creates the client."""

    @abstractmethod
    def _forget(self) -> Callable[[], Awaitable[object]] | None:
        """Drop the SDK's client and return a function that closes it. A client that the caller passed stays open."""

    @abstractmethod
    def _failure(self, error: Exception) -> ProviderFailed | None:
        """Return the failure for an exception of the SDK, or None for any other exception."""

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
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
            # A web page is a failure whatever its status. A retry would not help.
            kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind in HTML_TYPES:
                raise ProviderFailed(
                    self.provider.name,
                    "invalid",
                    f"expected a JSON reply, got a web page ({kind})",
                    status=answer.status_code,
                    way_out=f"Check the URL: {self._address()}.",
                )
            async with aclosing(_events(answer, call.stream, self.frames())) as events:
                async for event in events:
                    yield event
                    if is_error(event):
                        raise map_error(self.provider.name, self.error_table, event, secrets=self._hidden())
        except ContextcError:
            raise
        except MalformedEvent as error:
            raise self._transient(f"invalid response: {error}") from None
        except Exception as error:
            self._fail(error, call)
        finally:
            await answer.aclose()

    async def load_model_facts(self) -> JSONObject:
        """Return what the vendor's API says about the provider's model."""
        await self._on_this_loop()
        call = ProviderCall(provider=self.provider, body=b"")
        try:
            if not self._is_open:
                await self._load()
            return await self._get_model(call)
        except ContextcError:
            raise
        except Exception as error:
            self._fail(error, call)

    async def _get_model(self, call: ProviderCall) -> JSONObject:
        """Return the facts. Clients whose API describes its models implement it."""
        raise NotImplementedError

    async def _on_this_loop(self) -> None:
        """Drop the SDK's client if the event loop has changed, because it belongs to one loop."""
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._forget()
            self._loop, self._open = loop, self._until_the_loop_ends()
            self._is_open, self._opening = False, asyncio.Lock()
            await anext(self._open)

    async def _load(self) -> None:
        """Create the SDK's client in a thread, because the import may block the loop for seconds."""
        async with self._opening:
            if not self._is_open:
                await run_in_thread(self._opened)
            self._is_open = True

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        """Close the SDK's client when the loop ends: a loop closes its async generators at shutdown."""
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

    def _fail(self, error: Exception, call: ProviderCall) -> NoReturn:
        """Raise the failure for an exception. An exception that is not a network error is raised unchanged.

        The exception becomes the `__cause__`, unless its text contains a key.
        """
        failed = self._failure(error)
        if failed is None:
            if not _is_network_error(error):
                raise error
            failed = self._unreached(error)
        if failed.kind == "transient" and failed.status is None:
            given = cast(float | None, call.timeout or self.timeout)
            if late := describe_timeout(error, given, use_default=self.http_client is None):
                failed = ProviderFailed(failed.provider, failed.kind, late, way_out=failed.way_out)
        message = str(error)
        raise failed from (error if mask_secrets(message, self._hidden()) == message else None)

    async def _sent(self, client: Any, path: str, call: ProviderCall, stream_class: Any) -> HTTPResponse:
        """Post through OpenAI's or Anthropic's SDK, whose clients are alike. Return the unread response."""
        body = {_bytes_parameter(cast(Any, type(client))): call.body}
        found = await client.post(
            path, **body, cast_to=object, options=self._options(call), stream=True, stream_cls=stream_class
        )
        return cast(HTTPResponse, found.response)

    async def _got(self, client: Any, path: str, call: ProviderCall) -> JSONObject:
        """Get an object through one of these SDKs."""
        return as_object(await client.get(path, cast_to=object, options=self._options(call)))

    def _options(self, call: ProviderCall) -> Any:  # a private class of each SDK
        """Return headers and timeout of one call, in the form of these SDKs."""
        headers = {**self._omitted, **call.headers}
        options: JSONObject = {"follow_redirects": False, **({"headers": headers} if headers else {})}
        return options if call.timeout is None else options | {"timeout": call.timeout}

    def _transient(self, message: str) -> ProviderFailed:
        return ProviderFailed(self.provider.name, "transient", mask_secrets(message, self._hidden())[:300])

    def _unreached(self, error: Exception) -> ProviderFailed:
        """Return the failure for a connection error. If no connection was made, the URL may be wrong."""
        way_out = f"Check the URL ({self._address()}) and the network." if _is_connect_error(error) else ""
        message = mask_secrets(error_reason(error), self._hidden())[:300]
        return ProviderFailed(self.provider.name, "transient", message, way_out=way_out)

    def _address(self) -> str:
        return mask_secrets(self.provider.url) or f"the default of the client `{self.provider.client}`"

    def _refused(self, body: JSON, status: int, headers: Mapping[str, str]) -> ProviderFailed:
        if status in REDIRECTS:
            there = urlsplit(headers.get("location", ""))
            where = f" to {there.scheme}://{there.hostname}" if there.hostname else ""
            return ProviderFailed(
                self.provider.name,
                "invalid",
                f"the server redirects{where}, and redirects are not followed: they would receive the conversation",
                status=status,
                way_out=f"Check the URL ({self._address()}), and use the final one.",
            )
        return map_error(
            self.provider.name, self.error_table, body, status=status, headers=headers, secrets=self._hidden()
        )

    def _key(self) -> str | None:
        """Return the provider's key, "" to send none, or None to let the SDK look for one."""
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

    def _hidden(self) -> tuple[str, ...]:
        """Return what a text must not contain: the key, and the values of the provider's headers."""
        return (*self._secrets(), *[value for _, value in self.provider.headers])

    def _secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, [os.environ.get(self.provider.key, "").strip()])) if self.provider.key else ()


@cache
def _bytes_parameter(client_class: Any) -> str:
    """Return the parameter of `post` for bytes. OpenAI's SDK has `content` since 2.16; before, `body` takes them."""
    return "content" if "content" in signature(client_class.post).parameters else "body"


async def _events(answer: HTTPResponse, streamed: bool, events: StreamParser) -> AsyncGenerator[JSONObject, None]:
    """Yield the events of a response. A response that is not streamed is one event."""
    if not streamed or answer.headers.get("content-type", "").startswith("application/json"):
        yield parse_json_object(await answer.aread())
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
    """Read the rest of the stream for a short time, so that the connection can be reused."""
    with suppress(Exception):  # the reply is complete, so errors do not matter
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in pieces:
                pass


def _is_network_error(error: Exception) -> bool:
    """Return True if the exception is one of an HTTP client, a socket or TLS."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, OSError | TimeoutError | EOFError) or bool(names & {"TransportError", "HTTPError"})


def _is_connect_error(error: BaseException) -> bool:
    """Return True if no connection was made: unknown host, connection refused, or connect timeout."""
    names = {kind.__name__ for each in exception_chain(error) for kind in type(each).__mro__}
    return bool(names & {"ConnectError", "ConnectTimeout", "ConnectionRefusedError", "gaierror", "UnsupportedProtocol"})


def error_reason(error: BaseException) -> str:
    """Return the text of an exception with its innermost cause, which is more precise than "Connection error."."""
    found = error
    while (inner := found.__cause__ or found.__context__) is not None and not isinstance(inner, ProviderFailed):
        found = inner
    text = str(found).strip() or type(found).__name__
    reason = str(error).strip()
    return text if reason in ("", text) else f"{reason.rstrip('.')}: {text}"


def error_body(error: Exception) -> JSON:
    """Return the response body of a status error of OpenAI's or Anthropic's SDK."""
    answer = cast(JSON, getattr(error, "response", None))
    try:
        return parse_json_object(answer.content)
    except (MalformedEvent, AttributeError, RuntimeError):
        return cast(JSON, getattr(error, "body", None)) or getattr(answer, "text", "")
