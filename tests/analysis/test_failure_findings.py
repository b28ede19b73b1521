"""Findings about requests that failed or would fail."""

import json
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc.analysis import Finding
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.failure_findings import (
    broken_rules,
    compiler_remarks,
    failed_requests,
    retried_requests,
)
from contextc.analysis.finding import get_code
from contextc.compiler import NativeContext
from contextc.compiler.manifest import ProxyAction
from contextc.interchange import import_files
from contextc.interchange.input_files import InputFile
from contextc.testing import FakeModel
from tests.analysis.observed_run import ObservedRun, define_tool


def find(run: ObservedRun, function: object) -> list[Finding]:
    view = load_conversation_view(run.store, run.conversation)
    return list(function(view))  # type: ignore[operator]


def test_an_answered_request_breaks_no_rule() -> None:
    """Guarantee 17.7: a provider's answer is evidence, and a rule that says otherwise is out of date."""
    run = ObservedRun(tools=[define_tool("read")])
    run.messages.append({"role": "user", "content": "Read.", "new_field": 1})
    run.send({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}, stop="tool_use")
    assert cc.lint(run.body(), format="anthropic") != []
    assert find(run, broken_rules) == []
    run.ask("Never mind.")
    run.fail(400, "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1.")
    (found,) = find(run, broken_rules)
    assert "toolu_1" in found.title, "the field was accepted before, so it is not the reason"


def test_what_lint_reported_of_an_answered_request_is_no_finding() -> None:
    """Guarantee 17.7: the reports of earlier recordings count neither."""
    run = ObservedRun()
    run.ask("Hello.")
    action = ProxyAction(rule="lint", codes={"ANT026": 1}, changes=("ANT026 messages[0]",))
    reply = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hi."}]}
    seen = cc.observe(run.store, request=run.body(), reply=reply, status=200, actions=[action])
    run.conversation = seen.conversation
    assert find(run, broken_rules) == []


def test_what_the_proxy_repaired_is_a_broken_rule() -> None:
    run = ObservedRun()
    run.ask("Hello.")
    action = ProxyAction(rule="fix", codes={"ANT001": 1}, changes=("ANT001 repaired",))
    reply = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": run.model, "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Hi."}], "usage": {"input_tokens": 10, "output_tokens": 5},
    }  # fmt: skip
    seen = cc.observe(run.store, request=run.body(), reply=reply, format="anthropic", actions=[action])
    run.conversation = seen.conversation
    (found,) = find(run, broken_rules)
    assert found.title.startswith("ANT001: ")
    assert find(run, compiler_remarks) == []


def test_a_request_without_a_recorded_reply_is_no_failure() -> None:
    run = ObservedRun()
    run.ask("Hello.")
    run.conversation = cc.observe(run.store, request=run.body(), format="anthropic").conversation
    assert find(run, failed_requests) == []
    cc.observe(run.store, request=run.body(), format="anthropic", time=1_000, ended=61_000)  # a broken connection
    (found,) = [*find(run, failed_requests), *find(run, retried_requests)]
    assert "no answer" in found.title


@pytest.mark.parametrize("status", [{"status": 400}, {}])
def test_an_error_of_bedrock_in_a_log_has_its_text(status: dict[str, int], tmp_path: Path) -> None:
    request: dict[str, Any] = {
        "messages": [{"role": "user", "content": [{"text": "hello"}]}],
        "system": [],
        "inferenceConfig": {},
    }
    error = "The provided model identifier is invalid."
    (found,) = find_in_log(tmp_path, {**status, "request": request, "reply": {"message": error}})
    assert found.title == f"1 request failed with: {'400 ' if status else ''}{error}"


def test_a_count_of_tokens_in_a_log_is_no_failure(tmp_path: Path) -> None:
    request = {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "Hello."}]}
    usage = {"input_tokens": 8, "output_tokens": 2}
    reply = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hi."}], "usage": usage}
    counted: dict[str, Any] = {"request": request, "reply": {"input_tokens": 8}}
    answered: dict[str, Any] = {"request": {**request, "max_tokens": 99}, "reply": {**reply, "stop_reason": "end_turn"}}
    assert find_in_log(tmp_path, counted, answered) == []


def find_in_log(directory: Path, *entries: dict[str, Any]) -> list[Finding]:
    """Return failures in a log with some entries."""
    path = directory / "log.jsonl"
    path.write_text("\n".join([json.dumps(each) for each in entries]))
    store = cc.open_store("memory:")
    summary = import_files(store, [InputFile(path)])
    assert not summary.left_out
    views = [load_conversation_view(store, each.name) for each in store.conversations()]
    return [found for view in views for find in (failed_requests, retried_requests) for found in find(view)]


def test_a_failed_turn_was_sent_again_only_if_it_was_resumed() -> None:
    """The next input is another request, though it has the same number."""
    boom = ConnectionError("boom")
    agent = cc.Agent(FakeModel("a", boom, "b", boom, "c", provider="anthropic:claude-opus-5-5"))
    agent.run_sync("one", conversation="demo")
    for find, goes_on in (
        (failed_requests, lambda: agent.run_sync("three", conversation="demo")),
        (retried_requests, lambda: agent.resume_sync("demo")),
    ):
        with pytest.raises(ConnectionError, match="boom"):
            agent.run_sync("two", conversation="demo")
        goes_on()
        (found,) = find(load_conversation_view(agent.store, "demo"))
        assert found.title.startswith("1 request")


def test_remarks_are_findings() -> None:
    store = cc.open_store("memory:")
    store.append("chat", cc.user("Hello."))
    store.append("chat", cc.Message(role="tool", parts=(cc.ToolResult(call_id="lost", name="read", content="x"),)))
    store.append("chat", cc.user("Go on."))
    compiler = cc.MessageCompiler(store, model="anthropic:claude-sonnet-4-5")
    compiled = compiler.compile("chat")
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant("Done."))
    view = load_conversation_view(store, "chat")
    (found,) = compiler_remarks(view)
    assert found.code == "FAI005"
    assert "lost" in found.title
    assert found.evidence[0].request == 1


def test_remarks_on_what_was_asked_for_are_no_findings() -> None:
    """The manifest has them. In a list of things to do they would hide the others."""
    store = cc.open_store("memory:")
    store.append("chat", cc.user("Hello."))
    native = NativeContext(compact_at=150_000)
    compiler = cc.MessageCompiler(store, model="anthropic:claude-opus-5-5", native=native)
    compiled = compiler.compile("chat")
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant("Done."))
    assert compiler.explain("chat").record.remarks == ("left to the provider: compact_at=150000",)
    assert list(compiler_remarks(load_conversation_view(store, "chat"))) == []


def test_causes_and_codes_are_registered() -> None:
    names = ("rule_broken", "retried_request", "truncated_answer", "failed_request", "compiler_remark")
    for number, cause in enumerate(names, 1):
        assert get_code(f"FAI00{number}").cause == cause
        assert "Recognised:" in get_code(cause).description
