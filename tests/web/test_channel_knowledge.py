"""Messages that a provider already has, and those that are new to it."""

from typing import Any

from starlette.testclient import TestClient

import contextc as cc
from contextc.compiler.ledger import SessionManager
from tests.compiler.session_conversation import Talk, call, keeper
from tests.web.sample_conversations import Asking, Life, provider_of


def ledger(client: TestClient, **query: object) -> Any:  # JSON
    (channel,) = client.get("/api/conversations/demo/timeline").json()["channels"]
    params = {name: str(value) for name, value in query.items()}
    answer = client.get(f"/api/conversations/demo/channels/{channel['id']}/ledger", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def texts(result: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(each["seq"], each["text"]) for each in result if each["seq"]]


def test_a_session_holds_what_it_received_and_what_it_answered(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.1: what the program said itself is known to it without having been sent; what waits is news."""
    talk = Talk(store, keeper())
    store.append("demo", cc.user("hello"))
    talk.step(call("a"), directory="/tmp", tools=[])
    store.extend("demo", [cc.tool_result("a", "look", "nothing"), cc.user("well?")])
    store.append("demo", cc.system("psst", audience="tester"))
    answer = ledger(client)
    assert (answer["session"], answer["lost"], answer["unanswered"]) == ("session1", "", False)
    assert texts(answer["known"]) == [(1, "hello"), (2, "calls look({})")]
    assert {each["acknowledged"] for each in answer["known"]} == {True}
    assert texts(answer["new"]) == [(3, "look: nothing"), (4, "well?")]
    assert all(each["tokens"] > 0 for each in answer["known"] + answer["new"])
    assert [(each["epoch"], each["request"], each["why"]) for each in answer["epochs"]] == [(1, 1, "first request")]


def test_a_lost_session_has_unknown_content(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.1: the shown messages are listed, and that they have to be sent again."""
    talk = Talk(store, keeper())
    store.append("demo", cc.user("hello"))
    talk.step(cc.assistant("fine"), directory="/tmp")
    (session,) = SessionManager(store).sessions("demo")
    SessionManager(store).invalidate(session.channel, "the disk was wiped")
    answer = ledger(client)
    assert (answer["session"], answer["lost"]) == ("", "the disk was wiped")
    assert texts(answer["known"]) == [(1, "hello"), (2, "fine")]
    assert {each["acknowledged"] for each in answer["known"]} == {False}
    assert answer["new"] == []
    store.append("demo", cc.user("more"))
    talk.step(cc.assistant("again"), directory="/tmp")
    assert [each["why"] for each in ledger(client)["epochs"]] == ["first request", "the disk was wiped"]


def test_a_request_on_its_way_is_reported(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.8: the session may hold it, which is unknown."""
    talk = Talk(store, keeper())
    store.append("demo", cc.user("hello"))
    talk.step(cc.assistant("fine"), directory="/tmp")
    store.append("demo", cc.user("more"))
    compiled = talk.compile(directory="/tmp")
    talk.compiler.begin(compiled)
    talk.compiler.abort(compiled, "the network is down")
    answer = ledger(client)
    assert answer["unanswered"]
    assert texts(answer["new"]) == [(3, "more")]


def test_one_that_keeps_nothing_receives_everything_each_time(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.1: shown messages are known as long as they are sent; epochs have the number of their rows."""
    life = Life(store, provider_of(window=2_600))
    life.turn("hi")
    life.turn("more")
    store.edit("demo", 3, cc.user("something else"))
    answer = ledger(client)
    assert (3, "more") in texts(answer["known"])
    assert texts(answer["new"]) == [(3, "something else")]
    life.answer()
    life.turn("on")
    answer = ledger(client)
    assert [(each["request"], each["rows"]) for each in answer["epochs"]] == [(1, 2), (3, 3)]
    assert texts(answer["known"])[-1] == (6, "done")
    assert {each["acknowledged"] for each in answer["known"]} == {True}


def test_what_is_known_comes_in_pages(client: TestClient, store: cc.Store) -> None:
    """A conversation may be long."""
    life = Life(store)
    for number in range(5):
        life.turn(f"{number}")
    whole = ledger(client)
    paged: list[Any] = []
    while True:
        answer = ledger(client, after=len(paged), limit=3)
        paged += answer["known"]
        if not answer["more"]:
            break
    assert paged == whole["known"]
    assert whole["total"] == len(paged)


def test_a_channel_on_which_nothing_was_answered_has_no_ledger(client: TestClient, store: cc.Store) -> None:
    """A missing object returns an error."""
    life = Life(store)
    store.append("demo", cc.user("hi"))
    life.compiler.begin(life.compile())
    assert Asking(client, life)(f"channels/{life.channel}/ledger", status=404)["error"]["kind"] == "UnknownRequest"
    assert Asking(client, life)("channels/nobody/ledger", status=404)["error"]["kind"] == "UnknownChannel"


def test_what_another_branch_has_shown_is_not_called_unseen(client: TestClient, store: cc.Store) -> None:
    """Guarantee 9.1: back on the old line, its messages are not in the last request, and yet the model has seen
    them.
    """
    life = Life(store)
    life.turn("hi")
    life.turn("the old way")
    store.edit("demo", 3, cc.user("the new way"))
    life.answer("fine")
    (first, *_) = store.branches("demo")
    store.switch("demo", first.number)
    store.append("demo", cc.user("and now?"))
    answer = [(each["seq"], each["text"], each["before"]) for each in ledger(client)["new"] if each["seq"]]
    assert answer == [(3, "the old way", True), (4, "done", True), (5, "and now?", False)]
