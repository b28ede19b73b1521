"""The forward proxy of `contextc watch`: watching changes nothing (Guarantees 16.10 and 16.18)."""

import asyncio
import base64
import json
import os
import re
import socket
import ssl
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from contextc.proxy import relay, upstream_connections
from contextc.proxy.certificates import CertificateAuthority, trusted_certificate
from contextc.proxy.client_setup import (
    ProxyAddresses,
    set_up_client,
    set_up_forwarded_client,
    wants_forward_proxy,
)
from contextc.proxy.forward_proxy import ForwardProxy
from contextc.proxy.http1_framing import HEAD_END
from contextc.proxy.relay import Relay
from contextc.proxy.spool import GapLog, Spool
from contextc.proxy.upstreams import load_upstreams
from tests.fake_vendors import KEY, FakeVendors, Scripted
from tests.forked_commands import run_contextc
from tests.proxy.raw_servers import OK, RawConnection, RawUpstream, RelayFixture, Streams
from tests.proxy.vendor_hosts import VendorHosts

HOST = "api.anthropic.com"
TOKEN = "token-of-this-run"
LOGIN = base64.b64encode(f"contextc:{TOKEN}".encode()).decode()
EVENTS = (b"event: one\n\n", b"event: two\n\n")


@asynccontextmanager
async def forwarding(folder: Path, monkeypatch: pytest.MonkeyPatch, hosts: VendorHosts) -> AsyncGenerator["Forwarding"]:
    """Run a forward proxy whose next hop is the user's own proxy, and which trusts the hosts."""
    trusting = ssl.create_default_context(cadata=hosts.authority.certificate)
    monkeypatch.setattr(upstream_connections, "make_ssl_context", lambda: trusting)
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("https_proxy", hosts.url)
    upstreams, gaps = load_upstreams(), GapLog()
    forward = ForwardProxy(upstreams, TOKEN)
    spool = Spool(folder / "run", gaps)
    running = Relay(upstreams, spool, make_client=forward.make_client)
    listening = socket.create_server(("127.0.0.1", 0))
    await running.start(listening)
    try:
        yield Forwarding(forward, RelayFixture(running, listening.getsockname()[1], spool, gaps))
    finally:
        await running.stop()
        spool.close()


class Forwarding:
    def __init__(self, forward: ForwardProxy, fixture: RelayFixture) -> None:
        self.forward, self.fixture = forward, fixture

    async def connect(self, place: str, login: str = f"Basic {LOGIN}") -> tuple[bytes, Streams]:
        """Ask for a tunnel, and return the answer and the connection."""
        reader, writer = await self.fixture.connect()
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}", *([f"Proxy-Authorization: {login}"] if login else [])]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        return await reader.readuntil(HEAD_END), (reader, writer)

    async def open(self, host: str = HOST, authority: CertificateAuthority | None = None) -> Streams:
        """Open a tunnel to a host, and a TLS connection in it. Only certificates of the authority are accepted."""
        answer, (reader, writer) = await self.connect(f"{host}:443")
        assert answer.startswith(b"HTTP/1.1 200 ")
        context = ssl.create_default_context(cadata=(authority or self.forward.authority).certificate)
        await writer.start_tls(context, server_hostname=host)
        return reader, writer


HEAD = (
    f"POST /v1/messages?beta=true HTTP/1.1\r\nhost: {HOST}\r\nX-Odd:  kept \r\nConnection: keep-alive\r\n"
    "TE: trailers\r\nx-contextc-conversation: mine\r\nContent-Length: 2\r\n\r\n"
)


