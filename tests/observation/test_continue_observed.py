"""Our own executor continues observed conversations, and keeps the prefix that the provider has cached."""

import json
from typing import Any

import pytest

import contextc as cc
from contextc._json import decode
from contextc.compiler.past_requests import explain, split_at_conversation
from contextc.formats import formatter
from contextc.inspection.request_timeline import load_timeline
from tests.executor.scripted_provider import Scripted, add, call, run_turn, says
from tests.observation.test_observe import answer, chat, texts

Wire = dict[str, Any]
MODEL = "claude-sonnet-4-5"
SONNET = f"anthropic:{MODEL}"
PROMPT = "Be brief.\nUse the tools."
TOOLS = formatter("anthropic").encode_tools([cc.tool(add).tool])
TALK: list[Wire] = [
    {"role": "user", "content": [{"type": "text", "text": "a <system-reminder>x</system-reminder>"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 2}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "3"}]},
]


def body(messages: list[Wire], **fields: Any) -> bytes:
    system = [{"type": "text", "text": PROMPT, "cache_control": {"type": "ephemeral"}}]
    return json.dumps(
        {"model": MODEL, "max_tokens": 99, "system": system, "tools": TOOLS, "messages": messages, **fields}
    ).encode()


def reply(*content: Wire) -> Wire:
    return {
        "id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": list(content),
        "stop_reason": "end_turn", "usage": {"input_tokens": 10, "output_tokens": 5},
    }  # fmt: skip


def observe_talk(store: cc.Store, **options: Any) -> bytes:
    """Observe two requests. Return the messages of the second as they were sent."""
    call_reply = reply(TALK[1]["content"][0])
    cc.observe(store, request=body(TALK[:1]), reply=call_reply, format="anthropic", conversation="x", **options)
    sent = body(TALK)
    seen = cc.observe(
        store, request=sent, reply=reply({"type": "text", "text": "three"}), format="anthropic", conversation="x",
        **options,
    )  # fmt: skip
    parts = split_at_conversation(seen.body, "messages")
    assert parts is not None
    return b",".join(parts.elements)


def run(store: cc.Store, provider: Scripted, name: str = "x", **options: Any) -> None:
    options = {"tools": [add], "instructions": PROMPT, **options}
    executor = cc.AgentExecutor(store, SONNET, endpoint=provider, triggers=(), **options)
    run_turn(executor, "go on", conversation=name)


