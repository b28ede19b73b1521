"""Invalid arguments of an executor raise an error before a turn begins and before anything is stored."""

import asyncio
import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any, get_type_hints

import pytest

import contextc as cc
from contextc.compiler.draft import CompilerOptionArguments, CompilerOptions
from contextc.errors import InvalidInput, InvalidSetting, UnknownConversation
from contextc.events import AnyEvent, TextDelta, TurnFinish
from contextc.executor.agent_config import AgentConfig, AgentOptions
from contextc.messages import ToolCall
from tests.conftest import without_addresses
from tests.executor.scripted_provider import SONNET, Say, Scripted, add, call, kinds, played, run_turn, says


def executor(
    store: cc.Store, *lines: Say, triggers: Iterable[cc.Trigger] | None = (), **options: Any
) -> cc.AgentExecutor:
    line = Scripted(*lines or [says("well")])
    return cc.AgentExecutor(store, SONNET, endpoint=line, triggers=triggers, **options)


def given(store: cc.Store, what: object) -> list[str]:
    """What the conversation holds after a turn with this input."""
    run_turn(executor(store), what)  # pyright: ignore[reportArgumentType]
    return [f"{message.role} {message.text}" for message in store.load("demo")]


# ── input ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "what", ["hello", ["hello"], cc.user("hello"), [cc.user("hello")], ("hello",)], ids=lambda each: type(each).__name__
)
def test_input_is_a_text_a_message_or_a_list_of_either(store: cc.Store, what: object) -> None:
    """Guarantee 15.1."""
    assert given(store, what) == ["user hello", "assistant well"]


def test_a_system_message_may_come_with_the_input(store: cc.Store) -> None:
    """Guarantee 11.6."""
    assert given(store, [cc.system("Mind the gap."), "hello"])[:2] == ["system Mind the gap.", "user hello"]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ([], "must not be an empty list"),
        (123, "or a list of them, got int"),
        (b"x", "got bytes"),
        ([1], "a string or a Message, got int"),
        ({"role": "user"}, "got dict"),
        ("", "the message is empty"),
        (" \n", "the message is empty"),
        (cc.assistant("I am the model."), "role must be .*, got 'assistant'"),
        (cc.tool_result("c1", "add", "3"), "role must be .*, got 'tool'"),
    ],
    ids=str,
)
def test_invalid_input_is_refused_and_nothing_is_stored(store: cc.Store, what: object, said: str) -> None:
    """Guarantee 15.1: also by those that make it wait, which take one message."""

    async def refused() -> None:
        agent = executor(store)
        with pytest.raises(InvalidInput, match=said):
            agent.start("demo", what)  # pyright: ignore[reportArgumentType]
        for queue in (agent.steer, agent.follow_up):
            with pytest.raises(InvalidInput):
                await queue("demo", what)  # pyright: ignore[reportArgumentType]
            with pytest.raises(InvalidInput, match="got NoneType"):
                await queue("demo", None)  # pyright: ignore[reportArgumentType]

    asyncio.run(refused())
    assert store.conversations() == []


@pytest.mark.parametrize("wait", [-1, "x", True, math.nan])
async def test_how_long_to_wait_is_a_number_of_seconds(store: cc.Store, wait: float) -> None:
    """Guarantee 15.1."""
    with pytest.raises(InvalidInput, match="wait must be"):
        executor(store).start("demo", "hello", wait=wait)
    with pytest.raises(InvalidInput, match="wait must be"):
        executor(store).resume("demo", wait=wait)


def test_a_turn_without_an_event_loop_raises_an_error(store: cc.Store) -> None:
    """Guarantee 15.1."""
    with pytest.raises(InvalidInput, match=r"inside an async function that asyncio\.run"):
        executor(store).start("demo", "hello")


@pytest.mark.parametrize("after", ["x", -1, 1.5, True])
def test_events_are_asked_for_by_number(store: cc.Store, after: int) -> None:
    """Guarantee 15.1."""
    run_turn(executor(store))
    with pytest.raises(InvalidInput, match="after must be"):
        executor(store).watch("demo", after=after)
    with pytest.raises(InvalidInput, match="after must be an integer"):
        store.events("demo", after=after)


# ── options ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def later(_: object, __: object) -> bool:
    return True


def one(_: object) -> bool:
    return True


def several(*_: object) -> bool:
    return True


