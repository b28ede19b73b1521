"""Headers of requests that OpenAI Agents sends: an input filter cannot add them."""

from typing import Any

import pytest
from agents import Agent, ModelSettings, RunConfig, Runner
from agents.testing import ModelStep, ScriptedModel, assistant_message

import contextc as cc
from contextc.adapters.openai_agents import RequestFitter
from contextc.errors import InvalidSetting


def test_headers_must_be_those_of_the_agent() -> None:
    provider = cc.provider("openai:gpt-5.4", headers={"x-team": "search"})
    fitter: Any = RequestFitter(cc.open_store("memory:"), "demo", provider)
    config = RunConfig(call_model_input_filter=fitter, tracing_disabled=True)

    def ask(settings: ModelSettings) -> str:
        model = ScriptedModel([ModelStep(output=[assistant_message("Hello.")])])
        agent = Agent(name="assistant", model=model, model_settings=settings)
        return Runner.run_sync(agent, "Hi!", hooks=fitter, run_config=config).final_output

    with pytest.raises(InvalidSetting, match=r"cannot pass x-team.*ModelSettings\(extra_headers"):
        ask(ModelSettings())
    assert ask(ModelSettings(extra_headers={"X-Team": "search"})) == "Hello."
