"""Findings about a conversation that grows: the same as those about the whole conversation at once."""

from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc.analysis import conversation_costs
from contextc.analysis.conversation_findings import find_all
from contextc.analysis.conversation_loader import AnalysedConversations, load_conversation_view, load_single_request
from contextc.analysis.cost_by_content import compute_composition, compute_costs, compute_run_composition
from contextc.compiler import ledger
from contextc.compiler.manifest import ObservedFacts, record_to_json
from contextc.errors import StoreCorrupt, UnknownConversation
from contextc.inspection.request_timeline import Timeline
from contextc.store.ledger_schema import pack_record
from contextc.store.transaction_engine import Transaction
from tests.analysis.observed_run import ObservedRun, define_tool, find_by_request, words
from tests.analysis.traces import load
from tests.analysis.traces.measure import record
from tests.conftest import often


def check_same(store: cc.Store, analysed: AnalysedConversations, name: str) -> None:
    with analysed.open(name) as view:
        found, costs, composition = find_all(view), compute_costs(view), compute_run_composition(view)
    assert found == find_by_request(store, name)
    assert costs == conversation_costs(store, name)
    assert composition == compute_run_composition(load_conversation_view(store, name))


def test_findings_are_the_same_however_a_trace_is_split() -> None:
    rng = Random(22)
    traces = load("tune")
    for trace in rng.sample(traces, min(len(traces), often(3, len(traces)))):
        store = cc.open_store("memory:")
        analysed = AnalysedConversations(store, limit=100)
        begun: dict[str, None] = {}
        for exchange in trace.exchanges:
            (seen,) = record(store, trace._replace(exchanges=(exchange,)))
            begun[seen.conversation] = None
            if rng.random() < 0.3:
                check_same(store, analysed, rng.choice(list(begun)))
        for name in begun:
            check_same(store, analysed, name)
        store.close()


def make_run(count: int) -> ObservedRun:
    run = ObservedRun(tools=[define_tool("read", 2_000), define_tool("find", 2_000)])
    run.ask("Begin.")
    for number in range(count):
        run.call("read", words(3_000, f"r{number % 3}"), path=f"file{number % 2}")
    return run


def test_requests_that_were_loaded_are_not_loaded_again() -> None:
    run = make_run(6)
    analysed = AnalysedConversations(run.store)
    with analysed.open("run") as view:
        before = list(view.requests)
    run.send()
    with analysed.open("run") as view:
        assert [one is other for one, other in zip(view.requests, before, strict=False)] == [True] * 6
        assert len(view.requests) == 7
    check_same(run.store, analysed, "run")


def test_what_was_read_is_not_read_again() -> None:
    """Only the manifests of new requests are read: damage of the others is not noticed."""
    run = make_run(6)
    analysed = AnalysedConversations(run.store)
    with analysed.open("run"):
        pass
    run.store.write(lambda tx: tx.run("UPDATE main.manifest SET body = ?", b"damaged"))
    with analysed.open("run") as view:
        assert len(view.requests) == 6
    with pytest.raises(StoreCorrupt):
        load_conversation_view(run.store, "run")


def test_a_request_that_an_import_completes_is_read_again() -> None:
    """A transcript is imported while a request has no answer, and again when it has one."""
    run = make_run(3)
    run.fail(529, "Overloaded")
    run.send()
    analysed = AnalysedConversations(run.store)
    timeline = Timeline(run.store, "run")
    assert [each.status for each in timeline.load()].count("ok") == 4
    with analysed.open("run") as view:
        failed = next(each for each in view.requests if each.status != "ok")

    def complete(tx: Transaction) -> None:
        facts = ObservedFacts(status="ok", began=failed.began, ended=failed.ended)
        body = pack_record(record_to_json(replace(failed.record, observed=facts)))
        ledger.replace_manifest(tx, failed.channel_number, failed.number, body)

    run.store.write(complete)
    with analysed.open("run") as view:
        assert [each.status for each in view.requests] == ["ok"] * len(view.requests)
    assert [each.status for each in timeline.load()] == ["ok"] * 5
    check_same(run.store, analysed, "run")


def test_a_redacted_message_is_forgotten() -> None:
    run = make_run(5)
    analysed = AnalysedConversations(run.store)
    check_same(run.store, analysed, "run")
    run.store.redact("run", run.store.load("run")[2].id)
    check_same(run.store, analysed, "run")
    run.send()
    check_same(run.store, analysed, "run")


