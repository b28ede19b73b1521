"""`cc.Agent`: runs, conversations, stores, approvals, limits and triggers."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import cast

import pytest

import contextc as cc
from contextc.errors import InvalidInput, InvalidSetting, NothingNew, ProviderFailed, UnknownConversation
from contextc.events import TextDelta, TurnFinish
from contextc.executor import Suspend
from contextc.messages import ToolCall
from contextc.testing import FakeModel
from contextc.tools import FunctionTool
from tests.executor.scripted_provider import FIRST_WORD, SONNET, Scripted, add, call, fails, kinds, says


class Closing(Scripted):
    """A client that states whether it was closed."""

    ended = False

    async def close(self) -> None:
        self.ended = True


@cc.tool(approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def test_an_answer_takes_one_call() -> None:
    """Guarantee 20.1: a plain function is a tool, and the result has what the run did."""
    provider = Scripted(says("Let me add.", call(1, a=2, b=3)), says("It is 5."))
    agent = cc.Agent(SONNET, tools=[add], instructions="Be brief.", endpoint=provider)

    result = agent.run_sync("What is 2 + 3?")

    assert (result.text, result.output, result.finish) == ("It is 5.", "It is 5.", "stop")
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert list(result.messages) == agent.store.load(result.conversation)
    assert (result.usage.input, result.usage.output, result.steps, result.tool_calls) == (200, 20, 2, 1)
    assert result.cost == pytest.approx(200 * 3e-6 + 20 * 15e-6)  # pyright: ignore[reportUnknownMemberType]
    assert provider.requests[0]["system"][0]["text"] == "Be brief."
    assert provider.requests[0]["tools"][0]["name"] == "add"


def test_a_run_is_a_turn_of_the_executor() -> None:
    """Guarantee 20.1: what was sent can be rebuilt, and the turn is stored."""
    provider = Scripted(says(call(1)), says("3"))
    agent = cc.Agent(SONNET, tools=[add], endpoint=provider)

    result = agent.run_sync("1 + 2?")

    rebuilt = [agent.executor.compiler.rebuild(result.conversation, number) for number in (1, 2)]
    assert rebuilt == provider.bodies
    assert [turn.finish for turn in agent.store.turns(result.conversation)] == ["stop"]


def test_a_sliding_window_leaves_out_old_messages_without_asking_for_a_summary() -> None:
    """Guarantee 7.4: the same option for agents, executors and compilers."""
    provider = Scripted(*[says(f"answer {number} " + "word " * 20, input=300) for number in range(6)])
    small = cc.provider("anthropic:claude-sonnet-4-5", window=600, output=400)
    agent = cc.Agent(small, endpoint=provider, compiler=cc.CompilerOptions(policy="sliding_window"), triggers=())

    for number in range(6):
        agent.run_sync(f"question {number}", conversation="demo")

    assert len(provider.requests) == 6
    sent = str(provider.requests[-1]["messages"])
    assert "question 5" in sent
    assert "question 0" not in sent


def test_each_run_is_a_new_conversation_unless_one_is_named() -> None:
    """Guarantee 20.1."""
    provider = Scripted(says("one"), says("two"), says("three"))
    agent = cc.Agent(SONNET, endpoint=provider)

    first, second = agent.run_sync("a"), agent.run_sync("b")
    third = agent.run_sync("c", conversation=first.conversation)

    assert first.conversation != second.conversation
    assert third.conversation == first.conversation
    assert [len(request["messages"]) for request in provider.requests] == [1, 1, 3]
    assert [message.text for message in third.messages] == ["c", "three"]


def test_the_messages_of_a_run_are_its_own() -> None:
    """Guarantee 20.1: with several messages as input, and without those of earlier runs."""
    agent = cc.Agent(SONNET, endpoint=Scripted(says("one"), says("two")))
    agent.run_sync("a", conversation="demo")

    result = agent.run_sync([cc.system("Note."), "b", cc.user("c")], conversation="demo")

    assert [message.text for message in result.messages] == ["Note.", "b", "c", "two"]


def test_run_sync_in_a_running_loop_names_the_other_way() -> None:
    """Guarantee 20.1."""
    agent = cc.Agent(SONNET, endpoint=Scripted(says("hi")))

    async def main() -> str:
        with pytest.raises(InvalidInput, match=r"run_sync cannot be called while an event loop runs.*await agent\.run"):
            agent.run_sync("hello")
        return (await agent.run("hello")).text

    assert asyncio.run(main()) == "hi"


def test_run_sync_closes_the_client_that_it_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client belongs to an event loop, and each call of `run_sync` has its own."""
    opened: list[Closing] = []

    def endpoint(provider: cc.Provider, *, store: cc.Store) -> Closing:
        opened.append(Closing(says(f"answer {len(opened)}")))
        return opened[-1]

    monkeypatch.setattr("contextc.executor.agent_config.endpoint", endpoint)
    agent = cc.Agent(SONNET)

    assert [agent.run_sync("a").text, agent.run_sync("b").text] == ["answer 0", "answer 1"]
    assert [each.ended for each in opened] == [True, True]


