"""Input of an executor besides messages: prompt context, a run, and messages of other agents."""

import asyncio
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject, encode
from contextc.errors import InvalidInput, InvalidSetting
from contextc.events import StepStart, SystemMessageCreated, UsageReport
from contextc.executor.turn_store import GivenInput, TurnStore
from tests.executor.scripted_provider import SONNET, Say, Scripted, add, call, rebuilt, run_turn, says, taken_over

TESTER = cc.prompts.AgentCard(name="tester", description="Runs the tests.")


def test_fragments_are_rendered_with_the_context_an_executor_is_given() -> None:
    """The same prompt context as `compile` takes: recipient, delegations, agents, project."""
    store, provider = cc.open_store("memory:"), Scripted(says("ok"))
    context = cc.PromptContext(
        responding_to="bob", project="A compiler.", agents=(TESTER,), delegations=(cc.prompts.Delegation(to="tester"),)
    )
    prompt = cc.PromptBuilder().with_builtin(system_prompt="")
    executor = cc.AgentExecutor(store, SONNET, instructions=prompt, context=context, endpoint=provider, triggers=())

    run_turn(executor, cc.user("hi", author="ann"))

    (request,) = provider.requests
    assert "A compiler." in encode(request["system"]).decode()
    messages = encode(request["messages"]).decode()
    for words in ("sent to @bob.", "These agents are available:", "You wait for the results"):
        assert words in messages
    assert "sent to @ann" not in messages


def test_an_answer_is_addressed_to_the_author_of_the_opening_message() -> None:
    """Without a recipient in the context; each turn has its own."""
    store, provider = cc.open_store("memory:"), Scripted(says("1"), says("2"), says("3"))
    prompt = cc.PromptBuilder().with_builtin("response")
    executor = cc.AgentExecutor(store, SONNET, instructions=prompt, endpoint=provider, triggers=())

    for given in (cc.user("hi", author="ann"), cc.user("hi", author="bob"), cc.user("hi")):
        run_turn(executor, given)

    sent = [encode(request["messages"][-1]).decode() for request in provider.requests]
    assert ["sent to @ann." in sent[0], "sent to @bob." in sent[1], "(withdrawn)" in sent[2]] == [True] * 3


def test_a_turn_without_an_opening_author_does_not_answer_the_previous_author() -> None:
    """A follow-up of the system, such as a timer, is not a message of the previous author."""
    store = cc.open_store("memory:")
    record = TurnStore(store, "demo", "assistant", store.acquire("demo"))
    record.open(GivenInput([cc.user("hi", author="ann")]), resume=False)
    assert record.opening_author == "ann"
    store.enqueue("demo", cc.system("An hour is over."))
    assert record.close("stop"), "the next turn begins"
    assert record.opening_author is None


def test_a_resumed_turn_answers_its_opening_author() -> None:
    """The process that goes on with it has not heard the person, and has the message alone."""
    store = cc.open_store("memory:")
    TurnStore(store, "demo", "assistant", store.acquire("demo")).open(
        GivenInput([cc.user("hi", author="ann")]), resume=False
    )
    taken_over(store)
    record = TurnStore(store, "demo", "assistant", store.acquire("demo"))
    record.open(GivenInput([]), resume=True)
    assert (record.turn.number, record.opening_author) == (1, "ann")


def test_the_messages_of_a_turn_belong_to_the_run_of_its_executor() -> None:
    """Calls and results of one run are hidden from others of the agent until it has ended."""
    store = cc.open_store("memory:")
    provider = Scripted(says(call(1)), says("3"))
    executor = cc.AgentExecutor(store, SONNET, tools=[add], run="r1", endpoint=provider, triggers=())

    run_turn(executor, "add")

    assert [(message.role, message.run) for message in store.load("demo")] == [
        ("user", None),
        ("assistant", "r1"),
        ("tool", "r1"),
        ("assistant", "r1"),
    ]
    assert rebuilt(executor, "demo", 2) == provider.bodies