WRONG: list[tuple[dict[str, object], str]] = [
    ({"tools": 5}, "5 is not a tool"),
    ({"triggers": cc.default_triggers}, "triggers must be a list of triggers, got function. Call it"),
    ({"triggers": 5}, "triggers must be a list of triggers, got int"),
    ({"limits": 5}, "limits must be a cc.Limits, got int"),
    ({"limits": {"steps": 5}}, "limits must be a cc.Limits, got dict"),
    ({"endpoint": "x"}, "endpoint must be a client .*, got str"),
    ({"on_prepare_messages": 1}, "on_prepare_messages must be callable, got int"),
    ({"on_prepare_messages": one}, r"on_prepare_messages\(request, step\)"),
    ({"should_continue": 1}, "should_continue must be callable, got int"),
    ({"should_continue": later}, "should_continue must be a synchronous function"),
    ({"approve": 1}, "approve must be callable, got int"),
    ({"approve": one}, r"approve\(call, tool\)"),
    ({"summarize": "foo"}, "summarize must be .*, got 'foo'"),
    ({"summarize": 1}, "summarize must be callable, got int"),
    ({"summarize": one}, r"summarize\(messages, previous\)"),
    ({"resources": one}, r"resources\(\)"),
    ({"lease_seconds": 0}, "lease_seconds must be .*, got 0"),
    ({"lease_seconds": math.nan}, "lease_seconds must be .*, got nan"),
    ({"instructions": 5}, "instructions must be a text, a prompt fragment, a function, or a list of them, got int"),
    ({"settings": [1]}, "settings must be a dict, got list"),
    ({"max_input_tokens": "much"}, "max_input_tokens must be .*, got 'much'"),
    ({"name": ""}, "agent name must be .* got ''"),
    ({"bogus": 1}, "no option 'bogus'. Its options are tools, instructions, name, triggers, .*, compiler"),
    ({"high": 0.9}, r"no option 'high'. It is one of the compiler's: pass compiler=cc.CompilerOptions\(high=…\)"),
    ({"system_prompt": "x"}, "no option 'system_prompt'. Pass instructions=… instead"),
    ({"compiler": {"high": 0.9}}, "compiler must be a cc.CompilerOptions, got dict"),
    ({"compiler": cc.CompilerOptions(high=7)}, "low=0.7, high=7"),
]
RIGHT: list[dict[str, object]] = [
    {"tools": add},
    {"tools": None},
    {"tools": {"plus": add}},
    {"triggers": None},
    {"limits": None},
    {"approve": later},
    {"approve": several},
    {"summarize": None},
    {"should_continue": several},
    {"compiler": cc.CompilerOptions(strategy="oldest")},
]


@pytest.mark.parametrize(("options", "said"), WRONG, ids=without_addresses)
def test_an_option_that_cannot_work_is_refused_when_the_executor_is_made(
    store: cc.Store, options: dict[str, Any], said: str
) -> None:
    """Guarantee 15.1: and not in the middle of a turn."""
    with pytest.raises(InvalidInput, match=said):
        cc.AgentExecutor(store, SONNET, **options)


@pytest.mark.parametrize("options", RIGHT, ids=without_addresses)
def test_an_option_that_works_is_taken(store: cc.Store, options: dict[str, Any]) -> None:
    """Guarantee 15.1."""
    assert kinds(run_turn(executor(store, **options)))[-1] == "turn-finish"


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"steps": 1.5}, "Limits: steps must be an integer above 0, got 1.5"),
        ({"tool_calls": True}, "Limits: tool_calls must be .*, got True"),
        ({"seconds": math.nan}, "Limits: seconds must be .*, got nan"),
        ({"cost": math.inf}, "Limits: cost must be .*, got inf"),
        ({"tool_seconds": "x"}, "Limits: tool_seconds must be .*, got 'x'"),
        ({"steps": 0}, "Limits: steps must be .*, got 0"),
        (
            {"max_steps": 1},
            "Limits has no option 'max_steps'. Its options are steps, tool_calls, seconds, tool_seconds, cost",
        ),
    ],
    ids=str,
)
def test_a_limit_is_a_number_above_nothing(limits: dict[str, float], said: str) -> None:
    """Guarantees 11.2, 15.1."""
    with pytest.raises(InvalidSetting, match=said):
        cc.Limits(**limits)  # pyright: ignore[reportArgumentType]


def test_limits_are_values() -> None:
    """Guarantee 11.2."""
    assert cc.Limits(steps=3) == cc.Limits(steps=3) != cc.Limits()
    assert repr(cc.Limits(steps=3)).startswith("Limits(steps=3, tool_calls=None")


