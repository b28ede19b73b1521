"""Export of a conversation as one HTML file."""

import json
import re
from typing import Any

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


def shared_data(client: TestClient, name: str, **query: Any) -> dict[str, Any]:
    text = client.get(f"/api/conversations/{name}/export", params={"format": "html", **query}).text
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    return json.loads(found[1])


def test_title_and_findings_are_those_of_what_is_shared(client: TestClient, store: cc.Store) -> None:
    """Cache misses that could not have been avoided are no findings, as in the inspector."""
    life = Life(store, provider_of(SONNET, window=200_000))
    for number, minute in enumerate((30, 31, 31, 32), 1):
        life.fragments = (cc.PromptFragment("identity", f"You are a coder. It is 12:{minute} now."),)
        read = 12_000 if number == 3 else 0
        usage = cc.Usage(input=4_000 * number, output=9, cache_read=read, cache_write=4_000 * number - read)
        if number == 4:
            store.append("demo", cc.tool_result("lost", "look", "a result that no call has asked for"))
        life.turn(f"question {number} " + "words " * 3_000, usage=usage)
    listed = Asking(client, life)("findings")["findings"]
    harmless = [each for each in listed if each["cause"] in ("first_request", "below_minimum")]
    losses = [each for each in listed if each not in harmless]
    assert harmless
    run = shared_data(client, "demo")
    assert run["title"].startswith("question 1 words")
    assert [each["code"] for each in run["findings"]] == [each["code"] for each in losses]
    assert [each["is_change"] for each in run["findings"]] == [each["evidence"][0]["is_change"] for each in losses]
    assert {each["is_change"] for each in run["findings"]} == {True, False}
    assert (run["findings_count"], run["unavoidable"]) == (len(losses), len(harmless))
    for number in (1, 2, 3, 4):
        one = shared_data(client, "demo", request=number, channel=life.channel)
        about = [each for each in losses if any(place["request"] == number for place in each["evidence"])]
        assert [each["code"] for each in one["findings"]] == [each["code"] for each in about]
        assert one["findings_count"] == len(about)
        assert one["unavoidable"] == (1 if number == 1 else 0)
        assert one["cost"] == one["requests"][0]["cost"]
    assert sum(each["code"] == "CAC001" for each in run["findings"]) == 0
    assert shared_data(client, "demo", redact="texts")["title"] == ""
    store.set_title("demo", "Billing bug of ann@example.com")
    assert shared_data(client, "demo", redact="mail")["title"].startswith("Billing bug of [")


def test_tags_are_in_the_file_and_notes_if_they_are_wanted(client: TestClient, store: cc.Store) -> None:
    """Guarantee 2.9: of one request only the notes about it, and redacted like everything else."""
    life = Life(store)
    life.turn("hi")
    store.tag(life.name, "a tag")
    store.add_note(life.name, "note of ann@example.com <b>", who="ann")
    store.add_note(life.name, "about request one", request=f"{life.channel}/1")

    def shared(**query: object) -> dict[str, Any]:
        answer = client.get(f"/api/conversations/{life.name}/export", params={"format": "html", **query})  # pyright: ignore[reportArgumentType]
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', answer.text, re.DOTALL)
        assert found is not None
        return json.loads(found[1])

    assert (shared()["tags"], shared()["notes"], shared(tags=False)["tags"]) == (["a tag"], [], [])
    run = shared(notes=True)
    assert (run["tags"], [each["text"] for each in run["notes"]]) == (
        ["a tag"],
        ["note of ann@example.com <b>", "about request one"],
    )
    assert [each["text"] for each in shared(request=1, channel=life.channel, notes=True)["notes"]] == [
        "about request one"
    ]
    assert "ann@example.com" not in str(shared(redact="mail", notes=True)["notes"])
    assert (shared(redact="texts")["tags"], shared(redact="texts", notes=True)["notes"]) == ([], [])
