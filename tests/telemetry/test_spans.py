"""Spans and metrics of agents, as OpenTelemetry's own SDK exports them."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from importlib import import_module
from pathlib import Path
from types import FrameType

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import ProviderFailed
from contextc.providers.client import ProviderCall
from contextc.telemetry import names
from contextc.testing import FakeModel
from tests.telemetry.exported_spans import (
    TRACEPARENT,
    Exported,
    attributes_of,
    came_from,
    exporting,
    id_of,
    parent_of,
)

METRICS = {
    *(names.CLIENT_DURATION, names.FIRST_CHUNK_DURATION, names.AGENT_DURATION, names.TOOL_DURATION),
    names.TOKEN_USAGE,
}


@pytest.fixture
def exported() -> Iterator[Exported]:
    with exporting() as found:
        yield found


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"Sun in {city}."


def test_a_turn_is_a_tree_of_spans(exported: Exported) -> None:
    """Guarantee 25.1: a turn, below it its model calls and tools."""
    seen: list[int] = []

    def look(city: str) -> str:
        """Return the weather of a city."""
        seen.append(trace.get_current_span().get_span_context().span_id)
        return f"Sun in {city}."

    model = FakeModel(cc.tool_call("c1", "look", {"city": "Rome"}), "Sunny.", provider="anthropic:claude-opus-5-5")
    agent = cc.Agent(model, tools=[look], instructions="Be brief.", name="guide")
    agent.run_sync("Weather?", conversation="demo")
    [turn] = exported.named("invoke_agent guide")
    first, second = exported.named("chat claude-opus-5-5")
    [tool] = exported.named("execute_tool look")
    assert len(exported.spans) == 4
    assert (turn.parent, [parent_of(span) for span in (first, second, tool)]) == (None, [id_of(turn)] * 3)
    assert seen == [id_of(tool)]
    assert [span.kind for span in (turn, first, tool)] == [SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL]
    found = attributes_of(turn)
    usage = {name: found.pop(name) for name in (names.INPUT_TOKENS, names.OUTPUT_TOKENS, names.COST)}
    assert usage[names.INPUT_TOKENS] == sum(attributes_of(span)[names.INPUT_TOKENS] for span in (first, second))
    assert found == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-opus-5-5",
        "gen_ai.conversation.id": "demo",
        "gen_ai.agent.name": "guide",
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "contextc.turn": 1,
        "contextc.turn.finish": "stop",
        "contextc.turn.steps": 2,
        "contextc.turn.tool_calls": 1,
    }
    assert attributes_of(tool) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": "demo",
        "gen_ai.agent.name": "guide",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.description": "Return the weather of a city.",
    }


def test_each_of_two_turns_in_a_row_has_its_own_figures(exported: Exported) -> None:
    """Guarantee 25.1: the end of a turn opens the next one if input is queued, and its span has what it did itself."""

    def queue(text: str, context: cc.ToolContext) -> str:
        assert context.store is not None
        context.store.enqueue("demo", cc.user(text), kind="follow-up")
        return "Queued."

    model = FakeModel(cc.tool_call("c1", "queue", {"text": "And?"}), "One.", "Two.")
    cc.Agent(model, tools=[queue]).run_sync("Go.", conversation="demo")
    turns = [attributes_of(span) for span in exported.named("invoke_agent assistant")]
    shown = (names.TURN, names.TURN_STEPS, names.TURN_TOOL_CALLS, names.TURN_FINISH)
    assert [[turn[name] for name in shown] for turn in turns] == [[1, 2, 1, "stop"], [2, 1, 0, "stop"]]


def test_the_turn_of_an_agent_that_is_a_tool_is_below_that_tool(exported: Exported) -> None:
    """Guarantee 25.1: who asked whom is in the trace."""
    expert = cc.Agent(FakeModel("Sun."), name="expert", description="Knows the weather.")
    model = FakeModel(cc.tool_call("c1", "expert", {"task": "Weather?"}), "Sunny.")
    cc.Agent(model, tools=[expert.as_tool()], name="guide").run_sync("Weather?")
    [asked], [answered] = exported.named("execute_tool expert"), exported.named("invoke_agent expert")
    assert parent_of(answered) == id_of(asked)


def test_a_model_call_has_its_epoch_its_shared_prefix_and_why_that_ended(exported: Exported) -> None:
    """Guarantee 25.1: what a prompt cache could read is in the span, and why it could not."""
    model = FakeModel("One.", "Two.", "Three.", provider="anthropic:claude-opus-5-5")
    agent = cc.Agent(model, instructions="Be brief.")
    agent.run_sync("first", conversation="demo")
    agent.run_sync("second", conversation="demo")
    third = agent.run_sync("third", conversation="demo", instructions="Be long.")
    spans = [attributes_of(span) for span in exported.named("chat claude-opus-5-5")]
    assert [span[names.REQUEST] for span in spans] == [1, 2, 3]
    assert [span[names.EPOCH] for span in spans] == [1, 1, 2]
    assert [span.get(names.PREFIX_BREAK) for span in spans][1:] == [None, "system prompt changed"]
    tools = third.manifest.budget.tools  # they precede the system prompt, which changed
    assert spans[1][names.SHARED_TOKENS] > 0
    assert spans[2][names.SHARED_TOKENS] == min(tools, spans[1]["gen_ai.usage.input_tokens"]) > 0
    assert spans[2][names.WINDOW_USED] == third.manifest.record.budget.used
    assert spans[0]["gen_ai.request.max_tokens"] == 8_000
    assert spans[0]["gen_ai.response.finish_reasons"] == ("stop",)


def test_no_content_is_in_a_span_unless_it_is_asked_for(exported: Exported) -> None:
    """Guarantee 25.2: neither in attributes nor in the text of an error."""

    def fail(secret: str) -> str:
        raise ValueError(f"no {secret}")

    def run() -> str:
        calls = cc.tool_call("c1", "fail", {"secret": "SECRET"})
        model = FakeModel(calls, "SECRET answer", cc.errors.ProviderFailed("fake", "invalid", "SECRET refused"))
        agent = cc.Agent(model, tools=[fail], instructions="SECRET instructions")
        agent.run_sync("SECRET question", conversation="demo")
        with pytest.raises(cc.errors.ProviderFailed):
            agent.run_sync("SECRET again", conversation="demo")
        return "".join([span.to_json() for span in exported.spans])

    assert "SECRET" not in run()
    [tool] = exported.named("execute_tool fail")
    assert (tool.status.status_code, attributes_of(tool)["error.type"]) == (StatusCode.ERROR, "tool_error")
    failed = exported.named("chat model")[-1]
    assert (failed.status.status_code, attributes_of(failed)["error.type"]) == (StatusCode.ERROR, "invalid")
    assert attributes_of(exported.named("invoke_agent assistant")[-1])[names.TURN_FINISH] == "error"
    exported.enable(content=True)
    text = run()
    for expected in ("SECRET question", "SECRET instructions", "SECRET answer", "no SECRET", "SECRET refused"):
        assert expected in text
    assert {name for span in exported.spans for name in attributes_of(span)} & names.CONTENT == names.CONTENT


def test_the_name_of_a_tool_that_does_not_exist_is_content(exported: Exported) -> None:
    """The model wrote it, and each one would be a time series of its own."""
    model = FakeModel(cc.tool_call("c1", "the_secret_is_otter", {}), "Done.")
    cc.Agent(model, tools=[weather]).run_sync("Weather?", conversation="demo")
    [span] = exported.named("execute_tool _OTHER")
    assert attributes_of(span)[names.TOOL_NAME] == "_OTHER"
    assert "otter" not in "".join([each.to_json() for each in exported.spans])


def test_our_own_import_reads_the_spans_back(exported: Exported, tmp_path: Path) -> None:
    """Guarantee 25.2: with content, the spans have the conversation, the tools, the usage and the model."""
    exported.enable(content=True)
    model = FakeModel(cc.tool_call("c1", "weather", {"city": "Rome"}), "Sunny.", provider="openai-chat:gpt-4o")
    agent = cc.Agent(model, tools=[weather], instructions="Be brief.")
    agent.run_sync("Weather?", conversation="demo")
    file = tmp_path / "spans.jsonl"
    file.write_text("".join([json.dumps(json.loads(span.to_json())) + "\n" for span in exported.spans]))
    with cc.open_store("memory:") as store:
        summary = cc.interchange.import_files(store, [file])
        [imported] = store.conversations()
        messages = store.load(imported.name)
    assert [(each.role, each.text) for each in messages if each.role in ("user", "assistant")] == [
        ("user", "Weather?"),
        ("assistant", ""),
        ("assistant", "Sunny."),
    ]
    [call] = [call for message in messages for call in message.tool_calls]
    [result] = [result for message in messages for result in message.tool_results]
    assert (call.name, call.arguments, result.text) == ("weather", {"city": "Rome"}, "Sun in Rome.")
    [turn] = exported.named("invoke_agent assistant")
    said = json.loads(attributes_of(turn)[names.OUTPUT_MESSAGES])
    assert said == [{"role": "assistant", "parts": [{"type": "text", "content": "Sunny."}], "finish_reason": "stop"}]
    sent = [attributes_of(span)[names.INPUT_TOKENS] for span in exported.named("chat gpt-4o")]
    assert [each.usage.input for each in messages if each.usage is not None] == sent
    assert (summary.source, summary.refused) == ("opentelemetry", 0)


def test_metrics_have_durations_and_tokens_without_a_series_for_each_conversation(exported: Exported) -> None:
    """Guarantee 25.1."""
    model = FakeModel(cc.tool_call("c1", "weather", {"city": "Rome"}), "Sunny.", provider="anthropic:claude-opus-5-5")
    cc.Agent(model, tools=[weather]).run_sync("Weather?")
    found = exported.metrics()
    assert {*found} == METRICS
    assert [(point.attributes["gen_ai.token.type"], point.count) for point in found[names.TOKEN_USAGE]] == [
        ("input", 2),
        ("output", 2),
    ]
    assert [found[name][0].count for name in (names.CLIENT_DURATION, names.AGENT_DURATION, names.TOOL_DURATION)] == [
        *(2, 1, 1)
    ]
    series = {name for points in found.values() for point in points for name in point.attributes}
    assert not series & {names.CONVERSATION_ID, names.TOOL_CALL_ID, names.REQUEST, names.TURN}


def test_the_time_to_the_first_chunk_is_that_of_the_request_that_was_answered(exported: Exported) -> None:
    """Guarantee 25.1: what follows the first chunk does not count, nor does an attempt that failed."""

    class Slow(FakeModel):
        async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
            async with aclosing(super().stream(call)) as events:
                async for event in events:
                    yield event
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                pass

    failure = ProviderFailed("fake", "transient", "busy", retry_after=0.0)
    cc.Agent(Slow(failure, "Sunny.")).run_sync("Weather?")
    found = exported.metrics()
    ([first], [whole]) = found[names.FIRST_CHUNK_DURATION], found[names.CLIENT_DURATION]
    assert (first.count, whole.count) == (1, 1)
    assert 0 < first.sum <= whole.sum - 0.2
    [span] = exported.named("chat model")
    assert attributes_of(span)[names.TIME_TO_FIRST_CHUNK] == first.sum


def test_a_cancelled_turn_ends_its_spans(exported: Exported) -> None:
    """Guarantee 25.1: a cancellation is no failure of the model."""
    began = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        began.set()
        await asyncio.Event().wait()
        return ""

    async def run() -> str:
        async with cc.Agent(FakeModel(cc.tool_call("c1", "wait", {})), tools=[wait]) as agent:
            turn = agent.executor.start("demo", cc.user("Go."))
            await began.wait()
            turn.cancel()
            return (await turn.wait()).finish

    assert asyncio.run(run()) == "cancelled"
    [tool], [turn] = exported.named("execute_tool wait"), exported.named("invoke_agent assistant")
    assert attributes_of(tool)[names.ERROR_TYPE] == "cancelled"
    assert attributes_of(turn)[names.TURN_FINISH] == "cancelled"
    assert {tool.status.status_code, turn.status.status_code} == {StatusCode.UNSET}


def test_a_trace_that_comes_in_goes_on_in_the_turn(exported: Exported) -> None:
    """Guarantee 25.1: a span that is current when the turn begins is its parent, in this process or in another one."""
    agent = cc.Agent(FakeModel("One.", "Two.", "Three."))
    with cc.telemetry.continuing({"traceparent": TRACEPARENT}):
        agent.run_sync("Go.")
        carried = exported.recorder.carry_trace()
    with cc.telemetry.continuing(carried):
        agent.run_sync("Go.")
    with exported.tracers.get_tracer("web").start_as_current_span("GET /"), cc.telemetry.continuing(carried):
        agent.run_sync("Go.")
    first, second, third = exported.named("invoke_agent assistant")
    [web] = exported.named("GET /")
    assert [came_from(first), came_from(second)] == [TRACEPARENT] * 2
    assert carried == {"traceparent": TRACEPARENT}
    assert parent_of(third) == id_of(web)


def test_telemetry_that_is_off_calls_nothing() -> None:
    """Guarantee 25.3: a step costs no function call more than without this package."""
    called: set[str] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and Path(frame.f_code.co_filename).parent.name == "telemetry":
            called.add(frame.f_code.co_name)

    agent = cc.Agent(FakeModel(cc.tool_call("c1", "weather", {"city": "Rome"}), "Sunny."), tools=[weather])
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        agent.run_sync("Weather?")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert called == set()


def test_names_are_those_of_the_conventions() -> None:
    """The installed package has the values of the registry. A name that changes there shows up here."""
    registry = vars(import_module("opentelemetry.semconv._incubating.attributes.gen_ai_attributes"))
    known = {value for name, value in registry.items() if name.startswith("GEN_AI_")}
    ours = {value for value in vars(names).values() if isinstance(value, str) and value.startswith("gen_ai.")}
    assert (ours | {*names.SETTINGS.values()}) - METRICS <= known
    metrics = vars(import_module("opentelemetry.semconv._incubating.metrics.gen_ai_metrics"))
    known_metrics = [value for name, value in metrics.items() if name.startswith("GEN_AI_")]
    assert {names.CLIENT_DURATION, names.FIRST_CHUNK_DURATION, names.TOKEN_USAGE} <= {*known_metrics}


def test_a_process_that_does_not_ask_for_it_imports_nothing() -> None:
    """Guarantee 25.3."""
    program = (
        "import sys, contextc as cc\nfrom contextc.testing import FakeModel\n"
        "cc.Agent(FakeModel('Hi.')).run_sync('Hello.')\n"
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry', 'contextc.telemetry.recorder'))]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
