"""Client for Amazon Bedrock, through AWS's SDK, which supplies credentials, region, URL and signature.

botocore accepts no bytes and blocks. So it builds an empty request, and a hook sets our body before it signs. A second
hook takes the signed request, which botocore's HTTP client then sends on a thread. Nothing is retried. Requests are
signed with the credentials that botocore finds, or carry the token in AWS_BEARER_TOKEN_BEDROCK, unless another key is
named. A URL outside AWS never gets that token. A signature reveals no secret and is useless elsewhere.
"""

import asyncio
import logging
import os
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from threading import Lock, Thread, local
from typing import Any, ClassVar, NamedTuple, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, WeakSet

from contextc._installed_packages import importing
from contextc._json import JSONObject
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.providers.client import ProviderCall
from contextc.providers.error_mapping import CONNECT_SECONDS, READ_SECONDS, ErrorTable
from contextc.providers.http_client import HTTPEndpoint, HTTPResponse, MalformedEvent, StreamParser, parse_json_object
from contextc.providers.registry import Provider

# ── event streams ─────────────────────────────────────────────────────────────────────────────────────────────────────
# Parser for AWS event streams (frames with headers, payload and checksums) from chunks of any size.
#
# botocore parses the frames. An event has the form that boto3 returns, under its own name (`{"messageStop": {…}}`). An
# exception becomes an error. `p` is padding that hides the length of an event, and is dropped. botocore, which has no
# types, is imported on first use.


PADDING = "p"


class EventStreamParser:
    """Incremental parser that returns each event as soon as it is complete."""

    def __init__(self) -> None:
        self.done = False
        self._buffer = import_botocore("eventstream").EventStreamBuffer()
        self._held = 0

    def feed(self, chunk: bytes) -> list[JSONObject]:
        """Add a chunk and return the events that it completes."""
        self._held += len(chunk)
        self._buffer.add_data(chunk)
        found: list[JSONObject] = []
        try:
            for message in self._buffer:
                self._held -= message.prelude.total_length
                found.append(decode_event(message.headers, message.payload))
        except import_botocore("eventstream").ParserError as error:
            raise MalformedEvent(f"malformed event frame: {error}") from error
        return found

    def end(self) -> list[JSONObject]:
        """Return no events. Raise MalformedEvent if the stream ended inside an event."""
        if self._held:
            raise MalformedEvent("truncated event")
        return []


def decode_event(headers: dict[str, str], payload: bytes) -> JSONObject:
    fields = parse_json_object(payload, keep_surrogates=True) if payload else {}
    match headers.get(":message-type"):
        case "exception":
            name = headers.get(":exception-type", "")
            return {"error": {"message": "", **fields, "type": name[:1].upper() + name[1:]}}
        case "error":
            return {"error": {"type": headers.get(":error-code", ""), "message": headers.get(":error-message", "")}}
        case _:
            content = {name: value for name, value in fields.items() if name != PADDING}
            return {headers.get(":event-type", "unknown"): content}


def import_botocore(module: str) -> Any:
    return import_module(f"botocore.{module}")


# ── a blocking SDK in a thread ────────────────────────────────────────────────────────────────────────────────────────
# Streaming response of a blocking SDK: a thread per call passes the chunks to the event loop.
#
# A thread that blocks on the network cannot be interrupted, but its socket can be shut down. So every connection
# records the call that uses it. A cancelled call ends at once, even before its first byte arrives.


CURRENT = local()
"""Per thread: the call that it runs."""
SOCKET_OWNERS: "WeakKeyDictionary[socket.socket, ThreadedResponse]" = WeakKeyDictionary()
"""The call that uses a socket: the last one that took it, because connections are reused."""
SOCKET_LOCK = Lock()


