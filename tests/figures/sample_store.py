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
from tests.web.sample_conversations import SONNET, Life, provider_of

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
CONVERSATIONS = ("run", "chat", "cached", "transcript", "own", "agent")
OBSERVED = CONVERSATIONS[:4]
DEMO = (demo.WITH_MISTAKES, demo.COMPILED)
TRANSCRIPTS = Path(__file__).parents[1] / "data/transcripts.jsonl"


def fill_store(address: str) -> None:
    """Write the conversations of `CONVERSATIONS`."""
    with cc.open_store(address) as store:
        _record_run(store)
        _record_chat(store)
        _record_cached(store)
        _replay_transcript(store)
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
    """Two channels of one conversation, whose prefix changes on the way."""
    client = ChatClient()
    client.store, client.conversation = store, "chat"
    client.work(3)
    client.messages[0]["content"] = "It is 10:32 now. " + str(client.messages[0]["content"])
    client.send(0).send()
    client.settings["model"] = "gpt-4o"
    client.send(0).send()


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
