"""Traces of the half `report`: messages that were changed, removed or inserted."""

import json

from tests.analysis.traces.case_builder import (
    ALL,
    MARKED,
    Cases,
    assistant,
    block_of,
    clock,
    drop_blocks,
    edited,
    find,
    system,
    user,
)
from tests.analysis.traces.report.sizes import MIDDLE, SMALL_MODELS
from tests.analysis.traces.simulated_client import Agent, Session
from tests.analysis.traces.wire_formats import Block

# Messages that were changed


def _with_environment(agent: Agent) -> None:
    agent.ask(f"<environment>\nOpen files: none\n</environment>\n{agent.session.writer.question()}")


def _update_environment(agent: Agent, count: int) -> None:
    block = agent.messages[0].blocks[0]
    rest = block.text.partition("</environment>")[2]
    name = agent.session.writer.subject.files[count % 4]
    block.text = f"<environment>\nOpen files: {name}\nTime: {clock(agent)}\n</environment>{rest}"


def stub_results(agent: Agent, _: int) -> None:
    for message in agent.messages[:-4]:
        for block in message.blocks:
            if block.kind == "result":
                block.text = f"(output of {block.name} omitted, {len(block.text)} bytes)"


def _strip_thinking(agent: Agent, _: int) -> None:
    drop_blocks(agent, "thinking")


def _compact_arguments(agent: Agent, _: int) -> None:
    for message in agent.messages:
        for block in message.blocks:
            if block.kind == "call":
                block.text = json.dumps(block.input, separators=(",", ":"))


def _respell_numbers(agent: Agent, _: int) -> None:
    for message in agent.messages:
        for block in message.blocks:
            if "limit" in block.input:
                block.input = {**block.input, "limit": float(block.input["limit"])}


def _new_ids(agent: Agent, _: int) -> None:
    known: dict[str, str] = {}
    for message in agent.messages:
        for block in message.blocks:
            if block.kind in ("call", "result"):
                block.id = known.setdefault(block.id, agent.session.writer.identifier("call_"))


def _trim_result(agent: Agent, _: int) -> None:
    block = block_of(agent, "result", 0)
    block.text = block.text.replace("\t", " ")


def _two_images(agent: Agent) -> None:
    agent.ask()
    agent.messages[0].blocks += [Block("image", agent.session.writer.image()) for _ in range(2)]


def _omit_second(agent: Agent, _: int) -> None:
    agent.messages[0].blocks[-1] = Block("text", "[screenshot omitted]")


def _edit_answer(agent: Agent, _: int) -> None:
    at, index = next(
        (at, index)
        for at, message in enumerate(agent.messages)
        for index, block in enumerate(message.blocks)
        if message.role == "assistant" and block.kind == "text"
    )
    agent.messages[at].blocks[index].text += " (edited)"


def _chatting(agent: Agent) -> None:
    for _ in range(4):
        agent.ask(size=1_600).send()


# Messages that were removed


def _half_dropped(session: Session) -> None:
    agent = session.agent()
    for _ in range(7):
        agent.ask(size=2_600).send(size=600)
    del agent.messages[:8]
    agent.ask().send("message_removed")
    for _ in range(3):
        agent.ask(size=700).send()


def _call_pruned(session: Session) -> None:
    """A tool call and its result are left out."""
    agent = session.agent()
    agent.ask().send(reply="call")
    for _ in range(6):
        agent.send(reply="call")
    agent.send()
    at = find(agent, "call", 1)[0]
    del agent.messages[at : at + 2]
    agent.ask().send("message_removed")
    agent.work(2)


def _nudge_removed(session: Session) -> None:
    """A developer's notice between messages is left out later."""
    agent = session.agent()
    agent.ask(size=800).send()
    agent.ask()
    agent.messages.append(system("The task tools have not been used recently. " + session.writer.prose(900)))
    at = len(agent.messages) - 1
    agent.send()
    for _ in range(3):
        agent.ask(size=2_500).send()
    del agent.messages[at]
    agent.ask().send("message_removed")
    agent.ask().send()


# Messages that were inserted


def insert_documents(agent: Agent, _: int) -> None:
    writer = agent.session.writer
    agent.messages.insert(0, user("Documents:\n" + "\n---\n".join([writer.prose(400) for _ in range(3)])))


def _insert_notice(agent: Agent, _: int) -> None:
    text = f"Note of the supervisor: {agent.session.writer.prose(300)}"
    at = next(
        at
        for at, message in enumerate(agent.messages)
        if at > 1 and message.blocks[0].kind == "text" and message.role == "user"
    )
    agent.messages[at:at] = [user(text), assistant("Noted.")]


def _insert_system(agent: Agent, _: int) -> None:
    agent.messages.insert(1, system(f"Policy update: {agent.session.writer.prose(400)}"))


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    # Messages that were changed
    add(
        "message_changed-environment",
        ("anthropic", "chat", "gemini"),
        edited("message_changed", _update_environment, ready=_with_environment, warm=4, times=3, after=0),
        **MIDDLE,
    )
    add(
        "message_changed-results-omitted",
        ("responses", "bedrock", "anthropic"),
        edited("message_changed", stub_results, warm=8),
        **MIDDLE,
    )
    add(
        "message_changed-thinking-stripped",
        ("anthropic", "bedrock", "gemini"),
        edited("message_changed", _strip_thinking, warm=7, thinks=True),
        model={
            "anthropic": "claude-opus-5",
            "bedrock": "eu.anthropic.claude-sonnet-5-v1:0",
            "gemini": "gemini-3.6-flash",
        },
        system={"gemini": 22_000},
    )
    add(
        "message_changed-reasoning-stripped",
        ("responses",),
        edited("message_changed", _strip_thinking, warm=7, thinks=True, accept=["message_removed"]),
        model="gpt-6.1-terra",
    )
    add(
        "message_changed-arguments-compact",
        ("chat", "responses"),
        edited("message_changed", _compact_arguments, warm=6),
    )
    add(
        "message_changed-numbers",
        ("anthropic", "gemini", "bedrock"),
        edited("message_changed", _respell_numbers, warm=6),
    )
    add("message_changed-call-ids", ("chat", "anthropic"), edited("message_changed", _new_ids, warm=6))
    add("message_changed-tabs", ("gemini", "bedrock"), edited("message_changed", _trim_result, warm=7), **MIDDLE)
    add(
        "message_changed-second-image",
        ("anthropic", "responses"),
        edited("message_changed", _omit_second, ready=_two_images, warm=5),
    )
    add(
        "message_changed-answer-edited", ("chat", "responses"), edited("message_changed", _edit_answer, ready=_chatting)
    )
    add(
        "message_changed-and-idle",
        ("anthropic", "chat"),
        edited("message_changed", stub_results, warm=8, idle=14_000, also=["cache_expired"]),
        **MIDDLE,
    )
    # Messages that were removed
    add("message_removed-half", ALL, _half_dropped, model=SMALL_MODELS)
    add("message_removed-call", ("anthropic", "chat", "bedrock"), _call_pruned, **MIDDLE)
    add("message_removed-nudge", ("responses", "anthropic"), _nudge_removed, model={"anthropic": "claude-opus-5"})
    # Messages that were inserted
    add(
        "message_inserted-documents",
        ("chat", "gemini", "responses", "anthropic"),
        edited("message_inserted", insert_documents, warm=6),
        **MIDDLE,
    )
    add("message_inserted-notice", MARKED, edited("message_inserted", _insert_notice, ready=_chatting))
    add("message_inserted-policy", ("chat", "responses"), edited("message_inserted", _insert_system, warm=6))