def test_texts_and_events_are_streamed() -> None:
    """Guarantee 20.1."""
    script = [says("Let me add.", call(1, a=2, b=3)), says("It is 5.")]
    agent = cc.Agent(SONNET, tools=[add], endpoint=Scripted(*script, *script))

    async def texts() -> tuple[str, cc.AgentResult[str]]:
        run = agent.stream("2 + 3?")
        found = [text async for text in run]
        return "".join(found), await run.result()

    async def events() -> list[cc.events.AnyEvent]:
        return [event async for event in agent.stream("2 + 3?", conversation="demo").events()]

    text, result = asyncio.run(texts())
    assert text == "Let me add.It is 5."
    assert result.text == "It is 5."
    found = asyncio.run(events())
    assert kinds(found)[0] == "turn-start"
    assert isinstance(found[-1], TurnFinish)
    assert agent.store.events("demo") == found


def test_leaving_a_stream_cancels_its_turn() -> None:
    """Guarantee 20.1: when the block is left, the turn has ended."""
    agent = cc.Agent(SONNET, endpoint=Scripted(says("a b c d e f", silent=FIRST_WORD)))

    async def main() -> None:
        async with agent.stream("count", conversation="demo") as run:
            async for _ in run:
                break
        with pytest.raises(InvalidInput, match="left before its end"):
            await run.result()

    asyncio.run(main())
    assert [turn.finish for turn in agent.store.turns("demo")] == ["cancelled"]


def test_cancelling_a_run_cancels_its_turn() -> None:
    """Guarantee 20.1."""
    agent = cc.Agent(SONNET, endpoint=Scripted(says("a b c d e f", silent=FIRST_WORD)))

    async def main() -> None:
        task = asyncio.create_task(agent.run("count", conversation="demo"))
        async with aclosing(agent.executor.watch("demo")) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [turn.finish for turn in agent.store.turns("demo")] == ["cancelled"]


INTERRUPTED = """if True:
    import asyncio, signal, sys
    import contextc as cc
    from contextc.providers.replay import Replay

    signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run in the background, where it is ignored

    async def wait() -> str:  # on the loop's thread: a signal that comes just before the loop waits is handled after it
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(600)
        return ""

    call = {"type": "tool_use", "id": "c1", "name": "wait", "input": {}}
    reply = {"type": "message", "role": "assistant", "content": [call], "stop_reason": "tool_use", "usage": {}}
    agent = cc.Agent("anthropic:claude-opus-5-5", tools=[wait], store=sys.argv[1], endpoint=Replay([{"reply": reply}]))
    try:
        agent.run_sync("Wait.", conversation="demo")
    except KeyboardInterrupt:
        print("interrupted", agent.store.turns("demo")[0].finish)
"""


