"""Strands agents with and without the plugin."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.session.file_session_manager import FileSessionManager

import contextc as cc
from contextc.adapters.history_functions import history_functions
from contextc.adapters.strands import ContextcPlugin
from contextc.inspection.preview import find_channels
from contextc.inspection.request_timeline import load_timeline, load_unanswered_requests
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.faults import listed, overloaded
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.frameworks.paged_report import ANSWER, QUESTION, STEPS, WINDOW, check_fitted, reading
from tests.frameworks.strands.report_agent import MODELS, make_agent


async def ask_twice(agent: Agent, *, is_streamed: bool = False) -> str:
    found: Any = None
    for text in (QUESTION, "And the pump?"):
        if is_streamed:
            events = [event async for event in agent.stream_async(text)]
            assert sum("data" in event for event in events) > 1
            found = events[-1]["result"]
        else:
            found = await agent.invoke_async(text)
    return str(found).strip()


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("name", [*MODELS])
def test_what_fits_is_sent_unchanged_and_recorded(name: str, is_streamed: bool) -> None:
    """Guarantees 21.2, 21.4 and 21.6: the bytes are those of Strands, and only what is new is stored."""
    runs: list[tuple[str, list[bytes], int]] = []
    with cc.open_store("memory:") as store:
        for plugins in ([], [ContextcPlugin(store, "report")]):
            with FakeVendors(reading(4)) as fake:
                agent = make_agent(MODELS[name](fake), *plugins)
                answer = asyncio.run(ask_twice(agent, is_streamed=is_streamed))
                assert not fake.refused
                runs.append((answer, [record.raw for record in fake.records], len(agent.messages)))
        assert runs[0] == runs[1]
        stored = store.load("report")
        assert [message.role for message in stored][:3] == ["user", "assistant", "tool"]
        assert sum(message.role == "assistant" for message in stored) == 10
        rows = load_timeline(store, "report")
        assert [row.record.usage.input for row in rows] == [each.tokens.input for each in fake.records if each.tokens]
        assert [row.record.usage.cache_read for row in rows] == [
            each.tokens.read for each in fake.records if each.tokens
        ]
        assert {row.record.epoch for row in rows} == {1}


@pytest.mark.parametrize("name", [*MODELS])
def test_what_does_not_fit_is_cut_in_large_steps(name: str) -> None:
    """Guarantees 21.4 and 21.5: the agent keeps all of its messages."""
    with FakeVendors(reading(STEPS), window=WINDOW) as fake, cc.open_store("memory:") as store:
        agent = make_agent(MODELS[name](fake), ContextcPlugin(store, "report", window=WINDOW, output=1_000))
        assert str(agent(QUESTION)).strip() == ANSWER
        check_fitted(fake)
        assert len(agent.messages) == 2 * STEPS + 2
        assert sum(message.role == "assistant" for message in store.load("report")) == STEPS + 1


def test_a_failed_request_is_recorded_and_the_next_one_continues() -> None:
    """Guarantees 9.7 and 21.6: the error is that of Strands, and the retry sends the same."""
    faults = listed(overloaded(), None)
    with FakeVendors(Scripted(["Fine."]), faults=faults) as fake, cc.open_store("memory:") as store:
        agent = make_agent(MODELS["anthropic"](fake), ContextcPlugin(store, "chat"), retry_strategy=None)

        async def ask_again() -> None:
            with pytest.raises(Exception, match=r"(?i)overloaded"):
                await agent.invoke_async("How are you?")
            (lost,) = load_unanswered_requests(store, "chat")
            assert "overloaded" in lost.why.lower()
            assert [message.text for message in store.load("chat")] == ["How are you?"]
            agent.messages.pop()
            await agent.invoke_async("How are you?")

        asyncio.run(ask_again())
        assert fake.records[0].raw == fake.records[1].raw
        assert [message.text for message in store.load("chat")] == ["How are you?", "Fine."]
        assert load_unanswered_requests(store, "chat") == []


@pytest.mark.parametrize("name", [*MODELS])
def test_another_process_continues_with_the_recorded_messages(name: str, tmp_path: Path) -> None:
    """Guarantee 21.1: what was sent comes back equal, so a second handle extends the same prefix."""
    address = f"sqlite:///{tmp_path / 'strands.db'}"
    with FakeVendors(reading(4)) as fake:
        for text in (QUESTION, "And the pump?"):
            with cc.open_store(address) as store:
                plugin = ContextcPlugin(store, "report")
                agent = make_agent(MODELS[name](fake), plugin, messages=plugin.load())
                agent(text)
                assert plugin.load() == [{"role": each["role"], "content": each["content"]} for each in agent.messages]
                assert len(store.branches("report")) == 1
        assert len(fake.records) == 10
        assert fake.breaks() == []


def test_a_session_manager_and_the_plugin_agree(tmp_path: Path) -> None:
    """Guarantee 21.2: a session that Strands restores adds nothing to the record."""
    with FakeVendors(reading(4)) as fake, cc.open_store("memory:") as store:
        for text in (QUESTION, "And the pump?"):
            session = FileSessionManager("report", storage_dir=str(tmp_path))
            agent = make_agent(MODELS["anthropic"](fake), ContextcPlugin(store, "report"), session_manager=session)
            agent(text)
        assert fake.breaks() == []
        assert len(store.branches("report")) == 1
        assert sum(message.role == "assistant" for message in store.load("report")) == 10


def test_what_strands_cuts_off_stays_in_the_record() -> None:
    """Guarantee 21.3: where the manager drops first messages, the context starts later."""
    with FakeVendors(Scripted(["One.", "Two.", "Three."])) as fake, cc.open_store("memory:") as store:
        manager = SlidingWindowConversationManager(window_size=2)
        agent = make_agent(MODELS["openai_chat"](fake), ContextcPlugin(store, "cut"), conversation_manager=manager)
        for text in ("first", "second", "third"):
            agent(text)
        assert [message.text for message in store.load("cut")] == ["first", "One.", "second", "Two.", "third", "Three."]
        assert len(store.branches("cut")) == 1
        assert b"first" in fake.records[1].raw
        assert b"first" not in fake.records[2].raw


def test_reasoning_of_the_model_is_sent_back() -> None:
    """Guarantee 21.4: signed reasoning is not lost where a request was cut."""

    def reply(ask: Any) -> Reply:
        made = reading(STEPS)(ask)
        return Reply(made.text, made.calls, reasoning=f"I think about page {ask.number}.")

    with FakeVendors(reply, window=WINDOW) as fake, cc.open_store("memory:") as store:
        model = MODELS["anthropic"](fake)
        thinking = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
        model.update_config(model_id="claude-sonnet-4-5", max_tokens=2_000, params=thinking)
        make_agent(model, ContextcPlugin(store, "report", window=WINDOW))(QUESTION)
        check_fitted(fake)
        assert all(b'"signature"' in record.raw for record in fake.records[1:])


@pytest.mark.parametrize(
    ("name", "channel"),
    [
        ("openai_chat", ("openai-chat", "gpt-4.1")),
        ("openai_responses", ("openai", "gpt-5.5")),
        ("anthropic", ("anthropic", "claude-opus-5-5")),
        ("bedrock", ("bedrock", "us.anthropic.claude-opus-5-5")),
    ],
)
def test_the_provider_is_that_of_the_model(name: str, channel: tuple[str, str]) -> None:
    """Guarantee 21.6: figures and costs are those of the model that served the request, also of a subclass."""
    with FakeVendors(Scripted(["Fine."])) as fake, cc.open_store("memory:") as store:
        model = MODELS[name](fake)
        model.__class__ = type("OwnModel", (type(model),), {})
        make_agent(model, ContextcPlugin(store, "chat"))("How are you?")
        (found,) = find_channels(store, "chat")
        assert (found.provider, found.model) == channel


def test_a_name_is_needed_to_load() -> None:
    """Guarantee 21.1."""
    with cc.open_store("memory:") as store, pytest.raises(cc.errors.InvalidSetting, match="conversation"):
        ContextcPlugin(store).load()


def test_an_agent_searches_its_recorded_history() -> None:
    """Guarantee 22.3: Strands runs the functions as any other tool."""
    call = Reply(None, [ScriptedCall("search_history", {"query": "valve spring"})])
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["Noted.", call, "In spring."])) as fake:
        functions = [tool(each) for each in history_functions(store, "report")]
        agent = Agent(
            model=MODELS["openai_chat"](fake),
            tools=[*functions],
            callback_handler=None,
            plugins=[ContextcPlugin(store, "report")],
        )
        asyncio.run(agent.invoke_async("The valve was replaced in spring."))
        answer = asyncio.run(agent.invoke_async("When was it replaced?"))
        results = [result.text for message in store.load("report") for result in message.tool_results]
    assert "r1 (user)\nThe valve was replaced in spring." in results[0]
    assert str(answer).strip() == "In spring."