@pytest.mark.parametrize(
    ("option", "words"),
    [({"context": {"project": "x"}}, "cc.PromptContext"), ({"run": 7}, "non-empty string")],
)
def test_an_invalid_prompt_context_is_refused(option: dict[str, Any], words: str) -> None:
    """It would fail in the middle of a turn."""
    with pytest.raises(InvalidSetting, match=words):
        cc.AgentExecutor(cc.open_store("memory:"), SONNET, triggers=(), **option)


# ── other agents ──────────────────────────────────────────────────────────────────────────────────────────────────────

TO_CODER = cc.assistant("It is red.", author="tester", recipients=("coder",))


def spoken() -> tuple[cc.Store, Scripted, cc.AgentExecutor]:
    """A conversation in which coder has answered ann."""
    store = cc.open_store("memory:")
    provider = Scripted(says("built"), says("fixed"), says("more"))
    executor = cc.AgentExecutor(store, SONNET, name="coder", endpoint=provider, triggers=())
    run_turn(executor, cc.user("build", author="ann"))
    return store, provider, executor


@pytest.mark.parametrize("as_input", [False, True])
def test_a_message_of_another_agent_is_answered_once(as_input: bool) -> None:
    """A delegation's result is input, whether it is in the record already or is given."""
    store, provider, executor = spoken()
    if not as_input:
        store.append("demo", TO_CODER)
    run_turn(executor, TO_CODER if as_input else None)
    assert provider.requests[-1]["messages"][-1]["content"][0]["text"] == "[@tester] It is red."
    assert store.load("demo")[-1].text == "fixed"
    assert run_turn(executor, None) == []
    assert len(provider.requests) == 2


def test_it_is_found_before_later_messages_of_others() -> None:
    """An agent goes on with its own tools after it has asked another one."""
    store, provider, executor = spoken()
    others = [cc.assistant(f"note {number}", author="tester") for number in range(100)]
    store.extend("demo", [TO_CODER, *others])
    run_turn(executor, None)
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    "message",
    [
        cc.assistant("hello all", author="tester"),
        cc.assistant("for you", author="tester", recipients=("ann",)),
        cc.tool_result("c9", "run", "red", author="tester"),
    ],
    ids=["to all", "to another", "a tool's result"],
)
def test_messages_between_other_agents_are_not_input(message: cc.Message) -> None:
    """Otherwise two agents would answer each other for ever."""
    store, provider, executor = spoken()
    store.append("demo", message)
    assert run_turn(executor, None) == []
    with pytest.raises(InvalidInput, match="role must be"):
        run_turn(executor, message)
    assert len(provider.requests) == 1


# ── what the provider counts ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_warning_follows_the_figure_of_the_provider() -> None:
    """A gateway may add its own prompt: 80 % is reached long before our count shows it."""
    store = cc.open_store("memory:")
    script = [says(call(number, a=number, b=1), input=60_000 + 3_000 * number) for number in range(12)]
    provider = Scripted(*script, says("done", input=97_000))
    facts = cc.provider(SONNET, window=100_000, output=2_000)
    executor = cc.AgentExecutor(store, facts, tools=[add], triggers=cc.default_triggers(), endpoint=provider)

    events = run_turn(executor, "go")

    used = {event.step: event.used / event.available for event in events if isinstance(event, StepStart)}
    warned = [event.step for event in events if isinstance(event, SystemMessageCreated)]
    assert warned[:1] == [next(step for step, share in used.items() if share >= 0.8)]


