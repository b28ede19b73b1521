"""Conversations over HTTP: list, search, create, load and delete."""

import re
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

import contextc as cc
from contextc.providers import local
from contextc.store import turn_records
from contextc.store.store import engine_of
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from tests.web.sample_conversations import SONNET, Life, provider_of

STRANGE = ["a/b", "wide name", "100%", "x?y#z", "../up", "ünï", "a%2Fb", "…", "a+b", "emoji 🦊"]


def path(name: str) -> str:
    return f"/api/conversations/{quote(name, safe='')}"


def test_the_list_is_in_pages_the_last_one_used_first(client: TestClient, store: cc.Store) -> None:
    for number in range(5):
        store.append(f"c{number}", cc.user(f"question {number}", time=1_000 + number))
    first = client.get("/api/conversations", params={"limit": 3}).json()
    assert [each["name"] for each in first["conversations"]] == ["c4", "c3", "c2"]
    assert first["more"] is True
    rest = client.get("/api/conversations", params={"limit": 3, "before": first["next"]}).json()
    assert [each["name"] for each in rest["conversations"]] == ["c1", "c0"]
    assert (rest["more"], rest["next"]) == (False, "")
    assert first["conversations"][0] == {
        "name": "c4",
        "title": "question 4",
        "length": 1,
        "branches": 1,
        "created": store.conversation("c4").created,
        "spoken": 1_004,
        "running": False,
        "model": "",
        "excerpt": "",
        "hit": 0,
    }


def test_a_search_finds_names_and_content(client: TestClient, store: cc.Store) -> None:
    store.append("one", cc.user("Tell me about Monads", time=1))
    store.append("monads", cc.user("hello", time=2))
    store.append("three", cc.user("nothing", time=3))
    found = client.get("/api/conversations", params={"search": "MONAD"}).json()
    assert [(each["name"], each["excerpt"]) for each in found["conversations"]] == [
        ("monads", ""),
        ("one", "Tell me about Monads"),
    ]
    assert found["more"] is False


def test_a_conversation_is_renamed(client: TestClient, store: cc.Store) -> None:
    """Guarantee 12.1: only its title; an empty title restores the first message."""
    store.append("a/b", cc.user("Tell me about Monads", time=1))
    renamed = client.patch(path("a/b"), json={"title": " Burritos "})
    assert (renamed.status_code, renamed.json()["title"], renamed.json()["name"]) == (200, "Burritos", "a/b")
    assert client.get(path("a/b")).json()["title"] == "Burritos"
    assert client.patch(path("a/b"), json={"title": ""}).json()["title"] == "Tell me about Monads"
    assert client.patch(path("a/b"), json={"title": "x" * 201}).status_code == 400
    assert client.patch(path("a/b"), json={}).status_code == 400
    assert client.patch(path("nobody"), json={"title": "x"}).status_code == 404


def test_a_conversation_is_begun_with_a_name_or_named_for_the_time(client: TestClient, store: cc.Store) -> None:
    made = client.post("/api/conversations", json={"name": "mine"})
    assert (made.status_code, made.json()["name"], made.json()["length"]) == (201, "mine", 0)
    names = [client.post("/api/conversations", json={}).json()["name"] for _ in range(3)]
    assert len({*names}) == 3
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d-\d{6}(-\d+)?", name) for name in names)
    again = client.post("/api/conversations", json={"name": "mine"})
    assert (again.status_code, again.json()["error"]["kind"]) == (409, "ConversationExists")
    assert client.post("/api/conversations", json={"name": ""}).status_code == 400
    assert len(store.conversations()) == 4


@pytest.mark.parametrize("name", STRANGE)
def test_any_name_has_an_address(client: TestClient, store: cc.Store, name: str) -> None:
    assert client.post("/api/conversations", json={"name": name}).status_code == 201
    answer = client.post(f"{path(name)}/messages", json={"text": "hi"})
    assert answer.status_code == 201
    assert client.get(path(name)).json()["name"] == name
    assert client.get(f"{path(name)}/messages").json()["messages"] == [answer.json()]
    assert client.delete(path(name)).json() == {}
    assert store.conversations() == []


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_a_browser_takes_for_a_folder_is_not_given(client: TestClient, store: cc.Store, name: str) -> None:
    """`fetch` folds them away, percent-encoded too. What was named so before is still found."""
    store.append("demo", cc.user("hi"))
    for path, body in (
        ("", {"name": name}),
        ("/demo/fork", {"name": name}),
        (f"/{name.replace('.', '%2E')}/messages", {"text": "hi"}),
    ):
        answer = client.post(f"/api/conversations{path}", json=body)
        assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "InvalidInput")
        assert "folder" in answer.json()["error"]["message"]
    assert [each.name for each in store.conversations()] == ["demo"]
    store.write(lambda tx: tx.run("UPDATE main.conversation SET name = ? WHERE name = 'demo'", name))
    store.write(lambda tx: tx.run("UPDATE main.branch SET conversation = ? WHERE conversation = 'demo'", name))
    assert store.append(name, cc.user("again")).seq == 2


def test_one_as_it_is(client: TestClient, store: cc.Store) -> None:
    store.extend("demo", [cc.user("first"), cc.assistant("answer"), cc.user("second")])
    store.reset("demo")
    store.append("demo", cc.user("third"))
    store.pin("demo", 2)
    store.add_todo("demo", "write tests")
    store.enqueue("demo", cc.user("and then this"), kind="follow-up")
    at = store.conversation("demo")
    found = client.get("/api/conversations/demo").json()
    assert {key: found[key] for key in ("tip", "branch", "revision", "edge", "length")} == {
        "tip": at.tip,
        "branch": at.branch,
        "revision": at.revision,
        "edge": 3,
        "length": 4,
    }
    assert (found["pinned"], found["todos"]) == ([2], [{"number": 1, "text": "write tests", "state": "open"}])
    assert [(each["kind"], each["text"]) for each in found["queued"]] == [("follow-up", "and then this")]
    assert found["last_event"] == store.events("demo")[-1].number
    assert (found["running"], found["pending"], found["gauge"], found["approvals"], found["channels"]) == (
        None,
        None,
        None,
        [],
        [],
    )


