"""Windows from tiny to full, and several processes on one conversation."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.models import Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.sessions import InMemorySessionService
from google.genai import types

import contextc as cc
from contextc._json import JSONObject
from contextc.adapters.google_adk import ContextcPlugin
from tests.conftest import often
from tests.fake_vendors.gemini_calls import list_gemini_calls
from tests.frameworks.google_adk.scripted_agents import ask, gemini, make_agent, make_runner
from tests.frameworks.random_histories import CallIds, check_windows, make_history
from tests.frameworks.shared_conversation import CONVERSATION, Ask, check_writers


def convert(messages: Sequence[JSONObject], *, with_ids: bool) -> list[JSONObject]:
    """Return messages of OpenAI's chat format in Google's format. Results of one step are one content."""
    found: list[JSONObject] = []
    for message in messages:
        if message["role"] == "tool":
            answer: JSONObject = {"name": "read_page", "response": {"result": message["content"]}}
            part = {"functionResponse": {**answer, "id": message["tool_call_id"]} if with_ids else answer}
            if "functionResponse" in found[-1]["parts"][0]:
                found[-1]["parts"].append(part)
            else:
                found.append({"role": "user", "parts": [part]})
            continue
        parts: list[JSONObject] = [{"text": message["content"]}] if message["content"] else []
        for call in message.get("tool_calls") or ():
            made = {"name": "read_page", "args": json.loads(call["function"]["arguments"])}
            parts.append({"functionCall": {**made, "id": call["id"]} if with_ids else made})
        found.append({"role": "model" if message["role"] == "assistant" else "user", "parts": parts})
    return found


def list_call_ids(contents: Sequence[JSONObject]) -> CallIds:
    found = list(list_gemini_calls(contents))
    return [name for kind, name in found if kind == "call"], [name for kind, name in found if kind == "result"]


def make_context() -> CallbackContext:
    sessions = InMemorySessionService()
    session = sessions.create_session_sync(app_name="report", user_id="ann", session_id="report")
    agent = make_agent(Gemini(model="gemini-2.5-flash"))
    return CallbackContext(
        InvocationContext(session_service=sessions, session=session, invocation_id="one", agent=agent)
    )


@pytest.mark.parametrize("seed", range(often(4, 40)))
@pytest.mark.parametrize("with_ids", [True, False])
def test_no_window_separates_a_call_from_its_result(with_ids: bool, seed: int) -> None:
    """Guarantees 5.4 and 21.4, adk-python#4740: every window from tiny to full, no orphan in any.

    Without ids, calls of different steps are equal. What was not changed is sent as it was.
    """
    history = convert(make_history(seed), with_ids=with_ids)
    with cc.open_store("memory:") as store:

        def send(window: int) -> list[JSONObject]:
            plugin = ContextcPlugin(store, conversation=lambda context: str(window), window=window, output=100)
            contents = [types.Content.model_validate(each) for each in history]
            request = LlmRequest(model="gemini-2.5-flash", contents=contents)
            asyncio.run(plugin.before_model_callback(callback_context=make_context(), llm_request=request))
            sent = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in request.contents]
            assert sent[-1] == history[-1] or "functionResponse" in sent[-1]["parts"][0]
            assert sent[0]["role"] == "user"
            calls = [part for each in sent for part in each["parts"] if "functionCall" in part]
            assert all(call in given for call in calls)
            return sent

        given = [part for each in history for part in each["parts"] if "functionCall" in part]
        check_windows(send, list_call_ids, len(history))


def make_writer(store: cc.Store, fake: Any) -> Ask:
    runner = make_runner(make_agent(gemini(fake)), [ContextcPlugin(store)])
    loop = asyncio.Runner()
    return lambda text: loop.run(ask(runner, text, CONVERSATION))


def test_eight_processes_on_one_conversation_lose_nothing(shared_address: str) -> None:
    """Guarantees 3.2 and 21.3: each process has a session of its own with the same id, so each is a branch."""
    check_writers(shared_address, "gemini", make_writer)
