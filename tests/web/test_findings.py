"""Findings in the HTTP API."""

from typing import Any

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.web.api import overview
from tests.analysis import test_session_starts as sessions
from tests.analysis.observed_run import ObservedRun, define_tool, words
from tests.analysis.test_parallel_requests import DOCUMENT, send


def record(store: cc.Store) -> ObservedRun:
    run = ObservedRun(tools=[define_tool("read"), define_tool("draw", 3_000)], store=store)
    run.ask("Read the log.")
    run.fail(529, "Overloaded")
    run.call("read", words(8_000), path="huge.log")
    for number in range(4):
        run.call("read", f"line {number}", path=f"{number}.txt")
    run.send()
    return run


def get(client: TestClient, path: str) -> Any:
    answered = client.get(f"/api{path}")
    assert answered.status_code == 200, answered.text
    return answered.json()


def test_findings_of_a_conversation_with_costs_by_cause(client: TestClient, store: cc.Store) -> None:
    run = record(store)
    found = get(client, f"/conversations/{run.conversation}/findings")
    codes = [each["code"] for each in found["findings"]]
    assert {"CAC001", "WIN001", "WIN002", "FAI002"} <= {*codes}
    costs = [each["cost"] or 0.0 for each in found["findings"]]
    assert costs == sorted(costs, reverse=True)
    assert found["more"] is False
    large = next(each for each in found["findings"] if each["code"] == "WIN002")
    assert large["evidence"][0]["path"] == "messages[2].content[0]"
    lines = found["costs"]["lines"]
    assert abs(sum(each["cost"] for each in lines) - found["costs"]["cost"]) < 1e-9
    assert {"kind": "tool", "name": "draw"}.items() <= next(each for each in lines if each["name"] == "draw").items()
    assert found["costs"]["unpriced"] == 1


def test_expected_cache_reads_are_beside_reported_ones(client: TestClient, store: cc.Store) -> None:
    run = record(store)
    reads = get(client, f"/conversations/{run.conversation}/cache-reads")["requests"]
    assert [each["cause"] for each in reads] == ["first_request", *[""] * (len(reads) - 1)]
    assert all(abs(each["expected"] - each["reported"]) <= 0.1 * each["input"] for each in reads)


def test_findings_of_one_request(client: TestClient, store: cc.Store) -> None:
    run = record(store)
    at = f"/conversations/{run.conversation}/findings"
    (failed,) = get(client, f"{at}?request=1")["findings"]
    assert failed["code"] == "FAI002"
    channel = failed["evidence"][0]["channel"]
    assert get(client, f"{at}?request=1&channel={channel}")["findings"] == [failed]
    assert get(client, f"{at}?request=1&channel=other")["findings"] == []
    few = get(client, f"{at}?limit=1")
    assert len(few["findings"]) == 1
    assert few["more"] is True


def test_findings_of_the_store_are_grouped_by_cause(client: TestClient, store: cc.Store) -> None:
    record(store)
    store.append("own", cc.user("hi"))
    found = get(client, "/findings")
    assert found["conversations"] == 2
    assert found["unreadable"] == []
    codes = [each["code"] for each in found["causes"]]
    assert codes[0] in ("WIN001", "WIN002")
    assert "CAC001" not in codes
    assert all(each["count"] == len(each["examples"]) == each["conversations"] == 1 for each in found["causes"])


def test_an_unknown_conversation_is_not_found(client: TestClient) -> None:
    assert client.get("/api/conversations/nope/findings").status_code == 404


def test_evidence_is_a_change_or_facts_and_names_the_request_it_was_compared_with(
    client: TestClient, store: cc.Store
) -> None:
    """Guarantee 17.1: a miss of a conversation that began beside another one leads to that one, under its title."""
    run = record(store)
    run.system, run.cached = f"It is 12:30. {run.system}", 0
    run.send()
    evidence = {each["code"]: each["evidence"][0] for each in get(client, "/conversations/run/findings")["findings"]}
    assert evidence["CAC006"]["is_change"]
    assert "compared" not in evidence["CAC006"]
    assert {code for code, each in evidence.items() if not each["is_change"]} == {"WIN001", "WIN002", "FAI002"}
    for number in range(2):
        send(store, f"sub{number}", [DOCUMENT, f"Task {number}"], began=100 * number, read=0, total=9_000)
    first, second = sorted([each.name for each in store.conversations() if "-sub" in each.name])
    store.set_title(first, "The first task")
    (found,) = get(client, f"/conversations/{second}/findings")["findings"]
    (place,) = found["evidence"]
    assert (found["code"], place["is_change"]) == ("CAC015", False)
    other = place["compared"]
    assert (other["conversation"], other["request"], other["title"]) == (first, 1, "The first task")
    assert f"request 1 of {first} was" in place["before"]
    checked = client.post("/api/overview/findings", json={"names": [second]}).json()["conversations"][0]
    assert [each["title"] for each in checked["causes"]] == [found["cause_title"]]
    query = f"to_conversation={first}&to_channel={other['channel']}&to_request=1"
    compared = get(client, f"/conversations/{second}/requests/{place['channel']}/1/comparison?{query}")
    assert compared["before"]["conversation"] == first
    store.set_title(first, "The task before")
    (renamed,) = get(client, f"/conversations/{second}/findings")["findings"]
    assert renamed == {**found, "evidence": [{**place, "compared": {**other, "title": "The task before"}}]}
    store.delete(first)
    deleted = get(client, f"/conversations/{second}/findings")["findings"]
    assert [each["cause"] for each in deleted] == ["first_request"]