def test_what_the_provider_counts_beyond_our_count_is_an_overhead_of_its_channel() -> None:
    """It does not go away with a new epoch, and other channels do not have it."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(SONNET, window=100_000, output=2_000))
    store.append("demo", cc.user("hi " + "word " * 100))
    first = compiler.compile("demo")
    compiler.commit(first, cc.assistant("ok"), usage=cc.Usage(input=60_000, output=2))
    store.append("demo", cc.user("more"))
    again, anew = compiler.compile("demo"), compiler.compile("demo", instructions="Be brief.")
    overhead = 60_000 - first.budget.input
    assert (again.budget.overhead, again.budget.measured) == (overhead, True)
    assert 60_000 < again.budget.input < 60_100
    assert (anew.budget.overhead, anew.budget.measured) == (overhead, False)
    assert anew.budget.used - overhead < 200
    assert f"overhead {overhead:,} tokens" in str(anew.manifest)
    assert compiler.factor < 1.1
    store.append("other", cc.user("hi"))
    assert compiler.compile("other").budget.overhead == 0


def test_a_cut_makes_room_beside_the_overhead() -> None:
    """No cut makes it smaller: what is left out is messages, and the newest stays."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(SONNET, window=20_000, output=1_000))
    why = ""
    for number in range(30):
        store.append("demo", cc.user(f"question {number} " + "word " * 300))
        compiled = compiler.compile("demo")
        real = compiled.estimated_input + 15_000
        assert compiled.budget.used <= compiled.budget.available
        assert f"question {number} " in compiled.body.decode()
        assert not number or real < 20_000
        compiler.commit(compiled, cc.assistant("ok"), usage=cc.Usage(input=real, output=2))
        why += compiled.manifest.why
    assert "over budget" in why


def test_events_report_the_usage_of_the_whole_request() -> None:
    """A gauge without the system prompt, or the provider's figure, is full before it shows that."""
    line = Scripted(says("ok", input=5_000, output=10))
    prompt = [cc.PromptFragment("identity", "You are a coder. " * 100)]
    events = run_turn(
        cc.AgentExecutor(cc.open_store("memory:"), SONNET, instructions=prompt, endpoint=line, triggers=())
    )
    (begun,) = [event for event in events if isinstance(event, StepStart)]
    (report,) = [event for event in events if isinstance(event, UsageReport)]
    assert begun.used > 300
    assert (report.used, report.available) == (5_010, begun.available)


def delegations(request: JSONObject) -> str:
    return encode(request["messages"][-1]).decode()


def test_a_turn_may_have_a_prompt_context_of_its_own() -> None:
    """A delegation that has ended since; the executor keeps its own context for other turns."""
    store, provider = cc.open_store("memory:"), Scripted(*[says("ok")] * 4)
    waiting = cc.PromptContext(delegations=(cc.prompts.Delegation(to="bob", task="T1"),))
    prompt = cc.PromptBuilder().with_builtin("delegations")
    executor = cc.AgentExecutor(store, SONNET, instructions=prompt, context=waiting, endpoint=provider, triggers=())

    async def play() -> None:
        await executor.start("demo", "one").wait()
        await executor.start("demo", "two", context=cc.PromptContext()).wait()
        async for _ in executor.run("demo", "three"):
            pass
        async for _ in executor.run("demo", "four", context=cc.PromptContext()):
            pass

    asyncio.run(play())
    found = [("T1" in said, "(withdrawn)" in said) for said in map(delegations, provider.requests)]
    assert found == [(True, False), (False, True), (True, False), (False, True)]


def test_the_context_of_an_executor_can_be_set() -> None:
    """It holds from the next turn on, and is checked as in the constructor."""
    store, provider = cc.open_store("memory:"), Scripted(*[says("ok")] * 2)
    prompt = cc.PromptBuilder().with_builtin("delegations")
    executor = cc.AgentExecutor(store, SONNET, instructions=prompt, endpoint=provider, triggers=())
    executor.context = cc.PromptContext(delegations=(cc.prompts.Delegation(to="bob", task="T1"),))
    run_turn(executor, "one")

    executor.context = None
    run_turn(executor, "two")

    assert ["T1" in said or "(withdrawn)" in said for said in map(delegations, provider.requests)] == [True, True]
    with pytest.raises(InvalidSetting, match=r"context must be a cc\.PromptContext or a function, got dict"):
        executor.context = {}  # type: ignore[assignment]


def test_a_function_returns_the_context_of_each_step() -> None:
    """It gets the name of the conversation, and sees what a tool has changed."""
    tasks, names = ["T1"], list[str]()

    def context(conversation: str) -> cc.PromptContext:
        names.append(conversation)
        return cc.PromptContext(delegations=tuple([cc.prompts.Delegation(to="b", task=task) for task in tasks]))

    def finish() -> str:
        """Finish the task."""
        return str(tasks.pop())

    provider = Scripted(says(("1", "finish", {})), says("done"))
    prompt = cc.PromptBuilder().with_builtin("delegations")
    executor = cc.AgentExecutor(
        cc.open_store("memory:"),
        SONNET,
        tools=[finish],
        instructions=prompt,
        context=context,
        endpoint=provider,
        triggers=(),
    )

    run_turn(executor, "go")

    assert ["(withdrawn)" in said for said in map(delegations, provider.requests)] == [False, True]
    assert names == ["demo", "demo"]


