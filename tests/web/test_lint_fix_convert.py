"""Requests of any origin, linted, fixed and converted over HTTP."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.registry import format_names
from tests.conftest import often
from tests.web.hostile_json import BODY

UNANSWERED: JSONObject = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 100,
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]},
        {"role": "user", "content": "go on"},
    ],
    "tools": [{"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}],
}


def post(client: TestClient, path: str, status: int = 200, **body: object) -> Any:  # JSON
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_what_a_provider_would_refuse_is_found_with_its_own_text(client: TestClient) -> None:
    """Guarantee 10.6: the format is seen from the request."""
    answer = post(client, "lint", body=UNANSWERED)
    assert answer["format"] == "anthropic"
    (found,) = answer["violations"]
    known = cc.lint(UNANSWERED, format="anthropic")[0]
    assert found == {
        "code": known.code,
        "path": known.path,
        "message": known.message,
        "provider": known.error,
        "docs": f"/api/rules/{known.code}",
    }


def test_what_is_broken_is_repaired(client: TestClient) -> None:
    """Guarantee 10.6: and the changes are reported."""
    answer = post(client, "fix", body=UNANSWERED)
    assert answer["body"] == cc.fix(UNANSWERED, format="anthropic")[0]
    assert [each["code"] for each in answer["repaired"]] == ["ANT006"]
    assert answer["repaired"][0]["repair"]
    assert answer["violations"] == []


def test_a_request_is_converted_to_another_format(client: TestClient) -> None:
    """Guarantee 10.6: and losses are reported."""
    answer = post(client, "convert", body=UNANSWERED, target="openai_chat")
    made = cc.convert(UNANSWERED, source="anthropic", target="openai_chat")
    assert (answer["source"], answer["format"]) == ("anthropic", "openai_chat")
    assert answer["body"] == made
    assert answer["warnings"] == made.warnings


def test_a_bare_list_stays_one(client: TestClient) -> None:
    message = post(client, "convert", body=[{"role": "user", "content": "hi"}], target="gemini", source="openai_chat")
    assert message["body"] == [{"role": "user", "parts": [{"text": "hi"}]}]


def test_a_rule_is_explained(client: TestClient) -> None:
    answer = client.get("/api/rules/ant006").json()
    assert answer["code"] == "ANT006"
    assert answer["title"] in answer["text"]
    assert "Repair:" in answer["text"]
    assert client.get("/api/rules/NO999").status_code == 404


@pytest.mark.parametrize("path", ["lint", "fix", "convert"])
def test_what_cannot_be_taken_is_refused_with_a_message(client: TestClient, path: str) -> None:
    """The asker's fault is a 400, never a 500."""
    more: JSONObject = {"target": "openai_chat"} if path == "convert" else {}
    deep: JSON = "x"
    for _ in range(150):
        deep = [deep]
    bodies: list[JSON] = [3, "hi", None, [], {}, {"x": 1}, [[]], {"messages": deep}, [deep]]
    for body in bodies:
        error = post(client, path, 400, body=body, **more)["error"]
        assert error["kind"] == "InvalidRequest", error
    named = "source" if path == "convert" else "format"
    error = post(client, path, 400, body=UNANSWERED, **{**more, named: "perl"})["error"]
    assert "Format 'perl' not found" in error["message"]
    assert post(client, path, 400, body=UNANSWERED, colour="red", **more)["error"]["kind"] == "InvalidRequest"
    assert (
        client.post(f"/api/{path}", content=b"[" * 100_000, headers={"content-type": "application/json"}).status_code
        == 400
    )
    huge = b'{"body": {"messages": [{"role": "user", "content": 1e999}]}}'
    assert client.post(f"/api/{path}", content=huge, headers={"content-type": "application/json"}).status_code == 400


@settings(
    max_examples=often(10, 600),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(body=BODY, format=st.none() | st.sampled_from(format_names()), target=st.sampled_from(format_names()))
def test_nothing_that_is_thrown_at_it_is_our_fault(
    client: TestClient, body: object, format: str | None, target: str
) -> None:
    """What comes from outside is hostile: it is taken or refused, and the server stays sound."""
    for path, more in (
        ("lint", {"format": format}),
        ("fix", {"format": format}),
        ("convert", {"source": format, "target": target}),
    ):
        answer = client.post(f"/api/{path}", json={"body": body, **more})
        assert answer.status_code in (200, 400), (path, answer.text)
