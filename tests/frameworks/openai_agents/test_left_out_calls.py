"""Calls that a cut shortened or left out are not in the requests of OpenAI Agents."""

import asyncio
from collections.abc import Callable

import pytest
from agents import Agent, Model, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, function_tool
from openai import AsyncOpenAI
from openai.types.shared import Reasoning

import contextc as cc
from contextc.adapters.openai_agents import RequestFitter, Session
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.vendor import KEY
from tests.frameworks.noted_report import QUESTION, WINDOW, check_item_ids, check_requests, note_page, noting
from tests.frameworks.openai_agents.scripted_runs import run

CHAT, RESPONSES = "openai-chat:gpt-4.1", "openai:gpt-5.5"
STATELESS = ModelSettings(
    store=False, max_tokens=1_000, response_include=["reasoning.encrypted_content"], reasoning=Reasoning(effort="low")
)
MODELS: dict[str, Callable[[AsyncOpenAI], Model]] = {
    CHAT: lambda client: OpenAIChatCompletionsModel("gpt-4.1", client),
    RESPONSES: lambda client: OpenAIResponsesModel("gpt-5.5", client),
}


@pytest.mark.parametrize("with_session", [True, False])
@pytest.mark.parametrize(("name", "reasons"), [(CHAT, False), (RESPONSES, False), (RESPONSES, True)])
def test_each_request_has_the_calls_that_are_left(name: str, reasons: bool, with_session: bool) -> None:
    """Guarantees 5.4 and 21.4: a call without its result is refused by every provider."""
    with FakeVendors(noting(reasons=reasons), window=WINDOW) as fake, cc.open_store("memory:") as store:
        session = Session("report", store) if with_session else None
        provider = cc.provider(name, window=WINDOW)
        fitter = session.fitter(provider) if session else RequestFitter(store, "report", provider)

        async def work() -> None:
            url = fake.url("openai_chat" if name == CHAT else "openai_responses")
            async with AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
                settings = ModelSettings(max_tokens=1_000) if name == CHAT else STATELESS
                agent = Agent(
                    name="worker",
                    instructions="Answer from the report.",
                    model=MODELS[name](client),
                    model_settings=settings,
                    tools=[function_tool(note_page)],
                )
                await run(agent, QUESTION, session, fitter)

        asyncio.run(work())
        check_requests(fake, store, "report", shortens=False)
        if reasons:
            check_item_ids(fake)
