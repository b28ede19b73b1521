"""Access control: hosts, origins, the token, sizes. A refusal states the fix (Guarantee 15.1)."""

import asyncio
import gzip
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message

import contextc as cc
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from tests.web.conftest import Answer, Served

OURS = "http://127.0.0.1:8377"
THEIRS = "http://evil.example"
TOKEN = "a-token-that-nobody-guesses"
SMALL = 1_000
PLAIN = {"Content-Type": "application/json"}


@pytest.fixture
def guarded(store: cc.Store, options: ServerOptions) -> Iterator[TestClient]:
    """A server with a token, another page that may ask, and little room."""
    wanted = ServerOptions(root=options.root, token=TOKEN, origins=("http://localhost:3000",), max_body_bytes=SMALL)
    with TestClient(create_application(store, wanted), base_url=OURS, follow_redirects=False) as asking:
        yield asking


def kind(answer: Answer) -> tuple[int, str]:
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"kind", "message"}
    return answer.status_code, answer.json()["error"]["kind"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8377", "localhost:1", "LOCALHOST", "[::1]:8377"])
def test_a_name_of_ours_is_answered_to(client: TestClient, host: str) -> None:
    assert client.get("/api/conversations", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8377", "localhost@evil", "", "a/b"]
)
def test_a_page_that_points_its_own_name_here_gets_nothing(client: TestClient, host: str) -> None:
    for path in ("/api/conversations", "/"):
        assert kind(client.get(path, headers={"Host": host})) == (421, "UnknownHost")


@pytest.mark.parametrize(
    "origin", [THEIRS, "null", "http://127.0.0.1:3000", "https://127.0.0.1:8377", "http://localhost:8377"]
)
def test_a_page_of_others_may_not_ask(client: TestClient, store: cc.Store, origin: str) -> None:
    answer = client.post("/api/conversations", json={"name": "theirs"}, headers={"Origin": origin})
    assert kind(answer) == (403, "ForeignPage")
    assert "access-control-allow-origin" not in answer.headers
    assert store.conversations() == []


def test_our_own_page_may_ask(client: TestClient) -> None:
    answer = client.post("/api/conversations", json={}, headers={"Origin": OURS, "Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 201


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_page_loads_without_an_origin_is_refused(client: TestClient, site: str) -> None:
    """An image or a script of ours in another page has no Origin, but the browser sends the requesting site."""
    seen = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    for path in ("/api/blobs/x", "/"):
        assert kind(client.get(path, headers=seen)) == (403, "ForeignPage")
    visit = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert kind(client.get("/api/conversations", headers=visit)) == (403, "ForeignPage")
    assert client.get("/", headers=visit).status_code == 200, "a link to the page is a link"
    framed = {**visit, "Sec-Fetch-Dest": "iframe"}
    assert kind(client.get("/", headers=framed)) == (403, "ForeignPage")


def test_a_page_that_was_allowed_is_informed_by_the_browsers_rules(guarded: TestClient) -> None:
    seen = {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}
    asked = {**seen, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    before = guarded.options("/api/conversations", headers=asked)
    assert before.status_code == 204
    assert before.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert before.headers["access-control-allow-headers"] == "authorization"
    assert before.headers["vary"] == "Origin"
    answer = guarded.get("/api/conversations", headers={**seen, "Authorization": f"Bearer {TOKEN}"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "http://localhost:3000")
    assert kind(guarded.get("/api/conversations", headers=seen)) == (401, "TokenNeeded")
    theirs = guarded.options("/api/conversations", headers={**asked, "Origin": THEIRS})
    assert kind(theirs) == (403, "ForeignPage")


def test_without_the_token_nothing_is_reported(guarded: TestClient) -> None:
    for expected in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": TOKEN},
        {"Authorization": f"Basic {TOKEN}"},
    ):
        answer = guarded.get("/api/conversations", headers=expected)
        assert kind(answer) == (401, "TokenNeeded")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in answer.text
    for path in (f"/api/conversations?token={TOKEN}", "/api/no/such/thing", "/api"):
        assert kind(guarded.get(path)) == (401, "TokenNeeded")
    assert guarded.get("/").status_code == 200, "the page itself asks for it"


def test_the_token_is_accepted_as_header_and_as_cookie(guarded: TestClient) -> None:
    assert guarded.get("/api/conversations", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200
    assert kind(guarded.get("/?token=wrong")) == (401, "TokenNeeded")
    opened = guarded.get(f"/?token={TOKEN}")
    assert (opened.status_code, opened.headers["location"]) == (303, "/")
    cookie = opened.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert guarded.get("/api/conversations").status_code == 200


@pytest.mark.parametrize(
    "expected",
    [
        f"contextc_token_8377={TOKEN}",
        f'odd={{"a": "b"}}; contextc_token_8377={TOKEN}',
        f"a b=c; ; =; x[1]=2; contextc_token_8377 = {TOKEN} ; more",
        f"contextc_token_8377=another; contextc_token_8377={TOKEN}",
        f"contextc_token_8377={TOKEN}; contextc_token_8377=",
    ],
)
def test_cookies_of_others_do_not_take_the_token_away(guarded: TestClient, expected: str) -> None:
    assert guarded.get("/api/conversations", headers={"Cookie": expected}).status_code == 200


@pytest.mark.parametrize(
    "expected", [f"contextc_token_9000={TOKEN}", f"contextc_token={TOKEN}", f"x=contextc_token_8377={TOKEN}", TOKEN]
)
def test_a_cookie_of_another_name_is_not_a_token(guarded: TestClient, expected: str) -> None:
    assert kind(guarded.get("/api/conversations", headers={"Cookie": expected})) == (401, "TokenNeeded")


def test_an_old_link_leads_to_the_page_that_reports_what_to_do(guarded: TestClient) -> None:
    """A server makes a new token at each start. An old link is opened by a user, who needs no JSON."""
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    answer = guarded.get("/?token=of-yesterday", headers=visit)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "set-cookie" not in answer.headers
    opened = guarded.get(f"/?token={TOKEN}", headers=visit)
    assert "set-cookie" in opened.headers, "a browser comes from the file that `contextc serve` opened"


def test_headers_without_number_are_refused(client: TestClient) -> None:
    answer = client.get("/api/conversations", headers={f"X-{number}": "x" for number in range(300)})
    assert kind(answer) == (431, "TooManyHeaders")


def test_two_servers_of_one_machine_do_not_take_the_cookie_from_one_another(
    store: cc.Store, options: ServerOptions
) -> None:
    """A browser keeps cookies by host alone, whatever the port; only their names differ."""
    kept: list[str] = []
    clients: list[TestClient] = []
    for port, token in ((8377, 'the first; one, with "signs" = %41'), (8378, "the-second-one")):
        wanted = ServerOptions(root=options.root, token=token)
        asking = TestClient(
            create_application(store, wanted), base_url=f"http://127.0.0.1:{port}", follow_redirects=False, cookies={}
        )
        opened = asking.get("/", params={"token": token})
        assert opened.status_code == 303
        kept.append(opened.headers["set-cookie"].partition(";")[0])
        asking.cookies.clear()
        clients.append(asking)
    assert len({each.partition("=")[0] for each in kept}) == 2
    for asking in clients:
        assert asking.get("/api/conversations", headers={"Cookie": "; ".join(kept)}).status_code == 200


def test_a_large_body_is_refused_before_it_is_read(guarded: TestClient, store: cc.Store) -> None:
    guarded.headers["Authorization"] = f"Bearer {TOKEN}"
    large = b'{"text": "%s"}' % (b"x" * SMALL)
    assert kind(guarded.post("/api/conversations/c/messages", content=large, headers=PLAIN)) == (413, "TooLarge")

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(large), 100):
            yield large[start : start + 100]

    unsaid = guarded.post("/api/conversations/c/messages", content=pieces(), headers=PLAIN)
    assert kind(unsaid) == (413, "TooLarge")
    assert store.conversations() == []
    small = b'{"text": "%s"}' % (b"x" * (SMALL - 20))
    assert guarded.post("/api/conversations/c/messages", content=small, headers=PLAIN).status_code == 201
    assert kind(guarded.get(f"/api/conversations?search={'x' * 20_000}")) == (414, "TooLong")


def test_a_large_body_is_not_waited_for(server: Served) -> None:
    """The answer comes although not a byte of what was announced was sent."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=120) as line:
        line.sendall(
            b"POST /api/conversations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999\r\n\r\n"
        )
        assert line.recv(12) == b"HTTP/1.1 413"


def sent(server: Served, *lines: str) -> tuple[int, str]:
    """What a server answers to these lines: its status, and everything behind it."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=120) as line:
        line.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        text = b"".join(iter(lambda: line.recv(1 << 16), b"")).decode()
    return int(text.split()[1]), text


def test_a_whole_address_is_a_path_and_its_host_is_the_one_that_counts(server: Served) -> None:
    """RFC 9112, 3.2.2: a server takes it, and passes over the Host header."""
    assert sent(server, "GET http://127.0.0.1/api/conversations HTTP/1.1", "Host: x.example")[0] == 200
    assert sent(server, "GET HTTP://localhost:80 HTTP/1.1", "Host: localhost")[0] == 200
    for target in ("http://evil.example/api/conversations", "http://127.0.0.1@evil.example/", "http:///api/info"):
        status, text = sent(server, f"GET {target} HTTP/1.1", "Host: 127.0.0.1")
        assert (status, "UnknownHost" in text) == (421, True)


def test_a_whole_address_needs_the_token_too(guarded: TestClient) -> None:
    """The client sends the path of the scope, as uvicorn passes it on."""
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": f"{OURS}/api/conversations",
        "raw_path": f"{OURS}/api/conversations".encode(),
        "query_string": b"", "headers": [(b"host", b"127.0.0.1:8377")], "scheme": "http", "http_version": "1.1",
    }  # fmt: skip
    assert asyncio.run(answered(guarded, scope)) == 401
    scope["headers"].append((b"authorization", f"Bearer {TOKEN}".encode()))
    assert asyncio.run(answered(guarded, scope)) == 200


def test_an_application_that_is_mounted_elsewhere_is_guarded_as_well(store: cc.Store, options: ServerOptions) -> None:
    """Where it is mounted is no part of what is looked at."""
    inner = create_application(store, ServerOptions(root=options.root, token=TOKEN))
    outer = Starlette(routes=[Mount("/deep/er", inner)])
    with TestClient(outer, base_url=OURS, follow_redirects=False) as asking:
        assert kind(asking.get("/deep/er/api/conversations")) == (401, "TokenNeeded")
        assert asking.get("/deep/er/").status_code == 200
        opened = asking.get(f"/deep/er/?token={TOKEN}")
        assert (opened.status_code, opened.headers["location"]) == (303, "/deep/er/")
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert asking.post("/deep/er/api/conversations", json={"name": "a/b"}, headers=headers).status_code == 201
        assert asking.get("/deep/er/api/conversations/a%2Fb", headers=headers).json()["name"] == "a/b"


async def answered(client: TestClient, scope: dict[str, Any]) -> int:  # as ASGI has it
    """The status of the answer to a request that no HTTP client would write."""
    statuses: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await cast(ASGIApp, client.app)(scope, receive, send)
    return statuses[0]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/conversations/a%0Ab", 400),
        ("/api/conversations/nobody%0A", 400),
        ("/api/no%0Asuch", 404),
        ("/no%0Asuch", 404),
        ("/%0A", 404),
        ("/api%0A/conversations", 404),
        ("/api", 404),
        ("/api/", 404),
        ("/apis", 404),
    ],
)
def test_errors_have_one_shape_for_any_url(client: TestClient, path: str, status: int) -> None:
    answer = client.get(path)
    kind(answer)
    assert answer.status_code == status


def test_targets_that_are_not_paths_are_refused_with_that_shape(server: Served) -> None:
    for line in ("OPTIONS * HTTP/1.1", "GET * HTTP/1.1", "GET ftp://127.0.0.1/api/info HTTP/1.1"):
        status, text = sent(server, line, "Host: 127.0.0.1")
        assert status in (404, 405)
        assert '{"error":{"kind":' in text


def test_what_has_another_method_reports_which(client: TestClient) -> None:
    """RFC 9110, 15.5.6."""
    for method, path, allowed in (
        ("PATCH", "/api/conversations", {"GET", "HEAD", "POST"}),
        ("GET", "/api/lint", {"POST"}),
        ("POST", "/", {"GET", "HEAD"}),
    ):
        answer = client.request(method, path)
        assert kind(answer) == (405, "NotAllowed")
        assert {*answer.headers["allow"].split(", ")} == allowed


def test_headers_without_end_are_cut_off(server: Served) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=120) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * (100 << 10))
        assert line.recv(12) == b"HTTP/1.1 400"


