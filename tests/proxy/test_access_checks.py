"""Access to the proxy: Host, Origin, token, configured upstreams (Guarantee 16.14)."""

import asyncio
import shutil
import socket
from pathlib import Path

import pytest

from contextc.errors import InvalidSetting
from contextc.proxy.access_checks import (
    AccessRules,
    Refusal,
    check_access,
    find_connection_user,
    find_with_lsof,
    is_own_connection,
)
from contextc.proxy.http1_framing import HEAD_END, parse_head
from contextc.proxy.upstreams import find_format, load_upstreams, parse_upstream
from tests.proxy.raw_servers import RawUpstream, post, running_relay
from tests.proxy.test_relay_failures import error_of

TOKEN = "a-token-of-16-characters"


def ask(tmp_path: Path, raw: bytes, access: AccessRules | None = None) -> tuple[bytes, list[bytes]]:
    """Send a request, and return the response and what reached the upstream."""

    async def main() -> tuple[bytes, list[bytes]]:
        async with RawUpstream() as upstream, running_relay(upstream.url, tmp_path, access=access) as relay:
            return await relay.send(raw), upstream.requests

    return asyncio.run(main())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8788", "LOCALHOST", "[::1]:1"])
def test_names_of_this_machine_are_accepted(tmp_path: Path, host: str) -> None:
    got, requests = ask(tmp_path, post().replace(b"Host: 127.0.0.1", f"Host: {host}".encode()))
    assert got.endswith(b"ok")
    assert len(requests) == 1


@pytest.mark.parametrize("host", [b"Host: evil.example", b"Host: 127.0.0.1@evil.example", b"X-No: host", b"Host:",
    b"Host: localhost\r\nHost: localhost", b"Host: 127.0.0.1.evil.example"])  # fmt: skip
def test_other_hosts_are_refused(tmp_path: Path, host: bytes) -> None:
    """A website that resolves its own name to this machine sends that name."""
    got, requests = ask(tmp_path, post().replace(b"Host: 127.0.0.1", host))
    assert error_of(got)[:2] == (421, "unknown_host")
    assert not requests


@pytest.mark.parametrize("header", ["Origin: https://evil.example", "Origin: null", "Origin: http://127.0.0.1",
    "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"])  # fmt: skip
def test_requests_of_web_pages_are_refused(tmp_path: Path, header: str) -> None:
    got, requests = ask(tmp_path, post("/up/v1/messages", b"{}", header))
    assert error_of(got)[:2] == (403, "foreign_page")
    assert not requests


@pytest.mark.parametrize("path", [f"/t/{TOKEN}/up/v1/messages?x=1", "/up/v1/messages?x=1"])
def test_the_token_is_a_path_segment_or_a_header_and_is_not_forwarded(tmp_path: Path, path: str) -> None:
    header = () if TOKEN in path else (f"X-Contextc-Token: {TOKEN}",)
    got, (request,) = ask(tmp_path, post(path, b"{}", *header), AccessRules(token=TOKEN))
    assert got.endswith(b"ok")
    assert request.startswith(b"POST /v1/messages?x=1 HTTP/1.1\r\n")
    assert TOKEN.encode() not in request


@pytest.mark.parametrize(
    "path", ["/up/v1/messages", "/t/wrong/up/v1/messages", "/contextc/status", f"/t/{TOKEN}x/up/v1"]
)
def test_without_the_token_nothing_is_forwarded(tmp_path: Path, path: str) -> None:
    got, requests = ask(tmp_path, post(path, b"{}", f"Authorization: Bearer {TOKEN}"), AccessRules(token=TOKEN))
    assert error_of(got)[:2] == (401, "token_needed")
    assert not requests


def test_a_process_of_the_same_user_needs_no_token_at_an_address_for_arguments(tmp_path: Path) -> None:
    got, (request,) = ask(tmp_path, post("/u/up/v1/messages?x=1", b"{}"), AccessRules(token=TOKEN))
    assert got.endswith(b"ok")
    assert request.startswith(b"POST /v1/messages?x=1 HTTP/1.1\r\n")


