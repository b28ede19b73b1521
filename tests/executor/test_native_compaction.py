"""A compaction that the provider writes on request: Anthropic's `compaction` parameter, OpenAI's `compaction_trigger`.

No recording exists here. The stand-ins refuse what the vendors say they refuse.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from anthropic.types.beta import BetaCompactionConfigParam
from openai.types.responses import ResponseInputParam
from pydantic import TypeAdapter

import contextc as cc
from contextc._json import JSONObject, decode
from contextc.compiler import NativeContext
from contextc.errors import ConversationBusy, InvalidSetting, ProviderFailed
from contextc.events import CompactionFinished, StepStart
from contextc.providers.client import ProviderCall
from contextc.store.ledger_schema import EpochReason, LeftOutReason
from tests.executor.scripted_provider import Line, call, fails, run_turn, says
from tests.providers.test_beta_flags import Listening

OPUS, FLAG = "anthropic:claude-opus-5-5", "compact-2026-09-04"
SUMMARY = "Ann has a boat named Nora."
BLOCK: JSONObject = {"type": "compaction", "content": SUMMARY, "signature": "c2lnbmVk"}


class Anthropic(Listening):
    """Answers a request for a compaction with a block, and others by its script."""

    def __init__(self, *script: Line, block: JSONObject | None = None) -> None:
        super().__init__(*script)
        self.block = block or BLOCK

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        body: JSONObject = decode(call.body)
        _refuse(body, dict(call.headers).get("anthropic-beta", ""))
        if "compaction" not in body:
            async for event in super().stream(call):
                yield event
            return
        self.bodies.append(call.body)
        self.headers.append(dict(call.headers))
        usage = {"input_tokens": 0, "output_tokens": 0}
        iterations = [{"type": "compaction", "input_tokens": 144, "output_tokens": 276}]
        message: JSONObject = {
            "id": "msg_c",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-5-5",
            "content": [],
        }
        yield {"type": "message_start", "message": {**message, "usage": usage}}
        yield {"type": "content_block_start", "index": 0, "content_block": self.block}
        yield {"type": "content_block_stop", "index": 0}
        usage = {**usage, "iterations": iterations}
        yield {"type": "message_delta", "delta": {"stop_reason": "compaction"}, "usage": usage}
        yield {"type": "message_stop"}


def _refuse(body: JSONObject, flags: str) -> None:
    """Refuse what the vendor refuses: see its page on compaction on demand."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    if any(block["type"] == "compaction" for block in blocks[1:]):
        raise fails("invalid", "compaction_block_misplaced", status=400)
    if ("signature" in blocks[0] or "compaction" in body) and FLAG not in flags:
        raise fails("invalid", f"the beta flag {FLAG} is missing", status=400)
    if "compaction" in body:
        excluded = body.keys() & {"context_management", "stop_sequences"}
        if excluded or "format" in body.get("output_config", {}) or body.get("tool_choice", {}).get("type") == "any":
            raise fails("invalid", "not with compaction", status=400)
        if blocks[-1]["type"] == "tool_use":
            raise fails("invalid", "compaction_incomplete_turn", status=400)


class OpenAI(Listening):
    """Answers a request that ends with a trigger with a compaction, and others with a text."""

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        *before, last = decode(call.body)["input"]
        self.bodies.append(call.body)
        if TRIGGER in before:
            raise fails("invalid", "a 'compaction_trigger' item must be the last item of 'input'", status=400)
        text: JSONObject = {"type": "output_text", "text": "Nora.", "annotations": []}
        item: JSONObject = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        item = {"type": "compaction", **SEALED} if last == TRIGGER else {**item, "content": [text]}
        usage = {"input_tokens": 300, "output_tokens": 20, "total_tokens": 320}
        reply = {"id": f"resp_{len(self.bodies)}", "object": "response", "model": "gpt-5.5", "status": "completed"}
        yield {"type": "response.created", "response": {**reply, "status": "in_progress", "output": []}}
        yield {"type": "response.output_item.added", "output_index": 0, "item": item}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield {"type": "response.completed", "response": {**reply, "output": [item], "usage": usage}}


TRIGGER: JSONObject = {"type": "compaction_trigger"}
SEALED: JSONObject = {"id": "cmp_1", "encrypted_content": "c2VhbGVk"}


def look() -> str:
    """Look."""
    return "Three sails."


def executor_of(script: Anthropic, store: cc.Store | None = None, **options: Any) -> cc.AgentExecutor:
    return cc.AgentExecutor(store or cc.open_store("memory:"), OPUS, triggers=(), endpoint=script, **options)


