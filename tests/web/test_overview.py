"""The overview of the store: figures per conversation, totals, days, filters, order; findings on demand; search."""

from typing import Any

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.web import store_overview
from tests.observation.test_conversation_match import claude, claude_answer
from tests.web.sample_conversations import SONNET, Asking, Life, provider_of

DAY = 86_400_000
MIDNIGHT = 1_767_225_600_000
"""The beginning of 2026 in UTC."""


def overview(client: TestClient, **query: object) -> Any:
    answered = client.get("/api/overview", params={name: str(value) for name, value in query.items()})
    assert answered.status_code == 200, answered.text
    return answered.json()


def names(page: Any) -> list[str]:
    return [each["conversation"]["name"] for each in page["conversations"]]


def observed(store: cc.Store, name: str, time: int, text: str = "hi") -> None:
    cc.observe(
        store, request=claude(text), reply=claude_answer("b"), format="anthropic", conversation=name, time=time,
        ended=time, headers={"x-claude-code-session-id": name},
    )  # fmt: skip


def test_the_figures_are_those_of_the_timeline(client: TestClient, store: cc.Store) -> None:
    Life(store, name="a").turn("hi", usage=cc.Usage(input=1_000, output=10, cache_read=500))
    Life(store, provider_of(SONNET), "b").turn("hi", usage=cc.Usage(input=2_000, output=20))
    store.append("silent", cc.user("hi"))
    page = overview(client)
    assert page["found"] == 3
    assert page["pending"] == 0
    by_name = {each["conversation"]["name"]: each for each in page["conversations"]}
    for name in ("a", "b"):
        totals = client.get(f"/api/conversations/{name}/timeline").json()["totals"]
        figures = by_name[name]["figures"]
        assert [figures[each] for each in ("requests", "input", "output", "cache_read")] == [
            totals[each] for each in ("requests", "input", "output", "cache_read")
        ]
        assert figures["cost"] == pytest.approx(totals["cost"])
    assert by_name["a"]["figures"]["cache_share"] == 0.5
    assert by_name["silent"]["figures"]["cost"] is None
    assert names(page)[-1] == "silent", "the last, since its cost is unknown"
    total = page["totals"]
    assert (total["requests"], total["input"], total["cache_read"]) == (2, 3_000, 500)
    assert total["cost"] == pytest.approx(sum(by_name[name]["figures"]["cost"] for name in ("a", "b")))


def test_the_figures_of_hours_and_models_add_up_to_the_totals(client: TestClient, store: cc.Store) -> None:
    """The most expensive model first, and the hours of the last three days that have requests."""
    Life(store, name="a").turn("hi", usage=cc.Usage(input=1_000, output=10))
    Life(store, provider_of(SONNET), "b").turn("hi", usage=cc.Usage(input=200_000, output=20))
    for day in range(4):
        observed(store, f"c{day}", MIDNIGHT + day * DAY)
    page = overview(client)
    models = page["by_model"]
    assert sum(each["figures"]["requests"] for each in models) == page["totals"]["requests"] == 6
    assert sum(each["figures"]["cost"] or 0 for each in models) == pytest.approx(page["totals"]["cost"])
    costs = [each["figures"]["cost"] or 0 for each in models]
    assert costs == sorted(costs, reverse=True)
    assert {each["model"] for each in models} == {each["name"] for each in page["models"]}
    last = [each["day"] for each in page["days"]][-3:]
    assert sorted({each["hour"][:10] for each in page["hours"]}) == last
    by_day = {day: 0 for day in last}
    for each in page["hours"]:
        by_day[each["hour"][:10]] += each["figures"]["requests"]
    assert by_day == {each["day"]: each["figures"]["requests"] for each in page["days"][-3:]}


