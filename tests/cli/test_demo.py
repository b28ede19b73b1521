"""`contextc demo`: two recordings of one task, their bills and findings, and the web UI."""

import json
import re
import signal
import subprocess
from pathlib import Path

import httpx

import contextc as cc
from contextc.cli.demo import COMPILED, STEP_MS, STEPS, WITH_MISTAKES
from contextc.compiler.past_requests import load_channel_formatter, rebuild
from contextc.inspection.preview import find_channels
from contextc.inspection.raw_reply import find_raw_reply, view_raw_reply
from contextc.inspection.request_timeline import load_timeline
from tests.cli.chat_terminal import home
from tests.cli.conftest import Run
from tests.forked_commands import CommandProcess, read_link

PATIENCE = 180.0


def test_it_shows_what_the_mistakes_cost_and_keeps_both_conversations(run: Run, tmp_path: Path) -> None:
    shown = run("demo", "--no-show")
    assert shown.returncode == 0, shown.stderr
    bills = dict(re.findall(r"(demo-\S+) +\d+ +\d+% +\$([\d.]+)", shown.stdout))
    assert 0 < 3 * float(bills[COMPILED]) < float(bills[WITH_MISTAKES])
    assert "The system prompt changed: it contains the time" in shown.stdout
    costs = [float(each) for each in re.findall(r"^ *\$([\d.]+) +[\d,]+ +[A-Z]{3}\d{3}", shown.stdout, re.MULTILINE)]
    assert costs == sorted(costs, reverse=True)
    assert len(costs) > 3
    assert re.search(r"\d+ findings with 4 causes\.", shown.stdout)
    with cc.open_store(tmp_path / ".local/share/contextc/demo.db") as store:
        found = {each.code for each in cc.findings(store, WITH_MISTAKES)}
        assert {"CAC006", "WIN001", "WIN002", "WIN003"} <= found
        assert not any([code.startswith("FAI") for code in found])
        both = [[(each.role, each.text) for each in store.load(name)] for name in (WITH_MISTAKES, COMPILED)]
        took = [store.load(name)[-1].time - store.load(name)[0].time for name in (WITH_MISTAKES, COMPILED)]
        assert took[0] == took[1] >= len(STEPS) * STEP_MS  # contextc saves money here, not time
        first, second = [load_timeline(store, name) for name in (WITH_MISTAKES, COMPILED)]
        assert first[-1].ended - first[0].began == second[-1].ended - second[0].began  # as the comparison shows it
        assert all([view_raw_reply(find_raw_reply(store, each.channel, each.number)).is_stored for each in first])
        assert len({each.title for each in store.overviews().found}) == 2
    assert both[0] == both[1]
    assert len(both[0]) == 2 * len(STEPS) + 2


def test_the_requests_with_mistakes_are_valid(run: Run, tmp_path: Path) -> None:
    """They are wasteful. A provider would accept each of them."""
    run("demo", "--no-show")
    with cc.open_store(tmp_path / ".local/share/contextc/demo.db") as store:
        (channel,) = find_channels(store, WITH_MISTAKES)
        formatter = load_channel_formatter(store, channel)
        sent = [rebuild(store, channel, formatter, number + 1) for number in range(len(STEPS) + 1)]
    assert [cc.lint(json.loads(body), format="anthropic") for body in sent] == [[]] * len(sent)


def test_the_list_has_the_most_expensive_conversation_first(run: Run) -> None:
    run("demo", "--no-show", "--store", "sqlite:///own.db")
    with_costs = run("list", "--costs", "--store", "sqlite:///own.db").stdout.splitlines()
    assert with_costs[0].split() == ["conversation", "messages", "branches", "cost", "started", "client", "title"]
    shown = [
        (name, float(cost)) for name, cost in re.findall(r"(?m)^ (demo-\S+) .* \$([\d.]+) ", "\n".join(with_costs))
    ]
    assert [name for name, _ in shown] == [WITH_MISTAKES, COMPILED]
    assert shown[0][1] > shown[1][1] > 0
    costs = {
        each["name"]: each["cost"]
        for each in json.loads(run("list", "--costs", "--json", "--store", "sqlite:///own.db").stdout)
    }
    assert costs[WITH_MISTAKES] > costs[COMPILED] > 0
    assert "cost" not in run("list", "--store", "sqlite:///own.db").stdout.splitlines()[0]


def test_a_second_run_shows_the_same_recordings(run: Run) -> None:
    first = run("demo", "--no-show", "--store", "sqlite:///own.db")
    assert run("tour", "--no-show", "--store", "sqlite:///own.db").stdout == first.stdout  # its name before 0.2
    assert f"contextc explain {COMPILED} --store sqlite:///own.db" in first.stdout


def test_changed_recordings_are_an_error_that_says_how_to_record_them_again(run: Run, tmp_path: Path) -> None:
    run("demo", "--no-show", "--store", "sqlite:///own.db")
    with cc.open_store(tmp_path / "own.db") as store:
        store.append(COMPILED, cc.user("And now?"))
    refused = run("demo", "--no-show", "--store", "sqlite:///own.db")
    assert refused.returncode == 2
    fixes = re.findall(r"`contextc (delete \S+ --store \S+)`", refused.stderr)
    assert len(fixes) == 2
    for each in fixes:
        assert run(*each.split(), "--yes").returncode == 0
    assert run("demo", "--no-show", "--store", "sqlite:///own.db").returncode == 0


def test_the_web_ui_shows_them_until_it_is_interrupted(tmp_path: Path) -> None:
    with CommandProcess(
        "demo", "--no-open", cwd=tmp_path, env=home(tmp_path, NO_COLOR="1"), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        line = next(each for each in process.stdout if "only you can read it" in each)
        link = read_link(line)
        address, _, token = link.partition("?token=")
        token, _, place = token.partition("#")
        assert place == f"/c/{WITH_MISTAKES}/inspect"
        with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE) as client:
            found = client.get(f"{address}api/conversations/{WITH_MISTAKES}").json()
        assert found["name"] == WITH_MISTAKES
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