class ResponseHead(NamedTuple):
    """Status and headers of a response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]


class ResponseEnd(NamedTuple):
    """End of a response, with the error if it failed."""

    error: Exception | None = None


class ThreadedResponse:
    """A response that is being received. `send` runs on the thread and returns a botocore response (untyped).

    `read_seconds` limits the time without data. Without it, the limit of the SDK's client applies.
    """

    def __init__(self, send: Callable[[], Any], read_seconds: float | None = None) -> None:
        self._send, self._loop = send, asyncio.get_running_loop()
        self.read_seconds = read_seconds
        self._received: asyncio.Queue[ResponseHead | bytes | ResponseEnd] = asyncio.Queue()
        self._socket: socket.socket | None = None
        self._left = self._over = False
        self.head = ResponseHead(0, {})
        Thread(target=self._work, name="contextc-bedrock", daemon=True).start()

    @property
    def status_code(self) -> int:
        return self.head.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self.head.headers

    @property
    def is_closed(self) -> bool:
        return self._over or self._left

    async def wait_for_head(self) -> None:
        """Wait for status and headers of the response."""
        try:
            received = await self._received.get()
        except asyncio.CancelledError:
            self.abort()
            raise
        if isinstance(received, ResponseHead):
            self.head = received
            return
        self._over = True
        raise (received.error if isinstance(received, ResponseEnd) else None) or ConnectionError("no response")

    async def aiter_bytes(self) -> AsyncGenerator[bytes, None]:
        while not self._over:
            received = await self._received.get()
            if isinstance(received, bytes):
                yield received
                continue
            self._over = True
            if isinstance(received, ResponseEnd) and received.error is not None:
                raise received.error

    async def aread(self) -> bytes:
        return b"".join([piece async for piece in self.aiter_bytes()])

    async def aclose(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Abort the call: shut down its socket."""
        with SOCKET_LOCK:
            if not self._over:
                self._left = True
                if self._socket is not None and SOCKET_OWNERS.get(self._socket) is self:
                    _shut(self._socket)

    def use_socket(self, connection: socket.socket | None) -> None:
        """Record the socket of this call. Raise ConnectionAbortedError if the call was aborted."""
        with SOCKET_LOCK:
            self._socket = connection
            if connection is not None:
                SOCKET_OWNERS[connection] = self
                if self._left:
                    _shut(connection)
            if self._left:
                raise ConnectionAbortedError("the call was aborted")

    def _work(self) -> None:
        CURRENT.line = self
        end = ResponseEnd()
        try:
            response = self._send()
            self._put(
                ResponseHead(response.status_code, {name.lower(): each for name, each in response.headers.items()})
            )
            for piece in response.raw.stream():
                self._put(piece)
            if self._left:
                response.raw.close()  # a truncated connection cannot be reused
        except Exception as error:
            end = ResponseEnd(error)
        finally:
            self._put(end)

    def _put(self, what: ResponseHead | bytes | ResponseEnd) -> None:
        with suppress(RuntimeError):  # the loop has ended, and the caller with it
            self._loop.call_soon_threadsafe(self._received.put_nowait, what)


def watched_pool(pool: Any) -> Any:
    """Return a subclass of a connection pool whose connections record the call that uses them, and obey its limit."""

    plain: Any = pool.ConnectionCls

    def connect(self: Any) -> None:
        plain.connect(self)
        _current_response().use_socket(self.sock)

    def request(self: Any, *arguments: Any, **options: Any) -> Any:
        _current_response().use_socket(self.sock)
        return plain.request(self, *arguments, **options)

    def urlopen(self: Any, *arguments: Any, **options: Any) -> Any:
        # botocore has limits per call only since 1.43; before, they are those of its client.
        if (seconds := _current_response().read_seconds) is not None:
            options["timeout"] = type(self.timeout)(connect=self.timeout.connect_timeout, read=seconds)
        return pool.urlopen(self, *arguments, **options)

    watching = type("Connection", (plain,), {"connect": connect, "request": request})
    return type("Pool", (pool,), {"ConnectionCls": watching, "watched": True, "urlopen": urlopen})


class _NoResponse:
    read_seconds: float | None = None

    def use_socket(self, connection: socket.socket | None) -> None:
        """Ignore a connection that other code uses."""


def _current_response() -> ThreadedResponse | _NoResponse:
    return getattr(CURRENT, "line", None) or _NoResponse()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # the plain socket: another thread uses the TLS layer


# ── client ────────────────────────────────────────────────────────────────────────────────────────────────────────────


