"""Tool calls within a reply, of the provider and ours: the rules for all tools apply."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import ProviderFailed
from contextc.events import StepFinish, ToolFailed, ToolFinished, ToolStart, TurnFinish, UsageReport
from contextc.messages import ToolCall, find_open_calls
from contextc.providers.client import ProviderCall
from tests.executor.scripted_provider import run_turn
from tests.executor.scripted_tool_provider import TURN, Program, agent, answered, asked, ended, said, used


async def run(call: ProviderCall, name: str, tool: str = "look") -> str:
    """What the program does to have a tool of ours run."""
    assert call.host is not None
    result = await call.host.run(ToolCall(id=name, name=tool, arguments={"thing": "it"}))
    return result.text


def shape(store: cc.Store) -> list[str]:
    return [f"{message.role} {message.status}" for message in store.load("demo")]


def test_a_call_that_may_have_run_is_reported_to_the_model_after_a_cancel(store: cc.Store) -> None:
    """Guarantees 3.6, 9.8: finished calls stay, and the next request reports them."""

    was_read = asyncio.Event()

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        yield said("I deploy.")
        yield asked("call_1", "deploy")
        if number == 1:
            was_read.set()
            await asyncio.sleep(60)
        yield answered("call_1", "done", "deploy")

    async def work() -> None:
        turn = executor.start("demo", "Deploy it.")
        await asyncio.wait_for(was_read.wait(), 60)
        turn.cancel()
        await turn.wait()

    executor, _ = agent(store, script)
    asyncio.run(work())
    assert shape(store) == ["user sent", "assistant sent", "tool sent"]
    assert "while this tool was running" in store.load("demo")[2].tool_results[0].text
    store.append("demo", cc.user("Go on."))
    items = executor.compiler.compile("demo").params["items"]
    assert [item["type"] for item in items] == ["userMessage", "agentMessage", "dynamicToolCall", "userMessage"]


def test_a_reply_that_ends_with_a_result_is_whole(store: cc.Store) -> None:
    """Guarantee 2.2: a model may have nothing more to say."""

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        yield asked("call_1")
        yield answered("call_1", "seen")
        yield ended()

    executor, _ = agent(store, script)
    run_turn(executor, "Go.")
    assert shape(store) == ["user sent", "assistant sent", "tool sent", "assistant sent"]
    assert store.load("demo")[-1].finish == "stop"
    store.append("demo", cc.user("And?"))
    assert executor.compiler.compile("demo").mode == "resume"


LINES: list[JSONObject] = [
    {
        "type": "assistant",
        "session_id": "S",
        "message": {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "peek", "input": {}}]},
    },
    {
        "type": "user",
        "session_id": "S",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "seen"}]},
    },
]
TURN_FAILED: JSONObject = {"id": TURN, "status": "failed", "error": {"message": "used up", "codexErrorInfo": "other"}}


@pytest.mark.parametrize("runs_tools", [True, False])
@pytest.mark.parametrize(
    ("format", "events", "kind", "text"),
    [
        (
            "claude_code",
            [*LINES, {"type": "result", "subtype": "error_max_turns", "is_error": True}],
            "abort",
            "error_max_turns",
        ),
        (
            "codex",
            [asked("t1"), answered("t1", "seen"), {"method": "turn/completed", "params": {"turn": TURN_FAILED}}],
            "transient",
            "used up",
        ),
    ],
    ids=["claude code", "codex"],
)
def test_a_reply_that_fails_after_a_result_reports_the_programs_own_error(
    store: cc.Store, format: str, events: list[JSONObject], kind: str, text: str, runs_tools: bool
) -> None:
    """Guarantee 9.8: the call and its result are stored, and the next request has them once."""
    provider = cc.provider("prog:m", format=format, window=9_000, session_resumption=True, runs_tools=runs_tools)

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        for event in events:
            yield event

    executor = cc.AgentExecutor(store, provider, endpoint=Program(script, starts=format == "codex"), triggers=())

    async def work() -> cc.executor.TurnResult:
        return await executor.start("demo", "Go.").wait()

    error = asyncio.run(work()).error
    assert isinstance(error, ProviderFailed)
    assert (error.kind, text in str(error)) == (kind, True)
    assert shape(store) == ["user sent", "assistant sent", "tool sent"]
    store.append("demo", cc.user("And?"))
    body = executor.compiler.compile("demo").body
    assert (body.count(b"seen"), body.count(b"Go.")) == (1, 1)


def test_an_error_that_an_own_client_yields_is_the_error_of_the_turn(store: cc.Store) -> None:
    """Guarantee 11.11: by the rules of its format, so it is not sent again if that cannot help."""
    provider = cc.provider("own:m", format="anthropic", window=9_000)

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        yield {"type": "error", "error": {"type": "invalid_request_error", "message": "This is wrong."}}

    program = Program(script, starts=False)
    executor = cc.AgentExecutor(store, provider, endpoint=program, triggers=())

    async def work() -> cc.executor.TurnResult:
        return await executor.start("demo", "Go.").wait()

    error = asyncio.run(work()).error
    assert isinstance(error, ProviderFailed)
    assert (error.kind, error.said, len(program.calls)) == ("invalid", "This is wrong.", 1)


def test_a_program_that_is_not_marked_as_one_may_end_with_a_result(store: cc.Store) -> None:
    """Guarantee 2.2: its answer is empty, as that of a provider with `runs_tools`."""
    provider = cc.provider("prog:m", format="claude_code", window=9_000, session_resumption=True)

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        for event in (*LINES, {"type": "result", "subtype": "success", "session_id": "S", "is_error": False}):
            yield event

    executor = cc.AgentExecutor(store, provider, endpoint=Program(script, starts=False), triggers=())

    async def work() -> cc.executor.TurnResult:
        return await executor.start("demo", "Go.").wait()

    result = asyncio.run(work())
    assert (result.finish, result.text, result.error) == ("stop", "", None)
    assert shape(store) == ["user sent", "assistant sent", "tool sent", "assistant sent"]


def test_a_tool_still_running_at_the_end_of_the_reply_has_a_result(store: cc.Store) -> None:
    """Guarantee 5.3: the session knows the call, so it is not sent again."""

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        yield asked("call_1", "watch")
        yield said("It runs in the background.")
        yield ended()

    executor, program = agent(store, script)
    run_turn(executor, "Go.")
    messages = store.load("demo")
    assert not list(find_open_calls(messages))
    assert "still running" in messages[2].tool_results[0].text
    store.append("demo", cc.user("And?"))
    assert [item["type"] for item in executor.compiler.compile("demo").params["items"]] == ["userMessage"]
    assert len(program.calls) == 1


def test_our_tools_keep_to_the_limit_of_calls(store: cc.Store) -> None:
    """Guarantee 11.2: a limit holds for every caller."""
    ran: list[str] = []

    def look(thing: str) -> str:
        """Look."""
        ran.append(thing)
        return "seen"

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        for name in ("call_1", "call_2", "call_3"):
            yield asked(name)
            yield answered(name, await run(call, name))
        yield said("Done.")
        yield ended()

    executor, _ = agent(store, script, tools=[look], limits=cc.Limits(tool_calls=2))
    events = run_turn(executor, "Go.")
    assert len(ran) == 2
    assert "limit of tool calls" in store.load("demo")[-2].tool_results[0].text
    assert [event.id for event in events if isinstance(event, ToolStart)] == ["call_1", "call_2"]
    assert [event.id for event in events if isinstance(event, ToolFinished)] == ["call_1", "call_2"]
    assert [event.id for event in events if isinstance(event, ToolFailed)] == ["call_3"]


def test_tools_that_may_not_run_side_by_side_do_not(store: cc.Store) -> None:
    at_work, most = 0, 0

    @cc.tool(parallel=False)
    async def look(thing: str) -> str:
        """Look."""
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.02)
        at_work -= 1
        return "seen"

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        names = ("call_1", "call_2")
        for name in names:
            yield asked(name)
        found = await asyncio.gather(*(run(call, name) for name in names))
        for name, text in zip(names, found, strict=True):
            yield answered(name, text)
        yield said("Done.")
        yield ended()

    executor, _ = agent(store, script, tools=[look])
    run_turn(executor, "Go.")
    assert most == 1


def test_a_call_after_which_a_tool_of_ours_ran_is_not_made_again(store: cc.Store) -> None:
    """Guarantee 11.2: a retry would run it twice."""
    ran: list[str] = []

    def look(thing: str) -> str:
        """Look."""
        ran.append(thing)
        return "seen"

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        await run(call, "call_1")
        raise ProviderFailed("codex", "transient", "the line was cut")
        yield ended()

    executor, program = agent(store, script, tools=[look])
    with suppress(ProviderFailed):
        run_turn(executor, "Go.")
    assert (len(ran), len(program.calls)) == (1, 1)


def test_a_step_counts_all_calls_that_its_provider_made(store: cc.Store) -> None:
    """Guarantees 6.2, 13.1: the sum is what it took; the last one is how full the context is."""

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        yield asked("call_1")
        yield answered("call_1", "seen")
        yield used(100, 5)
        yield said("Done.")
        yield used(200, 7)
        yield ended()

    executor, _ = agent(store, script)
    events = run_turn(executor, "Go.")
    (report,) = [event for event in events if isinstance(event, UsageReport)]
    (step,) = [event for event in events if isinstance(event, StepFinish)]
    (turn,) = [event for event in events if isinstance(event, TurnFinish)]
    for event in (report, step, turn):
        assert event.usage is not None
        assert (event.usage.input, event.usage.output) == (300, 12)
    assert report.used < 300
    assert store.steps("demo", 1)[0].usage == step.usage


def test_a_request_that_a_hook_has_changed_is_what_the_program_gets(store: cc.Store) -> None:
    """Guarantees 11.8, 13.2: what is stored is what was sent."""

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        yield said("Done.")
        yield ended()

    def bare(request: JSONObject, step: int) -> JSONObject:
        return {name: value for name, value in request.items() if name != "developerInstructions"}

    executor, program = agent(store, script, instructions="Be brief.", on_prepare_messages=bare)
    run_turn(executor, "Go.")
    assert "developerInstructions" not in program.calls[0].full_request()
    told_again, other = agent(store, script, instructions="Be brief.")
    run_turn(told_again, "Go.")
    run_turn(told_again, "Go.")
    assert other.calls[-1].session
    assert b"Be brief." not in other.calls[-1].body
    assert other.calls[-1].full_request()["developerInstructions"] == "Be brief.", (
        "a program that starts anew is told it"
    )


def test_an_agent_is_not_asked_for_summaries(store: cc.Store) -> None:
    """A transcript may say anything, and an agent has tools: a digest is made in place of a summary."""

    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        yield said("Done. " + "word " * 2_000)
        yield ended()

    executor, program = agent(store, script, max_input_tokens=3_000)
    for number in range(3):
        run_turn(executor, f"Question {number}. " + "word " * 500)
    done = asyncio.run(executor.compact("demo"))
    assert done is not None
    assert all(call.conversation == "demo" for call in program.calls)
