"""Agents of Google's ADK give the same answers with the plugin as without it, and their history is recorded."""

import asyncio
import gc
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.memory import InMemoryMemoryService
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.genai import types
from google.genai.errors import ServerError

import contextc as cc
from contextc.adapters.google_adk import ContextcPlugin
from contextc.adapters.history_functions import history_functions
from contextc.errors import ContextOverflow
from contextc.inspection.preview import find_channels
from contextc.inspection.request_timeline import load_unanswered_requests
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.faults import listed, overloaded
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import AcceptedRequest
from tests.frameworks.google_adk.scripted_agents import (
    MODELS,
    SESSION,
    USER,
    anthropic,
    ask,
    find_answer,
    gemini,
    gemini_signed,
    make_agent,
    make_runner,
    run,
)
from tests.frameworks.paged_report import ANSWER, QUESTION, STEPS, WINDOW, check_fitted, list_cuts, read_page, reading
from tests.frameworks.shared_conversation import PROCESSES

QUESTIONS = (QUESTION, "And the pump?")
FEW_STEPS = 4
AGENTS = {"gemini-2.5-flash": "reader", "gemini-3-flash-preview": "helper"}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", [*MODELS])
def test_what_fits_is_sent_unchanged_and_recorded_once(name: str, streamed: bool) -> None:
    """Guarantees 21.2, 21.4 and 21.6: the same bytes as without the plugin, and every request has its usage."""
    runs: list[tuple[list[str], list[bytes]]] = []
    with cc.open_store("memory:") as store:
        for plugins in ([], [ContextcPlugin(store)]):
            with FakeVendors(reading(FEW_STEPS)) as fake:

                async def work(fake: FakeVendors = fake, plugins: list[ContextcPlugin] = plugins) -> list[str]:
                    runner = make_runner(make_agent(MODELS[name](fake)), plugins)
                    return [find_answer(await ask(runner, each, streamed=streamed)) for each in QUESTIONS]

                answers = run(work())
                assert not fake.refused
                assert not fake.breaks()
                runs.append((answers, [record.raw for record in fake.records]))
        assert runs[0][0] == [ANSWER, ANSWER]
        assert runs[0] == runs[1]
        assert len(store.branches(SESSION)) == 1
        stored = store.load(SESSION)
        step = ["assistant", "tool"]
        assert [message.role for message in stored] == ["user", *step * FEW_STEPS, "assistant"] * 2
        replies = [message for message in stored if message.role == "assistant"]
        usages = [record.tokens for record in fake.records if record.tokens]
        assert [(each.usage.input, each.usage.output, each.usage.cache_write) for each in replies if each.usage] == [
            (each.input, each.output, each.written) for each in usages
        ]
        assert {each.finish for each in replies} == {"tool_calls", "stop"}
        (channel,) = find_channels(store, SESSION)
        assert f"{channel.provider}:{channel.model}" == name
        record = cc.MessageCompiler(store, name).explain(SESSION).record
        assert (record.request, record.epoch) == (2 * (FEW_STEPS + 1), 1)
        assert load_unanswered_requests(store, SESSION) == []


@pytest.mark.parametrize("name", [*MODELS])
def test_what_does_not_fit_is_cut_in_large_steps(name: str) -> None:
    """Guarantees 21.4 and 21.5: the session keeps all events, while each request fits."""
    with FakeVendors(reading(STEPS), window=WINDOW) as fake, cc.open_store("memory:") as store:

        async def work() -> tuple[str, int]:
            plugin = ContextcPlugin(store, window=WINDOW, output=1_000)
            runner = make_runner(make_agent(MODELS[name](fake)), [plugin])
            answer = find_answer(await ask(runner, QUESTION))
            session = await runner.session_service.get_session(app_name="report", user_id=USER, session_id=SESSION)
            return answer, len(session.events) if session else 0

        assert run(work()) == (ANSWER, 2 + 2 * STEPS)
        check_fitted(fake)
        assert len(store.load(SESSION)) == 2 + 2 * STEPS


