"""The OpenAPI document is correct: every path is requested, and every answer is checked against its schema."""

import re
from collections.abc import Iterator
from typing import Any, cast  # what a document says is JSON of any kind
from urllib.parse import quote

import httpx
import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

import contextc as cc
from contextc._json import JSON, JSONObject, decode, encode
from contextc.events import CompactionFinished, ErrorOccurred, RetryScheduled, UserNoticeCreated
from contextc.interchange import export_lines
from contextc.store import turn_records
from contextc.store.approval_rules import ApprovalRule, insert_rule
from contextc.store.message_log import load_tip
from contextc.web.api.openapi import build_document
from contextc.web.router import load_endpoints
from tests.web.conftest import Answer, Served
from tests.web.sample_conversations import Life
from tests.web.test_opened_files import open_file

EVENTS = "text/event-stream"
STRANGE = {"no_such_field": 1}
DOCUMENT: JSONObject = decode(encode(build_document(load_endpoints(), has_token=False, cookie="contextc_token_8377")))


def operations(*methods: str) -> Iterator[tuple[str, str, JSONObject]]:
    for path, there in DOCUMENT["paths"].items():
        for method, operation in there.items():
            if method in methods:
                yield path, method, operation


def goes_on(case: tuple[str, str, JSONObject]) -> bool:
    """Whether its answer has no end."""
    answers = case[2]["responses"]
    return EVENTS in answers["200"]["content"] and "204" not in answers


def check(value: JSON, schema: JSONObject) -> None:
    whole = {**schema, "components": DOCUMENT["components"]}
    errors = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(whole).iter_errors(value)]  # pyright: ignore[reportUnknownMemberType]
    assert not errors, errors[:5]


def check_refusal(operation: JSONObject, answer: Answer, *statuses: int) -> None:
    assert answer.status_code in statuses, answer.text
    check(answer.json(), operation["responses"]["default"]["content"]["application/json"]["schema"])


@pytest.fixture
def places(store: cc.Store, client: TestClient) -> dict[str, str]:
    """A store that has something at every address, and what the addresses are made of."""
    life = Life(store, name="a/b")
    life.turn("What is this?", usage=cc.Usage(input=100, output=20))
    life.turn("And that?", cc.assistant("It is.", reasoning="Hm."))
    picture = store.append("a/b", cc.user(["see", cc.Media(mime_type="image/png", data=b"dots")]))
    (blob,) = [part.blob for part in picture.parts if isinstance(part, cc.Media)]
    store.edit("a/b", 1, cc.user("Something else?"))
    store.switch("a/b", store.branches("a/b")[0].number)
    store.pin("a/b", 1)
    store.add_todo("a/b", "look")
    for text in ("later", "still later"):
        store.enqueue("a/b", cc.user(text))
    notices = [
        UserNoticeCreated(text="ten calls"),
        CompactionFinished(upto=2, before=9, after=3),
        RetryScheduled(kind="rate", seconds=1.5, attempt=1, error="slowly"),
        ErrorOccurred(kind="internal", error="no"),
    ]
    store.write(lambda tx: turn_records.append_events(tx, load_tip(tx, "a/b").conversation, notices))
    rule = ApprovalRule(id="0123456789ab", tool="pay", allow=True, scope="store")
    store.write(lambda tx: insert_rule(tx, load_tip(tx, "a/b").conversation, rule, None))
    for text in ("look at this", "and this"):
        store.add_note("a/b", text)
    return {
        "rule": rule.id,
        "name": "a/b",
        "channel": life.channel,
        "number": "2",
        "blob": blob or "",
        "file": open_file(client, "export.jsonl", b"\n".join(export_lines(store, "a/b")))["id"],
        "type": "image/png",
        "id": "a/b",
        "code": "ANT001",
        "a": "a/b",
        "b": "a/b",
    }


def filled(path: str, places: dict[str, str]) -> str:
    return "/api" + re.sub(r"\{(\w+)\}", lambda found: quote(places[found[1]], safe=""), path)


def required_query(operation: JSONObject, places: dict[str, str]) -> dict[str, str]:
    parameters = [each for each in operation["parameters"] if each["in"] == "query" and each.get("required")]
    return {each["name"]: places[each["name"]] for each in parameters}


