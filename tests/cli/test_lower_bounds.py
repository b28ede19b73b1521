"""Costs with an unknown factor: the terminal never shows them as the whole bill."""

import json
from pathlib import Path

import pytest

import contextc as cc
from contextc.cli.chat.terminal import render_meter
from contextc.cli.watch import describe_request
from tests.cli.conftest import Run
from tests.test_billing import anthropic, record


@pytest.fixture
def bounded(tmp_path: Path) -> str:
    """A store with a conversation of two requests, one of them from a region of unknown price."""
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        record(store, anthropic(), anthropic(inference_geo="mars"))
    return address


def test_tables_and_json_say_that_it_cost_at_least_that(run: Run, bounded: str) -> None:
    """A figure that may be too low must not be read as a bill, by people or by scripts."""
    shown = run("findings", "c", "--costs", "--store", bounded)
    assert "c: at least $0.0150" in shown.stdout
    (costs,) = json.loads(run("findings", "c", "--costs", "--json", "--store", bounded).stdout)["costs"]
    assert costs["cost_is_lower_bound"]
    requests = run("explain", "c", "--requests", "--store", bounded).stdout
    assert requests.count("$0.0075") == 2
    assert requests.count("at least $0.0075") == 1


def test_the_lines_of_watch_and_chat_say_it_too(tmp_path: Path) -> None:
    """They are what most people see of a cost."""
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        body = {"model": "claude-opus-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        seen = cc.observe(store, request=body, reply=anthropic(inference_geo="mars"), format="anthropic")
        assert "at least $0.0075" in describe_request(seen)
    assert "at least $0.0075" in render_meter(1, 2, cost=0.0075, cost_is_lower_bound=True).plain
    assert "at least" not in render_meter(1, 2, cost=0.0075).plain
