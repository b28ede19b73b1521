"""`contextc findings` as a process: tables, JSON, SARIF, threshold, files."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc.cli.watch import print_most_expensive
from contextc.models.model_info import CacheFigures
from contextc.proxy.proxy_status import TrafficSummary
from contextc.sharing.shared_html import collect_shared_data
from contextc.testing import FakeModel
from tests.analysis.observed_run import ObservedRun, define_tool, words
from tests.analysis.test_session_starts import TEXT, anthropic, record
from tests.cli.conftest import Run


@pytest.fixture
def filled(tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        run = ObservedRun(tools=[define_tool("read"), define_tool("draw", 3_000)], store=store)
        run.ask("Read the log.")
        run.fail(529, "Overloaded")
        run.call("read", words(8_000), path="huge.log")
        for number in range(4):
            run.call("read", f"line {number}", path=f"{number}.txt")
        run.send()
        store.append("own", cc.user("hi"))
    return address


def test_the_findings_of_a_conversation_are_a_table(run: Run, filled: str) -> None:
    shown = run("findings", "run", "--store", filled, "--costs")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    codes = [word for line in lines for word in line.split() if word in ("CAC001", "WIN001", "WIN002", "FAI002")]
    assert sorted(codes[:2]) == ["WIN001", "WIN002"]  # the most expensive first
    assert codes[2:] == ["FAI002"]  # and none for the first request
    assert "A result of read (huge.log) has" in shown.stdout
    assert "→" not in shown.stdout  # nothing changed
    assert "fix: Let the tool return less" in shown.stdout
    assert "3 findings with 3 causes. Costs of different causes can overlap, so they are not added up." in lines
    assert "tool definition: draw" in shown.stdout
    assert "rewrite factor 1.0 (1.0 is ideal)" in shown.stdout


def test_a_request_without_an_answer_has_the_number_that_people_know(run: Run, tmp_path: Path) -> None:
    """Not the one under which it is kept. `explain` and the web UI have the same."""
    address = f"sqlite:///{tmp_path}/chat.db"
    agent = cc.Agent(FakeModel("fine", ValueError("boom"), provider="anthropic:claude-opus-5-5"), store=address)
    agent.run_sync("one", conversation="demo")
    with pytest.raises(ValueError, match="boom"):
        agent.run_sync("two", conversation="demo")
    shown = [run("findings", *more, "--store", address).stdout for more in (["demo"], [], ["demo", "--sarif"])]
    assert "FAI004  2 (failed)  1 request failed with: boom" in shown[0]
    assert "most: unknown cost in demo, request 2 (failed)" in shown[1]
    assert "requests[2]" in shown[2]
    found = json.loads(run("findings", "demo", "--json", "--store", address).stdout)["findings"]
    (place,) = [place for each in found if each["code"] == "FAI004" for place in each["evidence"]]
    assert place["would_be"] == 2
    failed = run("explain", "demo", str(place["request"]), "--store", address).stdout
    assert "demo: request 2 (failed) for" in failed
    assert "(estimated)" in failed, "the provider reported nothing"
    assert run("explain", "demo", "2", "--failed", "--store", address).stdout == failed
    missing = run("explain", "demo", "1", "--failed", "--store", address)
    assert "'demo' has no failed request 1. Failed requests: 2." in missing.stderr
    agent = cc.Agent(FakeModel("later", provider="anthropic:claude-opus-5-5"), store=address)
    agent.run_sync("three", conversation="demo")
    table = run("explain", "demo", "--requests", "--store", address).stdout.splitlines()
    assert [re.split(" {2,}", line.strip())[0] for line in table[2:5]] == ["1", "2 (failed)", "2"]
    with cc.open_store(address) as store:
        shared = collect_shared_data(store, "demo")
    assert [(each.number, each.status) for each in shared.requests] == [(1, "ok"), (2, "unanswered"), (2, "ok")]


def test_the_findings_of_a_store_are_grouped_by_cause(run: Run, filled: str) -> None:
    shown = run("findings", CONTEXTC_STORE=filled)
    assert "Tools were sent in every request and never called" in shown.stdout
    assert "3 findings in 2 conversations." in shown.stdout
    data = json.loads(run("findings", "--json", CONTEXTC_STORE=filled).stdout)
    assert {each["code"] for each in data["causes"]} == {"WIN001", "WIN002", "FAI002"}
    assert data["unreadable"] == []


def test_sessions_that_begin_differently_are_a_cause_of_the_store(run: Run, tmp_path: Path) -> None:
    """Also for a log of one-shot requests, in which each line is a session."""
    address, lines = f"sqlite:///{tmp_path}/jobs.db", list[str]()
    with cc.open_store(address) as store:
        for number in range(4):
            body = anthropic(f"It is 12:0{number}. {TEXT}")
            record(store, number, body)
            asked = {**body, "messages": [{"role": "user", "content": f"Job {number}"}]}
            usage = {"input_tokens": 10, "cache_creation_input_tokens": 9_000, "output_tokens": 3}
            reply = {"role": "assistant", "content": [{"type": "text", "text": "ok"}], "usage": usage}
            time = f"2026-11-17T12:0{number}:00Z"
            lines.append(
                json.dumps({"request": asked, "response": reply, "time": time, "conversation": f"job{number}"})
            )
    shown = " ".join(run("findings", "--store", address).stdout.split())
    assert "USE003 Each session begins differently" in shown
    assert "4 of 4 sessions begin with a system prompt of their own: it contains the time" in shown
    assert "system[0].text: It is 12:00." in shown, "the table of one session does not have it"
    assert "fix: Move the time to the end" in shown
    assert "1 finding in 4 conversations." in shown
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    (found,) = [
        each for each in json.loads(run("findings", "log.jsonl", "--json").stdout)["findings"]
        if each["code"] == "USE003"
    ]  # fmt: skip
    assert (found["sessions"], found["evidence"][0]["path"]) == (4, "system[0].text")
    assert run("findings", "--store", address, "--threshold", "0.1").returncode == 1


def test_expected_cache_reads_are_beside_reported_ones(run: Run, clocked: str) -> None:
    shown = run("findings", "run", "--cache", "--store", clocked).stdout
    assert "expected  reported  cause" in shown
    data = json.loads(run("findings", "run", "--json", "--cache", "--store", clocked).stdout)
    (reads,) = data["cache"]
    missed = [each for each in reads["requests"] if each["cause"] == "system_changed"]
    assert len(missed) == 5
    assert all(each["expected"] <= each["reported"] < each["possible"] for each in missed)
    assert reads["requests"][0]["cause"] == "first_request"
    few = run("findings", "run", "--cache", "--limit", "2", "--store", clocked).stdout
    assert "The last 2 of 6 requests." in few


def test_json_has_all_findings_and_costs(run: Run, filled: str) -> None:
    data = json.loads(run("findings", "run", "--json", "--costs", "--store", filled).stdout)
    assert {each["code"] for each in data["findings"]} == {"CAC001", "WIN001", "WIN002", "FAI002"}
    (costs,) = data["costs"]
    assert sum(each["cost"] for each in costs["lines"]) == pytest.approx(costs["cost"])
    assert len(costs["requests"]) == 7


def test_sarif_has_rules_and_results(run: Run, filled: str) -> None:
    log: Any = json.loads(run("findings", "run", "--sarif", "--store", filled).stdout)
    assert log["version"] == "2.1.0"
    (made,) = log["runs"]
    rules = made["tool"]["driver"]["rules"]
    assert {each["ruleId"] for each in made["results"]} == {each["id"] for each in rules}
    for result in made["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        (location,) = result["locations"]
        assert location["physicalLocation"]["artifactLocation"]["uri"] == "contextc:conversation/run"
        assert result["properties"]["conversation"] == "run"
    large = next(each for each in made["results"] if each["ruleId"] == "WIN002")
    name = large["locations"][0]["logicalLocations"][0]["fullyQualifiedName"]
    assert name == "requests[3].messages[2].content[0]"


def test_lint_has_sarif_too(run: Run, tmp_path: Path) -> None:
    body = {"messages": [{"role": "tool", "tool_call_id": "a", "content": "1"}, {"role": "user", "content": "hi"}]}
    (tmp_path / "a request.json").write_text(json.dumps(body))
    shown = run("lint", "a request.json", "--format", "openai_chat", "--sarif")
    assert shown.returncode == 1
    (made,) = json.loads(shown.stdout)["runs"]
    (result,) = made["results"]
    assert (result["ruleId"], result["level"]) == ("OAC007", "error")
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a%20request.json"
    assert made["tool"]["driver"]["rules"][0]["id"] == "OAC007"


def test_what_if_prints_what_other_ways_would_have_cost(run: Run, filled: str) -> None:
    shown = run("findings", "run", "--what-if", "--compact-at", "3000", "--store", filled)
    assert shown.returncode == 0, shown.stderr
    assert "paid; the cache model predicts $" in shown.stdout
    assert "Do not send the tools that were never called" in shown.stdout
    assert "not replayed: compact (system prompt, tools and a summary have " in shown.stdout
    (found,) = json.loads(run("findings", "run", "--what-if", "--json", "--store", filled).stdout)["what_if"]
    assert {each["name"] for each in found["replays"]} == {"drop_tools", "long_lifetime"}
    assert set(found["skipped"]) == {"compact"}
    assert run("findings", "run", "--compact-at", "3000", "--store", filled).returncode == 2


def test_a_threshold_sets_the_exit_code(run: Run, filled: str) -> None:
    for arguments in (["run"], []):
        assert run("findings", *arguments, "--threshold", "0.001", "--store", filled).returncode == 1
        assert run("findings", *arguments, "--threshold", "100", "--store", filled).returncode == 0


def test_a_file_is_analysed_without_a_store(run: Run, filled: str, tmp_path: Path) -> None:
    """Guarantee 17.5."""
    assert run("export", "run", "--format", "har", "-o", "run.har", "--store", filled).returncode == 0
    stored = json.loads(run("findings", "run", "--json", "--store", filled).stdout)["findings"]
    shown = run("findings", "run.har", "--json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)["findings"]
    assert [(each["code"], each["tokens"], each["cost"]) for each in found] == [
        (each["code"], each["tokens"], pytest.approx(each["cost"])) for each in stored
    ]
    assert not (tmp_path / ".local").exists()  # nothing was stored


def test_wrong_calls_are_explained(run: Run, filled: str, tmp_path: Path) -> None:
    (tmp_path / "log.har").write_text("{}")
    mixed = run("findings", "log.har", "run", "--store", filled)
    assert (mixed.returncode, "cannot be mixed" in mixed.stderr) == (2, True)
    assert run("findings", "run", "--json", "--sarif", "--store", filled).returncode == 2
    assert run("findings", "nope", "--store", filled).returncode == 2
    empty = run("findings", "own", "--store", filled)
    assert (empty.returncode, empty.stdout) == (0, "no findings\n")
    assert "No recorded request to analyse" in empty.stderr


def test_watch_names_what_cost_most(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    with cc.open_store(filled) as store:
        recorded = {("run", each.channel, number) for each in cc.findings(store, "run") for number in range(1, 8)}
    print_most_expensive(TrafficSummary(requests=7, conversations={"run": 7}, recorded=recorded), filled)
    line = " ".join(capsys.readouterr().err.split())
    assert line.startswith("cost most: ")
    assert line.endswith(f"more: contextc findings run --store {filled}")
    print_most_expensive(TrafficSummary(requests=1, conversations={"gone": 1}), filled)
    print_most_expensive(TrafficSummary(), filled)
    assert capsys.readouterr().err == ""


def test_the_rewrite_factor_is_per_conversation_and_model() -> None:
    figures = CacheFigures()
    assert (figures.rewrite_factor, figures.cache_share) == (None, None)
    for number in range(3):
        figures.add("a", "m", input=100, cache_read=0 if not number else 50, cache_write=100 if not number else 50)
    figures.add("b", "m", input=100, cache_read=0, cache_write=0)  # cache writes are not reported
    assert figures.rewrite_factor == (200 + 100) / 200
    assert figures.cache_share == 100 / 400


@pytest.fixture
def clocked(tmp_path: Path) -> str:
    """Return a store with a conversation that loses its cache five times by a clock in its system prompt."""
    address = f"sqlite:///{tmp_path}/clock.db"
    with cc.open_store(address) as store:
        run = ObservedRun(store=store)
        for minute in range(6):
            run.system = f"It is 12:0{minute}. {words(6_000, 's')}"
            run.cached = 0  # nothing could be read
            run.ask(f"Question {minute}.")
            run.send()
    return address


def test_repeated_misses_are_one_row_and_one_sum(run: Run, clocked: str) -> None:
    shown = run("findings", "run", "--store", clocked)
    assert shown.stdout.count("CAC006") == 1
    assert "5 times: requests 2, 3, 4, 5, 6" in shown.stdout
    assert "5 findings with 1 cause." in shown.stdout
    data = json.loads(run("findings", "run", "--json", "--store", clocked).stdout)["findings"]
    costs = [each["cost"] for each in data if each["code"] == "CAC006"]
    assert len(costs) == 5
    between = str((max(costs) + sum(costs)) / 2)  # no finding costs as much, but all together cost more
    assert run("findings", "run", "--threshold", between, "--store", clocked).returncode == 1
    assert run("findings", "run", "--threshold", str(sum(costs) * 1.01), "--store", clocked).returncode == 0


def test_a_limit_applies_to_causes(run: Run, filled: str) -> None:
    shown = run("findings", "--limit", "1", "--store", filled)
    assert "… and 2 more causes (--limit, or --json for all)" in shown.stdout


def test_several_conversations_have_a_total(run: Run, filled: str) -> None:
    shown = run("findings", "--costs", "--what-if", "--store", filled)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("all 2 conversations: $") == 2
    assert "own: " not in shown.stdout  # it has no requests
    assert "own: " in run("findings", "own", "--costs", "--store", filled).stdout


def test_conversations_of_a_log_have_stable_names_and_lines(run: Run, tmp_path: Path) -> None:
    lines: list[str] = []
    for text in ("One", "Two"):
        body = {"model": "claude-sonnet-4-5", "max_tokens": 5, "messages": [{"role": "user", "content": text}]}
        lines.append(json.dumps({"status": 529, "request": body, "reply": {"message": f"{text} failed"}}))
    (tmp_path / "my log.jsonl").write_text("\n".join(lines))
    first, second = (json.loads(run("findings", "my log.jsonl", "--json").stdout)["findings"] for _ in range(2))
    assert first == second
    found = sorted((each["conversation"], each["place"].rpartition(", ")[2]) for each in first)
    assert found == [("my-log-1", "line 1"), ("my-log-2", "line 2")]
    shown = run("findings", "my log.jsonl").stdout
    assert "2 findings with 1 cause in 2 conversations." in shown
    assert "in my-log-2 · " in shown
    (tmp_path / "one.jsonl").write_text(lines[0])
    (only,) = json.loads(run("findings", "one.jsonl", "--json").stdout)["findings"]
    assert only["conversation"] == "one"


def test_missing_and_unknown_files_are_explained(run: Run, filled: str, tmp_path: Path) -> None:
    missing = run("findings", "missing.jsonl", "--store", filled)
    assert missing.returncode == 2
    assert "Neither a file nor a conversation of the store has the name 'missing.jsonl'" in missing.stderr
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    unknown = run("findings", "x.jsonl")
    assert unknown.returncode == 2
    assert "cannot be recognised" in unknown.stderr
    assert "--from" not in unknown.stderr
