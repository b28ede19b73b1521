"""Redaction is complete: a secret in every kind of input is nowhere in the store afterwards.

The tables are found in the schema, so that a new table with text is searched too. Before the redaction, the same search
must find each secret, so that it can fail.
"""

import asyncio
import logging
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject, encode
from contextc.compiler.manifest import ProxyAction
from contextc.doctor import scan_store
from contextc.errors import ProviderFailed
from contextc.events import ToolProgress
from contextc.interchange import export_lines, import_lines
from contextc.store.full_text_index import update_index
from contextc.store.message_log import load_tip
from contextc.store.session_transcripts import EntryBatch, TranscriptKey, append_entries
from contextc.store.turn_records import append_events
from tests.executor.scripted_provider import SONNET, Scripted, call, fails, says
from tests.store.stored_text import find_secrets

OF_MESSAGES = (
    *("message", "author's note", "media name", "media", "reply", "reasoning", "call", "result", "progress", "trigger"),
    *(
        "streamed",
        "queued and taken",
        "system message",
        "provider error",
        "note",
        "summary",
        "left branch",
        "other fork",
    ),
    *("observed message", "observed reply", "observed error", "cache mark", "lint text", "unreadable part"),
    *("imported", "transcript", "approved call", "approval reason", "parked"),
)
"""Texts of messages, and what was derived from them: gone when the messages are redacted."""
INDEXED = ("message", "reply", "call", "result", "streamed", "left branch", "other fork", "imported", "observed reply")
"""Texts that a search finds."""
OF_OTHERS = (
    *("system prompt", "dynamic fragment", "tool description", "title", "todo", "queued", "trigger state"),
    *("observed system", "observed session"),
)
"""Texts that were stored beside messages: gone when the text is redacted."""
NEVER_STORED = ("header", "query")
SECRETS = {
    kind: f"zq{index:02}secret{index:02}qz" for index, kind in enumerate((*OF_MESSAGES, *OF_OTHERS, *NEVER_STORED))
}
PNG = b"\x89PNG"
MODEL = "claude-opus-4-5"


def s(kind: str) -> str:
    return SECRETS[kind]


def run_agent(store: cc.Store) -> None:
    """A turn with tools, triggers, an approval and queued input, and one that its provider refused."""

    @cc.tool(description=f"Look {s('tool description')}")
    def look(query: str) -> str:
        return f"found {s('result')}"

    @cc.tool(approval=True)
    def pay(to: str) -> str:
        """Pay."""
        return to

    @cc.triggers.trigger("noticed", once=True)
    def noticed(context: cc.TriggerContext, state: JSONObject) -> tuple[cc.TriggerMessage, JSONObject]:
        return cc.TriggerMessage(text=f"Careful: {s('trigger')}"), {"last": s("trigger state")}

    script = [
        says(f"I look {s('reply')}", call(1, "look", query=s("call")), call(2, "pay", to=s("approved call"))),
        says("done"),
        says("done again"),
        fails("invalid", f"messages.0: invalid: {s('provider error')}"),
    ]
    executor = cc.AgentExecutor(
        store,
        SONNET,
        endpoint=Scripted(*script),
        tools=[look, pay],
        instructions=[
            cc.PromptFragment("identity", f"You are {s('system prompt')}"),
            cc.PromptFragment("now", lambda _: f"Now: {s('dynamic fragment')}", "dynamic"),
        ],
        triggers=[noticed],
        approve=cc.Suspend(),
    )
    media = cc.Media(mime_type="image/png", data=PNG + s("media").encode(), name=f"{s('media name')}.png")
    given = cc.user([cc.Text(f"hello {s('message')}"), media], meta={"note": s("author's note")})

    async def turns() -> None:
        assert (await executor.start("run", given).wait()).finish == "waiting"
        store.enqueue("run", cc.user(f"also {s('queued and taken')}"))
        for each in store.approvals("run"):
            store.answer_approval(each.id, False, reason=s("approval reason"))
        assert (await executor.resume("run").wait()).finish == "stop"
        assert (await executor.start("run", "again").wait()).finish == "error"

    asyncio.run(turns())
    number = store.read(lambda tx: load_tip(tx, "run")).conversation
    progress = ToolProgress(agent="assistant", turn=1, step=1, id="c1", text=s("progress"))
    store.write(lambda tx: append_events(tx, number, [progress]))
    store.enqueue("run", cc.user(f"later {s('queued')}"))
    store.set_title("run", f"About {s('title')}")
    store.add_todo("run", f"Do {s('todo')}")


