"""An exchange that changes its request: the body is collected, changed on a thread, and then sent.

Requests that are not for a model, and requests in which nothing is to be changed, pass as in the relay. If a change
fails, the request is sent as it arrived, and its record says so.
"""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from contextc._worker_threads import run_in_thread
from contextc.compiler.manifest import RequestAction
from contextc.observation.content_decoding import CannotDecode
from contextc.providers import Provider
from contextc.proxy.exchange import Exchange
from contextc.proxy.http1_framing import Field, FramingError, Head, LengthBody, decode_body
from contextc.proxy.request_changes import Change, apply_changes, describe_failure, fix_request
from contextc.proxy.request_fitting import fit_request
from contextc.proxy.upstreams import find_format

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


class BufferedExchange(Exchange):
    """An exchange whose request is collected before anything is done."""

    _chunks: list[bytes]
    _size = 0
    _is_buffered = _is_collected = False

    def start(self, rest: bytes) -> None:
        if self.is_status or not self._is_acted_on():
            super().start(rest)
            return
        self.relay.requests += 1
        self._is_buffered, self._chunks = True, []
        if b"100-continue" in self._head.tokens(b"expect") and not rest:
            self.client.transport.write(CONTINUE)
        self.request_data(rest)

    def _is_acted_on(self) -> bool:
        return self.method == b"POST" and find_format(self._path) is not None

    @property
    def _path(self) -> str:
        return self._target.partition(b"?")[0].decode("latin-1")

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
            self._replace_body(body)
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

    def _change(self, raw: bytes) -> tuple[bytes | None, tuple[RequestAction, ...]]:
        """Return the changed body, None if it is not changed, and what was done. This runs on a thread."""
        try:
            content = self._content(raw)
        except CannotDecode as error:
            return None, tuple([describe_failure(name, str(error)) for name, _ in self._changes])
        changed, actions = apply_changes(content, self._changes, find_format(self._path) or "", self._url)
        return changed, tuple(actions)

    def _replace_body(self, body: bytes) -> None:
        fields = [each for each in self._head.fields if each.name not in BODY_FIELDS]
        length = str(len(body)).encode()
        fields.append(Field(b"content-length", length, b"Content-Length: " + length))
        self._head = Head(self._head.start, fields)
        self.body = LengthBody(0)