async def test_requests_to_a_vendor_are_recorded_and_pass_byte_by_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the header fields of one connection: the client means them for the vendor. Events are not held back."""

    async def answer_slowly(connection: RawConnection) -> None:
        head = await connection.reader.readuntil(HEAD_END)
        upstream.requests.append(head + await connection.reader.readexactly(2))
        await connection.send(b"HTTP/1.1 200 OK\r\nconnection: keep-alive\r\nKeep-Alive: timeout=5\r\n"
                              b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")  # fmt: skip
        for event in EVENTS:
            await connection.send(b"%x\r\n%b\r\n" % (len(event), event))
            await got.get()
        await connection.send(b"0\r\n\r\n")

    got = asyncio.Queue[None]()
    async with RawUpstream(whole=answer_slowly) as upstream:
        with VendorHosts([HOST], upstream.port) as hosts:
            async with forwarding(tmp_path, monkeypatch, hosts) as proxy:
                reader, writer = await proxy.open()
                writer.write(HEAD.encode() + b"{}")
                received = b""
                for event in EVENTS:
                    while event not in received:
                        received += await reader.read(1000)
                    got.put_nowait(None)
                while not received.endswith(b"\r\n0\r\n\r\n"):
                    received += await reader.read(1000)
                writer.close()
                assert b"\r\nconnection: keep-alive\r\nKeep-Alive: timeout=5\r\n" in received
                assert upstream.requests == [HEAD.replace("x-contextc-conversation: mine\r\n", "").encode() + b"{}"]
                (exchange,) = proxy.fixture.recorded()
                assert exchange.start.url == f"https://{HOST}/v1/messages"
                assert exchange.start.headers["x-contextc-conversation"] == "mine"
            assert {(each.place, each.login) for each in hosts.opened} == {
                (f"{HOST}:443", b"Basic " + base64.b64encode(b"user:a secret"))
            }


@pytest.mark.parametrize("login", ["", "Basic", f"Bearer {TOKEN}", f"Basic {LOGIN[:-4]}", "Basic \xff"])
async def test_another_user_cannot_use_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: str) -> None:
    """Neither for the hosts of vendors nor for others, over HTTPS or not."""
    async with RawUpstream() as upstream:
        place = f"127.0.0.1:{upstream.port}"
        with VendorHosts([HOST], upstream.port, {place: upstream.port}) as hosts:
            async with forwarding(tmp_path, monkeypatch, hosts) as proxy:
                for wanted in (f"{HOST}:443", place):
                    reader, writer = await proxy.fixture.connect()
                    writer.write(
                        f"CONNECT {wanted} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: {login}\r\n\r\n".encode(
                            "latin-1"
                        )
                    )
                    answer = await reader.read()
                    writer.close()
                    assert answer.startswith(b"HTTP/1.1 407 ")
                    assert b'Proxy-Authenticate: Basic realm="contextc"' in answer
                answer = await proxy.fixture.send(
                    f"GET http://{place}/x HTTP/1.1\r\nHost: {place}\r\nProxy-Authorization: {login}\r\n\r\n".encode(
                        "latin-1"
                    )
                )
                assert answer.startswith(b"HTTP/1.1 407 ")
            assert not hosts.opened
        assert not upstream.connections


async def test_a_response_that_ends_with_its_connection_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(connection: RawConnection) -> None:
        await connection.reader.readuntil(HEAD_END)
        await connection.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello")

    monkeypatch.setattr(relay, "LINGER_SECONDS", 3600.0)
    async with RawUpstream(whole=answer) as upstream:
        with VendorHosts([HOST], upstream.port) as hosts:
            async with forwarding(tmp_path, monkeypatch, hosts) as proxy:
                reader, writer = await proxy.open()
                writer.write(f"GET /v1/models HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
                assert await reader.read() == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"
                writer.close()


async def test_other_hosts_are_tunnelled_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sees the certificate of the host itself, and the other end may speak first."""
    other = CertificateAuthority(["example.org"])

    async def greet(connection: RawConnection) -> None:
        await connection.send(b"hello")
        await connection.send(b"you said " + await connection.reader.readexactly(2))

    async with (
        RawUpstream(context=other.server_context("example.org")) as secure,
        RawUpstream(whole=greet) as speaker,
    ):
        with VendorHosts([HOST], 0, {"example.org:443": secure.port, "example.org:22": speaker.port}) as hosts:
            async with forwarding(tmp_path, monkeypatch, hosts) as proxy:
                reader, writer = await proxy.open("example.org", other)
                writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: example.org\r\nContent-Length: 2\r\n\r\n{}")
                assert await reader.readexactly(len(OK)) == OK
                writer.close()
                _, (reader, writer) = await proxy.connect("example.org:22")
                assert await reader.readexactly(5) == b"hello"
                writer.write(b"hi")
                assert await reader.readexactly(11) == b"you said hi"
                writer.close()
                answer, (_, writer) = await proxy.connect("nowhere.example:443")
                assert answer.startswith(b"HTTP/1.1 502 ")
                writer.close()
                assert proxy.forward.tunnelled == {"example.org": 2}
                assert not proxy.fixture.recorded()


