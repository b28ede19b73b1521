"""LangChain's models on the strict fake vendors, tools for them, and scripts of replies."""

from collections.abc import Callable, Sequence
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_openai import ChatOpenAI

from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.vendor import KEY, AcceptedRequest

# Any: the content of messages is untyped.


def chat(fake: FakeVendors) -> BaseChatModel:
    """Return a model on OpenAI's Chat Completions."""
    return ChatOpenAI(model="gpt-4.1", base_url=fake.url("openai_chat"), api_key=KEY, max_retries=0)  # pyright: ignore[reportArgumentType]


def responses(fake: FakeVendors) -> BaseChatModel:
    """Return a model on OpenAI's Responses, without state at the provider."""
    return ChatOpenAI(
        model="gpt-5.5",
        base_url=fake.url("openai_responses"),
        api_key=KEY,  # pyright: ignore[reportArgumentType]
        max_retries=0,
        use_responses_api=True,
        store=False,
        include=["reasoning.encrypted_content"],
    )


def anthropic(fake: FakeVendors) -> BaseChatModel:
    return ChatAnthropic(  # pyright: ignore[reportCallIssue]
        model="claude-opus-5-5",  # pyright: ignore[reportCallIssue]
        base_url=fake.url("anthropic"),  # pyright: ignore[reportCallIssue]
        api_key=KEY,  # pyright: ignore[reportCallIssue, reportArgumentType]
        max_retries=0,
        max_tokens=2_000,  # pyright: ignore[reportCallIssue]
    )


MODELS: dict[str, Callable[[FakeVendors], BaseChatModel]] = {
    "openai_chat": chat,
    "openai_responses": responses,
    "anthropic": anthropic,
}


def read_page(number: int) -> str:
    """Read a page of the report."""
    if number == 13:
        raise ValueError("There is no page 13.")
    return f"Page {number}. " + "The valve on deck three was replaced in spring. " * (8 + number * 7 % 90)


def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


def reading(steps: int) -> Callable[[AcceptedRequest], Reply]:
    """Return a script: it reads pages one after another, sometimes two at once, and then answers.

    It goes by the number of requests that were accepted, so that it does not depend on what the request contains.
    """

    def reply(ask: AcceptedRequest) -> Reply:
        number = ask.number % (steps + 1)
        if number == steps:
            return Reply("The valve was replaced in spring.")
        calls = [ScriptedCall("read_page", {"number": number + 20})]
        if number % 4 == 3:
            calls.append(ScriptedCall("add", {"first": number, "second": 1}))
        return Reply(f"I read page {number + 20}." if number % 3 else None, calls)

    return reply


def essence(messages: Sequence[BaseMessage]) -> list[Any]:
    """Return what a user sees of messages: without ids that are new in every run."""
    found: list[Any] = []
    for message in messages:
        row: list[Any] = [message.type, message.content]
        if isinstance(message, AIMessage):
            row += [message.tool_calls, message.invalid_tool_calls, message.usage_metadata]
        if isinstance(message, ToolMessage):
            row += [message.tool_call_id, message.name, message.status]
        found.append(row)
    return found
