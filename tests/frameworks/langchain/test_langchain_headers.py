"""Beta flags and headers of requests that LangChain sends."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_openai import ChatOpenAI

import contextc as cc
from contextc.adapters.langchain import ContextcMiddleware
from contextc.errors import InvalidSetting
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import KEY

FLAG = "inline-tools-2026-09-15"
HEADERS = {"x-team": "search"}


def ask(model: Any, provider: cc.Provider) -> None:
    middleware = ContextcMiddleware(cc.open_store("memory:"), conversation="demo", model=provider)
    create_agent(model, tools=[], middleware=[middleware]).invoke({"messages": [("user", "Hi!")]})


def test_anthropic_gets_flags_and_headers_beside_those_of_the_model() -> None:
    """`ChatAnthropic` has a setting for flags, and adds some that its tools need."""
    with FakeVendors(Scripted([Reply(text="Hello.")])) as vendors:
        options: Any = {"model": "claude-opus-5-5", "api_key": KEY, "base_url": vendors.url("anthropic")}
        model = ChatAnthropic(**options, max_tokens=99, betas=["own-1"])
        ask(model, cc.provider("anthropic:claude-opus-5-5", betas=[FLAG], headers=HEADERS))
        (record,) = vendors.records
    assert record.headers["anthropic-beta"] == f"own-1,{FLAG}"
    assert record.headers["x-team"] == "search"


def test_openai_gets_headers() -> None:
    with FakeVendors(Scripted([Reply(text="Hello.")])) as vendors:
        options: Any = {"model": "gpt-4.1", "api_key": KEY, "base_url": vendors.url("openai_chat")}
        model = ChatOpenAI(**options)
        ask(model, cc.provider("openai-chat:gpt-4.1", headers=HEADERS))
        (record,) = vendors.records
    assert record.headers["x-team"] == "search"


def test_a_model_without_headers_refuses_them_by_name() -> None:
    with pytest.raises(InvalidSetting, match="cannot pass x-team to the framework"):
        ask(FakeListChatModel(responses=["Hello."]), cc.provider("openai-chat:gpt-4.1", headers=HEADERS))
