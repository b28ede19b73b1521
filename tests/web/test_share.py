"""Export of a conversation as one HTML file."""

import re

import pytest
from starlette.testclient import TestClient

import contextc as cc
from tests.web.sample_conversations import SONNET, Asking, Life, provider_of


def test_a_run_and_a_request_are_exported(client: TestClient, store: cc.Store) -> None:
    life = Life(store, name="a/b")
    life.turn("first question")
    life.turn("second question")
    answer = client.get("/api/conversations/a%2Fb/export", params={"format": "html"})
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''a%2Fb.html"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "second question" in answer.text
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', answer.text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    one = client.get(
        "/api/conversations/a%2Fb/export", params={"format": "html", "request": 1, "channel": life.channel}
    )
    assert "first question" in one.text
    assert "second question" not in one.text
    lines = client.get("/api/conversations/a%2Fb/export")
    assert lines.headers["content-type"] == "application/x-ndjson"


@pytest.mark.parametrize(
    "query",
    [
        {"request": 9},
        {"channel": "nobody"},
        {"redact": "text"},
        {"pattern": "("},
        {"pattern": "x*"},
        {"pattern": "x" * 501},
        {"request": -1},
        {"format": "pdf"},
    ],
)
def test_a_wrong_query_is_an_error(client: TestClient, store: cc.Store, query: dict[str, object]) -> None:
    life = Life(store)
    life.turn("hi")
    assert Asking(client, life)("export", status=400, **{"format": "html", **query})["error"]["message"]


def test_a_number_of_several_channels_needs_the_channel(client: TestClient, store: cc.Store) -> None:
    life, other = Life(store), Life(store, provider_of(SONNET))
    life.turn("hi")
    other.turn("and you?")
    ask = Asking(client, life)
    error = ask("export", status=400, format="html", request=1)["error"]["message"]
    assert life.channel in error
    assert other.channel in error
    assert "and you?" in ask.raw("export", format="html", request=1, channel=other.channel).text


def test_a_conversation_without_requests_cannot_be_shared(client: TestClient, store: cc.Store) -> None:
    store.append("demo", cc.user("hi"))
    answer = client.get("/api/conversations/demo/export", params={"format": "html"})
    assert answer.status_code == 400
    assert "it has no request" in answer.json()["error"]["message"]
    assert client.get("/api/conversations/nowhere/export", params={"format": "html"}).status_code == 404
