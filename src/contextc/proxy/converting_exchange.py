"""An exchange that another provider answers: `--convert PROVIDER:MODEL`.

The client's request is converted and sent with the key of this server's own environment. The reply comes back in the
client's format, event by event. What is recorded is the exchange with the provider. Requests that are not for a model
go to the client's own upstream as usual.
"""

import asyncio
from contextlib import aclosing

import msgspec

from contextc._json import JSONObject, as_object, decode, encode
from contextc._worker_threads import run_in_thread
from contextc.errors import ContextcError, ProviderFailed, describe_error
from contextc.formats import formatter
from contextc.formats.base import DECODE_ERRORS, Formatter
from contextc.observation.content_decoding import CannotDecode
from contextc.providers.client import Endpoint, ProviderCall, endpoint
from contextc.proxy.acting_exchange import BufferedExchange
from contextc.proxy.relay import ClientConnection
from contextc.proxy.request_changes import is_complete_path
from contextc.proxy.request_conversion import (
    Conversion,
    ConvertedRequest,
    ReplyConversion,
    count_request_tokens,
    encode_failure,
)
from contextc.proxy.spool_frames import ExchangeStart, ResponseStart
from contextc.proxy.upstreams import find_format

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

    @property
    def _format(self) -> str:
        return find_format(self._path) or ""

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
        if (counted := await run_in_thread(count_request_tokens, body, self._format, self._url)) is not None:
            self._write_whole(200, counted)
            return
        if not is_complete_path(self._url):
            self._refuse(404, "This request cannot be converted for another provider.")
            return
        conversion = self._converter.conversion
        try:
            converted = await run_in_thread(conversion.convert, body, self._format, self._url)
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
                    self._record_event(event)
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
            )
        )
        self._record.request(converted.body)
        self._record.sent()

    def _record_response(self, status: int, error: str = "") -> None:
        if self._record is not None:
            self._record.response(ResponseStart(status=status, error=error))

    def _record_event(self, event: JSONObject) -> None:
        if self._record is not None:
            is_lines = self._converter.conversion.provider.format == "ollama"
            self._record.reply(encode(event) + b"\n" if is_lines else b"data: " + encode(event) + b"\n\n")

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
        return formatter(self._format or DEFAULT_CLIENT_FORMAT)

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
