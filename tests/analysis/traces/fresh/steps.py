"""Steps, models and sizes that cases of the set `fresh` share."""

from collections.abc import Callable, Iterator

import msgspec

from tests.analysis.traces.simulated_client import Agent, Session
from tests.analysis.traces.trace import Exchange
from tests.analysis.traces.wire_formats import Block, Message, encode_reply

NEWER = {
    "anthropic": "claude-opus-5", "chat": "gpt-4o", "responses": "gpt-5.6-sol", "gemini": "gemini-3.6-flash",
    "bedrock": "eu.anthropic.claude-sonnet-5-v1:0",
}  # fmt: skip
OTHER = {
    "anthropic": "claude-opus-4-8", "chat": "gpt-4.1-mini", "responses": "gpt-5.1", "gemini": "gemini-2.5-flash",
    "bedrock": "us.anthropic.claude-opus-4-8-v1:0",
}  # fmt: skip
MIDDLE = {"system": 12_000, "tools": 1_000, "result": 6_500}
LARGE = {"system": 24_000, "tools": 1_800, "result": 10_000}
HOUR = {"tools": "1h", "system": "1h", "tail": "1h", "previous": "1h"}


def ready(agent: Agent) -> Agent:
    """Let the last message be one of the user."""
    if not agent.messages or agent.messages[-1].role == "assistant":
        agent.ask()
    return agent


def loop(agent: Agent, steps: int, cause: str | None = "unset", **options: object) -> Agent:
    """Send requests whose answers all have calls."""
    for _ in range(steps):
        ready(agent).send(cause, reply="call", **options)  # pyright: ignore[reportArgumentType]
    return agent


def blocks_of(agent: Agent, kind: str) -> list[Block]:
    return [block for message in agent.messages for block in message.blocks if block.kind == kind]


def send_answer(agent: Agent, answer: Message, cause: str | None = "unset") -> Exchange:
    """Send a request whose answer is given."""
    exchange = agent.send(cause, keep=False)
    assert agent.last is not None
    made = encode_reply(agent.session.wire, agent.model, answer, agent.last, agent.session.writer.identifier(""))
    agent.session.exchanges[-1] = exchange = exchange._replace(reply=msgspec.json.encode(made))
    agent.messages.append(answer)
    return exchange


def last_longer(session: Session, seconds: int) -> None:
    """Let the answer of the last request take some seconds more."""
    exchange = session.exchanges[-1]
    session.exchanges[-1] = exchange._replace(ended=exchange.ended + seconds * 1_000)
    session.idle(seconds)


def in_turns(*agents: Agent) -> Callable[[int], Iterator[Agent]]:
    """Return agents one after the other, a number of rounds."""

    def rounds(count: int) -> Iterator[Agent]:
        for _ in range(count):
            yield from agents

    return rounds
