"""Exchanges that change their request, or have it answered by another provider.

The body is collected, changed on a thread, and then sent. Requests that are not for a model, and requests in which
nothing is to be changed, pass as in the relay. If a change fails, the request is sent as it arrived, and its record
says so.
"""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from contextc._json import as_object, decode, encode
from contextc._worker_threads import run_in_thread
from contextc.compiler.manifest import ProxyAction
from contextc.errors import ContextcError, ProviderFailed, describe_error
from contextc.formats import formatter
from contextc.formats.base import DECODE_ERRORS, Formatter
from contextc.formats.streams import server_sent_event
from contextc.observation.content_decoding import CannotDecode
from contextc.providers import Provider
from contextc.providers.client import Endpoint, ProviderCall, endpoint
from contextc.proxy.http1_framing import FramingError, HeaderField, HTTPHead, LengthBody, decode_body
from contextc.proxy.relay import ClientConnection, RelayedExchange
from contextc.proxy.request_conversion import (
    Conversion,
    ConvertedRequest,
    ReplyConversion,
    count_request_tokens,
    encode_failure,
)
from contextc.proxy.request_lint import (
    Change,
    apply_changes,
    describe_failure,
    fit_request,
    fix_request,
    is_complete_path,
)
from contextc.proxy.spool import ExchangeStart, ResponseStart

if TYPE_CHECKING:
    from contextc.proxy.relay import ClientConnection


MAX_BODY_BYTES = 256 << 20
BODY_FIELDS = (b"content-length", b"transfer-encoding", b"content-encoding", b"expect", b"trailer")
"""Header fields that describe a body. A changed body has others."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ActingOptions(NamedTuple):
    """Options for what the proxy does with requests, apart from recording them. `lints` is done by the recorder.

    `converts_to` is the provider that answers in place of the client's own. A converted request is repaired, too.
    """

    lints: bool = False
    fixes: bool = False
    fits: bool = False
    converts_to: Provider | None = None

    @property
    def changes(self) -> tuple[tuple[str, Change], ...]:
        """The changes in their order, with the names of their options."""
        fits: tuple[tuple[str, Change], ...] = (("fit", fit_request),) if self.fits else ()
        return (*((("fix", fix_request),) if self.fixes else ()), *fits)


class BufferedExchange(RelayedExchange):
    """An exchange whose request is collected before anything is done."""

    _chunks: list[bytes]
    _size = 0
    _is_buffered = _is_collected = False

    def start(self, rest: bytes) -> None:
        if self.is_status or self._recorded_format is None:
            super().start(rest)
            return
        self.relay.requests += 1
        self._is_buffered, self._chunks = True, []
        if b"100-continue" in self._head.tokens(b"expect") and not rest:
            self.client.transport.write(CONTINUE)
        self.request_data(rest)

    @property
    def _url(self) -> str:
        return self._server.record_url(self._path.removeprefix(self._server.path))

    def request_data(self, data: bytes) -> None:
        if not self._is_buffered:
            super().request_data(data)
            return
        try:
            used = self.body.feed(data) if not self.body.is_done else 0
        except FramingError as error:
            self._fail(400, "invalid_http", f"The request is not valid HTTP/1.1: {error}.")
            return
        self._chunks.append(data[:used])
        self._size += used
        if used < len(data):
            self.client.keep_for_next(data[used:])
        if self._size > MAX_BODY_BYTES:
            self._fail(
                413, "body_too_large", f"A request that is to be changed must be at most {MAX_BODY_BYTES:,} bytes."
            )
        elif self.body.is_done and not self._is_collected:
            self._is_collected = True
            self._connecting = asyncio.get_running_loop().create_task(self._act(b"".join(self._chunks)))

    async def _act(self, raw: bytes) -> None:
        raise NotImplementedError

    def _content(self, raw: bytes) -> bytes:
        """Return the decoded body. Raise `CannotDecode` if its encoding is unknown."""
        encoding = b",".join(self._head.values(b"content-encoding")).decode("latin-1")
        return decode_body(raw, encoding, is_chunked=self.body.is_chunked)


class ActingExchange(BufferedExchange):
    """An exchange whose request is changed."""

    def __init__(self, options: ActingOptions, client: "ClientConnection", raw: bytes) -> None:
        super().__init__(client, raw)
        self._changes = options.changes

    async def _act(self, raw: bytes) -> None:
        body, actions = await run_in_thread(self._change, raw)
        if self._is_over:
            return
        if body is not None:
            fields = [each for each in self._head.fields if each.name not in BODY_FIELDS]
            length = str(len(body)).encode()
            fields.append(HeaderField(b"content-length", length, b"Content-Length: " + length))
            self._head = HTTPHead(self._head.start, fields)
            self.body = LengthBody(0)
            raw = body
        self._begin_record(actions)
        if self._record is not None:
            self._record.request(raw)
            self._is_sent = True
            self._record.sent()
        self._pending = [raw]
        connection = self._take_connection()
        if connection is None:
            await self._connect()
        else:
            self._connecting = None
            self._use(connection)

    def _change(self, raw: bytes) -> tuple[bytes | None, tuple[ProxyAction, ...]]:
        """Return the changed body, None if it is not changed, and what was done. This runs on a thread."""
        try:
            content = self._content(raw)
        except CannotDecode as error:
            return None, tuple([describe_failure(name, str(error)) for name, _ in self._changes])
        changed, actions = apply_changes(content, self._changes, self._recorded_format or "", self._url)
        return changed, tuple(actions)


# ── another provider answers ──────────────────────────────────────────────────────────────────────────────────────────
# An exchange that another provider answers: `--convert PROVIDER:MODEL`.
#
# The client's request is converted and sent with the key of this server's own environment. The reply comes back in the
# client's format, event by event. What is recorded is the exchange with the provider. Requests that are not for a
# model go to the client's own upstream as usual.


DEFAULT_CLIENT_FORMAT = "openai_chat"


class ConvertingServer:
    """The conversion and the provider's client, which converting exchanges share."""

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion
        self._endpoint: Endpoint | None = None

    @property
    def endpoint(self) -> Endpoint:
        if self._endpoint is None:
            self._endpoint = endpoint(self.conversion.provider)
        return self._endpoint

    def make_exchange(self, client: ClientConnection, raw: bytes) -> "ConvertingExchange":
        return ConvertingExchange(self, client, raw)