@pytest.mark.parametrize("window", [None, WINDOW])
def test_what_adk_adds_to_one_request_is_sent_and_not_recorded(window: int | None) -> None:
    """Guarantees 21.2 to 21.5: with a static instruction, the other one is a content that moves with each request.

    It is large in the second turn, when the window is full.
    """
    sent: list[list[bytes]] = []
    steps = 16 if window else FEW_STEPS
    sizes: dict[str | None, int] = {QUESTIONS[0]: 10, QUESTIONS[1]: 1_500}

    def instruct(context: ReadonlyContext) -> str:
        content = context.user_content
        return "Be brief. " * sizes[content.parts[0].text] if content and content.parts else ""

    with cc.open_store("memory:") as store:
        for plugins in ([ContextcPlugin(store, window=window, output=1_000)], []):
            if window and not plugins:
                continue
            with FakeVendors(reading(steps), window=window) as fake:

                async def work(fake: FakeVendors = fake, plugins: list[ContextcPlugin] = plugins) -> None:
                    agent = make_agent(gemini(fake), static_instruction="You know a report.", instruction=instruct)
                    runner = make_runner(agent, plugins)
                    for question in QUESTIONS:
                        assert find_answer(await ask(runner, question)) == ANSWER

                run(work())
                assert not fake.refused
                assert not fake.defects
                sent.append([record.raw for record in fake.records])
        assert window or sent[0] == sent[1]
        for raw in sent[0]:
            contents = json.loads(raw)["contents"]
            (at,) = [at for at, each in enumerate(contents) if "Be brief." in each["parts"][0].get("text", "")]
            rest = contents[at + 1 :]
            assert rest in ([], *[[{"role": "user", "parts": [{"text": each}]}] for each in QUESTIONS])
            assert at == 0 or rest or "functionResponse" in contents[at - 1]["parts"][0]
        assert len(store.branches(SESSION)) == 1
        assert len(store.load(SESSION)) == 2 * (2 + 2 * steps)
        assert load_unanswered_requests(store, SESSION) == []


def test_preloaded_memory_is_sent_and_not_recorded() -> None:
    """Guarantee 21.2: ADK adds what it finds in its memory before the question, and then after the results."""
    with cc.open_store("memory:") as store, FakeVendors(reading(FEW_STEPS)) as fake:

        async def work() -> None:
            memory = InMemoryMemoryService()
            agent = make_agent(gemini(fake), tools=[read_page, PreloadMemoryTool()])
            runner = make_runner(agent, [ContextcPlugin(store)], memory=memory)
            await ask(runner, QUESTION, "earlier")
            sessions = runner.session_service
            earlier = await sessions.get_session(app_name="report", user_id=USER, session_id="earlier")
            assert earlier
            await memory.add_session_to_memory(earlier)
            for _ in range(2):
                await ask(runner, QUESTION)

        run(work())
        assert not fake.refused
        with_memory = [b"<PAST_CONVERSATIONS>" in record.raw for record in fake.records]
        assert with_memory == [False] * (FEW_STEPS + 1) + [True] * 2 * (FEW_STEPS + 1)
        assert len(store.branches(SESSION)) == 1
        assert len(store.load(SESSION)) == 2 * (2 + 2 * FEW_STEPS)


def test_a_failed_call_is_raised_unchanged_and_recorded() -> None:
    """Guarantees 9.7 and 21.6: the error is the model's own, and the request is stored without a reply."""
    faults = listed(None, overloaded(), None)
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["Fine.", "lost", "Good."]), faults=faults) as fake:

        async def work() -> None:
            runner = make_runner(make_agent(gemini(fake)), [ContextcPlugin(store)])
            await ask(runner, "How are you?")
            with pytest.raises(ServerError, match="overloaded"):
                await ask(runner, "And now?")
            (failed,) = load_unanswered_requests(store, SESSION)
            assert "overloaded" in failed.why
            await ask(runner, "And then?")

        run(work())
        texts = ["How are you?", "Fine.", "And now?", "And then?", "Good."]
        assert [message.text for message in store.load(SESSION)] == texts
        assert len(store.branches(SESSION)) == 1


class Waiting(BaseLlm):
    """A model that streams one piece, and then waits for ever."""

    model: str = "gemini-2.5-flash"
    reached: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="I ")]), partial=True)
        self.reached.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_cancelled_run_leaves_an_aborted_request(is_closed: bool) -> None:
    """Guarantee 21.6: ADK does not report a cancelled run; the next request finds it, or the end of the runner.

    Runners may share a plugin. To close one does not end the requests of others.
    """
    with cc.open_store("memory:") as store:
        plugin = ContextcPlugin(store)

        async def start(session: str) -> asyncio.Task[Any]:
            model = Waiting(reached=asyncio.Event())
            task = asyncio.create_task(ask(make_runner(make_agent(model), [plugin]), "one", session))
            await model.reached.wait()
            return task

        async def cancel(task: asyncio.Task[Any]) -> None:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        async def work() -> None:
            other = await start("other")
            await cancel(await start("first"))
            gc.collect()
            if is_closed:
                await make_runner(make_agent(Waiting(reached=asyncio.Event())), [plugin]).close()
            else:
                await cancel(await start("second"))
            (left,) = load_unanswered_requests(store, "first")
            assert left.why == "no reply was reported"
            (running,) = load_unanswered_requests(store, "other")
            assert "in progress" in running.why
            await cancel(other)

        run(work())