def test_the_same_prompt_and_tools_keep_the_prefix(store: cc.Store) -> None:
    before = observe_talk(store)
    provider = Scripted(says(call(1, a=2, b=3)), says("five"))
    run(store, provider)
    moments = load_timeline(store, "x")
    assert [each.record.mode for each in moments] == ["observed", "observed", "full", "full"]
    assert [each.record.why for each in moments] == ["first request", "", "", ""]
    assert moments[2].record.shared_bytes >= len(before) - 2
    for sent in provider.bodies:
        parts = split_at_conversation(sent, "messages")
        assert parts is not None
        assert b",".join(parts.elements).startswith(before + b",")
        wire: Any = decode(sent)
        assert (wire["tools"], wire["system"][0]["text"]) == (TOOLS, PROMPT)
    first: Any = decode(provider.bodies[0])
    assert [each["role"] for each in first["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert not cc.lint(first, format="anthropic")
    assert texts(store, "x")[-1] == "five"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"instructions": "Other."}, "system prompt changed"),
        ({"tools": []}, "tools changed"),
        ({"settings": {"thinking": {"type": "enabled", "budget_tokens": 2000}}}, "reasoning settings changed"),
    ],
)
def test_another_head_begins_an_epoch_with_a_reason(options: Wire, why: str) -> None:
    store = cc.open_store("memory:")
    observe_talk(store)
    provider = Scripted(says("fine"))
    run(store, provider, **options)
    assert load_timeline(store, "x")[-1].record.why == why
    sent: Any = decode(provider.bodies[0])
    assert [each["role"] for each in sent["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert not cc.lint(sent, format="anthropic")


def test_a_fork_keeps_the_prefix_too(store: cc.Store) -> None:
    before = observe_talk(store)
    store.fork("x", "y")
    provider = Scripted(says("fine"))
    run(store, provider, "y")
    parts = split_at_conversation(provider.bodies[0], "messages")
    assert parts is not None
    assert b",".join(parts.elements).startswith(before + b",")
    assert len(store.load("x")) + 2 == len(store.load("y"))


def test_a_redacted_prefix_is_not_the_one_that_was_sent() -> None:
    store = cc.open_store("memory:")
    observe_talk(store, redact=r"system-\w+")
    run(store, Scripted(says("fine")))
    assert load_timeline(store, "x")[-1].record.why == "the request before it was replaced"


def test_other_software_continues_beside_us() -> None:
    """Guarantee 16.3: what we continued is ours. The client's next request, even one with our turn, is linked to it."""
    store = cc.open_store("memory:")
    observe_talk(store)
    run(store, Scripted(says("fine")))
    more: list[Wire] = [
        *TALK,
        {"role": "assistant", "content": [{"type": "text", "text": "three"}]},
        {"role": "user", "content": [{"type": "text", "text": "go on"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "fine"}]},
        {"role": "user", "content": "and now?"},
    ]
    seen = cc.observe(
        store, request=body(more), reply=reply({"type": "text", "text": "done"}), format="anthropic", conversation="x"
    )
    assert seen.body == body(more)
    assert seen.conversation != "x"
    assert texts(store, "x")[-2:] == ["go on", "fine"]
    assert texts(store, seen.conversation)[-4:] == ["go on", "fine", "and now?", "done"]
    run(store, Scripted(says("bye")))
    assert texts(store, "x")[-3:] == ["fine", "go on", "bye"]


def test_an_unanswered_request_is_continued(store: cc.Store) -> None:
    cc.observe(store, request=body(TALK[:1]), format="anthropic", conversation="x")
    provider = Scripted(says("fine"))
    run(store, provider)
    sent: Any = decode(provider.bodies[0])
    assert [block["text"] for message in sent["messages"] for block in message["content"]] == [
        "a <system-reminder>x</system-reminder>",
        "go on",
    ]
    assert not cc.lint(sent, format="anthropic")


def test_chat_completions() -> None:
    store = cc.open_store("memory:")
    cc.observe(store, request=chat("a", "b", "c"), reply=answer("d"), format="openai_chat", conversation="x")
    store.append("x", cc.user("e"))
    compiled = cc.MessageCompiler(store, "openai:gpt-5").compile("x", instructions="Be brief.")
    assert compiled.manifest.why == ("" if compiled.formatter.name == "openai_chat" else "first request")
    channel = cc.observe(store, request=chat("z"), format="openai_chat", conversation="y").channel
    compiler = cc.MessageCompiler(store, cc.provider(f"{channel.provider}:gpt-5", format="openai_chat"))
    compiled = compiler.compile("x", instructions="Be brief.")
    assert compiled.manifest.why == ""
    sent: Any = decode(compiled.body)
    assert [each["content"] for each in sent["messages"]] == ["Be brief.", "a", "b", "c", "d", "e"]


def test_a_conversation_that_the_provider_stores_is_sent_whole() -> None:
    store = cc.open_store("memory:")

    def respond(id: str, text: str) -> Wire:
        content: list[Wire] = [{"type": "output_text", "text": text, "annotations": []}]
        item: Wire = {"type": "message", "id": f"m{id}", "role": "assistant", "status": "completed", "content": content}
        return {"id": id, "object": "response", "status": "completed", "model": "gpt-5", "output": [item]}

    first = {"model": "gpt-5", "input": "a"}
    second = {"model": "gpt-5", "input": [{"role": "user", "content": "c"}], "previous_response_id": "r1"}
    one = cc.observe(store, request=first, reply=respond("r1", "b"), format="openai_responses")
    two = cc.observe(store, request=second, reply=respond("r2", "d"), format="openai_responses")
    assert two.conversation == one.conversation
    assert json.loads(two.body) == second
    store.append(one.conversation, cc.user("e"))
    provider = cc.provider(f"{one.channel.provider}:gpt-5", format="openai_responses")
    compiled = cc.MessageCompiler(store, provider).compile(one.conversation)
    assert compiled.manifest.why == "the provider has earlier messages"
    assert [line.text for line in compiled.manifest.lines] == ["a", "b", "c", "d", "e"]
    whole = {"model": "gpt-5", "input": [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"}, {"role": "user", "content": "again"},
    ]}  # fmt: skip
    three = cc.observe(
        store, request=whole, reply=respond("r3", "f"), format="openai_responses", conversation=one.conversation
    )
    assert json.loads(three.body) == whole
    assert json.loads(two.body) == second
    assert "again" in str(explain(store, three.channel))
