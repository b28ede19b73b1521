"""Strands agents with and without the plugin."""

import asyncio
from typing import Any

import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel

import contextc as cc
from contextc.adapters.strands import ContextcPlugin
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.vendor import KEY
from tests.frameworks import paged_report
from tests.frameworks.paged_report import ANSWER, QUESTION, STEPS, WINDOW, check_fitted, reading


def openai(fake: FakeVendors) -> Any:
    return OpenAIModel(client_args={"base_url": fake.url("openai_chat"), "api_key": KEY}, model_id="gpt-4.1")


def anthropic(fake: FakeVendors) -> Any:
    client = {"base_url": fake.url("anthropic"), "api_key": KEY, "max_retries": 0}
    return AnthropicModel(client_args=client, model_id="claude-opus-5-5", max_tokens=2_000)


MODELS = {"openai_chat": openai, "anthropic": anthropic}


def make_agent(model: Any, *plugins: ContextcPlugin) -> Agent:
    return Agent(
        model=model,
        tools=[tool(paged_report.read_page)],
        system_prompt="Answer from the report.",
        callback_handler=None,
        conversation_manager=NullConversationManager(),
        plugins=list(plugins),
    )


async def ask_twice(agent: Agent) -> str:
    await agent.invoke_async(QUESTION)
    return str(await agent.invoke_async("And the pump?")).strip()


@pytest.mark.parametrize("name", [*MODELS])
def test_what_fits_is_sent_unchanged_and_recorded(name: str) -> None:
    """Guarantees 21.2, 21.4 and 21.6."""
    runs: list[tuple[str, list[bytes], int]] = []
    with cc.open_store("memory:") as store:
        for plugins in ([], [ContextcPlugin(store, "report")]):
            with FakeVendors(reading(4)) as fake:
                agent = make_agent(MODELS[name](fake), *plugins)
                answer = asyncio.run(ask_twice(agent))
                assert not fake.refused
                runs.append((answer, [record.raw for record in fake.records], len(agent.messages)))
        assert runs[0] == runs[1]
        stored = store.load("report")
        assert [message.role for message in stored][:3] == ["user", "assistant", "tool"]
        assert sum(message.role == "assistant" for message in stored) == 10
        assert all(message.usage and message.usage.input for message in stored if message.role == "assistant")


@pytest.mark.parametrize("name", [*MODELS])
def test_what_does_not_fit_is_cut_in_large_steps(name: str) -> None:
    """Guarantees 21.4 and 21.5: the agent keeps all of its messages."""
    with FakeVendors(reading(STEPS), window=WINDOW) as fake, cc.open_store("memory:") as store:
        agent = make_agent(MODELS[name](fake), ContextcPlugin(store, "report", window=WINDOW, output=1_000))
        assert str(agent(QUESTION)).strip() == ANSWER
        check_fitted(fake)
        assert len(agent.messages) == 2 * STEPS + 2
        assert sum(message.role == "assistant" for message in store.load("report")) == STEPS + 1