def test_times_sources_models_and_names_select(client: TestClient, store: cc.Store) -> None:
    observed(store, "old", MIDNIGHT - DAY // 2, "An ancient question")
    observed(store, "new", MIDNIGHT + DAY // 2)
    Life(store, provider_of(SONNET), "own").turn("hi", usage=cc.Usage(input=2_000, output=20))
    assert sorted(names(overview(client))) == ["new", "old", "own"]
    assert names(overview(client, until=MIDNIGHT)) == ["old"]
    assert names(overview(client, since=MIDNIGHT, until=MIDNIGHT + DAY)) == ["new"]
    assert names(overview(client, source="own")) == ["own"]
    assert sorted(names(overview(client, source="claude-code"))) == ["new", "old"]
    assert names(overview(client, model=store.overview("own").model)) == ["own"]
    assert names(overview(client, search="ANCIENT  ques")) == names(overview(client, search="OL")) == ["old"]
    assert names(overview(client, search="absent")) == []
    assert {each["name"]: each["conversations"] for each in overview(client)["sources"]} == {"claude-code": 2, "own": 1}


def test_days_are_those_of_a_time_zone(client: TestClient, store: cc.Store) -> None:
    observed(store, "a", MIDNIGHT + 20 * 60_000)
    observed(store, "b", MIDNIGHT - 20 * 60_000)

    def days(zone: str) -> list[str]:
        return [each["day"] for each in overview(client, zone=zone)["days"]]

    def hours(zone: str) -> list[str]:
        return [each["hour"] for each in overview(client, zone=zone)["hours"]]

    assert hours("UTC")[-1][:11] == "2026-01-01T"
    assert {each[:10] for each in hours("Asia/Kathmandu")} == {"2026-01-01"}
    assert days("UTC") == ["2025-12-31", "2026-01-01"]
    assert days("America/New_York") == ["2025-12-31"]
    assert days("Asia/Kathmandu") == ["2026-01-01"]
    assert overview(client, zone="../../etc/passwd")["zone"] == overview(client, zone="Nowhere")["zone"] == "UTC"


def test_columns_sort_in_both_orders_and_pages_follow(client: TestClient, store: cc.Store) -> None:
    for number, name in enumerate(("b", "a", "c")):
        usage = cc.Usage(input=1_000, output=10 + number, cache_read=300 * number)
        Life(store, name=name).turn("hi", usage=usage)
    assert names(overview(client, sort="name", order="up")) == ["a", "b", "c"]
    assert names(overview(client, sort="cache", order="up")) == ["b", "a", "c"]
    assert names(overview(client, sort="tokens")) == ["c", "a", "b"]
    assert names(overview(client, sort="name", order="up", skip=1, limit=1)) == ["b"]
    assert overview(client, skip=1, limit=1)["found"] == 3
    assert client.get("/api/overview?sort=colour").status_code in (400, 422)


def test_changes_are_counted_and_deleted_conversations_are_forgotten(client: TestClient, store: cc.Store) -> None:
    life = Life(store, name="a")
    life.turn("hi", usage=cc.Usage(input=1_000, output=10))
    assert overview(client)["totals"]["requests"] == 1
    life.turn("more", usage=cc.Usage(input=1_000, output=10))
    assert overview(client)["totals"]["requests"] == 2
    store.delete("a")
    assert overview(client)["totals"]["requests"] == overview(client)["found"] == 0


def test_a_large_store_is_counted_in_portions(
    client: TestClient, store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_overview, "BATCH", 2)
    monkeypatch.setattr(store_overview, "REFRESH_SECONDS", 0.0)
    for number in range(5):
        Life(store, name=f"c{number}").turn("hi", usage=cc.Usage(input=1_000, output=10))
    pages = [overview(client) for _ in range(3)]
    assert [(page["pending"], page["totals"]["requests"]) for page in pages] == [(3, 2), (1, 4), (0, 5)]


def test_findings_are_checked_on_demand_and_sort_then(client: TestClient, store: cc.Store) -> None:
    life = Life(store, provider_of(SONNET), "wasteful")
    life.turn("hi", usage=cc.Usage(input=100, output=10, cache_read=90))
    life.turn("again", usage=cc.Usage(input=110, output=10))
    Life(store, name="fine").turn("hi", usage=cc.Usage(input=1_000, output=10))
    assert all("findings" not in each for each in overview(client)["conversations"])
    answered = client.post("/api/overview/findings", json={"names": ["wasteful", "fine", "deleted"]})
    assert answered.status_code == 200, answered.text
    checked = answered.json()["conversations"]
    assert [each["name"] for each in checked] == ["wasteful", "fine"]
    single = client.get("/api/conversations/wasteful/findings").json()["findings"]
    losses = [each for each in single if each["cause"] not in ("first_request", "below_minimum")]
    assert checked[0]["findings"]["count"] == len(losses) > 0
    assert sum(each["count"] for each in checked[0]["causes"]) == len(losses)
    assert checked[0]["findings"]["largest"] == checked[0]["causes"][0]["cost"]  # causes are not added up
    page = overview(client, sort="findings")
    assert names(page)[0] == "wasteful"
    assert page["conversations"][0]["findings"]["count"] == len(losses)
    life.turn("once more", usage=cc.Usage(input=120, output=10))
    changed = next(each for each in overview(client)["conversations"] if each["conversation"]["name"] == "wasteful")
    assert "findings" not in changed, "they are about the requests before"
    assert client.post("/api/overview/findings", json={"names": ["x"] * 51}).status_code in (400, 422)


def test_a_search_lists_hits_and_what_was_searched(client: TestClient, store: cc.Store) -> None:
    call = cc.ToolCall(id="1", name="grep", arguments={"pattern": "needle"})
    store.extend("demo", [cc.user("find it"), cc.assistant(call), cc.tool_result("1", "grep", "a needle: here")])
    found = client.get("/api/search", params={"text": "needle"}).json()
    assert (found["messages"], found["conversations"], found["more"], found["next"]) == (3, 1, False, "")
    [entry] = found["found"]
    assert entry["conversation"]["name"] == "demo"
    assert [(each["seq"], each["part"], each["tool"]) for each in entry["hits"]] == [
        (3, "result", "grep"),
        (2, "call", "grep"),
    ]
    assert "a needle: here" in entry["hits"][0]["excerpt"]
    store.add_note("demo", "Where is the thimble?")
    [entry] = client.get("/api/search", params={"text": "THIMBLE"}).json()["found"]
    assert [(each["part"], each["seq"], each["excerpt"]) for each in entry["hits"]] == [
        ("note", 0, "Where is the thimble?")
    ]
    assert (
        client.get("/api/search", params={"text": " "}).json()["found"]
        == client.get("/api/search").json()["found"]
        == []
    )


def test_a_search_says_how_many_hits_there_are(client: TestClient, store: cc.Store) -> None:
    store.extend("demo", [cc.user(f"needle {number}") for number in range(1, 13)])
    [entry] = client.get("/api/search", params={"text": "needle"}).json()["found"]
    assert (len(entry["hits"]), entry["count"]) == (5, 12)
    query: dict[str, Any] = {"text": "needle", "before": entry["more"], "limit": 1, "hits": 20}
    [older] = client.get("/api/search", params=query).json()["found"]
    assert [each["seq"] for each in older["hits"]] == [7, 6, 5, 4, 3, 2, 1]
    assert (older["count"], older["more"]) == (7, "")


def test_a_hit_leads_to_its_message_in_a_request(client: TestClient, store: cc.Store) -> None:
    """The first request that contains the message; for the last reply, the request that it answers."""
    life = Life(store)
    life.turn("find the needle", "no needle here")
    life.turn("look again", "a needle at last")

    def find(seq: int) -> dict[str, Any]:
        return client.get(f"/api/conversations/{life.name}/messages/{seq}/request").json()

    for seq, request in ((1, 1), (2, 2), (3, 2)):
        found = find(seq)
        assert (found["channel"], found["request"]) == (life.channel, request)
        [line] = Asking(client, life).request(request, "/lines", at=str(found["line"]))["lines"]
        assert line["seq"] == seq
    assert find(4) == {"channel": life.channel, "request": 2, "line": None}
    store.append(life.name, cc.user("one more needle"))
    assert find(5) == {"channel": "", "request": 0, "line": None}
    assert client.get(f"/api/conversations/{life.name}/messages/99/request").status_code == 404
    assert client.get("/api/conversations/nowhere/messages/1/request").status_code == 404


def test_a_search_follows_titles_that_change(client: TestClient, store: cc.Store) -> None:
    """A redacted message must not be found by its text; a new title must be."""
    store.begin("a")
    assert names(overview(client, search="4711")) == []
    store.append("a", cc.user("customer 4711"))
    assert names(overview(client, search="4711")) == ["a"]
    store.redact("a", 1)
    assert names(overview(client, search="4711")) == []
    store.set_title("a", "order 4712")
    assert names(overview(client, search="4712")) == ["a"]


def test_models_have_their_window_and_prices(client: TestClient) -> None:
    """Guarantee 12.2: people choose a model by them."""
    listed = {each["name"]: each for each in client.get("/api/models").json()["models"]}
    assert listed["claude-sonnet-4-5"]["window"] >= 200_000
    assert listed["claude-sonnet-4-5"]["output_price"] > listed["claude-sonnet-4-5"]["input_price"] > 0
    assert listed["SmolLM2-135M-Instruct"]["input_price"] is None
