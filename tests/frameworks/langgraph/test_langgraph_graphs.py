"""Graphs with nodes of their own give the same answers with a fitted model, and their history is recorded once."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import SimpleChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt
from openai import InternalServerError
from pydantic import BaseModel

import contextc as cc
from contextc.adapters.langgraph import fit
from contextc.doctor import scan_store
from contextc.inspection.preview import find_channels
from contextc.inspection.request_timeline import load_unanswered_requests
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.faults import listed, overloaded
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.frameworks.langgraph.scripted_models import MODELS, add, chat, essence, read_page, reading

# Any: the nodes, states and configurations of a graph are of any type.

LOOP = asyncio.Runner()
"""One event loop for all tests: LangChain keeps the HTTP clients of a process."""
QUESTION = "When was the valve replaced?"
PROMPT = SystemMessage("Answer from the report.")
STEPS = 6
WAYS = ("invoke", "ainvoke", "stream", "astream", "astream_events")


def thread(name: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": name, **more}, "recursion_limit": 500}


def asked(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


def make_graph(llm: Runnable[Any, Any], tools: Sequence[Any] = (read_page, add), **options: Any) -> Any:
    """Return the loop of LangGraph's documentation: a node for the model, and a node for the tools."""
    graph = StateGraph(MessagesState)
    graph.add_node("chat", lambda state: {"messages": [llm.invoke([PROMPT, *state["messages"]])]})
    if tools:
        graph.add_node("tools", ToolNode([*tools]))
        graph.add_conditional_edges("chat", tools_condition)
        graph.add_edge("tools", "chat")
    graph.add_edge(START, "chat")
    return graph.compile(**{"checkpointer": InMemorySaver(), **options})