def test_all_requests_of_a_cause_are_listed_with_their_losses(client: TestClient, store: cc.Store) -> None:
    """Guarantee 17.2: the requests of a cause add up to it, also those that lost too little for a finding."""
    run = ObservedRun(
        tools=[define_tool("read", 900), define_tool("draw", 900)], system=words(12_000, "s"), store=store
    )
    run.ask("Go.")
    sizes: dict[bool, int] = {}
    for number in range(14):
        run.tools = run.tools[::-1]
        run.cached = sizes.get(number % 2 == 0, 0)
        run.call("read", words(240, f"r{number}x"), path="a.txt")
        sizes[number % 2 == 0] = run.cached
    run.tools, run.cached = [*run.tools, define_tool("fetch")], 0
    run.send()
    (checked,) = client.post("/api/overview/findings", json={"names": ["run"]}).json()["conversations"]
    causes = {each["code"]: each for each in checked["causes"]}
    reordered, added = causes["CAC005"], causes["CAC004"]
    assert (reordered["count"], reordered["requests"], added["requests"]) == (2, 13, 1)
    assert [each["request"] for each in reordered["losses"]] == list(range(2, 15))
    for each in checked["causes"]:
        assert sum(loss["tokens"] for loss in each["losses"]) == each["tokens"]
        assert abs(sum(loss["cost"] or 0.0 for loss in each["losses"]) - (each["cost"] or 0.0)) < 1e-9
    found = get(client, "/conversations/run/findings")["findings"]
    listed = [loss for each in found if each["code"] == "CAC005" for loss in each["losses"]]
    assert sorted(each["request"] for each in listed) == list(range(3, 15))
    (tool,) = next(each for each in found if each["code"] == "CAC004")["evidence"]
    assert (tool["name"], tool["path"], tool["before"]) == ("fetch", "tools[2]", "")
    assert tool["after"].startswith('{"name":"fetch",')


def test_the_most_expensive_requests_of_a_cause_are_listed(
    client: TestClient, store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(store)
    for number in range(4):
        run.system, run.cached = f"It is 12:3{number}.", 0
        run.ask(words(1_000 if number == 1 else 10, f"n{number}"))
        run.send()
        if number == 1:
            del run.messages[-2:]
    monkeypatch.setattr(overview, "MAX_LOSSES", 2)
    (checked,) = client.post("/api/overview/findings", json={"names": ["run"]}).json()["conversations"]
    cause = next(each for each in checked["causes"] if each["code"] == "CAC006")
    assert (cause["count"], cause["requests"], len(cause["losses"])) == (4, 4, 2)
    found = [each for each in get(client, "/conversations/run/findings")["findings"] if each["code"] == "CAC006"]
    dearest = sorted([each["cost"] for each in found], reverse=True)[:2]
    assert sorted([each["cost"] for each in cause["losses"]], reverse=True) == dearest
    numbers = [each["request"] for each in cause["losses"]]
    assert numbers == sorted(numbers)


def test_a_finding_over_the_store_is_at_the_session_that_lost_most(client: TestClient, store: cc.Store) -> None:
    """It is in the overview and in the conversation that it names, and gone with the text that it quotes."""
    for number in range(3):
        sessions.record(store, number, sessions.anthropic(f"It is 12:0{number}. {sessions.TEXT}"))

    def check() -> list[tuple[str, list[str]]]:
        found = client.post("/api/overview/findings", json={"names": ["job0", "job1", "job2"]}).json()
        return [(each["name"], [cause["code"] for cause in each["causes"]]) for each in found["conversations"]]

    assert check() == [("job0", []), ("job1", ["USE003"]), ("job2", [])]
    (found, _) = get(client, "/conversations/job1/findings")["findings"]
    assert (found["code"], found["evidence"][0]["compared"]["conversation"]) == ("USE003", "job0")
    assert [each["code"] for each in get(client, "/conversations/job2/findings")["findings"]] == ["CAC001"]
    (cause,) = get(client, "/findings")["causes"]
    assert (cause["code"], cause["conversations"]) == ("USE003", 3)
    sessions.record(store, 3, sessions.anthropic(f"It is 12:03. {sessions.TEXT}"))
    assert "4 of 4 sessions" in get(client, "/conversations/job1/findings")["findings"][0]["title"]
    for number in range(4):
        store.redact_text(f"job{number}", f"It is 12:0{number}.")
    assert check() == [("job0", []), ("job1", []), ("job2", [])]