# ── handles ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_turn_is_followed_like_a_run(store: cc.Store) -> None:
    """Guarantee 11.9: `start` and `resume` give a handle whose events can be read in a loop."""

    async def followed() -> list[AnyEvent]:
        agent = executor(store, says("one"), says("two"))
        first = [event async for event in agent.start("demo", "hello")]
        await agent.follow_up("demo", "again")
        return [*first, *[event async for event in agent.resume("demo")]]

    events = asyncio.run(followed())
    assert events == [event for event in store.events("demo") if event.turn]
    assert [event.turn for event in events if isinstance(event, TurnFinish)] == [1, 2]


def test_the_result_is_that_of_the_turn_which_was_started(store: cc.Store) -> None:
    """Guarantee 11.9: the results of following turns are available too."""

    async def started() -> tuple[cc.TurnResult, Sequence[cc.TurnResult]]:
        agent = executor(store, says("one"), says("two"))
        await agent.follow_up("demo", "and then?")
        turn = agent.start("demo", "hello")
        return await turn.wait(), turn.results

    result, results = asyncio.run(started())
    assert (result.turn, result.text) == (1, "one")
    assert [(each.turn, each.text) for each in results] == [(1, "one"), (2, "two")]


def test_nothing_to_do_is_a_result(store: cc.Store) -> None:
    """Guarantee 9.9."""

    async def started() -> cc.TurnResult:
        return await executor(store).start("demo").wait()

    assert asyncio.run(started()).finish == "nothing to do"


def test_steering_an_unknown_conversation_is_refused(store: cc.Store) -> None:
    """Guarantee 11.9: a follow-up may be the first message of a conversation; a starting turn creates it."""

    async def queued() -> list[str]:
        agent = executor(store)
        with pytest.raises(UnknownConversation):
            await agent.steer("demo", "to the left")
        await agent.follow_up("other", "hello")
        turn = agent.start("demo", "hello")
        await agent.steer("demo", "to the left")
        await turn.wait()
        said = [message.text for message in store.load("demo") if message.role == "user"]
        return [*said, *(each.message.text for each in store.queued("demo"))]  # it waits, if the turn was quicker

    assert sorted(asyncio.run(queued())) == ["hello", "to the left"]
    assert [each.message.text for each in store.queued("other")] == ["hello"]


def test_a_conversation_that_is_not_there_yet_can_be_watched(store: cc.Store) -> None:
    """Guarantee 11.9: an early watcher sees the conversation from its first event."""

    async def watched() -> list[AnyEvent]:
        agent, seen = executor(store), list[AnyEvent]()

        async def watches() -> None:
            async for event in agent.watch("demo"):
                seen.append(event)
                if isinstance(event, TurnFinish):
                    return

        watching = asyncio.ensure_future(watches())
        await asyncio.sleep(0.01)
        await played(agent, "demo")
        await asyncio.wait_for(watching, 60)
        return seen

    assert asyncio.run(watched()) == store.events("demo")


# ── what is said of tools that did not end ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["time", "cancel"])
def test_a_running_tool_is_never_reported_as_not_run(store: cc.Store, how: str) -> None:
    """Guarantees 3.6, 11.10: otherwise a model would call it twice. Calls that had not begun are distinguished."""
    done: list[str] = []

    async def ended(conversation: str, seconds: float | None) -> cc.TurnResult:
        begun = asyncio.Event()

        async def write(name: str) -> str:
            """Write something."""
            done.append(name)
            begun.set()
            await asyncio.Event().wait()
            return "written"

        calls = (call(1, "write", name="a"), call(2, "then", name="b"))
        tools = [cc.tool(write, parallel=False), cc.tool(write, name="then", parallel=False)]
        agent = executor(store, says(*calls), tools=tools, limits=cc.Limits(seconds=seconds))
        turn = agent.start(conversation, "write")
        if seconds is None:
            await begun.wait()
            turn.cancel()
        return await turn.wait()

    conversation = "demo"
    if how == "cancel":
        result = asyncio.run(ended(conversation, None))
    else:
        for seconds in (0.3, 3.0, 30.0):  # until the tool begins within the time, however busy the machine is
            conversation = f"within {seconds}"
            result = asyncio.run(ended(conversation, seconds))
            if done:
                break
    assert result.finish == {"time": "max_seconds", "cancel": "cancelled"}[how]
    why = {"time": "its time limit", "cancel": "it was cancelled"}[how]
    texts = {each.call_id: each.text for message in store.load(conversation) for each in message.tool_results}
    assert done == ["a"]
    assert texts == {
        "c1": f"Interrupted: the turn ended ({why}) while this tool was running. What it had done by then stays done; "
        "it was not run again.",
        "c2": f"Not run: the turn ended before ({why}).",
    }


