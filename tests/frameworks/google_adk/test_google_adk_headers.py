"""Headers of requests that Google's ADK sends."""

import pytest

import contextc as cc
from contextc.adapters.google_adk import ContextcPlugin
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply
from tests.fake_vendors.scripts import Scripted
from tests.frameworks.google_adk.scripted_agents import ask, gemini, make_agent, make_runner, openai, run

HEADERS = {"x-team": "search"}


def test_gemini_gets_headers() -> None:
    with FakeVendors(Scripted([Reply(text="Hello.")])) as fake:
        provider = cc.provider("gemini:gemini-2.5-flash", headers=HEADERS)
        plugin = ContextcPlugin(cc.open_store("memory:"), model=provider)
        run(ask(make_runner(make_agent(gemini(fake)), [plugin]), "Hi!"))
        (record,) = fake.records
    assert record.headers["x-team"] == "search"


def test_other_models_refuse_them_by_name() -> None:
    """ADK passes its HTTP options to Gemini only."""
    with FakeVendors(Scripted([Reply(text="Hello.")])) as fake:
        provider = cc.provider("openai-chat:gpt-4.1", headers=HEADERS)
        plugin = ContextcPlugin(cc.open_store("memory:"), model=provider)
        with pytest.raises(Exception, match="cannot pass x-team to the framework"):
            run(ask(make_runner(make_agent(openai(fake)), [plugin]), "Hi!"))
        assert fake.records == []
