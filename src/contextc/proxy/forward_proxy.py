"""A forward proxy: programs that do not know the proxy as their provider reach every host through it (HTTP CONNECT).

Connections to the hosts of recorded vendors are decrypted, with certificates of this run, and their requests are
recorded as those of the reverse proxy are. All other connections pass unread. Every client needs the token, as the
password of the proxy: other users of this machine can reach its port.
"""

import asyncio
import base64
import hmac
import re
import ssl
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple
from urllib.parse import urlsplit

from contextc.errors import describe_error
from contextc.proxy.access_checks import Refusal
from contextc.proxy.certificates import CertificateAuthority, trusted_certificate
from contextc.proxy.http1_framing import HTTPHead, parse_head
from contextc.proxy.relay import ClientConnection, Exchange, Relay, Route
from contextc.proxy.upstream_connections import HAPPY_EYEBALLS_DELAY, connect_through, find_environment_proxy
from contextc.proxy.upstreams import SCHEMES, Upstream, known_upstreams, parse_upstream

USER = "contextc"
CONNECT = re.compile(rb"CONNECT (?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5}) HTTP/1\.[01]")
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
PLAIN = b"http://"
MAX_HOSTS = 100
"""Names of hosts that are kept to say why nothing was recorded."""


class HostPattern(NamedTuple):
    """Hosts of an upstream that are not known by name, and the domain that they are below."""

    name: str
    pattern: re.Pattern[str]
    domain: str


def host_patterns() -> Sequence[HostPattern]:
    return [
        HostPattern(name, re.compile(facts["hosts"]), facts["domain"])
        for name, facts in known_upstreams().items()
        if "hosts" in facts
    ]


class ForwardProxy:
    """The forward proxy of a run. It decrypts the hosts of `upstreams`, and those that patterns of vendors match.

    `distrusted` counts connections whose client did not accept the certificate, by host, `tunnelled` those that passed
    unread, and `unreachable` those that failed.
    """

    def __init__(self, upstreams: Mapping[str, Upstream], token: str) -> None:
        self._upstreams = [each for each in upstreams.values() if each.scheme == "https"]
        self._patterns = host_patterns()
        self._token, self._login = token, base64.b64encode(f"{USER}:{token}".encode())
        self.hosts = sorted({*(each.host for each in self._upstreams), *(each.domain for each in self._patterns)})
        self.authority = CertificateAuthority(self.hosts)
        self.distrusted, self.tunnelled, self.unreachable = Counter[str](), Counter[str](), Counter[str]()

    def find(self, host: str, port: int) -> list[Upstream]:
        """Return the upstreams at a host, those with the longest path first. A host without one passes unread."""
        found = [each for each in self._upstreams if (each.host, each.port) == (host, port)]
        if not found and port == SCHEMES["https"]:
            matching = [each.name for each in self._patterns if each.pattern.fullmatch(host)]
            found = [parse_upstream(each, f"https://{host}") for each in matching[:1]]
        return sorted(found, key=lambda each: -len(each.path))

    def check(self, head: HTTPHead) -> None:
        """Raise `Refusal` if a client has not sent the token."""
        scheme, _, given = head.value(b"proxy-authorization").partition(b" ")
        if scheme.lower() != b"basic" or not hmac.compare_digest(given.strip(), self._login):
            raise Refusal(407, "token_needed", "The proxy needs the token of this run as its password.")

    def client_url(self, address: str) -> str:
        """Return the URL of this proxy for clients, with the token."""
        scheme, _, place = address.partition("://")
        return f"{scheme}://{USER}:{self._token}@{place}"

    def trusted_in(self, environment: Mapping[str, str]) -> AbstractContextManager[dict[str, str]]:
        """Return the variables that make a program of this environment trust the certificates; their files are there
        inside of the context.
        """
        return trusted_certificate(self.authority.certificate, environment)

    def make_client(self, relay: Relay) -> "ForwardConnection":
        return ForwardConnection(self, relay)


def count_host(counts: Counter[str], host: str) -> None:
    if host in counts or len(counts) < MAX_HOSTS:
        counts[host] += 1


