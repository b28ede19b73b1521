"""Forks, rewinds and edits over HTTP: new branches, and nothing is removed. Guarantee 3.5."""

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc._json import JSONObject
from contextc.interchange import import_lines

DEMO = "/api/conversations/demo"


@pytest.fixture(autouse=True)
def demo(store: cc.Store) -> None:
    store.extend("demo", [cc.user("first"), cc.assistant("answer"), cc.user("second"), cc.assistant("more")])


def texts(store: cc.Store, name: str = "demo") -> list[str]:
    return [message.text for message in store.load(name)]


def test_a_fork_is_another_conversation_with_the_same_past(client: TestClient, store: cc.Store) -> None:
    made = client.post(f"{DEMO}/fork", json={"name": "other", "at": 2})
    assert (made.status_code, made.json()["name"], made.json()["length"]) == (201, "other", 2)
    assert texts(store, "other") == ["first", "answer"]
    assert client.post(f"{DEMO}/fork", json={"name": "other"}).status_code == 409
    assert client.post(f"{DEMO}/fork", json={"name": "x", "at": 99}).json()["error"]["kind"] == "UnknownMessage"


def test_a_rewind_leaves_what_came_after_on_its_own_branch(client: TestClient, store: cc.Store) -> None:
    answer = client.post(f"{DEMO}/rewind", json={"to": 1}).json()
    assert (answer["length"], answer["branches"]) == (1, 2)
    listed = client.get(f"{DEMO}/branches").json()
    assert [(each["base"], each["length"], each["current"]) for each in listed] == [(0, 4, False), (1, 1, True)]
    back = client.post(f"{DEMO}/switch", json={"branch": listed[0]["number"]}).json()
    assert (back["length"], back["branch"]) == (4, listed[0]["number"])
    for nowhere in (77, 0, -1, 1 << 31, 1 << 63, 10**30):
        assert client.post(f"{DEMO}/switch", json={"branch": nowhere}).json()["error"]["kind"] == "UnknownBranch"
        assert client.get(f"{DEMO}/messages", params={"branch": nowhere}).status_code in (400, 404)


def test_an_edit_is_a_new_branch_and_keeps_the_pictures(client: TestClient, store: cc.Store) -> None:
    picture = cc.Media(mime_type="image/png", data=b"dots")
    store.append("demo", cc.user(["what is this?", picture]))
    answer = client.post(f"{DEMO}/edit", json={"seq": 5, "text": "and this?"}).json()
    assert (answer["seq"], [part["type"] for part in answer["parts"]]) == (5, ["text", "media"])
    assert texts(store)[-1] == "and this?"
    assert len(store.branches("demo")) == 2
    assert client.post(f"{DEMO}/edit", json={"seq": 50, "text": "x"}).status_code == 404
    assert client.post(f"{DEMO}/edit", json={"seq": 0, "text": "x"}).status_code == 400


def test_a_reset_clears_the_context_and_pins_keep_messages(client: TestClient, store: cc.Store) -> None:
    assert client.post(f"{DEMO}/pin", json={"seq": 2}).json()["pinned"] == [2]
    assert client.post(f"{DEMO}/unpin", json={"seq": 2}).json()["pinned"] == []
    assert client.post(f"{DEMO}/reset", json={}).json()["edge"] == 4
    assert len(texts(store)) == 4


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("rewind", {"to": 1}),
        ("edit", {"seq": 1, "text": "x"}),
        ("switch", {"branch": 1}),
        ("reset", {}),
    ],
)
def test_the_line_under_a_turn_that_runs_is_not_changed(
    client: TestClient, store: cc.Store, what: str, body: JSONObject
) -> None:
    before = store.conversation("demo")
    with store.lease("demo"):
        busy = client.post(f"{DEMO}/{what}", json=body)
        assert (busy.status_code, busy.json()["error"]["kind"]) == (409, "ConversationBusy")
    assert store.conversation("demo") == before
    assert client.post(f"{DEMO}/{what}", json=body).status_code == 200


@pytest.mark.parametrize("what", ["fork", "rewind", "edit", "switch", "reset", "pin", "unpin"])
def test_reading_an_unknown_conversation_creates_nothing(client: TestClient, store: cc.Store, what: str) -> None:
    bodies: dict[str, JSONObject] = {
        "fork": {"name": "x"},
        "rewind": {"to": 1},
        "edit": {"seq": 1, "text": "x"},
        "switch": {"branch": 1},
        "reset": {},
    }
    answer = client.post(f"/api/conversations/nobody/{what}", json=bodies.get(what, {"seq": 1}))
    assert (answer.status_code, answer.json()["error"]["kind"]) == (404, "UnknownConversation")
    assert [each.name for each in store.conversations()] == ["demo"]


def test_an_export_is_taken_in_again(client: TestClient, store: cc.Store) -> None:
    store.extend("demo", [cc.user(f"line {number}") for number in range(500)])
    store.edit("demo", 3, cc.user("other"))
    answer = client.get(f"{DEMO}/export")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''demo.jsonl"
    with cc.open_store("memory:") as other:
        import_lines(other, answer.content.splitlines())
        assert other.load("demo") == store.load("demo")
        assert len(other.branches("demo")) == 2
    assert client.get("/api/conversations/nobody/export").status_code == 404


def test_a_changed_message_is_not_exported(client: TestClient, store: cc.Store) -> None:
    """The answer is an error, not a file that every import refuses."""
    store.extend("demo", [cc.user("one"), cc.user("two")])
    store.write(lambda tx: tx.run("UPDATE main.message SET body = replace(CAST(body AS TEXT), 'two', 'owt')"))
    answer = client.get(f"{DEMO}/export")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (500, "StoreCorrupt")


def test_a_branch_is_reported_with_its_first_text(client: TestClient, store: cc.Store) -> None:
    """Guarantees 3.5, 12.2: what it says where it goes its own way; the first one, what it says where others leave
    it.
    """
    store.extend("lands", [cc.user("France"), cc.assistant("Paris"), cc.user("Italy"), cc.assistant("Rome")])
    store.edit("lands", 3, cc.user("Spain,\n\n and " + "more " * 100))
    store.rewind("lands", 2)
    answer = client.get("/api/conversations/lands/branches").json()
    assert [each["words"][:14] for each in answer] == ["Italy", "Spain, and mor", ""]
    assert [each["number"] for each in answer] == [each.number for each in store.branches("lands")]
    assert len(answer[1]["words"]) == 80
    spoken = {each.seq: each.time for each in store.load("lands", branch=answer[1]["number"])}
    assert answer[1]["time"] == spoken[3]


def test_a_branch_that_begins_with_a_result_names_its_tool(client: TestClient, store: cc.Store) -> None:
    """Guarantee 12.2: a tool result has no text of its own. Its time is that of the message, not of the recording."""
    call = cc.assistant("so", tool_calls=[cc.tool_call("a", "look", {})])
    store.extend("tools", [cc.user("look"), call, cc.user("and?")])
    store.rewind("tools", 2)
    store.append("tools", cc.tool_result("a", "look", "found"))
    answer = client.get("/api/conversations/tools/branches").json()
    assert [each["words"] for each in answer] == ["and?", "result of look"]
