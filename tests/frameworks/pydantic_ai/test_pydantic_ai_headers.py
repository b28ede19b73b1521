"""Headers of requests that pydantic-ai sends."""

import asyncio

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import contextc as cc
from contextc.adapters.pydantic_ai import PrepareRequests
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import KEY


def test_headers_are_sent_beside_those_of_the_agent() -> None:
    async def ask(url: str) -> str:
        async with AsyncOpenAI(api_key=KEY, base_url=url) as client:
            model = OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(openai_client=client))
            provider = cc.provider("openai-chat:gpt-4.1", headers={"x-team": "search"})
            fitting = PrepareRequests(cc.open_store("memory:"), model=provider)
            agent = Agent(model, capabilities=[fitting], model_settings={"extra_headers": {"x-trace": "1"}})
            return (await agent.run("Hi!")).output

    with FakeVendors(Scripted([Reply(text="Hello.")])) as vendors:
        assert asyncio.run(ask(vendors.url("openai_chat"))) == "Hello."
        (record,) = vendors.records
    assert (record.headers["x-team"], record.headers["x-trace"]) == ("search", "1")