def test_the_server_hands_out_the_document(client: TestClient) -> None:
    """Documented, and true to what the server does."""
    answer = client.get("/api/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == DOCUMENT
    assert answer.json()["openapi"] == "3.1.0"


def test_the_document_is_whole() -> None:
    seen = [operation["operationId"] for _, _, operation in operations("get", "post", "put", "patch", "delete")]
    assert len(seen) == len({*seen}) == len(load_endpoints())
    text = encode(DOCUMENT).decode()
    for reference in {*re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', text)}:
        assert reference in DOCUMENT["components"]["schemas"]
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for path, _, operation in operations("get", "post", "put", "patch", "delete"):
        assert operation["summary"], f"{path} does not say what it is for"
        in_path = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
        assert in_path == re.findall(r"\{(\w+)\}", path)


def test_a_server_with_a_token_is_reported() -> None:
    assert build_document(load_endpoints(), has_token=True)["security"] == [{"bearer": []}, {"cookie": []}]
    assert DOCUMENT["security"] == []


def test_what_is_asked_for_is_answered_as_documented(client: TestClient, places: dict[str, str]) -> None:
    for path, _, operation in [case for case in operations("get") if not goes_on(case)]:
        answers: JSONObject = operation["responses"]
        content = answers["200"]["content"]
        answer = client.get(filled(path, places), params=required_query(operation, places))
        assert str(answer.status_code) in answers, f"{path}: {answer.text}"
        if answer.status_code == 200 and "application/json" in content and content["application/json"]:
            check(answer.json(), content["application/json"]["schema"])
        if answer.status_code == 200 and "*/*" not in content:
            assert answer.headers["content-type"].partition(";")[0] in content, path


def test_what_continues_begins_as_documented(server: Served) -> None:
    server.desk.store.append("a/b", cc.user("hi"))
    asked = [case for case in operations("get") if EVENTS in case[2]["responses"]["200"]["content"]]
    assert asked
    for path, _, operation in asked:
        with httpx.stream("GET", server.url + filled(path, {"name": "a/b", "id": "a/b"}), timeout=120) as answer:
            assert str(answer.status_code) in operation["responses"]
            assert answer.headers.get("content-type", EVENTS).partition(";")[0] == EVENTS


SENT: dict[str, JSONObject] = {
    "/conversations": {"name": "new"},
    "/conversations/{name}/messages": {"text": "hello"},
    "/conversations/{name}/fork": {"name": "copy"},
    "/conversations/{name}/rewind": {"to": 1},
    "/conversations/{name}/edit": {"seq": 1, "text": "x"},
    "/conversations/{name}/switch": {"branch": 1},
    "/conversations/{name}/reset": {},
    "/conversations/{name}/pin": {"seq": 1},
    "/conversations/{name}/unpin": {"seq": 1},
    "/conversations/{name}/cancel": {},
    "/conversations/{name}/steer": {"text": "left"},
    "/conversations/{name}/follow-up": {"text": "then"},
    "/lint": {"body": {"model": "gpt-4o", "messages": []}, "format": "openai_chat"},
    "/fix": {"body": {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}},
    "/convert": {"body": {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}, "target": "anthropic"},
    "/open": {"text": '{"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}'},
}
"""What needs no model to be done."""


@pytest.mark.parametrize("path", SENT)
def test_what_is_done_is_reported_as_documented(client: TestClient, places: dict[str, str], path: str) -> None:
    operation = DOCUMENT["paths"][path]["post"]
    body = SENT[path]
    check(body, operation["requestBody"]["content"]["application/json"]["schema"])
    answer = client.post(filled(path, places), json=body)
    assert str(answer.status_code) in operation["responses"], answer.text
    check(answer.json(), operation["responses"][str(answer.status_code)]["content"]["application/json"]["schema"])


def test_nothing_may_be_sent_where_documented(client: TestClient, places: dict[str, str]) -> None:
    needless = [path for path in SENT if not DOCUMENT["paths"][path]["post"]["requestBody"]["required"]]
    assert "/conversations" in needless
    assert "/conversations/{name}/reset" in needless
    for path in {*needless} - {"/conversations/{name}/messages"}:  # which wants one of two
        assert client.post(filled(path, places)).is_success


def test_deleting_is_reported_as_documented(client: TestClient, places: dict[str, str]) -> None:
    for path, _, operation in sorted(operations("delete"), key=lambda each: -len(each[0])):  # the whole comes last
        answer = client.delete(filled(path, places))
        check(answer.json(), operation["responses"]["200"]["content"]["application/json"]["schema"])


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
def test_bad_input_is_refused_in_the_one_shape_there_is(
    client: TestClient, places: dict[str, str], method: str
) -> None:
    for path, _, operation in operations(method):
        check_bad_input(client, places, path, method, operation)


def check_bad_input(client: TestClient, places: dict[str, str], path: str, method: str, operation: JSONObject) -> None:
    """A refused request changes nothing, so the next one finds the same places."""
    address = filled(path, places)
    if "application/json" in operation.get("requestBody", {}).get("content", {}):
        if operation["requestBody"]["required"]:
            check_refusal(operation, client.request(method, address), 400)
        check_refusal(operation, client.request(method, address, json=STRANGE), 400)
        check_refusal(operation, client.request(method, address, content=b"{}"), 415)
        check_refusal(operation, client.request(method, address, json=[1]), 400)
    if any(each["in"] == "query" for each in operation["parameters"]):
        check_refusal(operation, client.request(method, address, params=cast(Any, STRANGE)), 400)
    nowhere = filled(path, {**dict.fromkeys(places, "nobody"), "number": "1"})
    if method == "get" and "{" in path and "204" not in operation["responses"]:
        check_refusal(operation, client.get(nowhere), 404)
    for schema in [each["schema"] for each in operation["parameters"] if each["in"] == "path"]:
        if schema == {"type": "integer"}:
            check_refusal(operation, client.request(method, filled(path, {**places, "number": "x"})), 400)
    assert client.request("TRACE", address).status_code == 405
