"""HTTPS upstreams: certificates are verified, and proxies of the environment are used (Guarantee 16.10)."""

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from contextc.proxy import upstream_connections
from contextc.proxy.http1_framing import HEAD_END
from tests.proxy.raw_servers import OK, RawConnection, RawUpstream, post, running_relay
from tests.proxy.test_relay_failures import error_of

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@cache
def make_certificate() -> tuple[bytes, bytes]:
    """Return a certificate for 127.0.0.1, signed by itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return made.public_bytes(serialization.Encoding.PEM), pem


@pytest.fixture
def server_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The context of a server whose certificate the relay trusts."""
    certificate, key = make_certificate()
    (tmp_path / "server.pem").write_bytes(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    trusting = ssl.create_default_context(cadata=certificate.decode())
    monkeypatch.setattr(upstream_connections, "make_ssl_context", lambda: trusting)
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return context


async def test_requests_go_over_tls_and_connections_are_kept(tmp_path: Path, server_context: ssl.SSLContext) -> None:
    async with RawUpstream(context=server_context) as upstream, running_relay(upstream.url, tmp_path) as relay:
        for size in (10, 3_000_000):
            assert (await relay.send(post(body=bytes(size)))).endswith(b"ok")
        assert [len(each) > 3_000_000 for each in upstream.requests] == [False, True]
        assert upstream.connections == 1


async def test_an_unknown_certificate_is_an_error(
    tmp_path: Path, server_context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_connections, "make_ssl_context", ssl.create_default_context)

    async with RawUpstream(context=server_context) as upstream, running_relay(upstream.url, tmp_path) as relay:
        status, _, message = error_of(await relay.send(post()))
        assert status == 502
        assert "certificate verify failed" in message
        assert not upstream.requests


def tunnel(
    opened: list[bytes], answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
) -> Callable[[RawConnection], Awaitable[None]]:
    """Return an HTTP proxy that opens tunnels."""

    async def serve(connection: RawConnection) -> None:
        head = await connection.reader.readuntil(HEAD_END)
        opened.append(head)
        await connection.send(answer)
        if b" 200 " not in answer:
            return
        host, port = head.split()[1].decode().split(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await source.read(65_536):
                    target.write(data)
                    await target.drain()

        try:
            await asyncio.gather(copy(connection.reader, writer), copy(reader, connection.writer))
        finally:
            writer.close()

    return serve


@pytest.mark.parametrize("is_refused", [False, True])
def test_the_proxy_of_the_environment_is_used(
    tmp_path: Path, server_context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    opened: list[bytes] = []
    answer = b"HTTP/1.1 407 Login\r\n\r\n" if is_refused else b"HTTP/1.1 200 Connection established\r\n\r\n"

    async def main() -> None:
        async with (
            RawUpstream(context=server_context) as upstream,
            RawUpstream(whole=tunnel(opened, answer)) as outer,
            running_relay(upstream.url, tmp_path) as relay,
        ):
            monkeypatch.setenv("https_proxy", f"http://user:pass%20word@127.0.0.1:{outer.port}")
            monkeypatch.setenv("no_proxy", "")
            got = await relay.send(post())
            if is_refused:
                assert "407 Login" in error_of(got)[2]
                assert not upstream.requests
            else:
                assert got.endswith(OK[-2:])
                assert len(upstream.requests) == 1
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            relay.relay.pool.close()
            assert (await relay.send(post())).endswith(b"ok")
        assert opened == [
            f"CONNECT 127.0.0.1:{upstream.port} HTTP/1.1\r\nHost: 127.0.0.1:{upstream.port}\r\n"
            "Proxy-Authorization: Basic dXNlcjpwYXNzIHdvcmQ=\r\n\r\n".encode()
        ]

    asyncio.run(main())
