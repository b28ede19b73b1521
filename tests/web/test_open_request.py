"""Pasted requests: detected, counted, linted, and not stored."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import contextc as cc
from contextc._json import JSONObject
from contextc.interchange import export_lines
from tests.conftest import often
from tests.web.hostile_json import BODY
from tests.web.sample_conversations import Life

DATA = Path(__file__).parent.parent / "data"
KINDS = ("system", "tools", "overhead", "dynamic", "history", "new", "reserve", "margin", "free")
CHAT: JSONObject = {
    "model": "gpt-4o",
    "max_completion_tokens": 500,
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "more"},
    ],
    "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}],
}


def opened(client: TestClient, text: str, status: int = 200, **more: object) -> Any:  # JSON
    answer = client.post("/api/open", json={"text": text, **more})
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_request_is_drawn_as_if_it_were_ours(client: TestClient, store: cc.Store) -> None:
    """Guarantee 13.1: for a request of any framework."""
    answer = opened(client, json.dumps(CHAT), name="request.json")
    assert (answer["name"], answer["format"], answer["kind"], answer["model"]) == (
        "request.json",
        "openai_chat",
        "request",
        "gpt-4o",
    )
    budget = answer["budget"]
    assert sum(budget[kind] for kind in KINDS) == budget["window"] == 128_000
    assert budget["reserve"] == 500
    assert budget["how"] == "exact"
    assert answer["tokens"] == budget["system"] + budget["tools"] + budget["used"]
    lines = [(line["kind"], line["role"], line["state"], line["text"]) for line in answer["lines"]]
    assert lines == [
        ("system", "system", "shown", "Be brief."),
        ("message", "user", "shown", "hi"),
        ("message", "assistant", "shown", "hello"),
        ("message", "user", "shown", "more"),
    ]
    assert (budget["new"], budget["history"]) == (0, budget["used"])  # there is no request before it
    assert all(line["cost"] > 0 for line in answer["lines"])
    assert [line["index"] for line in answer["lines"]] == [0, 1, 2, 3]
    assert answer["violations"] == []
    assert answer["body"] == CHAT
    assert store.conversations() == []


def test_findings_are_reported(client: TestClient) -> None:
    """Guarantee 10.6."""
    broken = {**CHAT, "messages": [{"role": "tool", "tool_call_id": "x", "content": "1"}]}
    (found,) = opened(client, json.dumps(broken))["violations"]
    assert found["docs"] == f"/api/rules/{found['code']}"


def test_an_unknown_model_has_no_window(client: TestClient) -> None:
    answer = opened(client, json.dumps({**CHAT, "model": "secret-model"}))
    assert (answer["budget"]["window"], answer["budget"]["free"], answer["budget"]["available"]) == (None, None, None)
    assert answer["model"] == "secret-model"
    assert {line["cost"] for line in answer["lines"]} == {None}


SAID: JSONObject = {"role": "user", "content": "hi"}
SHOWN: JSONObject = {"role": "user", "id": "a", "parts": [{"type": "text", "text": "hi"}]}
CALL: JSONObject = {"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"}
LOGGED: JSONObject = {"url": "https://api.anthropic.com/v1/messages", "body": {"messages": [SAID]}}


@pytest.mark.parametrize(
    ("body", "format", "kind"),
    [
        ({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": "x", "messages": [SAID]}, "anthropic", "request"),
        ({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}, "gemini", "request"),
        ({"model": "gpt-5.2", "input": "hi", "instructions": "x"}, "openai_responses", "request"),
        ([SAID], "openai_chat", "messages"),
        ([{"role": "user", "parts": [{"text": "hi"}]}], "gemini", "messages"),
        ([SHOWN], "vercel", "messages"),
        ({"id": "c", "messages": [SHOWN]}, "vercel", "messages"),
        ([{"type": "message", **SAID}, CALL], "openai_responses", "messages"),
        ({"request": LOGGED, "response": {"status": 500}}, "anthropic", "request"),
    ],
)
def test_the_format_is_seen_from_what_is_in_it(client: TestClient, body: object, format: str, kind: str) -> None:
    """A person pastes what there is, on one line or several."""
    for text in (json.dumps(body), json.dumps(body, indent=2)):
        answer = opened(client, text)
        assert (answer["format"], answer["kind"]) == (format, kind)
        assert any("hi" in line["text"] for line in answer["lines"])


def test_sessions_of_programs_are_transcripts(client: TestClient) -> None:
    for folder, format in (("claude_code", "claude_code"), ("codex", "codex")):
        for path in sorted((DATA / folder).glob("*.jsonl")):
            answer = opened(client, path.read_text(), name=path.name)
            assert (answer["format"], answer["kind"]) == (format, "transcript"), path.name
    answer = opened(client, (DATA / "claude_code" / "transcript-parallel.jsonl").read_text())
    assert answer["model"] == "claude-opus-5-5"
    assert answer["budget"]["window"] == cc.model("claude-opus-5-5").window
    assert any(line["role"] == "tool" for line in answer["lines"])


def test_a_torn_line_is_left_out_and_reported(client: TestClient) -> None:
    """A program may have died while it wrote."""
    text = (DATA / "claude_code" / "transcript-parallel.jsonl").read_text()
    assert opened(client, f'{text}\n{{"type": "user", "mess')["notes"] == ["1 lines cannot be read"]


def test_of_a_log_the_last_request_is_looked_at(client: TestClient) -> None:
    """It holds those before it."""
    logged = [{"request": {**CHAT, "messages": CHAT["messages"][:size]}, "response": {}} for size in (2, 3, 4)]
    answer = opened(client, "\n".join(map(json.dumps, logged)))
    assert (answer["kind"], answer["notes"]) == ("request", ["the last of 3 requests"])
    assert len(answer["body"]["messages"]) == 4
    assert opened(client, json.dumps(logged))["body"] == answer["body"]


LOST: JSONObject = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 100,
    "system": "Be brief.",
    "tools": [{"name": "read", "input_schema": {"type": "object", "properties": {}}}],
    "messages": [
        {"role": "user", "content": "read a"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": {}}]},
        {"role": "user", "content": "well?"},
    ],
}
"""A call whose result was lost."""


def recorded(url: str, body: JSONObject, status: int = 200) -> JSONObject:
    """A call as a browser or a proxy keeps it."""
    request = {"method": "POST", "url": url, "postData": {"mimeType": "application/json", "text": json.dumps(body)}}
    return {"startedDateTime": "2026-11-16T00:00:00Z", "request": request, "response": {"status": status}}


def har(*entries: JSONObject) -> str:
    return json.dumps({"log": {"version": "1.2", "entries": entries}})


ANTHROPIC, OPENAI = "https://api.anthropic.com/v1/messages", "https://api.openai.com/v1/chat/completions"


def test_a_recording_shows_its_requests_each_as_what_it_is(client: TestClient) -> None:
    """Guarantees 10.6, 13.1: by its own format, with its tools, held against its rules; the last, or the one asked
    for.
    """
    text = har(
        recorded(OPENAI, CHAT),
        recorded("https://example.com/page", {"a": 1}),
        recorded(f"{ANTHROPIC}?beta=true", LOST, status=400),
    )
    answer = opened(client, text)
    alone = opened(client, json.dumps(LOST))
    assert (answer["kind"], answer["format"], answer["body"]) == ("request", "anthropic", LOST)
    assert [each["code"] for each in answer["violations"]] == ["ANT006"]
    assert answer["violations"] == alone["violations"]
    assert answer["budget"] == alone["budget"]
    assert answer["budget"]["tools"] > 0
    assert answer["notes"] == ["the last of 2 requests", "the provider returned an error"]
    listed = [(each["number"], each["address"], each["model"], each["messages"]) for each in answer["requests"]]
    assert listed == [(1, OPENAI, "gpt-4o", 4), (2, ANTHROPIC, "claude-sonnet-4-5", 3)]
    assert ([each["failed"] for each in answer["requests"]], answer["chosen"]) == ([False, True], 2)

    first = opened(client, text, request=1)
    assert (first["format"], first["body"], first["violations"], first["chosen"]) == ("openai_chat", CHAT, [], 1)
    assert "request 3 not found" in opened(client, text, 400, request=3)["error"]["message"]


def test_a_recording_without_a_call_of_a_model_is_nothing_to_judge(client: TestClient) -> None:
    """Guarantee 10.6: unchecked content is not reported as valid."""
    assert opened(client, har(recorded("https://example.com/page", {"a": 1})), 400)["error"]["kind"] == "InvalidRequest"


def test_what_python_prints_is_read_and_never_run(client: TestClient, tmp_path: Path) -> None:
    """People copy what their terminal shows them: single quotes, None and True."""
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": 'it\'s "me"\n'},
        {"role": "assistant", "content": None, "tool_calls": (call,)},
    ]
    answer = opened(client, repr(messages))
    assert (answer["format"], answer["kind"]) == ("openai_chat", "messages")
    assert answer["body"] == json.loads(json.dumps(messages))
    assert opened(client, repr({**LOST, "temperature": -0.5e-3, "stream": True}))["violations"][0]["code"] == "ANT006"
    mark = tmp_path / "mark"
    for strange in (
        f"[{{'role': 'user', 'content': open({str(mark)!r}, 'w')}}]",
        f"[__import__('os').system('touch {mark}')]",
        "[" * 3_000 + "'a'" + "]" * 3_000,
        "['a'" + "[0]" * 100_000 + "]",
        "[1" + "-1" * 100_000 + "]",
        "['a'" + "()" * 100_000 + "]",
        "['" + "\\'" * 200_000,
        "[b'a', {'role': 'user'}]",
        "[{1: 2}]",
        "{'a', 'b'}",
    ):
        assert opened(client, strange, 400)["error"]["kind"] == "InvalidRequest"
    assert not mark.exists()


def test_a_model_may_be_named_where_the_request_names_none(client: TestClient) -> None:
    """Guarantee 7.1: Gemini has its model in the address, and a list of messages has none: its window can be asked
    for.
    """
    text = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]})
    assert opened(client, text)["budget"]["window"] is None
    answer = opened(client, text, model="gemini-2.5-pro")
    assert (answer["model"], answer["budget"]["window"]) == ("gemini-2.5-pro", cc.model("gemini-2.5-pro").window)
    assert opened(client, json.dumps(CHAT), model="gemini-2.5-pro")["model"] == "gpt-4o"  # it says so itself


def test_our_own_lines_are_read_and_what_was_removed_stays_so(client: TestClient) -> None:
    """Guarantee 3.8: an export can be looked at anywhere."""
    with cc.open_store("memory:") as other:
        life = Life(other)
        life.turn("the secret is Rumpelstiltskin")
        life.turn("more")
        other.redact("demo", 1)
        text = b"".join(line + b"\n" for line in map(as_bytes, export_lines(other, "demo"))).decode()
    answer = opened(client, text)
    assert (answer["format"], answer["kind"], answer["violations"]) == ("contextc", "messages", [])
    assert answer["judged"] is False  # no provider takes them so, and no rule was asked
    assert [line["text"] for line in answer["lines"]] == ["[removed]", "done", "more", "done"]
    assert "Rumpel" not in json.dumps(answer["lines"])


def as_bytes(line: bytes | str) -> bytes:
    return line.encode() if isinstance(line, str) else line


def test_a_copied_command_is_taken_apart_and_not_run(client: TestClient, tmp_path: Path, store: cc.Store) -> None:
    """What is pasted is data."""
    mark = tmp_path / "mark"
    body = json.dumps({**CHAT, "user": f"$(touch {mark})"})
    quoted = body.replace("'", "'\"'\"'")
    answer = opened(client, f"curl https://api.openai.com/v1/chat/completions \\\n  -H 'a: b' \\\n  -d '{quoted}'")
    assert answer["body"] == json.loads(body)
    assert not mark.exists()
    life = Life(store)
    life.turn('it\'s "me"')
    ours = client.get(f"/api/conversations/demo/requests/{life.channel}/1/body", params={"as": "curl"}).text
    assert opened(client, ours)["format"] == "openai_chat"
    for strange in ("curl 'x", "curl -d @/etc/passwd https://example.com", "curl " + "x" * 2_000_000):
        assert opened(client, strange, 400)["error"]["kind"] == "InvalidRequest"


def test_unknown_content_is_refused_with_a_message(client: TestClient) -> None:
    """Never a 500."""
    for text in (
        "",
        "  \n",
        "hello",
        "[" * 5_000,
        '{"a":' * 3_000,
        "[1, 2]",
        '{"messages": 1e999}',
        "\0",
        "{}",
        "[]",
        "null",
    ):
        assert opened(client, text, 400)["error"]["kind"] == "InvalidRequest"
    for text in ("SQLite format 3\0x", "PK\x03\x04x"):
        assert opened(client, text, 400)["error"]["message"]
    assert opened(client, json.dumps(CHAT), 400, format="perl")["error"]["kind"] == "InvalidSetting"
    assert opened(client, json.dumps(CHAT), 400, colour="red")["error"]["kind"] == "InvalidRequest"


@settings(
    max_examples=often(10, 800),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(values=st.lists(BODY, min_size=1, max_size=3), lines=st.booleans(), cut=st.integers(0, 3))
def test_nothing_that_is_pasted_is_our_fault(client: TestClient, values: list[object], lines: bool, cut: int) -> None:
    """What comes from outside is hostile: it is read or refused, and the server stays sound."""
    text = "\n".join(map(json.dumps, values)) if lines else json.dumps(values if len(values) > 1 else values[0])
    answer = client.post("/api/open", json={"text": text[: len(text) - cut]})
    assert answer.status_code in (200, 400), answer.text


def test_a_long_system_prompt_is_shown_whole(client: TestClient) -> None:
    """The user of an opened request may search for any sentence in it."""
    prompt = "Be brief. " * 100 + "Never guess."
    body = {"model": "gpt-4o", "messages": [{"role": "system", "content": prompt}, {"role": "user", "content": "hi"}]}
    answer = client.post("/api/open", json={"text": json.dumps(body)}).json()
    assert [line["text"] for line in answer["lines"] if line["role"] == "system"] == [prompt]