class ForwardConnection(ClientConnection):
    """The connection of a client that knows the proxy as such. It may also use it by a base URL."""

    def __init__(self, forward: ForwardProxy, relay: Relay) -> None:
        super().__init__(relay)
        self.forward = forward

    def make_exchange(self, raw: bytes) -> Exchange:
        return Tunnel(self, raw) if raw.startswith(b"CONNECT ") else super().make_exchange(raw)

    def route(self, head: HTTPHead, target: bytes) -> Route | None:
        """Also take requests for a plain HTTP server, which clients send as a whole URL. They pass unrecorded."""
        if target[: len(PLAIN)].lower() != PLAIN:
            return super().route(head, target)
        self.forward.check(head)
        try:
            there = urlsplit(target.decode("latin-1"))
            host, port = there.hostname or "", there.port or SCHEMES["http"]
        except ValueError:
            raise Refusal(400, "invalid_http", "The URL is not valid.") from None
        path = target[len(PLAIN) :].partition(b"/")[2]
        upstream = Upstream(name=host, scheme="http", host=host, port=port)
        return Route(upstream, b"/" + path, is_recorded=False)


class DecryptedConnection(ClientConnection):
    """A client inside of a tunnel to the host of a recorded vendor, which takes this proxy for that host."""

    def __init__(self, relay: Relay, upstreams: Sequence[Upstream]) -> None:
        super().__init__(relay)
        self._upstreams = upstreams
        self._early = b""
        self._is_connected = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._is_connected = True
        super().connection_made(transport)
        if self._early:
            self.data_received(self._early)

    def data_received(self, data: bytes) -> None:
        if self._is_connected:
            super().data_received(data)
        else:
            self._early += data  # it came with the end of the handshake

    def route(self, head: HTTPHead, target: bytes) -> Route | None:
        if not target.startswith(b"/"):
            raise Refusal(400, "invalid_http", "The target of a request must be a path.")
        path = target.decode("latin-1")
        upstream = next((each for each in self._upstreams if path.startswith(each.path)), self._upstreams[-1])
        return Route(upstream, target, is_transparent=True)


class Tunnel:
    """The opening of a tunnel, which a client asks for with CONNECT."""

    def __init__(self, client: ForwardConnection, raw: bytes) -> None:
        self.client, self.forward = client, client.forward
        head = parse_head(raw)
        line = CONNECT.fullmatch(head.start)
        if line is None:
            raise Refusal(400, "invalid_http", "CONNECT: expected HOST:PORT.")
        self.forward.check(head)
        self.host, self.port = (line[1] or line[2]).decode().lower(), int(line[3])
        self._opening: asyncio.Task[None] | None = None

    def start(self, rest: bytes) -> None:
        if rest:
            self.client.refuse(Refusal(400, "invalid_http", "A client must wait until its tunnel is open."))
            return
        self.client.transport.pause_reading()
        upstreams = self.forward.find(self.host, self.port)
        work = self._decrypt(upstreams) if upstreams else self._pass()
        self._opening = asyncio.get_running_loop().create_task(work)

    async def _decrypt(self, upstreams: Sequence[Upstream]) -> None:
        client, relay = self.client, self.client.relay
        inside = DecryptedConnection(relay, upstreams)
        context = self.forward.authority.server_context(self.host)
        client.transport.write(ESTABLISHED)
        try:
            secured = await asyncio.get_running_loop().start_tls(client.transport, inside, context, server_side=True)
        except (OSError, ssl.SSLError):
            secured = None
        relay.clients.pop(client, None)
        if secured is None:
            count_host(self.forward.distrusted, self.host)
            client.transport.abort()
        else:
            inside.connection_made(secured)

    async def _pass(self) -> None:
        client, timeouts = self.client, self.client.relay.timeouts
        try:
            async with asyncio.timeout(timeouts.connect):
                there, early = await open_connection(self.host, self.port)
        except (OSError, ValueError) as error:  # also the end of the time
            count_host(self.forward.unreachable, self.host)
            text = describe_error(error) or f"no connection within {timeouts.connect:g} s"
            client.refuse(Refusal(502, "unreachable", f"{self.host}:{self.port} cannot be reached: {text}."))
            return
        count_host(self.forward.tunnelled, self.host)
        client.transport.write(ESTABLISHED + early)
        client.splice(there)

    def request_data(self, data: bytes) -> None: ...
    def client_paused(self, is_paused: bool) -> None: ...
    def check_time(self, now: float) -> None: ...

    def client_lost(self) -> None:
        if self._opening is not None:
            self._opening.cancel()

    def stop(self) -> None:
        self.client_lost()


async def open_connection(host: str, port: int) -> tuple[asyncio.Transport, bytes]:
    """Connect to a host, through the user's own proxy if there is one. The transport does not read yet.

    Return what the host has sent already, too. Raise OSError if that fails.
    """
    outer = find_environment_proxy("https", host)
    if outer is not None:
        return await connect_through(outer, host, port)
    made, _ = await asyncio.get_running_loop().create_connection(
        _Paused, host, port, happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY
    )
    return made, b""


class _Paused(asyncio.Protocol):
    """A connection that does not read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
