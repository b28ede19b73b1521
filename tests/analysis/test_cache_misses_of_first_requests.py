"""Cache misses in the first request of a channel: parallel conversations, other models, and continued conversations."""

import pytest

import contextc as cc
from tests.analysis.cached_client import FILE, MARK, MODEL, Client
from tests.analysis.observed_run import find_by_request

SUMMARY = "This session is being continued from a previous conversation. It is summarized below: " + FILE * 2


@pytest.mark.parametrize("session", ["0a1b2c3d-0000-4000-8000-123456789abc", ""], ids=["session", "no session"])
@pytest.mark.parametrize("pause", [200, 0], ids=["one after the other", "at the same time"])
def test_conversations_that_begin_together_cannot_read_each_others_prefix(
    store: cc.Store, session: str, pause: int
) -> None:
    client = Client()
    body = client.body()
    names: list[str] = []
    for number, began in enumerate((0, pause, 2 * pause, 60_000)):
        content = [{"type": "text", "text": f"Task {number}", "cache_control": MARK}]
        read = 4_500 if began == 60_000 else 0
        usage = {
            "input_tokens": 5, "output_tokens": 9, "cache_read_input_tokens": read,
            "cache_creation_input_tokens": 4_700 - read,
        }  # fmt: skip
        reply = {
            "id": f"msg_{number}", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "Done."}], "usage": usage,
        }  # fmt: skip
        seen = cc.observe(
            store,
            request={**body, "messages": [{"role": "user", "content": content}]},
            reply=reply,
            headers={"x-claude-code-session-id": session, "x-claude-code-agent-id": f"agent-{number}"}
            if session
            else {},
            conversation=None if session else f"task-{number}",
            time=client.time + began,
            ended=client.time + began + 9_000,
        )
        names.append(seen.conversation)
    assert len(set(names)) == 4
    causes = [[each.cause for each in find_by_request(store, name) if each.code.startswith("CAC")] for name in names]
    assert causes == [["first_request"], ["parallel_request"], ["parallel_request"], []]
    evidence = find_by_request(store, names[1])[0].evidence[0]
    assert evidence.before == f"request 1 of {names[0]} was still being answered"
    assert evidence.after == f"began {9 - pause / 1_000:.1f} s before its reply ended"


@pytest.mark.parametrize("is_named", [True, False], ids=["one conversation", "no ids"])
def test_the_first_message_is_rewritten(is_named: bool) -> None:
    """Without ids, such a request is recorded as a new conversation. It still has the messages of the earlier one."""
    client = Client()
    if not is_named:
        client.conversation = None
    client.work(5)
    client.messages[0] = {"role": "user", "content": [{"type": "text", "text": "Find <REDACTED>."}]}
    client.send(4_500).send()
    names = sorted([each.name for each in client.store.conversations()])
    found = [
        each
        for name in names
        for each in find_by_request(client.store, name)
        if each.code.startswith("CAC") and each.cause != "first_request"
    ]
    assert [(each.cause, each.evidence[0].path) for each in found] == [
        ("message_changed", "messages[0].content[0].text")
    ]
    assert len(names) == (1 if is_named else 2)
    assert found[0].tokens > 5_000
    assert ("before, the conversation was recorded as" in found[0].title) is not is_named