def write_by_hand(store: cc.Store) -> None:
    """Requests of a compiler, a stream, branches, a fork, a summary, and a transcript of a provider."""
    compiler = cc.MessageCompiler(store, "openai:gpt-4o")
    store.append("hand", cc.system(f"The customer is {s('system message')}"))
    for number in range(3):
        store.append("hand", cc.user(f"question {number} " * 50))
        compiled = compiler.compile("hand", instructions="Be brief.")
        compiler.begin(compiled)
        reply = cc.assistant("fine", reasoning=f"I think {s('reasoning')}")
        compiler.commit(compiled, reply, notes=[f"the provider said {s('note')}"])
    with store.stream(store.acquire("hand")) as stream:
        stream.write(f"streamed {s('streamed')}")
    compiler.compact("hand", lambda messages, before: f"So far: {s('summary')}", max_input_tokens=500)
    store.append("hand", cc.user("more"))
    compiled = compiler.compile("hand")
    compiler.begin(compiled)
    compiler.abort(compiled, ProviderFailed("openai", "invalid", f"refused {s('provider error')}"))
    left = store.append("hand", cc.user(f"left {s('left branch')}"))
    store.edit("hand", left, cc.user("edited"))
    store.fork("hand", "fork")
    store.append("fork", cc.user(f"fork {s('other fork')}"))
    entries = EntryBatch([{"uuid": "1", "text": s("transcript")}])
    store.write(lambda tx: append_entries(tx, TranscriptKey("project", "session"), entries, "hand"))
    store.write(
        lambda tx: tx.run(
            "INSERT INTO main.worker_turn (conversation, agent, queue, parked, reason)"
            " SELECT number, 'assistant', 'contextc', 1, ? FROM main.conversation WHERE name = 'hand'",
            f"gave up: {s('parked')}",
        )
    )


def observe_others(store: cc.Store) -> None:
    """Requests of other software: answered, refused, with cache breakpoints and with parts that no format has."""
    mark: JSONObject = {"type": "ephemeral", "note": s("cache mark")}
    first: JSONObject = {
        "role": "user",
        "content": [
            {"type": "text", "text": f"hi {s('observed message')}", "cache_control": mark},
            {"type": "mystery", "data": s("unreadable part")},
        ],
    }
    body: JSONObject = {
        "model": MODEL,
        "max_tokens": 9,
        "system": f"You are {s('observed system')}",
        "metadata": {"user_id": s("observed session")},
        "messages": [first],
    }
    headers = {"x-api-key": s("header"), "authorization": f"Bearer {s('header')}"}
    url = f"https://api.anthropic.com/v1/messages?key={s('query')}"
    reply: JSONObject = {
        "type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn",
        "content": [{"type": "text", "text": f"yes {s('observed reply')}"}],
        "usage": {"input_tokens": 5, "output_tokens": 2},
    }  # fmt: skip
    action = ProxyAction(rule="lint", codes={"ANT018": 1}, changes=(f"messages.0: {s('lint text')}",))
    cc.observe(store, request=encode(body), reply=reply, headers=headers, url=url, actions=[action])
    refused: JSONObject = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": f"messages.0: {s('observed error')}"},
    }
    body["messages"] = [first, {"role": "assistant", "content": reply["content"]}, {"role": "user", "content": "more"}]
    cc.observe(store, request=encode(body), reply=refused, status=400, headers=headers, url=url)


