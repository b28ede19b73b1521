"""One calibration per channel: that of the last request that its provider measured. What was not measured is estimated
by it, and what failed counts as nothing that the provider has.
"""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.inspection.prefix_break import has_lost_cache
from contextc.inspection.request_timeline import load_timeline
from contextc.sharing.shared_html import collect_shared_data
from contextc.store.ledger_schema import channel_id
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from tests.analysis.observed_run import ObservedRun, define_tool, words


@pytest.fixture
def run() -> ObservedRun:
    """A run whose provider counts half of what we count, and whose last request failed twice."""
    run = ObservedRun(tools=[define_tool("read", 400), define_tool("draw", 3_000)], system=words(2_000, "s"))
    run.ask("Read the log.")
    run.call("read", words(8_000), path="huge.log")
    run.send()
    run.ask(words(3_000, "q"))
    run.send()
    run.ask("One more.")
    run.fail(529, "Overloaded")
    run.fail(529, "Overloaded")
    return run


@pytest.fixture
def client(run: ObservedRun, tmp_path: Path) -> TestClient:
    options = ServerOptions(root=tmp_path, model="replay:none.jsonl")
    return TestClient(create_application(run.store, options), base_url="http://127.0.0.1:8377")


def preview(client: TestClient, run: ObservedRun, **query: object) -> Any:
    with client:
        channel = channel_id(load_timeline(run.store, "run")[0].channel)
        given = {"channel": channel, **{name: str(value) for name, value in query.items()}}
        answer = client.get("/api/conversations/run/next", params=given)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_failed_request_is_estimated_by_the_last_measured_one(run: ObservedRun) -> None:
    """By our own count alone, it would have twice the tokens of the request before it, which has nearly the same."""
    *_, measured, failed, again = load_timeline(run.store, "run")
    size, after = measured.record.corrected_budget, failed.record.corrected_budget
    assert size.measured
    assert not after.measured
    assert measured.record.budget.input > 2 * size.input, "our own count differs much"
    assert size.input < after.input < size.input + 40
    assert after.input == again.record.corrected_budget.input
    assert (after.system, after.tools) == (size.system, pytest.approx(size.tools, abs=2))
    shared = collect_shared_data(run.store, "run").requests
    assert [(each.size, each.input) for each in shared[-2:]] == [(after.input, None)] * 2


def test_a_preview_counts_like_the_requests_before_it(run: ObservedRun, client: TestClient) -> None:
    """After a failure, and in a new epoch too: system prompt and tools as well as messages."""
    *_, measured, failed, _ = load_timeline(run.store, "run")
    size = measured.record.corrected_budget
    after = preview(client, run)
    assert after["budget"]["input"] == failed.record.corrected_budget.input
    assert after["budget"]["how"] == "estimated"
    edited = preview(client, run, edit=1, text="Read it.")
    assert edited["why"], "a new epoch"
    assert edited["budget"]["system"] == pytest.approx(size.system, abs=2)
    assert edited["budget"]["tools"] == pytest.approx(size.tools, abs=2)


def test_only_what_was_answered_can_be_lost(run: ObservedRun, client: TestClient) -> None:
    """The provider refused the last request, so its cache has nothing of what that one added."""
    *_, measured, _, _ = load_timeline(run.store, "run")
    cost = preview(client, run, edit=1, text="Read it.")["cost"]
    cached = measured.record.corrected_budget.input
    assert cached - 10 <= cost["cached_lost"] + cost["cached_kept"] <= cached
    assert cost["cached_lost"] > 6_000
    assert preview(client, run)["cost"]["cached_lost"] == 0


def test_tokens_beyond_every_factor_stay_those_of_the_program() -> None:
    """A transcript lacks tools and system prompt. A failed request has them, too, as the measured one before it."""
    store = cc.open_store("memory:")
    body: dict[str, Any] = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
    }
    usage = {"input_tokens": 17_000, "output_tokens": 5}
    said = {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}
    reply = {"id": "m", "type": "message", "model": body["model"], "stop_reason": "end_turn", "usage": usage, **said}
    cc.observe(store, request=body, reply=reply, format="anthropic", conversation="c", time=1_000)
    body["messages"] += [said, {"role": "user", "content": "And now?"}]
    cc.observe(
        store, request=body, reply={"error": {"message": "no"}}, status=529, format="anthropic", conversation="c"
    )
    first, failed = [each.record.corrected_budget for each in load_timeline(store, "c")]
    assert first.input == 17_000
    assert failed.overhead == first.overhead == 17_000 - first.messages
    assert first.messages < failed.messages < 40


def test_a_request_that_was_read_from_the_cache_has_lost_nothing() -> None:
    """Also if the request before it reported no usage: it began an epoch, and 99 % of it were cached."""
    run = ObservedRun(system=words(6_000, "s"))
    run.ask("Hello.")
    run.fail(529, "Overloaded")
    run.system = words(6_000, "t")
    usage = {"input_tokens": 20, "cache_read_input_tokens": 9_000, "cache_creation_input_tokens": 0, "output_tokens": 5}
    reply: dict[str, Any] = {
        "id": "m", "type": "message", "role": "assistant", "model": run.model, "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Hi."}], "usage": usage,
    }  # fmt: skip
    cc.observe(run.store, request=run.body(), reply=reply, format="anthropic", conversation="run", time=2_000_000)
    first, second = [each.record for each in load_timeline(run.store, "run")]
    assert second.why
    assert has_lost_cache(first, [])
    assert not has_lost_cache(second, [first])
