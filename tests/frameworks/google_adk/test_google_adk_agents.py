"""Agents of Google's ADK with and without the plugin."""

import asyncio
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

import contextc as cc
from contextc.adapters.google_adk import ContextcPlugin
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.vendor import KEY
from tests.frameworks.paged_report import ANSWER, QUESTION, STEPS, WINDOW, check_fitted, read_page, reading

MODEL = "gemini-2.5-flash"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "0")


async def ask(questions: list[str], *plugins: Any) -> list[str]:
    agent = LlmAgent(name="reader", model=MODEL, instruction="Answer from the report.", tools=[read_page])
    runner = InMemoryRunner(agent=agent, app_name="report", plugins=list(plugins))
    session = await runner.session_service.create_session(app_name="report", user_id="ann", session_id="report")
    answers: list[str] = []
    for question in questions:
        message = types.Content(role="user", parts=[types.Part(text=question)])
        async for event in runner.run_async(user_id="ann", session_id=session.id, new_message=message):
            if event.is_final_response() and event.content and event.content.parts:
                answers.append(event.content.parts[0].text or "")
    return answers


def test_what_fits_is_sent_unchanged_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantees 21.2, 21.4 and 21.6."""
    runs: list[tuple[list[str], list[bytes]]] = []
    with cc.open_store("memory:") as store:
        for plugins in ([], [ContextcPlugin(store)]):
            with FakeVendors(reading(4)) as fake:
                monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.url("gemini"))
                answers = asyncio.run(ask([QUESTION, "And the pump?"], *plugins))
                assert not fake.refused
                runs.append((answers, [record.raw for record in fake.records]))
        assert runs[0] == runs[1]
        assert runs[0][0] == [ANSWER, ANSWER]
        stored = store.load("report")
        replies = [message for message in stored if message.role == "assistant"]
        assert len(replies) == 10
        assert all(message.usage and message.usage.input for message in replies)


def test_what_does_not_fit_is_cut_in_large_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantees 21.4 and 21.5."""
    with FakeVendors(reading(STEPS), window=WINDOW) as fake, cc.open_store("memory:") as store:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.url("gemini"))
        answers = asyncio.run(ask([QUESTION], ContextcPlugin(store, window=WINDOW, output=1_000)))
        assert answers == [ANSWER]
        check_fitted(fake)
        assert sum(message.role == "assistant" for message in store.load("report")) == STEPS + 1