class ConvertingExchange(BufferedExchange):
    """An exchange whose request goes to another provider."""

    def __init__(self, server: ConvertingServer, client: ClientConnection, raw: bytes) -> None:
        super().__init__(client, raw)
        self._converter = server
        self._may_write = asyncio.Event()
        self._may_write.set()

    def client_paused(self, is_paused: bool) -> None:
        if self._is_buffered:
            (self._may_write.clear if is_paused else self._may_write.set)()
        else:
            super().client_paused(is_paused)

    async def _act(self, raw: bytes) -> None:
        try:
            await self._answer(raw)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._refuse(400, describe_error(error))
        finally:
            self._connecting = None

    async def _answer(self, raw: bytes) -> None:
        try:
            body = await run_in_thread(self._content, raw)
        except CannotDecode as error:
            self._refuse(400, f"The request cannot be converted: {error}.")
            return
        if (
            counted := await run_in_thread(count_request_tokens, body, self._recorded_format or "", self._url)
        ) is not None:
            self._write_whole(200, counted)
            return
        if not is_complete_path(self._url):
            self._refuse(404, "This request cannot be converted for another provider.")
            return
        conversion = self._converter.conversion
        try:
            converted = await run_in_thread(conversion.convert, body, self._recorded_format or "", self._url)
        except (ContextcError, msgspec.DecodeError, *DECODE_ERRORS) as error:
            self._refuse(400, f"The request cannot be converted: {error}")
            return
        self._record_request(converted)
        await self._stream(converted)

    async def _stream(self, converted: ConvertedRequest) -> None:
        conversion = self._converter.conversion
        reply = ReplyConversion(conversion, converted)
        call = ProviderCall(
            provider=conversion.provider,
            body=converted.body,
            arguments=lambda: as_object(decode(converted.body)),
            stream=True,
            timeout=self.relay.timeouts.silence,
        )
        begun = False
        try:
            async with aclosing(self._converter.endpoint.stream(call)) as events:
                async for event in events:
                    if not begun:
                        begun = True
                        self._record_response(200)
                        if converted.is_streamed:
                            self._write_head(reply.stream.content_type)
                            self._write_chunk(reply.stream.begin())
                    if self._record is not None:
                        self._record.reply(server_sent_event(event))
                    made = reply.read(event)
                    if converted.is_streamed:
                        self._write_chunk(made)
                        await self._may_write.wait()
            if not reply.reader.finished:
                raise ProviderFailed(conversion.provider.name, "transient", "the reply broke off")
            if converted.is_streamed:
                self._write_chunk(reply.end())
                self._finish_chunks()
            else:
                self._write_whole(200, reply.whole())
        except ProviderFailed as failed:
            self._fail_as(converted.form, failed, reply, begun and converted.is_streamed)

    # ── the record ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _record_request(self, converted: ConvertedRequest) -> None:
        if self.relay.spool is None:
            return
        provider, allowed = self._converter.conversion.provider, self.relay.recorded_headers
        self._record = self.relay.spool.begin(
            ExchangeStart(
                upstream=provider.name,
                url=self._converter.conversion.url,
                format=provider.format,
                headers={
                    name: field.value.decode("latin-1")
                    for field in self._head.fields
                    if (name := field.name.decode()) in allowed and name != "content-encoding"
                },
                actions=converted.actions,
                directory=self.relay.directory,
            )
        )
        self._record.request(converted.body)
        self._record.sent()

    def _record_response(self, status: int, error: str = "") -> None:
        if self._record is not None:
            self._record.response(ResponseStart(status=status, error=error))

    # ── the response ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _write_head(self, content_type: str) -> None:
        self._has_response = True
        closing = "" if self._stays_open else "Connection: close\r\n"
        self.client.transport.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nCache-Control: no-cache\r\nX-Contextc: converted\r\n"
            f"Transfer-Encoding: chunked\r\n{closing}\r\n".encode()
        )

    def _write_chunk(self, data: bytes) -> None:
        if data:
            self.client.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _finish_chunks(self) -> None:
        self._end("complete")
        self.client.transport.write(b"0\r\n\r\n")
        self._leave()

    def _write_whole(self, status: int, body: bytes, more: str = "") -> None:
        closing = "" if self._stays_open else "Connection: close\r\n"
        reason = "OK" if status == 200 else "Error"
        self._end("complete")
        self.client.transport.write(
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"X-Contextc: converted\r\n{more}{closing}\r\n".encode()
            + body
        )
        self._leave()

    def _leave(self) -> None:
        self._connecting = None
        self.client.next_exchange(stays_open=self._stays_open)

    def _refuse(self, status: int, message: str) -> None:
        self._fail_as(
            self._client_form, ProviderFailed("The proxy", "invalid", message), None, self._has_response, status
        )

    @property
    def _client_form(self) -> Formatter:
        return formatter(self._recorded_format or DEFAULT_CLIENT_FORMAT)

    def _fail_as(
        self, form: Formatter, failed: ProviderFailed, reply: ReplyConversion | None, is_begun: bool, status: int = 0
    ) -> None:
        """Answer with an error in the client's format."""
        if self._is_over:
            return
        code, body = encode_failure(form, failed)
        if not is_begun:
            self._record_response(failed.status or status or code, failed.problem)
            wait = f"Retry-After: {failed.retry_after:g}\r\n" if failed.retry_after is not None else ""
            self._write_whole(status or code, encode(body), wait)
        elif reply is not None:
            self._write_chunk(reply.stream.fail(body))
            self._finish_chunks()
        else:
            self._end("broken")
            self.client.break_off(is_reset=True)