def test_another_user_is_refused_at_an_address_for_arguments() -> None:
    """Arguments of a process can be listed by every user of the machine."""
    head = parse_head(b"POST /u/up/v1/messages HTTP/1.1\r\nHost: 127.0.0.1")
    with pytest.raises(Refusal, match="process of the user") as refused:
        check_access(AccessRules(token=TOKEN), head, b"/u/up/v1/messages", lambda: False)
    assert refused.value.status == 401


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_user_of_a_connection_is_found(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server, socket.socket(family) as client:
        client.connect(server.getsockname())
        connection, _ = server.accept()
        with connection:
            ends = connection.getpeername()[:2], connection.getsockname()[:2]
            assert is_own_connection(*ends)
            assert not is_own_connection((host, 1), ends[1]), "no such connection"
            if shutil.which("lsof"):
                assert find_with_lsof(*ends)
                assert not find_with_lsof((host, 1), ends[1])


def test_the_user_of_another_connection_does_not_count() -> None:
    """A connection that has ended has no user: Linux shows 0, which is root."""
    table = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
       0: 0100007F:D431 0100007F:0FA0 01 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 20 4 30 10 -1
       1: 0100007F:D432 0100007F:0FA0 06 00000000:00000000 00:00000000 00000000     0        0 1 1 0 20 4 30 10 -1
    """.rstrip()
    assert find_connection_user(table, ("127.0.0.1", 0xD431), ("127.0.0.1", 4000)) == 1000
    assert find_connection_user(table, ("127.0.0.1", 0xD431), ("127.0.0.1", 4001)) is None
    assert find_connection_user(table, ("127.0.0.1", 0xD432), ("127.0.0.1", 4000)) is None


@pytest.mark.parametrize("target", ["/", "/other/v1/messages", "http://evil.example/up/", "*", "//up/v1", "/UP/v1"])
def test_only_configured_upstreams_are_reached(tmp_path: Path, target: str) -> None:
    got, requests = ask(tmp_path, post(target))
    assert error_of(got)[:2] == (404, "unknown_upstream")
    assert not requests


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET /up/ HTTP/2.0\r\nHost: localhost\r\n\r\n",
        b"GET /up/ HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
        b"GET /up/ HTTP/1.1\r\nHost: localhost\r\nName : value\r\n\r\n",
        b"POST /up/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /up/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /up/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: +1\r\n\r\na",
        b"POST /up/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /up/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /up/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"GET /up/ HTTP/1.1\nHost: localhost\n\n\r\n\r\n",
    ],
)
def test_ambiguous_requests_are_refused(tmp_path: Path, raw: bytes) -> None:
    """What two servers could read differently is not forwarded."""
    got, requests = ask(tmp_path, raw)
    assert error_of(got)[:2] == (400, "invalid_http")
    assert not requests


def test_a_websocket_is_refused_so_that_clients_use_http(tmp_path: Path) -> None:
    raw = b"GET /up/v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    got, requests = ask(tmp_path, raw)
    assert error_of(got)[:2] == (426, "no_websocket")
    assert not requests


def test_the_head_of_a_request_is_limited(tmp_path: Path) -> None:
    """Whether or not it is complete when it is read."""
    for size, ending in ((300_000, b""), (64 << 10, HEAD_END)):
        got, requests = ask(tmp_path, b"GET /up/ HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * size + ending)
        assert error_of(got)[:2] == (431, "head_too_long")
        assert not requests
    got, _ = ask(tmp_path, post("/up/", b"", f"X: {'x' * 60_000}"))
    assert got.startswith(b"HTTP/1.1 200 OK")


def test_the_status_has_no_credentials(tmp_path: Path) -> None:
    got, requests = ask(tmp_path, b"GET /contextc/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert got.partition(HEAD_END)[2] == b"{}\n"
    assert not requests


def test_upstreams_have_names_and_addresses() -> None:
    found = load_upstreams(["azure=https://x.openai.azure.com", "mine=http://10.0.0.1:8000/v1/", "ollama=box:11434"])
    assert found["anthropic"].url == "https://api.anthropic.com"
    assert found["azure"].authority == "x.openai.azure.com"
    assert (found["mine"].url, found["mine"].authority) == ("http://10.0.0.1:8000/v1", "10.0.0.1:8000")
    assert found["ollama"].url == "http://box:11434"
    assert parse_upstream("openai", "https://gateway.example/openai/v1").base == ""
    assert parse_upstream("openai", "https://gateway.example").record_url("/v1/responses") == (
        "https://api.openai.com/v1/responses"
    )


@pytest.mark.parametrize("given", ["openai", "t=http://x", "contextc=http://x", "A b=http://x", "x=ftp://x", "x=http://",
    "x=https://user:secret@x", "x=https://x?key=secret", "x=https://x:port"])  # fmt: skip
def test_invalid_upstreams_are_errors(given: str) -> None:
    with pytest.raises(InvalidSetting) as raised:
        load_upstreams([given])
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("path", "format"),
    [
        ("/v1/messages", "anthropic"),
        ("/v1/messages/count_tokens", "anthropic"),
        ("/v1/responses", "openai_responses"),
        ("/backend-api/codex/responses", "openai_responses"),
        ("/v1/chat/completions", ""),
        ("/openai/deployments/d/chat/completions", ""),
        ("/v1beta/models/gemini-3:streamGenerateContent", "gemini"),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/m:streamRawPredict", "anthropic"),
        ("/model/us.anthropic.claude-5/invoke", "anthropic"),
        ("/model/amazon.nova/converse-stream", "bedrock"),
        ("/api/chat", "ollama"),
        ("/v1/embeddings", None),
        ("/v1/messages/batches", None),
        ("/v1/files", None),
    ],
)
def test_paths_of_model_requests_are_recorded(path: str, format: str | None) -> None:
    assert find_format(path) == format


@pytest.mark.parametrize(
    ("url", "path", "there"),
    [
        ("https://api.anthropic.com", b"/messages", b"/v1/messages"),
        ("https://api.anthropic.com/", b"/messages/count_tokens", b"/v1/messages/count_tokens"),
        ("https://api.anthropic.com", b"/v1/messages", b"/v1/messages"),
        ("https://api.anthropic.com", b"/models", b"/models"),
        ("https://api.anthropic.com", b"", b"/"),
        ("https://gateway.example", b"/messages", b"/messages"),
        ("https://gateway.example/v1", b"/messages", b"/v1/messages"),
    ],
)
def test_the_version_is_added_for_clients_that_expect_it_in_the_base_url(url: str, path: bytes, there: bytes) -> None:
    """The AI SDK posts to /messages of ANTHROPIC_BASE_URL, the anthropic SDKs to /v1/messages."""
    assert parse_upstream("anthropic", url).find_target(path) == there


@pytest.mark.parametrize("version", ["", "/v1beta", "/v1alpha"])
def test_the_version_that_a_client_of_gemini_chose_stays(version: str) -> None:
    """litellm posts to /models/… of GEMINI_API_BASE, google-genai adds a version."""
    target = f"{version}/models/gemini-2.5-pro:generateContent".encode()
    there = parse_upstream("gemini", "https://generativelanguage.googleapis.com").find_target(target)
    assert there == (target if version else b"/v1beta" + target)