async def test_plain_requests_pass_unrecorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some programs send all requests to the proxy in HTTPS_PROXY. The token goes no further."""
    async with RawUpstream() as upstream:
        with VendorHosts([HOST], 0) as hosts:
            async with forwarding(tmp_path, monkeypatch, hosts) as proxy:
                place = f"127.0.0.1:{upstream.port}"
                answer = await proxy.fixture.send(
                    f"POST http://{place}/v1/messages?a=b HTTP/1.1\r\nHost: {place}\r\nContent-Length: 2\r\n"
                    f"Proxy-Authorization: Basic {LOGIN}\r\nConnection: close\r\n\r\n{{}}".encode()
                )
                assert answer.endswith(b"ok")
                assert upstream.requests == [
                    f"POST /v1/messages?a=b HTTP/1.1\r\nHost: {place}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
                ]
                assert not proxy.fixture.recorded()


async def test_websockets_are_tunnelled_except_for_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For models they are refused, so that the client falls back to HTTP, which is recorded."""

    async def switch(connection: RawConnection) -> None:
        upstream.requests.append(await connection.reader.readuntil(HEAD_END))
        await connection.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nfirst")
        await connection.send(b"frame " + await connection.reader.readexactly(2))

    async with RawUpstream(whole=switch) as upstream:
        with VendorHosts([HOST], upstream.port) as hosts:
            async with forwarding(tmp_path, monkeypatch, hosts) as proxy:
                head = f"GET /voice HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                reader, writer = await proxy.open()
                writer.write(head.encode())
                assert (await reader.readuntil(b"first")).startswith(b"HTTP/1.1 101 ")
                writer.write(b"\x81\x00")
                assert await reader.readexactly(8) == b"frame \x81\x00"
                writer.close()
                assert upstream.requests == [head.encode()]
                reader, writer = await proxy.open()
                writer.write(head.replace("/voice", "/v1/responses").encode())
                assert (await reader.read()).startswith(b"HTTP/1.1 426 ")
                writer.close()


