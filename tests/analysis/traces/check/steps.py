"""Steps, models and sizes that cases of the set `check` share."""

from typing import Any

import msgspec

from tests.analysis.traces.simulated_client import UNSET, Agent
from tests.analysis.traces.wire_formats import Block, Message, encode_reply

MINUTE, HOUR, NIGHT = 60, 3_600, 11 * 3_600
SMALLER = {
    "anthropic": "claude-haiku-5-5", "chat": "gpt-4o-mini", "responses": "gpt-5-mini",
    "gemini": "gemini-2.5-flash-lite", "bedrock": "us.anthropic.claude-haiku-5-5-v1:0",
}  # fmt: skip
RECENT = {
    "anthropic": "claude-opus-5-5", "chat": "gpt-5.2", "responses": "gpt-5.6-terra", "gemini": "gemini-3-pro",
    "bedrock": "global.anthropic.claude-opus-5-v1:0",
}  # fmt: skip
LONGER = {"system": 14_000, "tools": 700, "result": 7_000}
WIDE = {"system": 6_000, "tools": 2_200, "result": 9_000}
ONE_HOUR = {"tools": "1h", "system": "1h", "previous": "1h", "tail": "1h"}


def turn(agent: Agent) -> Agent:
    """Append a question unless a message of the user is the last one."""
    return agent if agent.messages and agent.messages[-1].role != "assistant" else agent.ask()


def steps(agent: Agent, count: int, cause: str | None = UNSET, **options: Any) -> Agent:
    """Send requests of a loop with tools: each answer has a call."""
    for _ in range(count):
        turn(agent).send(cause, reply="call", **options)
    return agent


def talk(agent: Agent, count: int, size: int = 1_800, cause: str | None = UNSET, **options: Any) -> Agent:
    """Send questions that are answered with text."""
    for _ in range(count):
        agent.ask(size=size).send(cause, size=600, **options)
    return agent


def blocks(agent: Agent, kind: str) -> list[Block]:
    return [block for message in agent.messages for block in message.blocks if block.kind == kind]


def answer_with(agent: Agent, answer: Message, cause: str | None = UNSET) -> None:
    """Send a request that gets this answer."""
    exchange = agent.send(cause, keep=False)
    assert agent.last is not None
    reply = encode_reply(agent.session.wire, agent.model, answer, agent.last, agent.session.writer.identifier(""))
    agent.session.exchanges[-1] = exchange._replace(reply=msgspec.json.encode(reply))
    agent.messages.append(answer)