def test_ctrl_c_ends_the_turn(tmp_path: Path) -> None:
    """Guarantee 20.1: the end of the turn is stored when `run_sync` raises."""
    command = [sys.executable, "-c", INTERRUPTED, f"sqlite:///{tmp_path / 'agent.db'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert (done.stdout, done.stderr) == ("interrupted cancelled\n", "")


def test_an_error_that_ends_the_turn_is_raised() -> None:
    """Guarantee 20.1: from every way to run it."""
    failure = fails("auth", "no such key")
    agent = cc.Agent(SONNET, endpoint=Scripted(failure, failure))

    with pytest.raises(ProviderFailed, match="no such key"):
        agent.run_sync("hi", conversation="demo")

    async def read(run: cc.executor.AgentRun[str]) -> None:
        async for _ in run:
            pass

    async def stream() -> None:
        run = agent.stream("hi")
        with pytest.raises(ProviderFailed, match="no such key"):
            await read(run)
        with pytest.raises(ProviderFailed, match="no such key"):
            await run.result()

    asyncio.run(stream())
    assert agent.store.turns("demo")[0].finish == "error"


def test_a_store_can_be_given_or_named(tmp_path: Path) -> None:
    """Guarantee 20.1: a store that the agent opened is closed with it, and a given one stays open."""
    address = f"sqlite:///{tmp_path / 'agent.db'}"
    named = cc.Agent(SONNET, store=address, endpoint=Scripted(says("hi")))
    named.run_sync("hello", conversation="demo")
    asyncio.run(named.close())
    with pytest.raises(cc.errors.StoreError):
        named.store.load("demo")

    async def run() -> None:
        async with cc.Agent(SONNET, store=store, endpoint=Scripted(says("again"))) as agent:
            await agent.run("and now?", conversation="demo")

    with cc.open_store(address) as store:
        asyncio.run(run())
        assert [message.text for message in store.load("demo")] == ["hello", "hi", "and now?", "again"]


def test_a_store_is_closed_if_an_option_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that could not be created leaves nothing open."""
    stores: list[cc.Store] = []
    opened = cc.open_store

    def open_and_remember(address: str) -> cc.Store:
        stores.append(opened(address))
        return stores[0]

    monkeypatch.setattr("contextc.executor.agent.open_store", open_and_remember)
    with pytest.raises(InvalidSetting, match="limits must be"):
        cc.Agent(SONNET, limits=cast(cc.Limits, 5))
    with pytest.raises(cc.errors.StoreError):
        stores[0].conversations()


def test_approve_is_called_for_tools_that_require_it() -> None:
    """Guarantees 20.1, 11.3."""
    asked: list[tuple[str, object]] = []

    def approve(call: ToolCall, tool: FunctionTool) -> bool | str:
        asked.append((tool.name, call.arguments))
        return call.arguments == {"amount": 5} or "too much"

    calls = (call(1, "pay", amount=5), call(2, "pay", amount=500))
    agent = cc.Agent(SONNET, tools=[pay], approve=approve, endpoint=Scripted(says(*calls), says("Done.")))

    result = agent.run_sync("Pay 5, then 500.")

    results = [each for message in result.messages for each in message.tool_results]
    assert sorted(str(each) for each in asked) == ["('pay', {'amount': 500})", "('pay', {'amount': 5})"]
    assert {each.call_id: each.is_error for each in results} == {"c1": False, "c2": True}


def test_a_run_can_wait_for_approval_without_a_process() -> None:
    """Guarantees 20.1, 18.1: `resume` returns the result of the same turn."""
    script = [says(call(1, "pay", amount=5)), says("It is paid.")]
    agent = cc.Agent(SONNET, tools=[pay], approve=Suspend(), endpoint=Scripted(*script))

    waiting = agent.run_sync("Pay 5.", conversation="shop")
    (approval,) = agent.store.approvals("shop")
    agent.store.answer_approval(approval.id, True)
    result = asyncio.run(agent.resume("shop"))

    assert (waiting.finish, waiting.text) == ("waiting", "")
    assert (result.finish, result.text) == ("stop", "It is paid.")
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]


def test_limits_end_a_run_with_a_result() -> None:
    """Guarantee 20.1."""
    agent = cc.Agent(SONNET, tools=[add], limits=cc.Limits(steps=2), endpoint=Scripted(lambda request: says(call(1))))
    result = agent.run_sync("Count.")
    assert (result.finish, result.steps) == ("max_steps", 2)


def test_triggers_are_the_default_ones_unless_given() -> None:
    """Guarantee 20.1: a short run gets no message of them."""

    @cc.trigger("note")
    def note(moment: cc.TriggerContext) -> str:
        return "A note."

    def roles(given: list[cc.Trigger] | None) -> list[str]:
        agent = cc.Agent(SONNET, triggers=given, endpoint=Scripted(says("hi")))
        triggers = len(agent.executor.config.step_triggers) + len(agent.executor.config.mid_step_triggers)
        return [str(triggers), *(message.role for message in agent.run_sync("hello").messages)]

    default = str(len(cc.default_triggers()))
    assert roles(None) == [default, "user", "assistant"]
    assert roles([]) == ["0", "user", "assistant"]
    assert roles([note]) == ["1", "user", "system", "assistant"]


def test_instructions_can_be_fragments() -> None:
    """Guarantee 8.1."""
    fragments = [cc.PromptFragment("identity", "You are a coder."), cc.PromptFragment("style", "Be brief.")]
    for instructions in (fragments, cc.PromptBuilder(fragments)):
        provider = Scripted(says("hi"))
        cc.Agent(SONNET, instructions=instructions, endpoint=provider).run_sync("hello")
        assert "You are a coder.\n\nBe brief." in "\n\n".join(each["text"] for each in provider.requests[0]["system"])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"system_prompt": "Be brief."}, "Agent has no option 'system_prompt'. Pass instructions=… instead."),
        (
            {"deps_type": str},
            "Agent has no option 'deps_type'. Pass deps=… to runs. A parameter of a tool that gets them is `context: ",
        ),
        ({"result_type": str}, "Agent has no option 'result_type'. Pass output_type=… instead."),
        ({"temperature": 0}, "Agent has no option 'temperature'. Pass settings={\"temperature\": …} instead."),
        ({"effort": "high"}, 'Pass settings={"output_config": {"effort": …}} to Claude'),
        ({"usage_limits": 5}, "Agent has no option 'usage_limits'. Pass limits=cc.Limits(…) instead."),
        ({"retries": 3}, "Agent has no option 'retries'. Its options are tools, instructions, store, "),
        (
            {"instructions": 5},
            "instructions must be a text, a prompt fragment, a function, or a list of them, got int.",
        ),
        ({"output_type": object()}, "output_type: "),
        ({"model": 5}, "model must be a name or a Provider, got int."),
        ({"tools": [5]}, "tool"),
    ],
)
def test_invalid_options_are_refused_with_the_fix(options: dict[str, object], problem: str) -> None:
    """Guarantee 15.1."""
    with pytest.raises(InvalidInput) as raised:
        cast(Callable[..., object], cc.Agent)(**{"model": SONNET, **options})
    assert problem.lower() in str(raised.value).lower()


def test_a_new_conversation_needs_input() -> None:
    """Guarantee 20.1: without input, a named conversation is answered."""
    agent = cc.Agent(SONNET, endpoint=Scripted(says("hi")))
    with pytest.raises(InvalidInput, match="input must not be None for a new conversation"):
        agent.run_sync(None)
    agent.store.append("demo", cc.user("hello"))
    result = agent.run_sync(None, conversation="demo")
    assert [message.text for message in result.messages] == ["hi"]
    with pytest.raises(NothingNew, match="'demo' has nothing new"):
        agent.run_sync(None, conversation="demo")


def test_resuming_a_conversation_that_does_not_exist_names_it() -> None:
    """After a crash, the cause is a wrong name or a wrong store. An empty conversation of that name would hide it."""
    agent = cc.Agent(SONNET, endpoint=Scripted())
    ways: list[Callable[[str], object]] = [agent.resume_sync, lambda name: asyncio.run(agent.resume(name))]
    for resume in ways:
        with pytest.raises(UnknownConversation, match="Conversation 'demo' not found"):
            resume("demo")
    assert agent.store.conversations() == []


def test_a_tool_with_the_name_of_one_that_reads_the_history_is_refused() -> None:
    """It would replace it, and what was left out could not be read any more."""

    def fetch_result(id: str) -> str:
        """Mine."""
        return id

    with pytest.raises(InvalidSetting, match="Two tools are named fetch_result"):
        cc.Agent(SONNET, tools=[fetch_result])
    agent = cc.Agent(SONNET, tools=[fetch_result], compiler=cc.CompilerOptions(fetch=False))
    assert list(agent.executor.tools) == ["fetch_result"]


def test_a_result_leads_to_the_account_of_its_last_request() -> None:
    """Guarantee 13.1: also after later runs, and after a handoff, whose requests are on another channel."""
    refunds = cc.Agent(FakeModel("You get 30 euros."), name="refunds", instructions="You decide.")
    script = FakeModel("Hello.", cc.tool_call("c1", "transfer_to_refunds", {}))
    triage = cc.Agent(script, name="triage", handoffs=[refunds])
    first = triage.run_sync("Hi!", conversation="ann")
    second = triage.run_sync("It is broken.", conversation="ann")
    assert (first.manifest.record.request, first.manifest.channel.agent) == (1, "triage")
    assert second.manifest.channel.agent != "triage"
    assert "It is broken." in [each.text for each in second.manifest.lines if each.sent]
    assert triage.explain("ann", 1).record == first.manifest.record
    assert triage.explain("ann").record.request == 2
    assert "static fragment instructions" in str(second.manifest)


def test_a_run_that_was_answered_before_has_no_request_of_its_own() -> None:
    agent = cc.Agent(FakeModel("Hello."))
    agent.run_sync("Hi!", conversation="ann", key="d1")
    again = agent.run_sync("Hi!", conversation="ann", key="d1")
    with pytest.raises(InvalidInput, match=r"sent no request. Explain an earlier one: agent.explain"):
        _ = again.manifest


def test_what_a_program_prints_is_short_and_without_addresses() -> None:
    """A shell or a log shows these values in one line."""
    agent = cc.Agent(FakeModel("word " * 100), tools=[add])
    result = agent.run_sync("hi", conversation="x")
    compiled = agent.executor.compiler.compile("x", retry=True)
    printed = [repr(each) for each in (agent, agent.executor, result, result.manifest, compiled, cc.user("hi"))]
    assert printed[:2] == [
        "Agent('fake:model', name='assistant', tools=['add'])",
        "AgentExecutor('fake:model', name='assistant', tools=['add'])",
    ]
    assert printed[2].startswith("AgentResult(conversation='x', finish='stop', output='word word")
    assert printed[2].endswith("messages=2, steps=1, tool_calls=0, cost=None)")
    assert printed[5] == "Message(role='user', parts=(Text(text='hi'),))"
    assert all(len(each) < 200 and " at 0x" not in each for each in printed)