def test_a_run_that_is_closed_early_leaves_an_aborted_request() -> None:
    """Guarantee 21.6: the caller stops reading events in the middle of a reply."""
    with cc.open_store("memory:") as store:

        async def work() -> None:
            runner = make_runner(make_agent(Waiting(reached=asyncio.Event())), [ContextcPlugin(store)])
            message = types.Content(role="user", parts=[types.Part(text="one")])
            events: Any = runner.run_async(user_id=USER, session_id=SESSION, new_message=message)
            async for event in events:
                assert event.partial
                break
            await events.aclose()

        run(work())
        (left,) = load_unanswered_requests(store, SESSION)
        assert left.why == "no reply was reported"


def test_a_model_that_does_not_start_leaves_an_aborted_request() -> None:
    """Guarantee 21.6: ADK's limit on model calls is checked after the plugin."""
    from google.adk.agents.invocation_context import LlmCallsLimitExceededError
    from google.adk.agents.run_config import RunConfig

    with cc.open_store("memory:") as store, FakeVendors(reading(FEW_STEPS)) as fake:

        async def work() -> None:
            runner = make_runner(make_agent(gemini(fake)), [ContextcPlugin(store)])
            message = types.Content(role="user", parts=[types.Part(text=QUESTION)])
            config = RunConfig(max_llm_calls=2)
            with pytest.raises(LlmCallsLimitExceededError):
                async for _ in runner.run_async(
                    user_id=USER, session_id=SESSION, new_message=message, run_config=config
                ):
                    pass

        run(work())
        (left,) = load_unanswered_requests(store, SESSION)
        assert "2" in left.why


def test_agents_that_are_called_at_once_do_not_mix() -> None:
    """Guarantee 21.6: a single-turn agent that is called twice in one step has a conversation for each call."""

    def reply(request: AcceptedRequest) -> Reply:
        text = request.request.messages[-1].text
        if text == QUESTION:
            return Reply(None, [ScriptedCall("helper", {"request": each}) for each in ("one", "two")])
        return Reply(f"done with {text}" if "request" in text or text in ("one", "two") else ANSWER)

    with cc.open_store("memory:") as store, FakeVendors(reply) as fake:

        async def work() -> str:
            helper = make_agent(gemini(fake), "helper", mode="single_turn", description="Helps.")
            agent = make_agent(gemini(fake), sub_agents=[helper])
            return find_answer(await ask(make_runner(agent, [ContextcPlugin(store)]), QUESTION))

        assert run(work()) == ANSWER
        names = sorted(each.name for each in store.conversations())
        assert names[0] == SESSION
        assert [each.startswith(f"{SESSION}/helper@") for each in names[1:]] == [True, True]
        for name in names[1:]:
            question, answer = store.load(name)
            assert answer.text == f"done with {question.text}"
            assert answer.usage is not None
            assert load_unanswered_requests(store, name) == []


def test_agents_that_hand_over_have_conversations_of_their_own() -> None:
    """Guarantee 21.2: what ADK shows one agent of the other is stable, so neither history is rewritten."""

    def reply(request: AcceptedRequest) -> Reply:
        last, agent = request.request.messages[-1], AGENTS[request.model]
        for other in AGENTS.values():
            if last.text == f"To {other}." and other != agent:
                return Reply(None, [ScriptedCall("transfer_to_agent", {"agent_name": other})])
        return Reply(None, [ScriptedCall("read_page", {"number": 1})]) if last.role == "user" else Reply("Done.")

    with cc.open_store("memory:") as store, FakeVendors(reply) as fake:

        async def work() -> list[str]:
            helper = make_agent(gemini_signed(fake), "helper", description="Helps.")
            runner = make_runner(make_agent(gemini(fake), sub_agents=[helper]), [ContextcPlugin(store)])
            turns = ("Begin.", "To helper.", "Go on.", "To reader.", "Go on.", "To helper.")
            return [(await ask(runner, each))[-1].author for each in turns]

        assert run(work()) == ["reader", "helper", "helper", "reader", "reader", "helper"]
        assert not fake.refused
        assert sorted(each.name for each in store.conversations()) == [SESSION, f"{SESSION}/helper"]
        for name in (SESSION, f"{SESSION}/helper"):
            assert len(store.branches(name)) == 1
            assert load_unanswered_requests(store, name) == []


