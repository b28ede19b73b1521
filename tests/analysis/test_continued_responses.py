"""Observed requests that continue an earlier response by its id, and contain only what is new."""

from typing import Any

import contextc as cc
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.request_comparison import RequestComparison, compare_two_requests
from tests.analysis.cached_client import tool

WORDS = "A long text. " * 2_000


def send(store: cc.Store, number: int, text: str, name: str) -> None:
    request = {
        "model": "gpt-5.4",
        "input": [{"role": "user", "content": text}],
        "tools": [{"type": "function", "name": name, "parameters": tool(name)["input_schema"]}],
        **({"previous_response_id": f"resp_{number - 1}"} if number > 1 else {}),
    }
    answer: dict[str, Any] = {"type": "output_text", "text": f"Answer {number}.", "annotations": []}
    reply: dict[str, Any] = {
        "id": f"resp_{number}", "object": "response", "model": "gpt-5.4", "status": "completed",
        "output": [{"type": "message", "role": "assistant", "id": f"msg_{number}", "content": [answer]}],
        "usage": {"input_tokens": 8_000 + number, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 4},
    }  # fmt: skip
    cc.observe(store, request=request, reply=reply, format="openai_responses", conversation="c", time=number * 10_000)


def compare(name: str) -> RequestComparison:
    store = cc.open_store("memory:")
    send(store, 1, WORDS, "look")
    send(store, 2, "And now?", name)
    before, now = load_conversation_view(store, "c").requests
    return compare_two_requests(store, before, now)


def test_messages_that_the_provider_has_are_not_called_removed() -> None:
    """The inspector said that the prefix was broken, and what that cost."""
    found = compare("look")
    assert (found.break_index, found.reason, found.fix) == (None, "", "")
    assert (found.readable, found.lost, found.cost) == (None, None, None)
    changes = [(each.kind, each.section, each.after) for each in found.differences]
    assert changes == [("added", "messages", "input[0].content"), ("added", "settings", "previous_response_id")]


def test_other_tools_break_the_prefix_of_a_continued_response() -> None:
    """Tools are sent with every request, and come before the messages."""
    assert compare("fetch").reason == "The tool fetch was added."