def import_file(store: cc.Store) -> None:
    with cc.open_store("memory:") as other:
        other.append("file", cc.user(f"imported {s('imported')}"))
        lines = list(export_lines(other, "file"))
    import_lines(store, lines)


@pytest.fixture
def planted(store: cc.Store) -> cc.Store:
    """A store with a secret of every kind."""
    run_agent(store)
    write_by_hand(store)
    observe_others(store)
    import_file(store)
    for conversation in store.conversations():
        for branch in store.branches(conversation.name):
            store.switch(conversation.name, branch.number)
            assert update_index(store, conversation.name)
    return store


def redact_all_messages(store: cc.Store) -> None:
    """Redact each message, on every branch."""
    for conversation in store.conversations():
        for branch in store.branches(conversation.name):
            for message in store.load(conversation.name, branch=branch.number):
                if not message.redacted:
                    store.redact(conversation.name, message)


def test_a_secret_in_any_input_is_nowhere_after_its_redaction(
    planted: cc.Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Guarantee 2.8."""
    folder = tmp_path if planted.address.startswith("sqlite") else None
    outputs = planted.address == "memory:"
    before = find_secrets(planted, SECRETS, folder, outputs=outputs)
    assert {kind for kind in SECRETS if kind not in before} == {*NEVER_STORED}
    assert {kind for kind in SECRETS if "search_term.terms" in before.get(kind, ())} >= {*INDEXED}
    if outputs:
        assert {"explain", "export", "archive", "shared file", "findings", "events"} <= set().union(*before.values())
    [name] = {each.name for each in planted.conversations()} - {"run", "hand", "fork", "file"}
    caplog.set_level(logging.DEBUG)
    redact_all_messages(planted)
    assert find_secrets(planted, {kind: SECRETS[kind] for kind in OF_MESSAGES}, folder) == {}
    for kind in OF_OTHERS:
        planted.redact_text(name if kind.startswith("observed") else "run", SECRETS[kind])
    assert find_secrets(planted, SECRETS, folder, outputs=outputs) == {}
    assert [each for each in SECRETS.values() if each in caplog.text] == []
    assert [each for each in scan_store(planted) if each.kind == "fault"] == []


@pytest.mark.thorough
def test_a_redacted_text_is_nowhere(planted: cc.Store, tmp_path: Path) -> None:
    """Guarantee 2.8: one call finds the messages, and everything else that has the text."""
    folder = tmp_path if planted.address.startswith("sqlite") else None
    for conversation in planted.conversations():
        for secret in SECRETS.values():
            planted.redact_text(conversation.name, secret)
    assert find_secrets(planted, SECRETS, folder) == {}
    assert [each for each in scan_store(planted) if each.kind == "fault"] == []


def test_keys_in_recorded_traffic_are_never_stored(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 16.5: they are removed from bodies, replies and errors; headers and URLs are not stored."""
    keys = {
        where: f"sk-ant-api03-{where:a<60}{index}"
        for index, where in enumerate(("body", "reply", "error", "header", "query"))
    }
    body: JSONObject = {
        "model": MODEL,
        "max_tokens": 9,
        "messages": [{"role": "user", "content": f"use {keys['body']}"}],
    }
    reply: JSONObject = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": f"ok {keys['reply']}"}],
    }
    error: JSONObject = {"type": "error", "error": {"type": "x", "message": f"bad key {keys['error']}"}}
    for answer, status in ((reply, 200), (error, 401)):
        cc.observe(
            store,
            request=encode(body),
            reply=encode(answer),
            status=status,
            headers={"x-api-key": keys["header"], "x-session-id": keys["header"]},
            url=f"https://api.anthropic.com/v1/messages?key={keys['query']}",
            redact=("keys",),
        )
    folder = tmp_path if store.address.startswith("sqlite") else None
    assert find_secrets(store, keys, folder) == {}
    assert find_secrets(store, {"placeholder": "[redacted:keys:"}, folder)
