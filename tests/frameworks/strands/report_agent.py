"""Strands agents that read a report, on the strict fake vendors."""

from collections.abc import Sequence
from typing import Any

import boto3
from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models import CacheConfig
from strands.models.anthropic import AnthropicModel
from strands.models.bedrock import BedrockModel
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel

from contextc.adapters.strands import ContextcPlugin
from tests.fake_vendors.vendor import KEY
from tests.frameworks import paged_report

# Any: the fake vendors may be those of another process.


def openai(fake: Any) -> Any:
    client = {"base_url": fake.url("openai_chat"), "api_key": KEY, "max_retries": 0}
    return OpenAIModel(client_args=client, model_id="gpt-4.1")


def responses(fake: Any) -> Any:
    client = {"base_url": fake.url("openai_responses"), "api_key": KEY, "max_retries": 0}
    return OpenAIResponsesModel(client_args=client, model_id="gpt-5.5")


def anthropic(fake: Any) -> Any:
    client = {"base_url": fake.url("anthropic"), "api_key": KEY, "max_retries": 0}
    return AnthropicModel(client_args=client, model_id="claude-opus-5-5", max_tokens=1_000, cache_config=CacheConfig())


def bedrock(fake: Any) -> Any:
    session = boto3.Session(aws_access_key_id=KEY, aws_secret_access_key="secret", region_name="us-east-1")
    return BedrockModel(
        boto_session=session,
        endpoint_url=fake.url("bedrock"),
        model_id="us.anthropic.claude-opus-5-5",
        max_tokens=1_000,
        cache_config=CacheConfig(),
    )


MODELS = {"openai_chat": openai, "openai_responses": responses, "anthropic": anthropic, "bedrock": bedrock}


def make_agent(
    model: Any, *plugins: ContextcPlugin, tools: Sequence[Any] = (paged_report.read_page,), **options: Any
) -> Agent:
    options.setdefault("conversation_manager", NullConversationManager())
    return Agent(
        model=model,
        tools=[tool(each) for each in tools],
        system_prompt="Answer from the report.",
        callback_handler=None,
        plugins=list(plugins),
        **options,
    )
