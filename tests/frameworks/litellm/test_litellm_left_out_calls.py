"""Calls that a cut shortened or left out are not in the requests of litellm."""

from typing import Any

import pytest

import contextc as cc
from contextc.adapters.litellm import Completions
from tests.fake_vendors.fake import FakeVendors
from tests.frameworks.litellm.report_agent import MODELS, SYSTEM, options, run
from tests.frameworks.noted_report import ANSWER, QUESTION, WINDOW, check_requests, note_page, noting

THINKING = {
    "model": "anthropic/claude-sonnet-4-5",
    "max_tokens": 2_000,
    "thinking": {"type": "enabled", "budget_tokens": 1_024},
}


@pytest.mark.parametrize("name", [*MODELS, "thinking"])
def test_each_request_has_the_calls_that_are_left(name: str) -> None:
    """Guarantees 5.4 and 21.4: a call without its result is refused by every provider."""
    reasons = name == "thinking"
    with FakeVendors(noting(reasons=reasons), window=WINDOW) as fake, cc.open_store("memory:") as store:
        completions = Completions(store, window=WINDOW)
        settings = {**options(fake, "anthropic"), **THINKING} if reasons else options(fake, name)
        messages: list[Any] = [SYSTEM, {"role": "user", "content": QUESTION}]
        tools = cc.provider("openai-chat:gpt-4.1").formatter.encode_tools([cc.tool(note_page).tool])
        run(
            completions.completion,
            messages,
            conversation="report",
            tools=tools,
            functions=[note_page],
            **settings,
        )
        assert messages[-1]["content"] == ANSWER
        check_requests(fake, store, "report", shortens=name == "openai_chat")