def test_a_rewound_session_becomes_a_branch() -> None:
    """Guarantee 21.3: what ADK removes from the history is kept."""
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["One.", "Two.", "Three."])) as fake:

        async def work() -> None:
            runner = make_runner(make_agent(gemini(fake)), [ContextcPlugin(store)])
            await ask(runner, "first")
            events = await ask(runner, "second")
            await runner.rewind_async(
                user_id=USER, session_id=SESSION, rewind_before_invocation_id=events[0].invocation_id
            )
            await ask(runner, "another second")

        run(work())
        assert [message.text for message in store.load(SESSION)] == ["first", "One.", "another second", "Three."]
        branches = [store.load(SESSION, branch=branch.number) for branch in store.branches(SESSION)]
        assert ["first", "One.", "second", "Two."] in [[message.text for message in branch] for branch in branches]


def run_in_process(folder: str, url: str, question: str) -> None:
    class Remote:
        def url(self, name: str) -> str:
            return url

    async def work() -> None:
        sessions = SqliteSessionService(f"{folder}/sessions.db")
        with cc.open_store(f"sqlite:///{folder}/agent.db") as store:
            agent = make_agent(anthropic(Remote()))
            runner = make_runner(agent, [ContextcPlugin(store, window=WINDOW, output=1_000)], sessions)
            assert find_answer(await ask(runner, question)) == ANSWER

    run(work())


def test_another_process_continues_the_conversation(tmp_path: Path) -> None:
    """Guarantees 21.1 and 21.5: what was sent is in the store, so that the next process extends the same prefix."""
    with FakeVendors(reading(30), window=WINDOW) as fake:
        found: list[int] = []
        for question in QUESTIONS:
            process = PROCESSES.Process(target=run_in_process, args=(str(tmp_path), fake.url("anthropic"), question))
            process.start()
            process.join(300)
            assert process.exitcode == 0
            found.append(len(fake.records))
        assert found == [31, 62]
        assert not fake.refused
        cuts = list_cuts(fake)
        assert cuts
        assert fake.records[31] not in cuts
    with cc.open_store(f"sqlite:///{tmp_path}/agent.db") as store:
        assert len(store.load(SESSION)) == 2 * (2 + 2 * 30)


def test_what_cannot_fit_is_not_sent() -> None:
    """Guarantee 21.4: ADK reports errors of plugins as RuntimeError, with the error as its cause."""
    with cc.open_store("memory:") as store, FakeVendors(reading(1)) as fake:
        runner = make_runner(make_agent(gemini(fake)), [ContextcPlugin(store, window=2_000, output=100)])
        with pytest.raises(RuntimeError, match="contextc") as raised:
            run(ask(runner, "word " * 5_000))
        assert isinstance(raised.value.__cause__, ContextOverflow)
        assert fake.records == []


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("projects/p/locations/l/publishers/google/models/gemini-2.5-pro", "gemini:gemini-2.5-pro"),
        ("anthropic/claude-opus-5-5", "anthropic:claude-opus-5-5"),
        ("vertex_ai/gemini-2.5-pro", "gemini:gemini-2.5-pro"),
        ("my-own-model", "gemini:my-own-model"),
    ],
)
def test_the_model_is_found_by_the_name_that_adk_has_for_it(model: str, expected: str) -> None:
    """Guarantee 21.6: names of Vertex AI and of litellm."""
    with cc.open_store("memory:") as store:
        names: list[str] = []

        def name(context: CallbackContext) -> str:
            names.append(f"{context.user_id} {context.session.id}")
            return names[-1]

        plugin = ContextcPlugin(store, conversation=name, window=8_000)

        class Silent(BaseLlm):
            async def generate_content_async(
                self, llm_request: LlmRequest, stream: bool = False
            ) -> AsyncGenerator[LlmResponse, None]:
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="Fine.")]))

        run(ask(make_runner(make_agent(Silent(model=model)), [plugin]), "hi"))
        assert names == [f"{USER} {SESSION}"]
        (channel,) = find_channels(store, names[0])
        assert f"{channel.provider}:{channel.model}" == expected


def test_an_agent_searches_its_recorded_history() -> None:
    """Guarantee 22.3: ADK runs the functions as any other tool."""
    call = Reply(None, [ScriptedCall("search_history", {"query": "valve spring"})])
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["Noted.", call, "In spring."])) as fake:

        async def work() -> str:
            agent = make_agent(gemini(fake), tools=[*history_functions(store, SESSION)])
            runner = make_runner(agent, [ContextcPlugin(store)])
            await ask(runner, "The valve was replaced in spring.")
            return find_answer(await ask(runner, "When was it replaced?"))

        assert run(work()) == "In spring."
        assert not fake.refused
        results = [result.text for message in store.load(SESSION) for result in message.tool_results]
    assert "r1 (user)" in results[0]
    assert "The valve was replaced in spring." in results[0]