def make_async_graph(llm: Runnable[Any, Any]) -> Any:
    async def answer(state: MessagesState) -> Any:
        return {"messages": [await llm.ainvoke([PROMPT, *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("chat", answer)
    graph.add_node("tools", ToolNode([read_page, add]))
    graph.add_conditional_edges("chat", tools_condition)
    graph.add_edge("tools", "chat")
    graph.add_edge(START, "chat")
    return graph.compile(checkpointer=InMemorySaver())


def chain(*nodes: Any) -> Any:
    """Return a graph that runs nodes one after another."""
    graph = StateGraph(MessagesState)
    names = [f"node {number}" for number in range(len(nodes))]
    for name, node in zip(names, nodes, strict=True):
        graph.add_node(name, node)
    for name, following in zip([START, *names], names, strict=False):
        graph.add_edge(name, following)
    return graph.compile(checkpointer=InMemorySaver())


def answering(llm: BaseChatModel, prompt: str = "Be brief.") -> Callable[[MessagesState], Any]:
    return lambda state: {"messages": [llm.invoke([SystemMessage(prompt), *state["messages"]])]}


def run(graph: Any, text: str, way: str) -> None:
    """Run a graph in one of the ways that LangGraph has."""
    if way == "invoke":
        graph.invoke(asked(text), thread("report"))
    if way == "stream":
        assert [*graph.stream(asked(text), thread("report"), stream_mode="messages")]

    async def run() -> None:
        if way == "ainvoke":
            await graph.ainvoke(asked(text), thread("report"))
        elif way == "astream":
            assert [each async for each in graph.astream(asked(text), thread("report"), stream_mode="messages")]
        else:
            assert [each async for each in graph.astream_events(asked(text), thread("report"), version="v2")]

    if way.startswith("a"):
        LOOP.run(run())


def state_of(graph: Any, name: str = "report") -> list[AnyMessage]:
    return graph.get_state(thread(name)).values["messages"]


def texts(store: cc.Store, name: str = "report") -> list[str]:
    """Return the texts of a conversation: those of messages, calls and results."""
    return [
        message.text
        or " ".join([each.name for each in message.tool_calls] + [each.text for each in message.tool_results])
        for message in store.load(name)
    ]


def branches(store: cc.Store, name: str) -> set[tuple[str, ...]]:
    found = store.branches(name)
    return {tuple(message.text for message in store.load(name, branch=each.number)) for each in found}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*MODELS])
def test_a_graph_answers_the_same_with_a_fitted_model(name: str, way: str) -> None:
    """Guarantees 3.5 and 11.1: what fits is sent to the byte as before, and is stored once, with what it cost."""
    runs: list[tuple[list[Any], list[bytes]]] = []
    for is_fitted in (False, True):
        with cc.open_store("memory:") as store, FakeVendors(reading(STEPS)) as fake:
            llm = MODELS[name](fake)
            bound = (fit(llm, store) if is_fitted else llm).bind_tools([read_page, add])
            graph = make_async_graph(bound) if way.startswith("a") else make_graph(bound)
            run(graph, QUESTION, way)
            run(graph, "And the pump?", way)
            assert not fake.refused
            runs.append((essence(state_of(graph)), [record.raw for record in fake.records]))
            if not is_fitted:
                continue
            kinds = {"human": "user", "ai": "assistant", "tool": "tool"}
            assert [message.role for message in store.load("report")] == [kinds[each.type] for each in state_of(graph)]
            assert len(store.branches("report")) == 1
            assert list(scan_store(store)) == []
            replies = [message for message in store.load("report") if message.role == "assistant"]
            assert [message.usage and message.usage.input for message in replies] == [
                each.usage_metadata and each.usage_metadata["input_tokens"]
                for each in state_of(graph)
                if isinstance(each, AIMessage)
            ]
            (channel,) = find_channels(store, "report")
            manifest = cc.MessageCompiler(store, f"{channel.provider}:{channel.model}").explain("report")
            assert (manifest.record.request, manifest.record.epoch) == (2 * (STEPS + 1), 1)
    (plain, sent), (fitted, sent_fitted) = runs
    assert len(plain) > 2 * STEPS
    assert fitted == plain
    assert sent_fitted == sent


@pytest.mark.parametrize("version", [None, "v1"])
@pytest.mark.parametrize("name", [*MODELS])
def test_every_request_fits_the_window_and_the_state_keeps_everything(name: str, version: str | None) -> None:
    """Guarantee 5.4: calls that were left out of a request are in none of the forms that LangChain has for them."""
    steps, window = 60, 12_000
    with cc.open_store("memory:") as store, FakeVendors(reading(steps), window=window) as fake:
        llm = MODELS[name](fake).model_copy(update={"output_version": version})
        graph = make_graph(fit(llm, store, window=window, output=1_000).bind_tools([read_page, add]))
        graph.invoke(asked(QUESTION), thread("report"))
        assert not fake.refused
        assert not fake.defects
        assert len(fake.records) == steps + 1
        assert len(state_of(graph)) == len(store.load("report")) == 2 + 2 * steps + steps // 4
        assert 0 < len(fake.breaks()) < steps / 5  # cuts go in large steps, so most requests extend the one before


def test_tools_may_be_bound_before_or_after() -> None:
    """A binding, a retry and a fallback are those of LangChain: the calls inside of them are recorded."""
    call = Reply(None, [ScriptedCall("add", {"first": 1, "second": 2})])
    faults = listed(overloaded(), overloaded())
    with cc.open_store("memory:") as store, FakeVendors(Scripted([call, "Three."]), faults=faults) as fake:
        llm = fit(chat(fake).bind_tools([read_page, add]), store)
        retried = llm.with_retry(retry_if_exception_type=(InternalServerError,), stop_after_attempt=2)
        graph = make_graph(retried.with_fallbacks([llm]))
        graph.invoke(asked(QUESTION), thread("report"))
        assert len({record.raw for record in fake.records[:3]}) == 1
        assert texts(store) == [QUESTION, "add", "3", "Three."]
        assert len(store.branches("report")) == 1


class Finding(BaseModel):
    """What was found."""

    part: str
    season: str


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_typed_answers_stay_the_same(method: str) -> None:
    """A chain of a model and a parser is made of the fitted model, and gets its reply as it is."""
    answer = '{"part": "valve", "season": "spring"}'
    typed = Reply(None, [ScriptedCall("Finding", {"part": "valve", "season": "spring"})])
    reply = Reply(answer) if method == "json_schema" else typed
    with cc.open_store("memory:") as store, FakeVendors(Scripted([reply, reply])) as fake:
        for llm in (chat(fake), fit(chat(fake), store, conversation="typed")):
            found = llm.with_structured_output(Finding, method=method).invoke([PROMPT, HumanMessage(QUESTION)])  # pyright: ignore[reportArgumentType]
            assert found == Finding(part="valve", season="spring")
        assert fake.records[0].raw == fake.records[1].raw
        assert [message.role for message in store.load("typed")] == ["user", "assistant"]


def test_a_node_that_is_tried_again_sends_the_same() -> None:
    """Guarantee 9.7: a failed request is recorded as unanswered, and its messages are stored once."""
    faults = listed(None, overloaded(), overloaded(), None)
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["Fine.", "Good."]), faults=faults) as fake:
        llm = fit(chat(fake), store)
        graph = StateGraph(MessagesState)
        policy = RetryPolicy(max_attempts=2, initial_interval=0, jitter=False, retry_on=InternalServerError)
        graph.add_node("chat", answering(llm), retry_policy=policy)
        graph.add_edge(START, "chat")
        compiled: Any = graph.compile(checkpointer=InMemorySaver())
        compiled.invoke(asked("How are you?"), thread("report"))
        with pytest.raises(InternalServerError):
            compiled.invoke(asked("And now?"), thread("report"))
        compiled.invoke(None, thread("report"))
        assert len({record.raw for record in fake.records[1:]}) == 1
        assert texts(store) == ["How are you?", "Fine.", "And now?", "Good."]
        assert len(store.branches("report")) == 1