@pytest.mark.parametrize("path", ["/", "/api/conversations", "/api/nothing", "/nothing"])
def test_every_answer_instructs_the_browser_what_it_may_not_do(client: TestClient, path: str) -> None:
    for headers in ({}, {"Host": "evil.example"}):
        answer = client.get(path, headers=headers)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_a_body_that_is_not_json_is_refused(client: TestClient) -> None:
    """A form of another page can send anything but this content type."""
    for sent in ({"data": {"name": "x"}}, {"content": b"{}", "headers": {"Content-Type": "text/plain"}}):
        assert kind(client.post("/api/conversations", **sent)) == (415, "UnsupportedMediaType")  # pyright: ignore[reportArgumentType]
    for content in (b"{", b"[]", b'{"nome": 1}', b'{"name": 1}', b"\xff", b"[" * 100_000):
        answer = client.post("/api/conversations", content=content, headers=PLAIN)
        assert kind(answer) == (400, "InvalidRequest")


def test_a_compressed_body_is_refused_with_a_message(client: TestClient) -> None:
    """RFC 9110, 15.5.16."""
    packed = client.post(
        "/api/conversations", content=gzip.compress(b"{}"), headers={**PLAIN, "Content-Encoding": "gzip"}
    )
    assert kind(packed) == (415, "UnsupportedMediaType")
    assert "Content-Encoding is not supported, got 'gzip'" in packed.json()["error"]["message"]
    assert client.post(
        "/api/conversations", content=b"{}", headers={**PLAIN, "Content-Encoding": "identity"}
    ).is_success


def test_nothing_is_an_empty_object_where_nothing_is_required(client: TestClient) -> None:
    for headers in ({}, PLAIN):
        assert client.post("/api/conversations", headers=headers).status_code == 201
        assert kind(client.post("/api/conversations/c/messages", headers=headers)) == (400, "InvalidInput")
        assert kind(client.post("/api/conversations/c/steer", headers=headers)) == (400, "InvalidRequest")
    theirs = client.post("/api/conversations", headers={"Content-Type": "text/plain"})
    assert kind(theirs) == (415, "UnsupportedMediaType")
