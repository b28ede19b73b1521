"""Headers of requests that LangChain's models send in graphs."""

from typing import Any

from langchain_openai import ChatOpenAI

import contextc as cc
from contextc.adapters.langgraph import fit
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import KEY


def test_headers_are_sent_once_also_with_a_stream() -> None:
    """Some models implement one method by another, so a call may be prepared twice."""
    with FakeVendors(Scripted([Reply(text="Hello.")] * 2)) as vendors:
        options: Any = {"model": "gpt-4.1", "api_key": KEY, "base_url": vendors.url("openai_chat")}
        model = ChatOpenAI(**options)
        provider = cc.provider("openai-chat:gpt-4.1", headers={"x-team": "search"})
        fitted = fit(model, cc.open_store("memory:"), model=provider, conversation="demo")
        fitted.invoke("Hi!")
        assert "".join([str(each.content) for each in fitted.stream("Hi!", extra_headers={"x-trace": "1"})]) == "Hello."
        first, second = vendors.records
    assert first.headers["x-team"] == second.headers["x-team"] == "search"
    assert second.headers["x-trace"] == "1"
