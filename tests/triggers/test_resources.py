"""Triggers for memory and CPU of the machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from contextc.triggers import ResourceUsage, TriggerContext, read_resources, resource_triggers
from tests.triggers.run_triggers import Play


def moment(step: int, *, memory: float = 0.1, cpu: float = 0.1) -> TriggerContext:
    return TriggerContext(step=step, resources=lambda: ResourceUsage(memory=memory, cpu=cpu))


def test_memory_warns_once_and_reports_when_it_is_over() -> None:
    """Guarantee 11.5: enter and exit texts."""
    play = Play(resource_triggers())
    course = [0.5, 0.85, 0.99, 0.75, 0.74, 0.84]
    texts = [[message.text for message in play.at(moment(step, memory=share))] for step, share in enumerate(course, 1)]
    assert texts == [
        [],
        [
            "Memory warning: 85 % of this machine's memory is in use. Work in smaller pieces, start nothing that needs "
            "much memory, and end what is no longer needed."
        ],
        [],
        [],
        ["Memory recovered: 74 % is in use. The earlier memory warning no longer holds."],
        [],
    ]


def test_cpu_warns_once_and_reports_when_it_is_over() -> None:
    """Guarantee 11.5."""
    play = Play(resource_triggers())
    course = [0.9, 1.0, 0.7, 0.69]
    leads = [play.lead(moment(step, cpu=share)) for step, share in enumerate(course, 1)]
    assert leads == [["CPU warning"], [], [], ["CPU recovered"]]


def test_both_may_fire_at_once() -> None:
    assert Play(resource_triggers()).lead(moment(1, memory=0.9, cpu=0.95)) == ["Memory warning", "CPU warning"]


def test_a_moment_without_resources_is_a_failure_that_explains_how_to_give_them() -> None:
    """Guarantee 11.3."""
    play = Play(resource_triggers())
    assert play.at(TriggerContext()) == play.at(TriggerContext(step=2)) == []
    assert [name for name, _ in play.failures] == ["memory", "cpu"]
    assert "read_resources" in play.failures[0][1]


def test_without_psutil_the_failure_is_reported_once_with_the_way_out() -> None:
    """Guarantees 11.3, 15.1."""
    code = """
import sys
sys.modules["psutil"] = None
from contextc.triggers import TriggerContext, evaluate_triggers, memory_trigger, read_resources
first = evaluate_triggers([memory_trigger()], TriggerContext(resources=read_resources), {})
second = evaluate_triggers([memory_trigger()], TriggerContext(step=2, resources=read_resources), first.states)
print(first.failures, second.failures)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("psutil is not installed. Run pip install 'contextc[resources]'") == 1
    assert done.stdout.endswith(") ()\n")


def test_triggers_are_loaded_without_psutil_and_without_an_event_loop() -> None:
    code = "import sys, contextc as cc; cc.default_triggers(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "contextc.triggers" in loaded
    assert not {"psutil", "asyncio", "sqlite3"} & set(loaded)


def test_the_machine_is_read_as_shares(tmp_path: Path) -> None:
    pytest.importorskip("psutil")
    read = read_resources(tmp_path)
    assert 0 < read.memory <= 1
    assert 0 <= read.cpu <= 1


@pytest.mark.parametrize("version", [1, 2])
def test_in_a_container_the_share_of_its_limit_counts_without_file_caches(tmp_path: Path, version: int) -> None:
    pytest.importorskip("psutil")
    limit, used, stat, cache = (
        ("memory.max", "memory.current", "memory.stat", "inactive_file")
        if version == 2
        else (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file",
        )
    )
    (tmp_path / "memory").mkdir()
    (tmp_path / limit).write_text("1000\n")
    (tmp_path / used).write_text("1199\n")
    (tmp_path / stat).write_text(f"anon 7\n{cache} 200\n")
    assert read_resources(tmp_path).memory == 0.999


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n", "0\n", "what\n"])
def test_a_container_without_a_limit_counts_as_the_machine(tmp_path: Path, limit: str) -> None:
    pytest.importorskip("psutil")
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text("1\n")
    (tmp_path / "memory.stat").write_text("")
    read = read_resources(tmp_path).memory
    assert abs(read - read_resources(tmp_path / "nothing").memory) < 0.1