def test_an_interrupted_tool_continues_where_it_was() -> None:
    """The results that were there, and the one that a person gave, follow the calls of one reply."""

    @tool
    def ask_person(question: str) -> str:
        """Ask a person."""
        return interrupt(question)

    calls = [ScriptedCall("add", {"first": 1, "second": 2}), ScriptedCall("ask_person", {"question": "Which one?"})]
    with cc.open_store("memory:") as store, FakeVendors(Scripted([Reply(None, calls), "Done."])) as fake:
        graph = make_graph(fit(chat(fake), store).bind_tools([add, ask_person]), [add, ask_person])
        paused = graph.invoke(asked(QUESTION), thread("report"))
        assert paused["__interrupt__"][0].value == "Which one?"
        assert texts(store) == [QUESTION, "add ask_person"]
        graph.invoke(Command(resume="The second."), thread("report"))
        assert texts(store) == [QUESTION, "add ask_person", "3", "The second.", "Done."]
        assert len(store.branches("report")) == 1


def test_a_call_that_a_person_changed_is_a_branch() -> None:
    """Guarantee 3.4: what the model asked for stays on the branch that was left."""
    call = Reply(None, [ScriptedCall("add", {"first": 1, "second": 2})])
    with cc.open_store("memory:") as store, FakeVendors(Scripted([call, "Seven."])) as fake:
        graph = make_graph(fit(chat(fake), store).bind_tools([add]), [add], interrupt_before=["tools"])
        graph.invoke(asked("Add."), thread("report"))
        reply = state_of(graph)[-1]
        assert isinstance(reply, AIMessage)
        changed = {**reply.tool_calls[0], "args": {"first": 3, "second": 4}}
        graph.update_state(thread("report"), {"messages": [reply.model_copy(update={"tool_calls": [changed]})]})
        graph.invoke(None, thread("report"))
        assert texts(store) == ["Add.", "add", "7", "Seven."]
        asked_for = {
            call.arguments["first"]
            for branch in store.branches("report")
            for message in store.load("report", branch=branch.number)
            for call in message.tool_calls
        }
        assert asked_for == {1, 3}


def test_a_state_that_goes_back_is_a_branch_and_may_go_on_again() -> None:
    """Guarantee 3.4: an answer that was given before the checkpoint is stored once, and no later one is lost."""
    replies = [f"Answer {number}." for number in range(5)]
    with cc.open_store("memory:") as store, FakeVendors(Scripted(replies)) as fake:
        graph = make_graph(fit(chat(fake), store), ())
        for text in ("first", "second"):
            graph.invoke(asked(text), thread("report"))
        before, *_ = [each for each in graph.get_state_history(thread("report")) if len(each.values["messages"]) == 2]
        latest = graph.get_state(thread("report")).config
        graph.invoke(asked("another second"), before.config)
        assert texts(store) == ["first", "Answer 0.", "another second", "Answer 2."]
        again, *_ = [
            each
            for each in graph.get_state_history(thread("report"))
            if each.next == ("chat",) and each.values["messages"][-1].text == "second"
        ]
        graph.invoke(None, again.config)  # the same request again
        assert texts(store) == ["first", "Answer 0.", "second", "Answer 1."]  # the fake model answers the same again
        assert len(store.branches("report")) == 3
        graph.invoke(asked("third"), latest)
        assert [text for text in texts(store) if text.startswith("A")] == ["Answer 0.", "Answer 1.", "Answer 3."]
        assert branches(store, "report") == {
            ("first", "Answer 0.", "another second", "Answer 2."),
            ("first", "Answer 0.", "second", "Answer 1."),
            ("first", "Answer 0.", "second", "Answer 1.", "third", "Answer 3."),
        }
        assert list(scan_store(store)) == []