def test_a_context_function_must_fit_and_return_a_context() -> None:
    """The first is an error of the constructor, the second one of the turn."""
    store, provider = cc.open_store("memory:"), Scripted(says("ok"))
    with pytest.raises(InvalidSetting, match=r"does not accept the arguments of context\(conversation\)"):
        cc.AgentExecutor(store, SONNET, context=lambda: None, triggers=())  # type: ignore[arg-type]
    executor = cc.AgentExecutor(store, SONNET, context=lambda name: name, endpoint=provider, triggers=())  # type: ignore[arg-type]

    async def play() -> Exception | None:
        return (await executor.start("demo", "one").wait()).error

    error = asyncio.run(play())
    assert isinstance(error, InvalidSetting)
    assert "must return a cc.PromptContext or None, got str" in str(error)


@pytest.mark.parametrize("name", ["contxt", "limits", "agent", "system_prompt", "triggers"])
def test_an_assignment_without_effect_is_refused(name: str) -> None:
    """An executor and an agent are configured by their constructors."""
    executor = cc.AgentExecutor(cc.open_store("memory:"), SONNET, triggers=())
    for each in (executor, executor.asking(None), cc.Agent(SONNET)):
        with pytest.raises(AttributeError, match=rf"{name} cannot be set\. Pass {name}=… to the constructor"):
            setattr(each, name, None)


def test_an_agent_runs_with_a_context_of_the_call() -> None:
    """The same parameter as that of an executor."""
    provider = Scripted(says("ok"))
    agent = cc.Agent(SONNET, instructions=cc.PromptBuilder().with_builtin("delegations"), endpoint=provider)

    agent.run_sync("go", context=cc.PromptContext(delegations=(cc.prompts.Delegation(to="bob", task="T1"),)))

    assert "T1" in delegations(provider.requests[0])


def team(store: cc.Store, name: str, *says: Say) -> cc.AgentExecutor:
    return cc.AgentExecutor(store, SONNET, name=name, tools=[add], endpoint=Scripted(*list(says)), triggers=())


def test_the_answer_of_a_delegate_wakes_the_agent_that_asked() -> None:
    """It is addressed to that agent, and only the answer is: not the message with its tool calls."""
    store = cc.open_store("memory:")
    pm = team(store, "pm", says("Thanks."))
    coder = team(store, "coder", says("I add.", ("1", "add", {"a": 1, "b": 2})), says("It is 3."))
    store.append("team", cc.user("What is 1 + 2?", author="ann"))
    store.append("team", cc.assistant("Please add.", author="pm", recipients=("coder",)))

    run_turn(coder, None, conversation="team")
    run_turn(pm, None, conversation="team")

    said = [(message.author, message.recipients, message.text) for message in store.load("team")[2:]]
    assert said == [
        ("coder", (), "I add."),
        ("coder", (), ""),
        ("coder", ("pm",), "It is 3."),
        ("pm", (), "Thanks."),
    ]


def test_two_agents_do_not_reply_to_each_other_without_end() -> None:
    """A reply to a request is not a request; another message to the delegate is one again."""
    store = cc.open_store("memory:")
    pm, coder = team(store, "pm", *[says("pm")] * 3), team(store, "coder", *[says("coder")] * 3)
    finishes: list[list[str]] = []

    async def play() -> None:
        for _ in range(2):
            store.append("team", cc.assistant("Go on.", author="pm", recipients=("coder",)))
            finishes.append([(await agent.start("team").wait()).finish for agent in (coder, pm, coder, pm, coder)])

    asyncio.run(play())
    assert finishes == [["stop", "stop", "nothing to do", "nothing to do", "nothing to do"]] * 2
    assert [message.recipients for message in store.load("team")] == [("coder",), ("pm",), ()] * 2