async def test_the_certificate_is_for_recorded_hosts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the key of the authority, which nobody gets, one could not sign for others, either."""
    with VendorHosts([HOST], 0) as hosts:
        async with forwarding(tmp_path, monkeypatch, hosts) as proxy:
            forward = proxy.forward
            assert [each.name for each in forward.find("mine.openai.azure.com", 443)] == ["azure"]
            assert [each.name for each in forward.find("bedrock-runtime.eu-west-1.amazonaws.com", 443)] == ["bedrock"]
            assert [forward.find(*each) for each in ((HOST, 8443), ("s3.amazonaws.com", 443), ("evil.com", 443))] == [
                [], [], []
            ]  # fmt: skip
            trusting = ssl.create_default_context(cadata=forward.authority.certificate)
            for name in (HOST, "evil.com", "127.0.0.1"):
                ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
                asking = trusting.wrap_bio(ours, theirs, server_hostname=name)
                serving = forward.authority.server_context(name).wrap_bio(theirs, ours, server_side=True)
                problems: list[str] = []
                for each in (asking, serving, asking):
                    try:
                        each.do_handshake()
                    except ssl.SSLError as error:
                        problems.append(str(error))
                assert any(["subtree violation" in each for each in problems]) == (name != HOST), problems


async def test_a_client_that_does_not_trust_the_certificate_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with VendorHosts([HOST], 0) as hosts:
        async with forwarding(tmp_path, monkeypatch, hosts) as proxy:
            with pytest.raises(ssl.SSLCertVerificationError):
                await proxy.open(authority=CertificateAuthority([HOST]))
            while not proxy.forward.distrusted:
                await asyncio.sleep(0)
            assert proxy.forward.distrusted == {HOST: 1}


# ── the environment of the program ────────────────────────────────────────────────────────────────────────────────────


def certificates_in(path: str) -> int:
    return Path(path).read_text().count("-----BEGIN CERTIFICATE-----")


def test_a_program_trusts_what_it_trusted_before_and_one_more(tmp_path: Path) -> None:
    authority, own = CertificateAuthority([HOST]), CertificateAuthority(["own.example"])
    (tmp_path / "own.pem").write_text(own.certificate)
    environment = {"NODE_EXTRA_CA_CERTS": str(tmp_path / "own.pem"), "CURL_CA_BUNDLE": str(tmp_path / "none.pem")}
    with trusted_certificate(authority.certificate, environment) as trust:
        assert set(trust) == {
            "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "DENO_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
            "AWS_CA_BUNDLE", "CODEX_CA_CERTIFICATE",
        }  # fmt: skip
        assert own.certificate in Path(trust["NODE_EXTRA_CA_CERTS"]).read_text()
        assert certificates_in(trust["NODE_EXTRA_CA_CERTS"]) == 2
        assert certificates_in(trust["DENO_CERT"]) == 1
        assert certificates_in(trust["SSL_CERT_FILE"]) == certificates_in(trust["CURL_CA_BUNDLE"]) > 2
        for path in map(Path, trust.values()):
            assert authority.certificate in path.read_text()
            assert "PRIVATE" not in path.read_text()
            assert path.parent.stat().st_mode & 0o077 == 0
    assert not any([Path(path).parent.exists() for path in trust.values()])
    with trusted_certificate(authority.certificate, {}) as trust:
        assert "CURL_CA_BUNDLE" not in trust


@pytest.mark.parametrize("variable", ["HOME", "CLINE_DIR"])
def test_copies_of_the_certificate_are_removed(tmp_path: Path, variable: str) -> None:
    """cline copies all certificates that it trusts to a file, which it has for itself, in another form."""
    authority, own = CertificateAuthority([HOST]), CertificateAuthority(["own.example"])
    copy = tmp_path / (".cline" if variable == "HOME" else "") / "cli-node-extra-ca-certs.pem"
    copy.parent.mkdir(exist_ok=True)
    ours = authority.certificate
    kept = f"# a comment\n{own.certificate}"
    with trusted_certificate(ours, {variable: str(tmp_path)}):
        copy.write_text(f"{kept}{ours.strip()}\n\n{own.certificate}{ours}")
        copy.chmod(0o600)
    assert copy.read_text() == f"{kept}{own.certificate}"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in copy.parent.iterdir()] == [copy.name]
    before = copy.stat().st_ino
    with trusted_certificate(ours, {variable: str(tmp_path)}):
        pass
    assert copy.stat().st_ino == before
    with trusted_certificate(ours, {variable: str(tmp_path)}):
        copy.unlink()


def test_hosts_that_are_reached_without_a_proxy_stay_so() -> None:
    environment = {"NO_PROXY": "internal.example, .anthropic.com,*,10.0.0.0/8", "no_proxy": "api.anthropic.com:443"}
    setup = set_up_forwarded_client(["claude"], environment, "http://p", {}, [HOST, "openai.azure.com"])
    assert setup.changed["NO_PROXY"] == "internal.example,10.0.0.0/8,127.0.0.1,localhost,::1"
    assert setup.changed["no_proxy"] == "127.0.0.1,localhost,::1"
    assert (setup.changed["HTTPS_PROXY"], setup.changed["https_proxy"]) == ("http://p", "http://p")
    assert setup.changed["NODE_USE_ENV_PROXY"] == "1"


@pytest.mark.parametrize(
    ("command", "environment", "expected"),
    [
        ("claude", {}, True),
        ("/usr/bin/claude", {"OPENAI_BASE_URL": "http://10.0.0.5"}, True),
        ("claude", {"ANTHROPIC_BASE_URL": "http://10.0.0.5"}, False),
        ("gemini", {}, True),
        ("cline", {}, True),
        ("codex", {"OPENAI_BASE_URL": "http://10.0.0.5"}, True),
        ("aider", {}, True),
        ("aider", {"OLLAMA_API_BASE": "http://127.0.0.1:11434"}, False),
        ("python", {}, False),
    ],
)
def test_the_way_depends_on_the_program(command: str, environment: dict[str, str], expected: bool) -> None:
    assert wants_forward_proxy([command, "-p"], environment) == expected


LOCAL = {"CLINE_SESSION_BACKEND_MODE": "local"}
ALONE = {**LOCAL, "CLINE_SANDBOX": "1"}


@pytest.mark.parametrize(
    ("command", "environment", "expected"),
    [
        (["cline", "-i"], {"HOME": "/home/me"}, {**ALONE, "CLINE_SANDBOX_DATA_DIR": "/home/me/.cline/data"}),
        (["cline"], {"HOME": "/home/me", "CLINE_DIR": "/d"}, {**ALONE, "CLINE_SANDBOX_DATA_DIR": "/d/data"}),
        (["cline"], {"CLINE_DATA_DIR": "/d", "CLINE_DIR": "/e"}, {**ALONE, "CLINE_SANDBOX_DATA_DIR": "/d"}),
        (["cline", "--config=/c", "-i"], {"HOME": "/home/me"}, LOCAL),
        (["cline", "--data-dir", "/c"], {"HOME": "/home/me"}, LOCAL),
        (["cline"], {"HOME": "/home/me", "CLINE_SESSION_DATA_DIR": "/s"}, LOCAL),
        (["cline"], {"HOME": "/home/me", "CLINE_SANDBOX": "1", "CLINE_SESSION_BACKEND_MODE": "hub"}, {}),
        (["claude"], {"HOME": "/home/me"}, {}),
    ],
)
def test_a_program_does_not_leave_its_requests_to_a_process_of_other_runs(
    command: list[str], environment: dict[str, str], expected: dict[str, str]
) -> None:
    """Its data stay in the folder that it uses without the proxy."""
    forwarded = set_up_forwarded_client(command, environment, "http://p", {}, [HOST]).changed
    assert {name: value for name, value in forwarded.items() if name.startswith("CLINE_")} == expected
    upstreams = load_upstreams(())
    changed = set_up_client(command, environment, ProxyAddresses("http://p", "http://p"), upstreams, {}).changed
    assert {name: value for name, value in changed.items() if name.startswith("CLINE_")} == expected


# ── contextc watch ────────────────────────────────────────────────────────────────────────────────────────────────────


PROGRAM = """
import json, os, sys, urllib.request
host = sys.argv[1]
body = {"model": "claude-opus-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi."}]}
headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "content-type": "application/json"}
try:
    request = urllib.request.Request(f"https://{host}/v1/messages", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        print(json.load(reply)["content"][0]["text"])
except OSError as error:
    print(error)
print(json.dumps(dict(os.environ)))
"""


def watch_program(
    folder: Path,
    hosts: VendorHosts,
    host: str,
    options: Sequence[str] = ("--via", "proxy"),
    before: Sequence[str] = (),
) -> tuple[str, dict[str, str], str]:
    """Watch a program that calls a host. Return what it got, its environment, and what `watch` printed."""
    (folder / "agent.py").write_text(PROGRAM.replace("KEY", repr(KEY)))
    (folder / "temporary").mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "HTTPS_PROXY": hosts.url, "TMPDIR": str(folder / "temporary"),
        "SSL_CERT_FILE": hosts.write_certificate(folder),
    }  # fmt: skip
    command = (*before, sys.executable, str(folder / "agent.py"), host)
    done = run_contextc("watch", "--no-web", *options, "--", *command, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    got, shown = done.stdout.splitlines()
    return got, json.loads(shown), done.stderr


def test_a_watched_program_leaves_nothing_behind(tmp_path: Path) -> None:
    """The certificate is gone, and no key was ever in a file. The user's own proxy is used, with its login."""
    with FakeVendors(Scripted(["Hello."])) as fake, VendorHosts([HOST], fake.server.port) as hosts:
        got, environment, printed = watch_program(tmp_path, hosts, HOST)
        assert got == "Hello."
        assert printed.startswith("\ncontextc recorded 1 request in 1 conversation")
        assert {each.login for each in hosts.opened} == {b"Basic " + base64.b64encode(b"user:a secret")}
    assert re.fullmatch(r"http://contextc:[\w-]{22}@127[.]0[.]0[.]1:\d+", environment["HTTPS_PROXY"])
    assert "ANTHROPIC_BASE_URL" not in environment
    assert not Path(environment["SSL_CERT_FILE"]).exists()
    assert not list((tmp_path / "temporary").iterdir())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(environment["HTTPS_PROXY"].rpartition(":")[2])))