def test_the_next_request_begins_with_the_block_of_the_provider() -> None:
    """The summary is readable in the store, and what it stands for is not sent again."""
    script = Anthropic(says("Nora, then."), says("A jib."))
    executor = executor_of(script)
    run_turn(executor, "My boat is named Nora.")
    done = asyncio.run(executor.compact("demo", instructions="Keep names.", native=True))
    assert done is not None
    assert (done.text, done.upto, done.receipt) == (SUMMARY, 2, None)
    run_turn(executor, "Which sail?")
    asked, after = script.requests[1:]
    assert asked["compaction"] == {"type": "summarize", "instructions": "Keep names."}
    TypeAdapter(BetaCompactionConfigParam).validate_python(asked["compaction"])
    texts = [block["text"] for message in asked["messages"] for block in message["content"]]
    assert texts == ["My boat is named Nora.", "Nora, then."]
    assert after["messages"][0]["content"] == [BLOCK]
    assert "compaction" not in after
    assert [headers.get("anthropic-beta") for headers in script.headers] == [None, FLAG, FLAG]
    record = executor.explain("demo").record
    assert record.why == EpochReason.PROVIDER_COMPACTED
    assert {each.why for each in record.left} == {LeftOutReason.PROVIDER_COMPACTED}
    assert executor.explain("demo", 2).record.remarks == ("left to the provider: a compaction of the conversation",)
    assert [executor.compiler.rebuild("demo", number) for number in (1, 2, 3)] == script.bodies


def test_openai_gets_a_trigger_after_the_messages() -> None:
    """Its block is sealed. Everything before the trigger is the request before, so that it is read from the cache."""
    script = OpenAI()
    executor = cc.AgentExecutor(
        cc.open_store("memory:"), "openai:gpt-5.5", triggers=(), endpoint=script, tools=[look], instructions="Be brief."
    )
    run_turn(executor, "My boat is named Nora.")
    done = asyncio.run(executor.compact("demo", native=True))
    assert done is not None
    assert (done.text, done.upto) == ("", 2)
    run_turn(executor, "What is her name?")
    first, asked, after = script.requests
    assert asked["input"][-1] == TRIGGER
    assert asked["input"][: len(first["input"])] == first["input"]
    assert {name: value for name, value in asked.items() if name != "input"} == {
        name: value for name, value in first.items() if name != "input"
    }
    for request in script.requests:
        TypeAdapter(ResponseInputParam).validate_python(request["input"])
        assert cc.lint(request, format="openai_responses") == []
    assert [item["type"] for item in after["input"] if item.get("type") in ("compaction", "compaction_trigger")] == [
        "compaction"
    ]
    assert "My boat" not in str(after["input"][0])
    assert executor.explain("demo").record.why == EpochReason.PROVIDER_COMPACTED
    assert [executor.compiler.rebuild("demo", number) for number in (1, 2, 3)] == script.bodies


def test_instructions_may_change_after_a_compaction_by_openai() -> None:
    """The head of that request ends with the trigger, which is no part of the instructions."""
    script, store = OpenAI(), cc.open_store("memory:")
    options = cc.CompilerOptions(fetch=False)
    executor = cc.AgentExecutor(
        store, "openai:gpt-5.5", triggers=(), endpoint=script, instructions="Be brief. " * 400, compiler=options
    )
    run_turn(executor, "My boat is named Nora. " * 2_000)
    assert asyncio.run(executor.compact("demo", native=True)) is not None
    store.append("demo", cc.user("What is her name?"))
    compiled = cc.MessageCompiler(store, "openai:gpt-5.5", fetch=False).compile("demo", instructions="Be polite.")
    assert (compiled.system_prompt, compiled.record.why) == ("Be polite.", EpochReason.PROVIDER_COMPACTED)
    assert TRIGGER not in compiled.params["input"]


def test_openai_takes_no_instructions_for_its_compaction() -> None:
    executor = cc.AgentExecutor(cc.open_store("memory:"), "openai:gpt-5.5", triggers=(), endpoint=OpenAI())
    run_turn(executor, "My boat is named Nora.")
    with pytest.raises(InvalidSetting, match="this API takes none for a compaction of its own"):
        asyncio.run(executor.compact("demo", native=True, instructions="Keep names."))


def test_its_cost_and_its_event_are_stored() -> None:
    executor = executor_of(Anthropic(says("Nora, then.")))
    run_turn(executor, "My boat is named Nora.")
    asyncio.run(executor.compact("demo", native=True))
    (event,) = [each for each in executor.store.events("demo") if isinstance(each, CompactionFinished)]
    assert event.cost is not None
    assert event.cost > 0
    usage = executor.store.load("demo")[-1].usage
    assert usage is not None
    assert [(each.kind, each.input, each.output) for each in usage.calls] == [("compaction", 144, 276)]


