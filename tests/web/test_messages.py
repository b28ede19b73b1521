"""Messages over HTTP: pages from either end, of any branch; and append."""

import base64

import msgspec
import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.messages import decode_message

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def long(store: cc.Store) -> str:
    store.extend("long", [cc.user(str(number)) for number in range(1, 251)])
    return "/api/conversations/long/messages"


def seqs(client: TestClient, path: str, **query: int) -> list[int]:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.json()["length"] == 250
    return [each["seq"] for each in answer.json()["messages"]]


def test_a_page_of_messages_begins_anywhere(client: TestClient, long: str) -> None:
    assert seqs(client, long) == [*range(1, 101)]
    assert seqs(client, long, after=100, limit=3) == [101, 102, 103]
    assert seqs(client, long, before=100, limit=3) == [97, 98, 99]
    assert seqs(client, long, last=2) == [249, 250]
    assert seqs(client, long, after=250) == seqs(client, long, before=1) == []
    assert seqs(client, long, after=10, before=13) == [11, 12]


def test_a_message_is_reported_as_it_is_stored(client: TestClient, store: cc.Store) -> None:
    call = cc.ToolCall(id="c1", name="read_file", arguments={"path": "a.py"})
    store.extend(
        "demo",
        [
            cc.user("look"),
            cc.assistant("I do.", reasoning="hm", tool_calls=[call], usage=cc.Usage(input=10, output=3)),
            cc.tool_result("c1", "read_file", "print()"),
        ],
    )
    answer = client.get("/api/conversations/demo/messages").json()["messages"]
    assert [decode_message(msgspec.json.encode(each)) for each in answer] == store.load("demo")


def test_another_branch_can_be_read(client: TestClient, store: cc.Store) -> None:
    store.extend("demo", [cc.user("a"), cc.user("b")])
    store.edit("demo", 2, cc.user("c"))
    first = store.branches("demo")[0].number
    path = "/api/conversations/demo/messages"
    assert [each["parts"][0]["text"] for each in client.get(path).json()["messages"]] == ["a", "c"]
    other = client.get(path, params={"branch": first}).json()
    assert ([each["parts"][0]["text"] for each in other["messages"]], other["branch"]) == (["a", "b"], first)
    assert client.get(path, params={"branch": 999}).json()["error"]["kind"] == "UnknownBranch"


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "after=-1", "last=0", "last=3&after=1", "branch=x", "from=1"]
)
def test_an_invalid_page_query_is_refused(client: TestClient, long: str, query: str) -> None:
    assert client.get(f"{long}?{query}").status_code == 400


def test_a_text_is_put_at_the_end_and_no_turn_begins(client: TestClient, store: cc.Store) -> None:
    path = "/api/conversations/new/messages"
    answer = client.post(path, json={"text": "hello"})
    assert (answer.status_code, answer.json()["seq"], answer.json()["role"]) == (201, 1, "user")
    client.post(path, json={"text": "be short", "role": "system"})
    client.post(path, json={"message": {"role": "assistant", "parts": [{"type": "text", "text": "yes"}]}})
    assert [(each.role, each.text) for each in store.load("new")] == [
        ("user", "hello"),
        ("system", "be short"),
        ("assistant", "yes"),
    ]
    assert store.turns("new") == []


def test_the_same_key_is_stored_once_and_a_parent_must_be_the_last(client: TestClient, store: cc.Store) -> None:
    """Guarantee 2.7."""
    path = "/api/conversations/demo/messages"
    one, two = (client.post(path, json={"text": "once", "key": "k"}).json() for _ in range(2))
    assert one == two
    reused = client.post(path, json={"text": "other", "key": "k"})
    assert (reused.status_code, reused.json()["error"]["kind"]) == (409, "KeyReused")
    store.append("demo", cc.user("meanwhile"))
    stale = client.post(path, json={"text": "late", "parent": one["id"]})
    assert (stale.status_code, stale.json()["error"]["kind"]) == (409, "StaleParent")
    assert client.post(path, json={"text": "in time", "parent": 2}).status_code == 201


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": "a", "message": {"role": "user"}},
        {"text": ""},
        {"text": "a", "role": "assistant"},
        {"message": {"role": "nobody"}},
        {"message": {"role": "user", "parts": [{"type": "unknown"}]}},
        {"message": {"role": "tool", "parts": [{"type": "text", "text": "x"}]}},
    ],
)
def test_an_invalid_message_is_refused_and_nothing_is_stored(
    client: TestClient, store: cc.Store, body: dict[str, object]
) -> None:
    answer = client.post("/api/conversations/demo/messages", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["kind"] in ("InvalidRequest", "InvalidInput", "InvalidMessage")
    assert store.conversations() == []


def test_media_are_stored_once_and_only_pictures_are_shown(client: TestClient, store: cc.Store) -> None:
    part = {"type": "media", "mime_type": "image/png", "data": base64.b64encode(PNG).decode()}
    message = client.post(
        "/api/conversations/demo/messages", json={"message": {"role": "user", "parts": [part]}}
    ).json()
    (stored,) = message["parts"]
    assert "data" not in stored
    shown = client.get(f"/api/blobs/{stored['blob']}", params={"type": "image/png"})
    assert (shown.content, shown.headers["content-type"]) == (PNG, "image/png")
    assert "content-disposition" not in shown.headers
    for kind in ("image/svg+xml", "text/html", "application/pdf", "image/png; x=<script>", ""):
        saved = client.get(f"/api/blobs/{stored['blob']}", params={"type": kind})
        assert (saved.headers["content-type"], saved.headers["content-disposition"]) == (
            "application/octet-stream",
            "attachment",
        )
        assert saved.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert saved.headers["x-content-type-options"] == "nosniff"
    gone = client.get("/api/blobs/" + "0" * 64)
    assert (gone.status_code, gone.json()["error"]["kind"]) == (404, "UnknownBlob")


def test_a_client_can_ask_whether_a_model_gets_a_file(client: TestClient) -> None:
    """Guarantee 2.6: before it is sent, so that no file looks sent that is not."""
    for model, kind, is_sent in (
        ("anthropic:claude-opus-5-5", "image/png", True),
        ("anthropic:claude-opus-5-5", "application/zip", False),
        ("openai:gpt-5.5", "application/zip", False),
        ("deepseek:deepseek-chat", "application/pdf", False),
    ):
        answer = client.get("/api/media-support", params={"model": model, "type": kind})
        assert answer.json() == {"is_sent": is_sent}
    assert client.get("/api/media-support", params={"model": "nope:x", "type": "image/png"}).status_code == 400
