"""Triggers for high memory and CPU usage, and for the recovery. Off by default.

The model's own work can be the cause (a build, a large file), and it can reduce it. The moment contains the shares;
`read_resources` reads them on first use with psutil (extra `resources`). In a container with a memory limit the share
of that limit is used if it is higher. CPU is the share of all processors since the last reading.
"""

from pathlib import Path

from contextc.errors import InvalidSetting
from contextc.triggers.base import ResourceUsage, ThresholdTrigger, Trigger, TriggerContext, percent

CGROUP = Path("/sys/fs/cgroup")


def memory_trigger(enter: float = 0.85, exit: float = 0.75) -> Trigger:
    return ThresholdTrigger(
        name="memory",
        priority=30,
        value=lambda moment: moment.resources().memory,
        enter=enter,
        exit=exit,
        text=lambda moment: (
            f"Memory warning: {percent(moment.resources().memory)} of this machine's memory is in use. Work in smaller "
            "pieces, start nothing that needs much memory, and end what is no longer needed."
        ),
        title="Memory high",
        exit_text=lambda moment: (
            f"Memory recovered: {percent(moment.resources().memory)} is in use. The earlier memory warning no longer "
            "holds."
        ),
        exit_title="Memory recovered",
    )


def cpu_trigger(enter: float = 0.9, exit: float = 0.7) -> Trigger:
    return ThresholdTrigger(
        name="cpu",
        priority=31,
        value=lambda moment: moment.resources().cpu,
        enter=enter,
        exit=exit,
        text=lambda moment: (
            f"CPU warning: {percent(moment.resources().cpu)} of this machine's processor time is in use. Commands take "
            "longer; run one at a time, and allow for more time."
        ),
        title="CPU high",
        exit_text=_cpu_recovered_text,
        exit_title="CPU recovered",
    )


def _cpu_recovered_text(moment: TriggerContext) -> str:
    return f"CPU recovered: {percent(moment.resources().cpu)} is in use. The earlier CPU warning no longer holds."


def resource_triggers() -> list[Trigger]:
    return [memory_trigger(), cpu_trigger()]


def read_resources(cgroup: Path = CGROUP) -> ResourceUsage:
    """Return the memory and CPU in use now. The first CPU reading in a process is 0, because it has no reference."""
    try:
        import psutil
    except ImportError as error:
        raise InvalidSetting(
            "Cannot read memory and CPU usage: psutil is not installed",
            fix="Run pip install 'contextc[resources]', or omit these triggers.",
        ) from error
    memory = psutil.virtual_memory().percent / 100
    return ResourceUsage(memory=max(memory, _container_memory_share(cgroup)), cpu=psutil.cpu_percent() / 100)


def _container_memory_share(cgroup: Path) -> float:
    """Return the used share of the container's memory limit, without file caches; 0 if there is no limit.

    Without a limit cgroup v2 reports `max`, and v1 a number near 2^63, so the share is about 0.
    """
    for limit_file, used_file, stat_file, cache in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        try:
            limit = (cgroup / limit_file).read_text().strip()
            if not limit.isdigit() or not int(limit):
                continue
            used = int((cgroup / used_file).read_text())
            stat = dict(line.split(maxsplit=1) for line in (cgroup / stat_file).read_text().splitlines())
        except (OSError, ValueError):
            continue
        return min(max(used - int(stat.get(cache, 0)), 0) / int(limit), 1.0)
    return 0.0
