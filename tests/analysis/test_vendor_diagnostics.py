"""What providers say about cache misses in their replies, recorded and compared with our own findings."""

import json
from typing import Any

import pytest

import contextc as cc
from contextc.analysis import Finding, all_codes
from contextc.analysis.cache_model import _load_rules  # pyright: ignore[reportPrivateUsage]
from contextc.cli.findings_report import findings_sarif, print_findings
from contextc.compiler.manifest import record_from_json, record_to_json
from contextc.compiler.prompt_cache import CacheDiagnosis
from contextc.observation.reply_decoding import read_cache_diagnosis
from tests.analysis.observed_run import find_by_request

TOOLS = [{"name": "read", "description": "Read a file. " * 900, "input_schema": {"type": "object"}}]
SYSTEM = "You help with this project, and follow its rules. " * 300
MARK = {"type": "ephemeral"}
Body = dict[str, Any]


def diagnose(reason: str, tokens: int = 5_000) -> Body:
    return {"diagnostics": {"cache_miss_reason": {"type": reason, "cache_missed_input_tokens": tokens}}}


def as_stream(reply: Body) -> str:
    start: Body = {**reply, "content": [], "stop_reason": None}
    block = reply["content"][0]
    events: list[Body] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": block["text"]}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    return "".join([f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events])


def record(store: cc.Store, facts: Body, *, system: str = SYSTEM, number: int = 1, streamed: bool = False) -> Any:
    body: Body = {
        "model": "claude-sonnet-4-5", "max_tokens": 500, "tools": TOOLS,
        "messages": [{"role": "user", "content": "Hi"}],
        "system": [{"type": "text", "text": system, "cache_control": MARK}],
    }  # fmt: skip
    reply = {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"],
        "content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 5, "output_tokens": 5, "cache_creation_input_tokens": 6_500}, **facts,
    }  # fmt: skip
    return cc.observe(
        store, request=body, reply=as_stream(reply) if streamed else reply, conversation="c", format="anthropic",
        time=1_790_000_000_000 + number * 20_000, ended=1_790_000_002_000 + number * 20_000,
    )  # fmt: skip


def find_changed_system(facts: Body, *, streamed: bool = False) -> Finding:
    with cc.open_store("memory:") as store:
        record(store, {"diagnostics": None}, streamed=streamed)
        record(store, facts, system=f"Be brief. {SYSTEM}", number=2, streamed=streamed)
        first, found = find_by_request(store, "c")
    assert (first.vendor, first.vendor_agrees) == ("", None)
    return found


@pytest.mark.parametrize("streamed", [False, True])
def test_a_provider_that_names_the_same_cause(streamed: bool) -> None:
    plain, found = find_changed_system({}), find_changed_system(diagnose("system_changed"), streamed=streamed)
    assert (found.cause, found.vendor, found.vendor_agrees) == ("system_changed", "system_changed", True)
    assert (found.title, found.confidence) == (plain.title, plain.confidence)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_provider_that_names_another_cause(streamed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    plain, found = find_changed_system({}), find_changed_system(diagnose("tools_changed"), streamed=streamed)
    assert (found.cause, found.vendor, found.vendor_agrees) == ("system_changed", "tools_changed", False)
    assert found.title == f"{plain.title}; the provider says: tools_changed"
    assert found.confidence < plain.confidence * 0.6
    print_findings([found], 10, several=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "the provider says: tools_changed (another cause)" in shown
    results: Any = findings_sarif([found])["runs"][0]["results"]
    assert results[0]["properties"]["vendor"] == "tools_changed"


@pytest.mark.parametrize("reason", ["previous_message_not_found", "unavailable", "a_word_of_the_future"])
def test_a_provider_that_names_no_cause(reason: str) -> None:
    plain, found = find_changed_system({}), find_changed_system(diagnose(reason))
    assert (found.vendor, found.vendor_agrees, found.confidence) == (reason, None, plain.confidence)


def test_the_diagnosis_is_a_fact_of_the_request_and_absent_otherwise() -> None:
    with cc.open_store("memory:") as store:
        without = record(store, {"diagnostics": {"cache_miss_reason": None}}).record
        seen = record(store, diagnose("messages_changed", 4_321), number=2).record
    assert (seen.observed.miss_reason, seen.observed.miss_tokens) == ("messages_changed", 4_321)
    assert record_from_json(record_to_json(seen)) == seen
    assert b"miss_" not in record_to_json(without)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "cache_miss", "reason": "input_changed", "cache_missed_tokens": 900}, ("input_changed", 900)),
        ({"type": "cache_hit"}, ("cache_hit", 0)),
        ({"type": "comparison_response_not_found"}, ("comparison_response_not_found", 0)),
        ({"type": "unavailable"}, ("unavailable", 0)),
        ({"type": "cache_miss", "reason": "key sk-123"}, ("", 0)),  # nothing but words is stored
        (None, ("", 0)),
        ([], ("", 0)),
    ],
)
def test_the_diagnosis_of_a_response(given: Any, expected: tuple[str, int]) -> None:
    response: Body = {"object": "response", "output": [], "prompt_cache_diagnostics": given}
    event: Body = {"type": "response.completed", "response": response}
    text = f'data: {{"type":"response.created"}}\n\nevent: x\ndata: {json.dumps(event)}\n\n'
    replies: list[Any] = [response, [{"type": "response.created"}, event], text, text.splitlines()]
    for reply in replies:
        assert read_cache_diagnosis(reply) == CacheDiagnosis(*expected)


def test_a_tool_call_about_diagnostics_is_none() -> None:
    reason = diagnose("tools_changed")
    call = {"type": "tool_use", "id": "a", "name": "report", "input": reason}
    assert read_cache_diagnosis({"content": [call]}) == CacheDiagnosis()
    delta = {"type": "content_block_start", "index": 0, "content_block": call}
    assert read_cache_diagnosis(f"data: {json.dumps(delta)}\n\n") == CacheDiagnosis()


def test_all_reasons_are_mapped_to_causes() -> None:
    rules = {each.rules.name: each.rules for each in _load_rules()}
    causes = {each.cause for each in all_codes()}
    for rule in rules.values():
        assert {each for some in rule.reasons.values() for each in some} <= causes
    assert {*rules["anthropic"].reasons} == {"model_changed", "tools_changed", "system_changed", "messages_changed"}
    assert {*rules["openai"].reasons} == {
        *("cache_hit", "model_changed", "prompt_cache_key_changed", "tools_changed", "text_format_changed"),
        *(
            "reasoning_effort_changed",
            "verbosity_changed",
            "context_compacted",
            "input_changed",
            "service_tier_changed",
        ),
    }