OTHER_USER = """
import encodings.idna, json, os, socket, urllib.parse  # another user may not be able to read Python's files
proxy, own = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"]), os.getpid()
if not os.fork():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    found = {}
    for path in (os.environ["SSL_CERT_FILE"], os.path.dirname(os.environ["SSL_CERT_FILE"]), f"/proc/{own}/environ"):
        try:
            found[path] = len(os.listdir(path) if os.path.isdir(path) else open(path).read())
        except OSError as error:
            found[path] = type(error).__name__
    line = socket.create_connection((proxy.hostname, proxy.port))
    line.sendall(b"CONNECT api.anthropic.com:443 HTTP/1.1\\r\\nHost: api.anthropic.com:443\\r\\n\\r\\n")
    found["proxy"] = line.makefile("rb").readline().decode()
    print(json.dumps(found), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root can be another user")
def test_another_user_of_the_machine_can_use_neither_proxy_nor_certificate(tmp_path: Path) -> None:
    """The folder of temporary files is one that every user can read."""
    with tempfile.TemporaryDirectory() as shared:
        Path(shared).chmod(0o777)
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": shared}
        command = ("watch", "--no-web", "--via", "proxy", "--", sys.executable, "-c", OTHER_USER)
        done = run_contextc(*command, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found.pop("proxy").startswith("HTTP/1.1 407 ")
        assert list(found.values()) == ["PermissionError"] * 3
        assert not list(Path(shared).iterdir())


def test_the_reason_why_nothing_was_recorded(tmp_path: Path) -> None:
    with (
        FakeVendors(Scripted(["Hello.", "Hello."])) as fake,
        VendorHosts([HOST, "models.example"], fake.server.port) as hosts,
    ):
        _, _, printed = watch_program(tmp_path, hosts, "models.example")
        assert (
            "not recorded, because contextc does not know the hosts that the program called: models.example." in printed
        )
        assert len(fake.records) == 1
        options = ("--via", "proxy", "--upstream", "mine=https://models.example")
        _, _, printed = watch_program(tmp_path, hosts, "models.example", options)
        assert printed.startswith("\ncontextc recorded 1 request in 1 conversation")
        _, _, printed = watch_program(tmp_path, hosts, HOST, ("--via", "base-url"))
        assert "not recorded, because the program called none of the addresses that were set." in printed
        _, _, printed = watch_program(tmp_path, hosts, HOST, before=("env", "-u", "SSL_CERT_FILE"))
        assert f"not recorded, because the program did not accept the certificate of contextc for {HOST}." in printed
        _, _, printed = watch_program(tmp_path, hosts, HOST, before=("env", "-u", "HTTPS_PROXY", "-u", "https_proxy"))
        assert "not recorded, because the program sent nothing through the proxy in HTTPS_PROXY." in printed
        _, _, printed = watch_program(tmp_path, hosts, "other.example")
        assert "not recorded, because hosts that the program called cannot be reached: other.example." in printed
        assert "sent nothing" not in printed
