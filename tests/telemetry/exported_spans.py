"""What OpenTelemetry's own SDK exports: spans and metrics, in memory."""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import contextc as cc
from contextc.telemetry.recorder import Recorder

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
"""The W3C header of a trace that another program began."""


PATIENCE = 120.0


class Notifying(InMemorySpanExporter):
    """Wakes those that wait for a span of another thread."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self.changed:
            self.changed.notify_all()
            return super().export(spans)


class Exported:
    """What was exported: spans by their names, and metrics by theirs."""

    def __init__(self) -> None:
        self._spans, self._metrics = Notifying(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics])
        self.enable()

    def enable(self, *, content: bool = False) -> None:
        cc.telemetry.enable(content=content, tracer_provider=self.tracers, meter_provider=self.meters)

    @property
    def recorder(self) -> Recorder:
        assert cc.telemetry.active is not None
        return cc.telemetry.active

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def wait_for(self, name: str, count: int) -> list[ReadableSpan]:
        """Return the spans of this name as soon as there are so many."""
        with self._spans.changed:
            assert self._spans.changed.wait_for(lambda: len(self.named(name)) >= count, PATIENCE)
        return self.named(name)

    def metrics(self) -> dict[str, list[Any]]:
        data = self._metrics.get_metrics_data()
        assert data is not None
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}


@contextmanager
def exporting() -> Generator[Exported]:
    """Record in this process, and yield what was exported."""
    try:
        yield Exported()
    finally:
        cc.telemetry.disable()


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def came_from(span: ReadableSpan) -> str:
    """Return the header that this span is a child of."""
    assert span.parent is not None
    return f"00-{span.parent.trace_id:032x}-{span.parent.span_id:016x}-01"
