"""Spans and metrics of agents by OpenTelemetry's GenAI conventions: `contextc.telemetry.enable()`.

Nothing is imported and nothing is called before that. Turns, model calls and tools look at `active`, which is None
until then. Content of conversations is in no span unless that is asked for.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from contextc.store import turn_queue

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from contextc.telemetry.recorder import Recorder

__all__ = ["active", "disable", "enable", "is_configured"]

active: "Recorder | None" = None
"""The recorder of spans and metrics; None unless telemetry is enabled."""


def enable(
    *,
    content: bool = False,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
) -> None:
    """Record spans and metrics of all agents in this process, with the program's OpenTelemetry SDK.

    With `content`, spans also have the messages, the definitions of tools, and the arguments and results of calls. The
    providers are the global ones unless given. Raises `InvalidSetting` if opentelemetry-api is not installed.
    """
    from contextc._installed_packages import importing

    global active
    with importing("opentelemetry-api", extra="telemetry"):
        from contextc.telemetry.recorder import Recorder
    active = Recorder(content=content, tracer_provider=tracer_provider, meter_provider=meter_provider)
    turn_queue.carry_trace = active.carry_trace


def disable() -> None:
    """Record nothing from now on. Spans that have begun are ended as they are."""
    global active
    active, turn_queue.carry_trace = None, None


def is_configured() -> bool:
    """Return True if the program has set up an OpenTelemetry SDK, without which nothing is exported."""
    from contextc.telemetry.recorder import has_sdk

    return has_sdk()


def continuing(headers: Mapping[str, Any] | None) -> AbstractContextManager[object]:
    """Return a block whose spans continue the trace of a request or a job, if telemetry is enabled and it has one."""
    return nullcontext() if active is None or not headers else active.continuing(headers)
