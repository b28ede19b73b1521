"""A store whose figures every surface must agree on: channels of three formats, failed requests, trims, cached reads,
tool calls, images, and requests of our own beside observed ones.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc.cli import demo
from contextc.testing import FakeModel
from tests.analysis.cached_client import ChatClient, Client
from tests.analysis.observed_run import ObservedRun, define_tool, words
from tests.web.sample_conversations import GPT, SONNET, Life, provider_of

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
CONVERSATIONS = ("run", "chat", "cached", "transcript", "observed heads", "own heads", "own", "agent")
OBSERVED = CONVERSATIONS[:5]
HEAD_MODELS = (SONNET, GPT, "openai:gpt-5.2", "gemini:gemini-2.5-pro")
"""A model of each format in which heads change: all but Gemini have the tools first in their cache."""
DEMO = (demo.WITH_MISTAKES, demo.COMPILED)
SCHEMA = {"type": "object", "properties": {}}
TRANSCRIPTS = Path(__file__).parents[1] / "data/transcripts.jsonl"


def fill_store(address: str) -> None:
    """Write the conversations of `CONVERSATIONS`."""
    with cc.open_store(address) as store:
        _record_run(store)
        _record_chat(store)
        _record_cached(store)
        _replay_transcript(store)
        _change_heads(store)
        _send_own(store)
        _run_agent(store, address)


def _record_run(store: cc.Store) -> None:
    """An agent at work: tools, an image, large results, a failure that was repeated, and a last request that failed."""
    run = ObservedRun(tools=[define_tool("read"), define_tool("draw", 3_000)], store=store)
    run.ask("Read the log.", IMAGE)
    run.fail(529, "Overloaded")
    run.call("read", words(8_000), path="huge.log")
    for number in range(4):
        run.call("read", f"line {number}", path=f"{number}.txt")
    run.send()
    run.ask(words(2_000, "q"))
    run.fail(400, "prompt is too long")


def _record_chat(store: cc.Store) -> None:
    """Three channels of one conversation: the prefix of two changes on the way, the last has no system prompt and no
    tools, but a schema.
    """
    client = ChatClient()
    client.store, client.conversation = store, "chat"
    client.work(3)
    client.messages[0]["content"] = "It is 10:32 now. " + str(client.messages[0]["content"])
    client.send(0).send()
    client.settings["model"] = "gpt-4o"
    client.send(0).send()
    client.settings = {"model": "gpt-4.1", "response_format": {"type": "json_schema", "json_schema": {
        "name": "title", "schema": {"type": "object", "properties": {"title": {"type": "string"}}},
    }}}  # fmt: skip
    client.tools, client.messages = [], [{"role": "user", "content": "Find a title."}]
    client.send(0)


def _record_cached(store: cc.Store) -> None:
    """Cache misses by a changed tool, a failure without an answer, and reads of a cache in between."""
    client = Client()
    client.store, client.conversation = store, "cached"
    client.work(2)
    client.tools[1]["description"] = "Write a file. " * 40
    client.send(0).send()
    cc.observe(
        store, request=json.loads(json.dumps(client.body())), reply=None, conversation="cached", time=client.time,
        format="anthropic", provider="anthropic",
    )  # fmt: skip


def _replay_transcript(store: cc.Store) -> None:
    """A transcript of a customer service agent as the requests that made it; the provider reported no usage."""
    messages = json.loads(TRANSCRIPTS.read_text().splitlines()[0])["messages"]
    for at, said in enumerate(messages):
        if said["role"] == "assistant":
            cc.observe(
                store, request={"model": "gpt-4o", "messages": messages[:at]}, conversation="transcript",
                reply={"id": f"c{at}", "object": "chat.completion", "created": 1, "model": "gpt-4o",
                       "choices": [{"index": 0, "finish_reason": "stop", "message": said}]},
                format="openai_chat", provider="openai", time=1_790_000_000_000 + at * 1_000,
            )  # fmt: skip


def _change_heads(store: cc.Store) -> None:
    """Per format: two requests with equal heads, one with another system prompt, one with another second tool, and one
    without tools. Once by us, and once observed.
    """
    for model in HEAD_MODELS:
        life = Life(store, provider_of(model, window=60_000), name="own heads")
        read, write = [
            cc.Tool(name=name, description=words(200, name), parameters=SCHEMA) for name in ("read", "write")
        ]
        changed = cc.Tool(name="write", description=words(300, "w"), parameters=SCHEMA)
        heads = [(900, (read, write)), (900, (read, write)), (700, (read, write)), (700, (read, changed)), (700, ())]
        for at, (size, tools) in enumerate(heads):
            life.fragments, life.tools = (cc.PromptFragment("identity", words(size, "s")),), list(tools)
            usage = cc.Usage(input=2_000 + 100 * at, output=9, cache_read=400)
            sent = life.turn(words(150, f"q{at}"), usage=usage)
            cc.observe(
                store, request=sent.params, reply=_reply_in(sent.formatter.name, usage), conversation="observed heads",
                format=sent.formatter.name, provider=sent.provider.name, time=1_790_000_000_000 + at * 1_000,
                url="https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent"
                if sent.formatter.name == "gemini" else "",
            )  # fmt: skip


def _reply_in(format: str, usage: cc.Usage) -> dict[str, Any]:
    """Return the answer "done" in the format of an API."""
    read, whole = usage.cache_read, usage.input
    chat = {"prompt_tokens": whole, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": read}}
    return {
        "anthropic": {
            "id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "done"}],
            "usage": {"input_tokens": whole - read, "cache_read_input_tokens": read, "output_tokens": 9},
        },
        "openai_chat": {
            "id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o", "usage": chat,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}],
        },
        "openai_responses": {
            "id": "r", "object": "response", "created_at": 1, "model": "gpt-5.2", "status": "completed",
            "output": [{"id": "i", "type": "message", "role": "assistant", "status": "completed",
                        "content": [{"type": "output_text", "text": "done", "annotations": []}]}],
            "usage": {"input_tokens": whole, "output_tokens": 9, "input_tokens_details": {"cached_tokens": read}},
        },
        "gemini": {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "done"}]}, "finishReason": "STOP"}],
            "usageMetadata": {
                "promptTokenCount": whole, "candidatesTokenCount": 9, "totalTokenCount": whole + 9,
                "cachedContentTokenCount": read,
            },
        },
    }[format]  # fmt: skip


def _send_own(store: cc.Store) -> None:
    """Requests of our own on two channels; one exceeds its budget and is trimmed."""
    gpt = Life(store, provider_of(window=6_000), name="own")
    for number in range(8):
        size = 400 + 550 * min(number, 4)
        gpt.turn(words(1_000, f"w{number}"), usage=cc.Usage(input=size, output=12, cache_read=size // 2))
    claude = Life(store, provider_of(SONNET, window=60_000), name="own")
    claude.turn("And you?", usage=cc.Usage(input=6_300, output=40, cache_write=6_000))


def _run_agent(store: cc.Store, address: str) -> None:
    """Turns of an agent: a tool call, an answer, and a turn that failed."""

    def look(path: str) -> str:
        """Look at a file."""
        return words(500, path)

    answers: list[Any] = [cc.tool_call("c1", "look", {"path": "a"}), "It is a.", ValueError("boom")]
    agent = cc.Agent(FakeModel(*answers, provider="anthropic:claude-opus-5-5"), store=store, tools=[look])
    agent.run_sync("What is it?", conversation="agent")
    with pytest.raises(ValueError, match="boom"):
        agent.run_sync("And b?", conversation="agent")