def test_nodes_that_call_at_once_lose_nothing() -> None:
    """Each reply to the same messages is a branch; what follows has both, in the order of the graph."""
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["One.", "Two.", "Both."])) as fake:
        llm = fit(chat(fake), store)
        graph = StateGraph(MessagesState)
        for name in ("left", "right"):
            graph.add_node(name, answering(llm, f"You are {name}."))
            graph.add_edge(START, name)
        graph.add_node("both", answering(llm))
        graph.add_edge(["left", "right"], "both")
        compiled: Any = graph.compile(checkpointer=InMemorySaver())
        compiled.invoke(asked(QUESTION), thread("report"))
        state = [each.text for each in state_of(compiled)]
        assert sorted(state) == sorted([QUESTION, "One.", "Two.", "Both."])
        assert texts(store) == state
        assert {text for branch in branches(store, "report") for text in branch} == {*state}
        assert not fake.refused
        assert list(scan_store(store)) == []


def test_agents_with_prompts_of_their_own_share_a_conversation() -> None:
    """With a name for each, the prefix of one does not end that of the other."""
    with cc.open_store("memory:") as store, FakeVendors(Scripted([f"Part {each}." for each in range(4)])) as fake:
        planner, writer = [fit(chat(fake), store, agent=name) for name in ("planner", "writer")]
        graph = chain(answering(planner, "Plan."), answering(writer, "Write."))
        for text in ("first", "second"):
            graph.invoke(asked(text), thread("report"))
        assert texts(store) == ["first", "Part 0.", "Part 1.", "second", "Part 2.", "Part 3."]
        assert len(store.branches("report")) == 1
        for name in ("planner", "writer"):
            compiler = cc.MessageCompiler(store, "openai-chat:gpt-4.1")
            record = compiler.explain("report", name=name).record
            assert (record.request, record.epoch) == (2, 1)


@pytest.mark.parametrize("calls_itself", [False, True])
def test_a_subgraph_with_the_messages_of_its_graph_continues_them(calls_itself: bool) -> None:
    """Its namespace is new in each run: a conversation of its own would store the whole history again."""
    with cc.open_store("memory:") as store, FakeVendors(Scripted([f"Answer {each}." for each in range(4)])) as fake:
        llm = fit(chat(fake), store)
        inner = make_graph(llm, (), checkpointer=None)
        graph = chain(answering(llm), inner) if calls_itself else chain(inner)
        for text in ("first", "second"):
            graph.invoke(asked(text), thread("report"))
        assert [each.name for each in store.conversations()] == ["report"]
        assert texts(store) == [each.text for each in state_of(graph)]
        assert len(store.branches("report")) == 1


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_subgraph_with_messages_of_its_own_is_a_conversation(is_kept: bool) -> None:
    """One for each run; one for all of them if LangGraph keeps its state."""
    with cc.open_store("memory:") as store, FakeVendors(Scripted([f"Answer {each}." for each in range(4)])) as fake:
        llm = fit(chat(fake), store)
        inner = make_graph(llm, (), checkpointer=is_kept or None)

        def look_up(state: MessagesState) -> Any:
            return {"messages": inner.invoke(asked(f"Look up: {state['messages'][-1].text}"))["messages"][-1]}

        graph = chain(answering(llm), look_up)
        for text in ("first", "second"):
            graph.invoke(asked(text), thread("report"))
        assert texts(store) == ["first", "Answer 0.", "Answer 1.", "second", "Answer 2."]
        others = [texts(store, each.name) for each in store.conversations() if each.name != "report"]
        parts = [["Look up: Answer 0.", "Answer 1."], ["Look up: Answer 2.", "Answer 3."]]
        assert sorted(others) == ([[*parts[0], *parts[1]]] if is_kept else parts)