def test_a_compaction_at_a_threshold_needs_no_summary_of_ours() -> None:
    """The provider has one, so a turn neither writes another nor says that the context was cut."""
    block: JSONObject = {"type": "compaction", "content": SUMMARY}
    opening, *rest = says("Nora, then.").events()
    made: list[JSONObject] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": None}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": SUMMARY}},
        {"type": "content_block_stop", "index": 0},
    ]
    after = [{**event, "index": 1} if "index" in event else event for event in rest]
    script = Anthropic([opening, *made, *after], says("A jib."))
    executor = executor_of(script, compiler=cc.CompilerOptions(native=NativeContext(compact_at=60_000)))
    run_turn(executor, "My boat is named Nora.")
    seen = run_turn(executor, "Which sail?")
    assert len(script.bodies) == 2
    (start,) = [event for event in seen if isinstance(event, StepStart)]
    assert (start.why, start.cut) == (EpochReason.PROVIDER_COMPACTED, False)
    assert block in [each for message in script.requests[1]["messages"] for each in message["content"]]


def test_a_second_compaction_replaces_the_first() -> None:
    script = Anthropic(says("Nora, then."), says("A jib."), says("Of wood."))
    executor = executor_of(script)
    for text in ("My boat is named Nora.", "Which sail?"):
        run_turn(executor, text)
        assert asyncio.run(executor.compact("demo", native=True)) is not None
    run_turn(executor, "And the mast?")
    kinds = [block["type"] for message in script.requests[-1]["messages"] for block in message["content"]]
    assert kinds.count("compaction") == 1


def test_settings_that_the_vendor_refuses_are_left_out_of_that_request() -> None:
    script = Anthropic(says("Nora, then."))
    settings: JSONObject = {"stop_sequences": ["END"], "tool_choice": {"type": "any"}}
    native = cc.CompilerOptions(native=NativeContext(compact_at=60_000))
    executor = executor_of(script, settings=settings, compiler=native, tools=[look])
    run_turn(executor, "My boat is named Nora.")
    assert asyncio.run(executor.compact("demo", native=True)) is not None
    assert script.requests[0]["stop_sequences"] == ["END"]
    names = [[each["name"] for each in request["tools"]] for request in script.requests]
    assert names[0] == names[1]


@pytest.mark.parametrize("waits", ["nothing", "input", "call", "block"])
def test_what_waits_for_an_answer_is_not_compacted_away(waits: str) -> None:
    """A question in a summary would never be answered."""
    script = Anthropic(says("Nora, then."), says("I look.", call(1, "look")))
    executor = executor_of(script)
    executor.store.append("demo", cc.user("My boat is named Nora."))
    if waits != "nothing":
        executor.store.append("demo", cc.assistant("Nora, then."))
    if waits == "input":
        executor.store.append("demo", cc.user("Which sail?"))
    if waits == "call":
        executor.store.append("demo", cc.assistant(tool_calls=[cc.tool_call("c1", "look", {})]))
    if waits == "block":
        assert asyncio.run(executor.compact("demo", native=True)) is not None
    before = len(script.bodies)
    assert asyncio.run(executor.compact("demo", native=True)) is None
    assert len(script.bodies) == before


def test_another_provider_gets_the_messages_and_not_the_block() -> None:
    executor = executor_of(Anthropic(says("Nora, then.")))
    run_turn(executor, "My boat is named Nora.")
    asyncio.run(executor.compact("demo", native=True))
    executor.store.append("demo", cc.user("Which sail?"))
    other = cc.MessageCompiler(executor.store, "openai:gpt-5.5").compile("demo")
    assert [message.text for message in other.messages] == ["My boat is named Nora.", "Nora, then.", "Which sail?"]
    assert [each.why for each in other.record.left] == [LeftOutReason.FOREIGN_COMPACTION]


def test_a_failed_compaction_changes_nothing() -> None:
    """Without a text the block has no effect, so it is not stored."""
    script = Anthropic(says("Nora, then."), says("A jib."), block={"type": "compaction", "content": None})
    executor = executor_of(script)
    run_turn(executor, "My boat is named Nora.")
    with pytest.raises(ProviderFailed, match="the reply has no compaction"):
        asyncio.run(executor.compact("demo", native=True))
    assert len(executor.store.load("demo")) == 2
    run_turn(executor, "Which sail?")
    assert [message["content"][0]["type"] for message in script.requests[-1]["messages"]] == ["text"] * 3


def test_it_waits_for_no_turn() -> None:
    """A turn that runs would go on with a context that is gone."""
    executor = executor_of(Anthropic(says("Nora, then.")))
    run_turn(executor, "My boat is named Nora.")
    with executor.store.lease("demo"), pytest.raises(ConversationBusy):
        asyncio.run(executor.compact("demo", native=True))


def test_a_provider_without_it_says_so() -> None:
    store = cc.open_store("memory:")
    store.append("demo", cc.user("Hello."))
    with pytest.raises(InvalidSetting, match="gemini does not compact a conversation on request"):
        cc.MessageCompiler(store, "gemini:gemini-3-pro").compile_compaction("demo")