def test_a_tool_that_waits_for_a_yes_has_not_run(store: cc.Store) -> None:
    """Guarantee 11.10: cancelling a turn during an approval is not an approval."""
    asked = asyncio.Event()

    async def approve(_: ToolCall, __: object) -> bool:
        asked.set()
        await asyncio.sleep(60)
        return True

    async def ended() -> None:
        turn = executor(store, says(call(1)), tools=[cc.tool(add, approval=True)], approve=approve).start("demo", "add")
        await asked.wait()
        turn.cancel()
        await turn.wait()

    asyncio.run(ended())
    assert store.load("demo")[-1].tool_results[0].text == "Not run: the turn ended before (it was cancelled)."


def test_an_id_that_is_used_twice_is_one_tool_that_ran_and_one_that_runs(store: cc.Store) -> None:
    """Guarantee 11.10: the second of two equal calls is the one that is interrupted."""
    second = asyncio.Event()
    runs: list[int] = []

    async def write() -> str:
        """Write something."""
        runs.append(1)
        if len(runs) == 2:
            second.set()
            await asyncio.sleep(60)
        return "written"

    async def ended() -> None:
        turn = executor(store, says(call(1, "write"), call(1, "write")), tools=[write]).start("demo", "go")
        await second.wait()
        turn.cancel()
        await turn.wait()

    asyncio.run(ended())
    texts = [each.text for message in store.load("demo") for each in message.tool_results]
    assert texts[0] == "written"
    assert [text.partition(":")[0] for text in texts[1:]] == ["Interrupted"]


# ── what is said to people ────────────────────────────────────────────────────────────────────────────────────────────


def test_output_just_before_a_broken_stream_is_published(store: cc.Store) -> None:
    """Guarantee 11.11: the text that is kept is the text that people have seen."""
    with pytest.raises(cc.errors.ProviderFailed):
        run_turn(executor(store, says("one two three", broken=4)))
    events = store.events("demo")
    (kept,) = [message for message in store.load("demo") if message.role == "assistant"]
    told = [event for event in events if isinstance(event, TextDelta)]
    assert "".join(event.text for event in told) == kept.text == "one two "
    assert {event.uid for event in told} == {kept.uid}
    assert kinds(events)[-3:] == ["step-finish", "error", "turn-finish"]


def test_input_that_cannot_fit_does_not_block_what_comes_after_it(store: cc.Store) -> None:
    """Guarantee 7.3: it is stored, the turn fails and says the way out; the next input is answered, and a line says
    so.
    """
    scripted = Scripted(says("hello"))
    agent = cc.AgentExecutor(store, cc.provider(SONNET, window=4_000, output=500), endpoint=scripted, triggers=())

    async def asked(text: str) -> cc.TurnResult:
        return await agent.start("demo", text).wait()

    failed = asyncio.run(asked("é" * 30_000))
    assert isinstance(failed.error, cc.errors.ContextOverflow)
    assert "left out" in str(failed.error)
    assert asyncio.run(asked("hi")).text == "hello"
    sent = str(scripted.requests[-1]["messages"])
    assert "too long to be shown" in sent
    assert "éé" not in sent
    assert len(store.load("demo")[0].text) == 30_000


def test_an_option_is_declared_with_one_type() -> None:
    """Editors complete the options that are declared. A turn reads them from `AgentConfig`."""
    declared, fields = get_type_hints(AgentOptions), dict(inspect.get_annotations(AgentConfig))
    assert get_type_hints(CompilerOptionArguments) == get_type_hints(CompilerOptions)
    own = list(AgentOptions.__annotations__)
    assert [name for name in own if name not in fields] == [
        "settings",
        "max_output_tokens",
        "endpoint",
        "cache",
        "betas",
        "headers",
        "mcp_servers",
    ]  # used once, at the start
    assert [name for name in own if name in fields and str(declared[name]) != str(fields[name])] == [
        "directory",  # None is the default of these two
        "limits",
        "compiler",  # the options of a compiler, and the compiler
    ]
