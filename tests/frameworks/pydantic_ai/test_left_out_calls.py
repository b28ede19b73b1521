"""Calls that a cut shortened or left out are not in the requests of pydantic-ai."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from anthropic import AsyncAnthropic
from google.genai import Client, types
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

import contextc as cc
from contextc.adapters.pydantic_ai import PrepareRequests
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.vendor import KEY
from tests.frameworks.noted_report import (
    ANSWER,
    QUESTION,
    STEPS,
    WINDOW,
    check_item_ids,
    check_requests,
    note_page,
    noting,
)

SETTINGS: ModelSettings = {"max_tokens": 1_000}
STATELESS = OpenAIResponsesModelSettings(max_tokens=1_000, openai_store=False)


@asynccontextmanager
async def chat(fake: FakeVendors) -> AsyncGenerator[Model]:
    async with AsyncOpenAI(base_url=fake.url("openai_chat"), api_key=KEY, max_retries=0) as client:
        yield OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(openai_client=client), settings=SETTINGS)


@asynccontextmanager
async def responses(fake: FakeVendors) -> AsyncGenerator[Model]:
    async with AsyncOpenAI(base_url=fake.url("openai_responses"), api_key=KEY, max_retries=0) as client:
        yield OpenAIResponsesModel("gpt-5.5", provider=OpenAIProvider(openai_client=client), settings=STATELESS)


@asynccontextmanager
async def anthropic(fake: FakeVendors) -> AsyncGenerator[Model]:
    async with AsyncAnthropic(base_url=fake.url("anthropic"), api_key=KEY, max_retries=0) as client:
        yield AnthropicModel("claude-opus-5-5", provider=AnthropicProvider(anthropic_client=client), settings=SETTINGS)


@asynccontextmanager
async def gemini(fake: FakeVendors) -> AsyncGenerator[Model]:
    client = Client(api_key=KEY, http_options=types.HttpOptions(base_url=fake.url("gemini")))
    try:
        yield GoogleModel("gemini-3.5-flash", provider=GoogleProvider(client=client), settings=SETTINGS)
    finally:
        await client.aio.aclose()


MODELS: dict[str, Callable[[FakeVendors], AbstractAsyncContextManager[Model]]] = {
    "openai_chat": chat,
    "openai_responses": responses,
    "anthropic": anthropic,
    "gemini": gemini,
}


@pytest.mark.parametrize("reasons", [False, True])
@pytest.mark.parametrize("name", [*MODELS])
def test_each_request_has_the_calls_that_are_left(name: str, reasons: bool) -> None:
    """Guarantees 5.4 and 21.4: a call without its result is refused by every provider."""
    with FakeVendors(noting(reasons=reasons), window=WINDOW) as fake, cc.open_store("memory:") as store:

        async def work() -> str:
            async with MODELS[name](fake) as model:
                agent = Agent(
                    model,
                    instructions="Answer from the report.",
                    tools=[note_page],
                    capabilities=[PrepareRequests(store, window=WINDOW)],
                )
                result = await agent.run(QUESTION, conversation=Conversation(conversation_id="report"))
                assert len(result.all_messages()) == 2 * STEPS + 2
                return result.output

        assert asyncio.run(work()) == ANSWER
        check_requests(fake, store, "report")
        if reasons and name == "openai_responses":
            check_item_ids(fake)
