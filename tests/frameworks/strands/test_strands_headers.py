"""Headers of requests that Strands sends: its middleware cannot add them."""

import pytest
from strands import Agent
from strands.models.openai import OpenAIModel

import contextc as cc
from contextc.adapters.strands import ContextcPlugin
from contextc.errors import InvalidSetting
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import KEY


def test_headers_are_refused_by_name() -> None:
    """Otherwise a flag would be missing, and the vendor's error would not say why."""
    provider = cc.provider("openai-chat:gpt-4.1", headers={"x-team": "search"})
    with FakeVendors(Scripted([Reply(text="Hello.")])) as vendors:
        model = OpenAIModel(client_args={"api_key": KEY, "base_url": vendors.url("openai_chat")}, model_id="gpt-4.1")
        agent = Agent(model=model, plugins=[ContextcPlugin(cc.open_store("memory:"), "demo", model=provider)])
        with pytest.raises(InvalidSetting, match=r"cannot pass x-team.*default_headers"):
            agent("Hi!")
        assert vendors.records == []