def test_a_reply_on_its_way_is_there_as_far_as_it_has_come(client: TestClient, store: cc.Store) -> None:
    """Guarantee 3.3: a page that is opened during a reply shows the partial reply."""
    store.append("demo", cc.user("hi"))
    with store.lease("demo") as lease:
        turn = turn_records.TurnRecord(number=0, agent="assistant", started=7)
        begun = store.write(lambda tx: turn_records.insert_turn(tx, lease.root, turn))
        stream = store.stream(lease)
        stream.write("Once upon")
        stream.write(" a time")
        stream.flush()
        found = client.get("/api/conversations/demo").json()
        assert found["running"] == {"turn": begun.number, "step": 0, "started": 7, "model": ""}
        assert found["pending"] == {"uid": stream.uid, "parts": [{"type": "text", "text": "Once upon a time"}]}
        assert client.get("/api/conversations").json()["conversations"][0]["running"] is True
        stream.end()
    assert client.get("/api/conversations/demo").json()["pending"] is None


def test_the_gauge_is_that_of_the_last_request_of_any_model(client: TestClient, store: cc.Store) -> None:
    """Guarantee 6.2: how full the context is."""
    Life(store).turn("hi", usage=cc.Usage(input=100, output=20))
    last = Life(store, provider_of(SONNET, window=50_000)).turn("and you?")
    found = client.get("/api/conversations/demo").json()
    assert found["gauge"] == {
        "used": last.budget.input,
        "available": last.budget.room,
        "window": 50_000,
        "cost": pytest.approx(0.00045),  # of the request before, which was made by hand
    }
    assert [(each["provider"], each["requests"]) for each in found["channels"]] == [
        ("openai-chat", 1),
        ("anthropic", 1),
    ]
    assert found["model"] == "anthropic:claude-sonnet-4-5"


def test_an_answer_reports_that_deleted_content_is_still_in_the_files(
    client: TestClient, store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A success that is reported before the content is gone is a false one."""
    store.append("demo", cc.user("hi"))
    monkeypatch.setattr(type(store), "pending_erasure", 1)
    assert client.delete("/api/conversations/demo").json() == {"pending_erasure": 1}


def test_what_is_deleted_is_gone_and_a_turn_that_runs_keeps_it(client: TestClient, store: cc.Store) -> None:
    store.append("demo", cc.user("hi"))
    with store.lease("demo"):
        busy = client.delete("/api/conversations/demo")
        assert (busy.status_code, busy.json()["error"]["kind"]) == (409, "ConversationBusy")
    assert client.delete("/api/conversations/demo").status_code == 200
    for method in ("GET", "DELETE"):
        gone = client.request(method, "/api/conversations/demo")
        assert (gone.status_code, gone.json()["error"]["kind"]) == (404, "UnknownConversation")
    assert store.conversations() == []


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=501", "limit=x", "limt=3", "before=yesterday", f"before={1 << 63}-1", f"before=1-{1 << 63}",
        f"search=x&before=1-1-{1 << 32}",
    ],
)  # fmt: skip
def test_an_invalid_page_is_refused(client: TestClient, query: str) -> None:
    answer = client.get(f"/api/conversations?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_what_the_server_is_does_not_show_the_password_of_its_store(client: TestClient, store: cc.Store) -> None:
    """A password may precede the host, or be a parameter."""
    engine_of(store).address = "postgresql://ann:hunter2@host/db?password=hunter2&sslpassword=hunter2"
    answer = client.get("/api/info")
    assert answer.json()["store"] == "postgresql://ann:***@host/db?password=***&sslpassword=***"
    assert "hunter2" not in answer.text


def test_what_the_server_is_contains_no_key(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "XAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    answer = client.get("/api/info")
    found = answer.json()
    assert "sk-ant-secret" not in answer.text
    providers = {each["name"]: each for each in found["providers"]}
    assert (providers["anthropic"]["needs_key"], providers["anthropic"]["is_ready"]) == (True, True)
    assert (providers["openai"]["needs_key"], providers["openai"]["is_ready"]) == (True, False)
    assert (providers["local"]["needs_key"], providers["local"]["is_ready"]) == (False, True)
    assert (providers["anthropic"]["also"], providers["anthropic"]["variables"]) == (["claude"], ["ANTHROPIC_API_KEY"])
    assert (providers["local"]["also"], providers["local"]["variables"]) == ([], [])
    assert any(name.startswith("claude-") for name in providers["anthropic"]["models"])
    assert "replay" not in providers
    assert (found["agent"], found["store"], found["model"]) == ("assistant", "memory:", "replay:none.jsonl")
    assert "anthropic" in found["formats"]


def test_a_local_model_that_is_not_installed_is_reported_with_what_to_install(
    store: cc.Store, options: ServerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise cc.errors.InvalidSetting("local model: not installed", fix="Install it: pip install it")

    monkeypatch.setattr(local, "check_installed", missing)
    application = create_application(store, replace(options, model="local"))
    with TestClient(application, base_url="http://127.0.0.1:8377") as asking:
        remark = asking.get("/api/info").json()["remark"]
    assert remark.startswith("To chat, choose a model that you have a key for, or use the local one. ")
    assert remark.endswith("local model: not installed. Install it: pip install it")
