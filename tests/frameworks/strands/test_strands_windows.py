"""Windows from tiny to full, and several processes on one conversation."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from strands import Agent
from strands.agent.conversation_manager import NullConversationManager
from strands.models.openai import OpenAIModel

import contextc as cc
from contextc.adapters.strands import ContextcPlugin
from tests.conftest import often
from tests.frameworks.random_histories import CallIds, check_windows, make_history
from tests.frameworks.shared_conversation import CONVERSATION, Ask, check_writers
from tests.frameworks.strands.report_agent import MODELS, make_agent

PROVIDERS = {"openai_chat": "openai-chat:gpt-4.1", "anthropic": "anthropic:claude-opus-5-5"}
QUESTION = "What now?"


class RecordingModel(OpenAIModel):
    """A model that keeps the messages it gets, and answers."""

    sent: Sequence[Any] = ()

    async def stream(self, messages: Any, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        self.sent = messages
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockDelta": {"delta": {"text": "Fine."}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def convert(history: Sequence[Any]) -> list[Any]:
    """Return the messages of Strands for those of OpenAI. Results of one step are one message of the user."""
    messages: list[Any] = []
    for each in history:
        blocks: list[Any] = [{"text": each["content"]}] if each["content"] and each["role"] != "tool" else []
        for call in each.get("tool_calls", ()):
            input = json.loads(call["function"]["arguments"])
            blocks.append({"toolUse": {"toolUseId": call["id"], "name": "read_page", "input": input}})
        if each["role"] == "tool":
            content = [{"text": each["content"]}]
            blocks.append({"toolResult": {"toolUseId": each["tool_call_id"], "status": "success", "content": content}})
        role = "assistant" if each["role"] == "assistant" else "user"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return messages


def list_call_ids(messages: Sequence[Any]) -> CallIds:
    blocks = [block for message in messages for block in message["content"]]
    return (
        [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block],
        [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block],
    )


@pytest.mark.parametrize("seed", range(often(4, 40)))
@pytest.mark.parametrize("name", [*PROVIDERS])
def test_no_window_separates_a_call_from_its_result(name: str, seed: int) -> None:
    """Guarantees 5.4 and 21.4; strands-agents/harness-sdk#2087, #2173: every window, no orphan, and the user begins."""
    history = convert(make_history(seed))
    with cc.open_store("memory:") as store:

        def send(window: int) -> Sequence[Any]:
            model = RecordingModel(client_args={"api_key": "none"})
            provider = cc.provider(PROVIDERS[name], window=window)
            agent = Agent(
                model=model,
                messages=convert(make_history(seed)),
                callback_handler=None,
                conversation_manager=NullConversationManager(),
                plugins=[ContextcPlugin(store, f"{name} {window}", model=provider, output=100)],
            )
            agent(QUESTION)
            assert model.sent[0]["role"] == "user"
            assert model.sent[-1]["content"][-1] == {"text": QUESTION}
            return model.sent

        check_windows(send, list_call_ids, len(history))


def make_writer(store: cc.Store, fake: Any) -> Ask:
    return make_agent(MODELS["openai_chat"](fake), ContextcPlugin(store, CONVERSATION))


def test_eight_processes_on_one_conversation_lose_nothing(shared_address: str) -> None:
    """Guarantees 3.2 and 21.3: each agent has messages of its own, so each is a branch."""
    check_writers(shared_address, "openai_chat", make_writer)