SERVICE = "bedrock-runtime"
MAX_CONNECTIONS = 64
FALLBACK_REGION = "us-east-1"
AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
REGION = re.compile(r"\b[a-z]{2}(?:-[a-z]+){1,3}-\d\b")
TOKEN = "AWS_BEARER_TOKEN_BEDROCK"
SECRETS = (TOKEN, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
NO_CREDENTIALS = (
    f"Set {TOKEN}, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in with the AWS command line (aws sso login) "
    "and set AWS_PROFILE."
)
NO_REGION = "Set AWS_REGION, such as us-east-1, or write a region into ~/.aws/config."
TABLE = ErrorTable(
    codes={
        "ServiceQuotaExceededException": "quota",
        "ModelTimeoutException": "transient",
        "ModelNotReadyException": "transient",
        "ModelErrorException": "transient",
        "ModelStreamErrorException": "transient",
        "ServiceUnavailableException": "transient",
        "InternalServerException": "transient",
        "UnrecognizedClientException": "auth",
        "ExpiredTokenException": "auth",
        "InvalidSignatureException": "auth",
        "SignatureDoesNotMatch": "auth",
        "MissingAuthenticationTokenException": "auth",
        "IncompleteSignatureException": "auth",
        "InvalidClientTokenId": "auth",
    },
    patterns=(
        (
            r"input is too long|input length and `?max_tokens`? exceed|prompt is too long|input tokens? exceed"
            r"|exceeds? (the )?(maximum )?context (length|limit|window)|maximum context length is"
            r"|too many total text bytes|too many input tokens(?! per)",
            "context",
        ),
        (r"tokens per day", "quota"),
    ),
    types={
        "ThrottlingException": "rate",
        "TooManyRequestsException": "rate",
        "AccessDeniedException": "auth",
        "ValidationException": "invalid",
        "ResourceNotFoundException": "invalid",
    },
)
LOGGERS_WITH_TOKENS = ("botocore.endpoint", "botocore.auth", "botocore.regions")
"""Loggers of botocore that log request headers with tokens. They are silenced for our requests."""
PENDING = local()
"""Per thread: the call in preparation, and the request that botocore builds for it."""


def open(provider: Provider, **options: object) -> "BedrockEndpoint":
    return BedrockEndpoint(provider, **options)


class BedrockEndpoint(HTTPEndpoint):
    """Client for Bedrock. `http_client` is a boto3 client for `bedrock-runtime`, for a custom session or role."""

    table: ClassVar[ErrorTable] = TABLE
    frames: ClassVar[type[StreamParser]] = EventStreamParser
    _client: Any = None  # botocore generates its clients at run time, without types

    def __init__(self, provider: Provider, **options: Any) -> None:
        super().__init__(provider, **options)
        self._lines: WeakSet[ThreadedResponse] = WeakSet()
        """Responses of calls that may be running."""

    async def _post(self, call: ProviderCall) -> HTTPResponse:
        client = self._opened()
        line = ThreadedResponse(lambda: self._sent_by(client, call), cast(float | None, call.timeout or self.timeout))
        self._lines.add(line)
        await line.wait_for_head()
        if line.status_code < 300:
            return line
        try:
            raise self._refusal(line, await line.aread())
        finally:
            await line.aclose()

    def _sent_by(self, client: Any, call: ProviderCall) -> Any:
        """Sign and send the request. Runs on the thread of the call, because both may block on the network."""
        PENDING.call, PENDING.request = call, None
        try:
            (client.converse_stream if call.stream else client.converse)(modelId=call.provider.model_id)
            request: Any = PENDING.request
        finally:
            PENDING.call = None
        if key := self._bearer():
            request.headers["Authorization"] = f"Bearer {key}"  # set late, because botocore logs earlier headers
        request.stream_output = True
        return client._endpoint.http_session.send(request)  # private, there is no public name

    def _opened(self) -> Any:
        if self._client is not None:
            return self._client
        with importing("botocore", extra="bedrock"):
            session = import_botocore("session").get_session()
        self._bearer()  # reports an unset variable before other problems
        client: Any = self.http_client or self._made(session)
        if not hasattr(client, "converse_stream"):
            raise InvalidSetting(
                "http_client: must be a boto3 client for Bedrock", fix='Pass boto3.client("bedrock-runtime").'
            )
        events = client.meta.events
        events.register(f"before-call.{SERVICE}", _set_body, unique_id="contextc-body")
        events.register(f"before-send.{SERVICE}", _intercept_request, unique_id="contextc-request")
        for name in LOGGERS_WITH_TOKENS:
            logging.getLogger(name).addFilter(_is_foreign_record)  # adding it again has no effect
        pools: dict[str, Any] = client._endpoint.http_session._pool_classes_by_scheme
        pools |= {scheme: watched_pool(pool) for scheme, pool in pools.items() if not hasattr(pool, "watched")}
        self._client = client
        return client

    def _made(self, session: Any) -> Any:
        given = cast(float | None, self.timeout)
        config = import_botocore("config").Config(
            connect_timeout=given or CONNECT_SECONDS,
            read_timeout=given or READ_SECONDS,
            max_pool_connections=MAX_CONNECTIONS,
            retries={"total_max_attempts": 1},
            **({"signature_version": self._signature(session)} if self._is_elsewhere() else {}),
        )
        if not self._is_elsewhere() and not os.environ.get(TOKEN) and session.get_credentials() is None:
            raise import_botocore("exceptions").NoCredentialsError()
        url = self.provider.url or None
        return session.create_client(SERVICE, region_name=self._region(session), endpoint_url=url, config=config)

    def _region(self, session: Any) -> str | None:
        """Return the region in an AWS URL or in the model's ARN, else the configured one."""
        region = session.get_config_variable("region") or os.environ.get("AWS_REGION")
        host = urlsplit(self.provider.url).hostname or ""
        model = self.provider.model_id
        named = REGION.search(host if host.endswith(AWS_DOMAINS) else "") or REGION.search(
            model if "arn:" in model else ""
        )
        return (named[0] if named else region) or (FALLBACK_REGION if self.provider.url else None)

    def _is_elsewhere(self) -> bool:
        """Return True if the provider names its own key, or a URL outside AWS."""
        host = urlsplit(self.provider.url).hostname or ""
        return bool(self.provider.key) or (bool(host) and not host.endswith(AWS_DOMAINS))

    def _signature(self, session: Any) -> object:
        unsigned: object = import_module("botocore").UNSIGNED
        return unsigned if self.provider.key or session.get_credentials() is None else "v4"

    def _bearer(self) -> str:
        return (self._key() or "") if self.provider.key else ""

    def _refusal(self, line: ThreadedResponse, content: bytes) -> ProviderFailed:
        try:
            body = parse_json_object(content)
        except MalformedEvent:
            return self._refused(content.decode("utf-8", "replace"), line.status_code, line.headers)
        code = line.headers.get("x-amzn-errortype") or str(body.get("__type") or body.get("code") or "")
        message = str(body.get("message") or body.get("Message") or "")
        inner = body.get("error")
        if not message and isinstance(inner, dict):  # not AWS, but a proxy or gateway
            return self._refused(body, line.status_code, line.headers)
        # The code may be "InvalidSignatureException:http://…". Its message continues with all signed text, also tokens.
        error = {
            "code": code.partition(":")[0].rpartition("#")[2],
            "message": message.partition("\n\nThe Canonical String")[0],
        }
        return self._refused({"error": error}, line.status_code, line.headers)

    def _failure(self, error: Exception) -> ProviderFailed | None:
        exceptions, name = import_botocore("exceptions"), self.provider.name
        if isinstance(error, exceptions.NoRegionError):
            return ProviderFailed(name, "invalid", "no region is set", way_out=NO_REGION)
        if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
            return self._unreached(error)
        if isinstance(error, exceptions.NoCredentialsError | exceptions.NoAuthTokenError):
            return ProviderFailed(name, "auth", "no credentials were found", way_out=NO_CREDENTIALS)
        if isinstance(error, exceptions.ParamValidationError):
            return ProviderFailed(name, "invalid", f"invalid model id {self.provider.model_id!r}")
        if isinstance(error, exceptions.BotoCoreError | exceptions.ClientError):  # an expired session, a wrong profile
            return ProviderFailed(name, "auth", str(error)[:300], way_out=NO_CREDENTIALS)
        return None

    def _secrets(self) -> tuple[str, ...]:
        return (*super()._secrets(), *filter(None, [os.environ.get(name, "").strip() for name in SECRETS]))

    def _forget(self) -> Callable[[], Awaitable[object]] | None:
        """Return a function that closes the connections. The client stays: it is slow to create, and needs no loop."""
        client = self._client
        if client is None or self.http_client is not None:
            return None

        async def close() -> None:
            for line in list(self._lines):
                line.abort()
            client.close()

        return close


def _set_body(params: Any, **_: Any) -> None:
    """Set our body in a request that is about to be signed. Requests of other code are unchanged."""
    call: ProviderCall | None = getattr(PENDING, "call", None)
    if call is None:
        return
    params["body"] = call.body
    params["headers"] |= {"Content-Type": "application/json", **call.headers}


def _is_foreign_record(_: logging.LogRecord) -> bool:
    return getattr(PENDING, "call", None) is None


def _intercept_request(request: Any, **_: Any) -> Any:
    """Store the signed request, and return an empty response in place of sending it."""
    if getattr(PENDING, "call", None) is None:
        return None
    PENDING.request = request
    return import_botocore("awsrequest").AWSResponse(request.url, 200, {}, _EmptyBody())


class _EmptyBody:
    """Empty response body."""

    def stream(self, *_: Any, **__: Any) -> list[bytes]:
        return [b"{}"]
