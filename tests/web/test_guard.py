"""Who may ask: hosts, pages of others, the token, sizes. A refusal says what to do (SPEC 15.1)."""

import socket
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.web.app import application
from contextc.web.desk import Options
from tests.web.conftest import Answer, Served

OURS = "http://127.0.0.1:8377"
THEIRS = "http://evil.example"
TOKEN = "a-token-that-nobody-guesses"
SMALL = 1_000
PLAIN = {"Content-Type": "application/json"}


@pytest.fixture
def guarded(store: cc.Store, options: Options) -> Iterator[TestClient]:
    """A server with a token, another page that may ask, and little room."""
    wanted = Options(root=options.root, token=TOKEN, origins=("http://localhost:3000",), largest=SMALL)
    with TestClient(application(store, wanted), base_url=OURS, follow_redirects=False) as asking:
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
def test_what_another_page_loads_without_saying_so_is_refused(client: TestClient, site: str) -> None:
    """A picture or a script of ours in somebody's page has no Origin, but a browser says who asks for it."""
    seen = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    for path in ("/api/blobs/x", "/"):
        assert kind(client.get(path, headers=seen)) == (403, "ForeignPage")
    visit = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert kind(client.get("/api/conversations", headers=visit)) == (403, "ForeignPage")
    assert client.get("/", headers=visit).status_code == 200, "a link to the page is a link"
    framed = {**visit, "Sec-Fetch-Dest": "iframe"}
    assert kind(client.get("/", headers=framed)) == (403, "ForeignPage")


def test_a_page_that_was_allowed_is_told_so_by_the_browsers_rules(guarded: TestClient) -> None:
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


def test_without_the_token_nothing_is_told(guarded: TestClient) -> None:
    for said in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"}):
        answer = guarded.get("/api/conversations", headers=said)
        assert kind(answer) == (401, "TokenNeeded")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in answer.text
    for path in (f"/api/conversations?token={TOKEN}", "/api/no/such/thing", "/api"):
        assert kind(guarded.get(path)) == (401, "TokenNeeded")
    assert guarded.get("/").status_code == 200, "the page itself asks for it"


def test_the_token_opens_the_door_as_a_header_and_as_a_cookie(guarded: TestClient) -> None:
    assert guarded.get("/api/conversations", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200
    assert kind(guarded.get("/?token=wrong")) == (401, "TokenNeeded")
    opened = guarded.get(f"/?token={TOKEN}")
    assert (opened.status_code, opened.headers["location"]) == (303, "/")
    cookie = opened.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert guarded.get("/api/conversations").status_code == 200


def test_what_is_too_large_is_refused_before_it_is_read(guarded: TestClient, store: cc.Store) -> None:
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
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(
            b"POST /api/conversations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999\r\n\r\n"
        )
        assert line.recv(12) == b"HTTP/1.1 413"


def test_headers_without_end_are_cut_off(server: Served) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * (100 << 10))
        assert line.recv(12) == b"HTTP/1.1 400"


@pytest.mark.parametrize("path", ["/", "/api/conversations", "/api/nothing", "/nothing"])
def test_every_answer_tells_the_browser_what_it_may_not_do(client: TestClient, path: str) -> None:
    for headers in ({}, {"Host": "evil.example"}):
        answer = client.get(path, headers=headers)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_a_body_that_is_no_json_is_refused(client: TestClient) -> None:
    """A form of another page can send anything but this content type."""
    for sent in ({"data": {"name": "x"}}, {"content": b"{}", "headers": {"Content-Type": "text/plain"}}):
        assert kind(client.post("/api/conversations", **sent)) == (415, "UnsupportedMediaType")  # pyright: ignore[reportArgumentType]
    for content in (b"{", b"[]", b'{"nome": 1}', b'{"name": 1}', b"\xff", b"[" * 100_000):
        answer = client.post("/api/conversations", content=content, headers=PLAIN)
        assert kind(answer) == (400, "InvalidRequest")
