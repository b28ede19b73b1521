"""Bedrock, through AWS's own SDK: its chain of credentials, region, address and signature. The body is our bytes.

botocore takes no bytes and waits for its answers. So it is asked for an empty request, is given the body before it
signs, and hands over what it was about to send; that is sent by its own HTTP client, on a thread. It tries nothing
again. Where no other key is named, requests are signed with the credentials it finds, or carry the token in
AWS_BEARER_TOKEN_BEDROCK. An address that is not Amazon's never gets that token: a signature gives no secret away, and
is worth nothing elsewhere.
"""

import logging
import os
import re
from collections.abc import Awaitable, Callable
from importlib import import_module
from threading import local
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit
from weakref import WeakSet

from contextc.errors import InvalidSetting, ProviderFailed
from contextc.providers.bedrock.frames import EventFrames
from contextc.providers.bedrock.line import Line, watched
from contextc.providers.bedrock.sdk import botocore
from contextc.providers.endpoint import Call
from contextc.providers.failures import Table
from contextc.providers.named import Provider
from contextc.providers.posting import Answer, Frames, Posting, missing
from contextc.providers.sse import MalformedEvent, parsed
from contextc.providers.waiting import CONNECT_SECONDS, READ_SECONDS

SERVICE = "bedrock-runtime"
MOST_AT_ONCE = 64
FALLBACK_REGION = "us-east-1"
AMAZONS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
REGION = re.compile(r"\b[a-z]{2}(?:-[a-z]+)+-\d\b")
TOKEN = "AWS_BEARER_TOKEN_BEDROCK"
SECRETS = (TOKEN, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
NO_CREDENTIALS = (
    f"Set {TOKEN}, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in with the AWS command line (aws sso login) "
    "and set AWS_PROFILE."
)
NO_REGION = "Set AWS_REGION, such as us-east-1, or write a region into ~/.aws/config."
TABLE = Table(
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
    words=(
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
TALKATIVE = ("botocore.endpoint", "botocore.auth", "botocore.regions")
"""Who logs requests before they are sent, with the tokens in their headers. Of ours they log nothing."""
UNSENT = local()
"""The call that a thread prepares, and the request that botocore makes of it."""


def open(provider: Provider, **options: object) -> "BedrockEndpoint":
    return BedrockEndpoint(provider, **options)


class BedrockEndpoint(Posting):
    """`http_client` is a client of boto3's for `bedrock-runtime`, for a session or a role of one's own."""

    table: ClassVar[Table] = TABLE
    frames: ClassVar[type[Frames]] = EventFrames
    _client: Any = None  # botocore makes its clients from descriptions, and has no types for them

    def __init__(self, provider: Provider, **options: Any) -> None:
        super().__init__(provider, **options)
        self._lines: WeakSet[Line] = WeakSet()
        """Calls that may be running."""

    async def _post(self, call: Call) -> Answer:
        client = self._opened()
        line = Line(lambda: self._sent_by(client, call))
        self._lines.add(line)
        await line.opened()
        if line.status_code < 300:
            return line
        try:
            raise self._said_no(line, await line.aread())
        finally:
            await line.aclose()

    def _sent_by(self, client: Any, call: Call) -> Any:
        """Have it signed, and send it; on the thread of the call, since either may wait for the network."""
        UNSENT.call, UNSENT.request, UNSENT.seconds = call, None, call.timeout or self.timeout
        try:
            (client.converse_stream if call.stream else client.converse)(modelId=call.provider.asks_for)
            request: Any = UNSENT.request
        finally:
            UNSENT.call = None
        if key := self._bearer():
            request.headers["Authorization"] = f"Bearer {key}"  # botocore logs what it is told before
        request.stream_output = True
        return client._endpoint.http_session.send(request)  # it has no public name

    def _opened(self) -> Any:
        if self._client is not None:
            return self._client
        try:
            session = botocore("session").get_session()
        except ImportError:
            raise missing("boto3", "bedrock") from None
        self._bearer()  # a variable that is not set is said before anything else
        client: Any = self.http_client or self._made(session)
        if not hasattr(client, "converse_stream"):
            raise InvalidSetting('http_client is a client of boto3\'s here: boto3.client("bedrock-runtime").')
        events = client.meta.events
        events.register(f"before-call.{SERVICE}", _with_our_bytes, unique_id="contextc-body")
        events.register(f"before-send.{SERVICE}", _held_back, unique_id="contextc-request")
        for name in TALKATIVE:
            logging.getLogger(name).addFilter(_is_not_ours)  # the same one again is not added
        pools: dict[str, Any] = client._endpoint.http_session._pool_classes_by_scheme
        pools |= {scheme: watched(pool) for scheme, pool in pools.items() if not hasattr(pool, "watched")}
        self._client = client
        return client

    def _made(self, session: Any) -> Any:
        given = cast(float | None, self.timeout)
        config = botocore("config").Config(
            connect_timeout=given or CONNECT_SECONDS,
            read_timeout=given or READ_SECONDS,
            max_pool_connections=MOST_AT_ONCE,
            retries={"total_max_attempts": 1},
            **({"signature_version": self._signature(session)} if self._is_elsewhere() else {}),
        )
        if not self._is_elsewhere() and not os.environ.get(TOKEN) and session.get_credentials() is None:
            raise botocore("exceptions").NoCredentialsError()
        url = self.provider.url or None
        return session.create_client(SERVICE, region_name=self._region(session), endpoint_url=url, config=config)

    def _region(self, session: Any) -> str | None:
        """As it is set, or as an address of Amazon's or the model's full name says."""
        told = session.get_config_variable("region") or os.environ.get("AWS_REGION")
        host = urlsplit(self.provider.url).hostname or ""
        model = self.provider.asks_for
        named = REGION.search(host if host.endswith(AMAZONS) else "") or REGION.search(model if "arn:" in model else "")
        return (named[0] if named else told) or (FALLBACK_REGION if self.provider.url else None)

    def _is_elsewhere(self) -> bool:
        """Whether a key of its own is named, or an address that is not Amazon's."""
        host = urlsplit(self.provider.url).hostname or ""
        return bool(self.provider.key) or (bool(host) and not host.endswith(AMAZONS))

    def _signature(self, session: Any) -> object:
        unsigned: object = import_module("botocore").UNSIGNED
        return unsigned if self.provider.key or session.get_credentials() is None else "v4"

    def _bearer(self) -> str:
        return (self._key() or "") if self.provider.key else ""

    def _said_no(self, line: Line, content: bytes) -> ProviderFailed:
        try:
            body = parsed(content)
        except MalformedEvent:
            return self._refused(content.decode("utf-8", "replace"), line.status_code, line.headers)
        code = line.headers.get("x-amzn-errortype") or str(body.get("__type") or body.get("code") or "")
        told = str(body.get("message") or body.get("Message") or "")
        inner = body.get("error")
        if not told and isinstance(inner, dict):  # not AWS, but something on the way to it
            return self._refused(body, line.status_code, line.headers)
        # "InvalidSignatureException:http://…"; and its sentence goes on with all that was signed, tokens too.
        error = {
            "code": code.partition(":")[0].rpartition("#")[2],
            "message": told.partition("\n\nThe Canonical String")[0],
        }
        return self._refused({"error": error}, line.status_code, line.headers)

    def _failure(self, error: Exception) -> ProviderFailed | None:
        exceptions, name = botocore("exceptions"), self.provider.name
        if isinstance(error, exceptions.NoRegionError):
            return ProviderFailed(name, "invalid", "no region is set", way_out=NO_REGION)
        if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
            return self._unreached(error)
        if isinstance(error, exceptions.NoCredentialsError | exceptions.NoAuthTokenError):
            return ProviderFailed(name, "auth", "no credentials were found", way_out=NO_CREDENTIALS)
        if isinstance(error, exceptions.ParamValidationError):
            return ProviderFailed(name, "invalid", f"{self.provider.asks_for!r} cannot be the name of a model")
        if isinstance(
            error, exceptions.BotoCoreError | exceptions.ClientError
        ):  # a session that ended, a wrong profile
            return ProviderFailed(name, "auth", str(error)[:300], way_out=NO_CREDENTIALS)
        return None

    def _secrets(self) -> tuple[str, ...]:
        return (*super()._secrets(), *filter(None, [os.environ.get(name, "").strip() for name in SECRETS]))

    def _forget(self) -> Callable[[], Awaitable[object]] | None:
        """The client stays: it belongs to no loop, and takes a while to make. Its connections are closed."""
        client = self._client
        if client is None or self.http_client is not None:
            return None

        async def close() -> None:
            for line in list(self._lines):
                line.leave()
            client.close()

        return close


def _with_our_bytes(params: Any, **_: Any) -> None:
    """The request that is about to be signed, with our body in it; those of others are left alone."""
    call: Call | None = getattr(UNSENT, "call", None)
    if call is None:
        return
    params["body"] = call.body
    params["headers"] |= {"Content-Type": "application/json", **call.headers}
    if UNSENT.seconds:
        params["context"]["read_timeout"] = UNSENT.seconds


def _is_not_ours(_: logging.LogRecord) -> bool:
    return getattr(UNSENT, "call", None) is None


def _held_back(request: Any, **_: Any) -> Any:
    """Keep a signed request, and answer it with nothing."""
    if getattr(UNSENT, "call", None) is None:
        return None
    UNSENT.request = request
    return botocore("awsrequest").AWSResponse(request.url, 200, {}, _Nothing())


class _Nothing:
    """A body that says nothing."""

    def stream(self, *_: Any, **__: Any) -> list[bytes]:
        return [b"{}"]