def test_another_conversation_of_the_same_name_is_analysed_again() -> None:
    run = make_run(4)
    analysed = AnalysedConversations(run.store)
    check_same(run.store, analysed, "run")
    run.store.delete("run")
    with pytest.raises(UnknownConversation), analysed.open("run"):
        pass
    run.send()
    check_same(run.store, analysed, "run")


def test_changed_messages_and_failed_requests() -> None:
    run = make_run(4)
    analysed = AnalysedConversations(run.store)
    for number in range(6):
        if number % 2:
            run.messages[2]["content"][0]["content"] = f"[truncated {number}]"
        if number == 3:
            run.fail(529, "Overloaded")
        run.call("find", words(400, f"f{number}"), path="x")
        check_same(run.store, analysed, "run")


@pytest.mark.parametrize("seed", range(often(2, 20)))
def test_each_kind_of_change_gives_the_findings_of_the_whole_conversation(seed: int, tmp_path: Path) -> None:
    """Requests that only grow, edits, other system prompts, failures, redaction, forks, and writes of another process,
    in any order.
    """
    rng = Random(seed)
    path = tmp_path / "store.db"
    with cc.open_store(path) as store, cc.open_store(path) as other:
        analysed = AnalysedConversations(store)
        run = ObservedRun(tools=[define_tool("read", 2_000), define_tool("find", 2_000)], store=store)
        run.ask("Begin.")
        for number in range(14):
            change = rng.choice(("grow", "grow", "edit", "system", "fail", "redact", "fork"))
            run.store = rng.choice((store, other))
            if change == "edit" and len(run.messages) > 4:
                run.messages[2]["content"][0]["content"] = f"[truncated {number}]"
            elif change == "system":
                run.system = rng.choice(("You help.", f"<system-reminder>It is {number}.</system-reminder>"))
            elif change == "fail":
                run.fail(529, "Overloaded")
            elif change == "redact" and run.conversation:
                run.store.redact("run", rng.choice(run.store.load("run")).id)
            elif change == "fork" and run.conversation:
                run.store.fork("run", f"fork{number}")
                check_same(store, analysed, f"fork{number}")
            run.call(rng.choice(("read", "find")), words(900, rng.choice("abc")), path=rng.choice(("x", "y")))
            check_same(store, analysed, "run")


def test_costs_of_earlier_requests_are_kept() -> None:
    run = make_run(6)
    analysed = AnalysedConversations(run.store)
    with analysed.open("run") as view:
        before = compute_costs(view).requests
    run.send()
    with analysed.open("run") as view:
        after = compute_costs(view).requests
    assert [one is other for one, other in zip(before, after, strict=False)] == [True] * 6
    assert len(after) == 7


def test_only_some_conversations_are_kept() -> None:
    run = make_run(3)
    analysed = AnalysedConversations(run.store, limit=1)
    with analysed.open("run") as view:
        first = view
    with analysed.open("run") as view:
        assert view is first
    with pytest.raises(UnknownConversation), analysed.open("other"):
        pass
    with analysed.open("run") as view:
        assert view is not first


def test_small_losses_add_up_while_a_conversation_grows() -> None:
    run = ObservedRun(tools=[define_tool("read", 900), define_tool("draw", 900)], system=words(12_000, "s"))
    analysed = AnalysedConversations(run.store)
    run.ask("Go.")
    sizes: dict[bool, int] = {}
    for number in range(14):
        run.tools = run.tools[::-1]
        run.cached = sizes.get(number % 2 == 0, 0)
        run.call("read", words(240, f"r{number}x"), path="a.txt")
        sizes[number % 2 == 0] = run.cached
        check_same(run.store, analysed, run.conversation)
    with analysed.open(run.conversation) as view:
        assert any([each.title.endswith("in 12 requests with a small loss each") for each in find_all(view)])


def test_a_single_request_shares_the_parser_unless_it_is_in_use() -> None:
    run = make_run(4)
    analysed = AnalysedConversations(run.store)
    with analysed.open("run") as view, analysed.use_parser("run") as parser:
        last = view.requests[-1]
        other = load_single_request(run.store, last.channel, last.number, parser)
        assert other.request.rows.sections[0] is not last.rows.sections[0]
    with analysed.use_parser("run") as parser:
        same = load_single_request(run.store, last.channel, last.number, parser)
    assert all([one is two for one, two in zip(same.request.rows.sections, last.rows.sections, strict=True)])
    assert compute_composition(same) == compute_composition(other)
    with analysed.open("run") as view:
        assert view.requests[-1] is last
    with pytest.raises(ValueError, match="failed"), analysed.use_parser("run"):
        raise ValueError("failed")
    with analysed.open("run") as view:
        assert view.requests[-1] is not last