def test_a_workflow_of_functions_is_a_conversation() -> None:
    """LangGraph's functional API runs a task in a namespace of its own."""
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["One.", "Two."])) as fake:
        llm = fit(chat(fake), store)

        @task
        def answer(messages: list[AnyMessage]) -> AnyMessage:
            return llm.invoke(messages)

        @entrypoint(checkpointer=InMemorySaver())
        def work(text: str, *, previous: list[AnyMessage] | None = None) -> Any:
            messages = [*(previous or []), HumanMessage(text)]
            reply = answer(messages).result()
            return entrypoint.final(value=reply.text, save=[*messages, reply])

        assert [work.invoke(text, thread("report")) for text in ("first", "second")] == ["One.", "Two."]
        assert texts(store) == ["first", "One.", "second", "Two."]


def test_a_conversation_is_named_by_the_thread_or_by_the_program() -> None:
    """Without a thread, the first message of a graph names it. Without an id, there is nothing to name it by."""
    with cc.open_store("memory:") as store, FakeVendors(Scripted([f"{each}." for each in range(4)])) as fake:
        llm = chat(fake)
        named = fit(llm, store, conversation=lambda config: f"user {config['configurable']['user']}")
        chain(answering(named)).invoke(asked("Hello."), thread("report", user=7))
        fit(llm, store, conversation="all").invoke("Hello.")
        first = HumanMessage("Hello.", id="m1")
        make_graph(fit(llm, store), (), checkpointer=None).invoke({"messages": [first]})
        assert sorted([each.name for each in store.conversations()]) == ["all", "langchain-m1", "user 7"]
        with pytest.raises(cc.errors.InvalidSetting, match="thread_id"):
            fit(llm, store).invoke("Hello.")
        assert len(fake.records) == 3


def test_a_stream_that_is_left_early_is_recorded_as_unanswered() -> None:
    """The next request sends the same messages again, and the store has them once."""
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["A long answer.", "Another."])) as fake:
        llm = fit(chat(fake), store, conversation="report")
        stream = llm.stream("Hello.")
        next(stream)
        stream.close()  # pyright: ignore[reportAttributeAccessIssue]
        (lost,) = load_unanswered_requests(store, "report")
        assert "the stream ended early" in lost.why
        assert llm.invoke("Hello.").text == "Another."
        assert texts(store) == ["Hello.", "Another."]


class Plain(SimpleChatModel):
    """A model that implements one method only. LangChain makes the others of it."""

    @property
    def _llm_type(self) -> str:
        return "plain"

    def _call(self, messages: list[Any], *args: Any, **settings: Any) -> str:
        return f"{len(messages)} messages"


def test_a_model_that_implements_one_method_is_recorded_once() -> None:
    """LangChain calls one of its methods from the others, and asks the class if it can stream."""
    with cc.open_store("memory:") as store:
        llm = fit(Plain(), store, conversation="plain", model="openai-chat:gpt-4.1")
        assert llm.invoke("Hello.").text == "1 messages"
        assert LOOP.run(llm.ainvoke([*store_as_messages(store), HumanMessage("Again.")])).text == "3 messages"
        assert [each.text for each in llm.stream([*store_as_messages(store), HumanMessage("More.")])] == ["5 messages"]
        assert texts(store, "plain") == ["Hello.", "1 messages", "Again.", "3 messages", "More.", "5 messages"]
        assert len(store.branches("plain")) == 1


def store_as_messages(store: cc.Store) -> list[AnyMessage]:
    kinds: dict[str, Any] = {"user": HumanMessage, "assistant": AIMessage}
    return [kinds[message.role](message.text) for message in store.load("plain")]


def test_what_is_not_a_model_is_refused() -> None:
    """A chain has no place of its own for what is cut."""
    with cc.open_store("memory:") as store, FakeVendors(Scripted([])) as fake:
        both = chat(fake).with_fallbacks([chat(fake)])
        with pytest.raises(cc.errors.InvalidSetting, match="Fit each model before you combine it"):
            fit(both, store)
