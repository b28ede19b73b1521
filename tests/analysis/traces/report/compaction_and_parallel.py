"""Traces of the half `report`: compaction, and requests at once."""

from collections.abc import Callable

from tests.analysis.traces.case_builder import ALL, Cases, Scenario, assistant, copied, user
from tests.analysis.traces.report.sizes import MIDDLE
from tests.analysis.traces.simulated_client import Agent, Session
from tests.analysis.traces.wire_formats import Block, Message

# Compaction


def _with_files(agent: Agent, summary: str) -> list[Message]:
    writer = agent.session.writer
    start = (
        "This session is being continued from a previous conversation that ran out of context. "
        "The summary below covers the earlier portion of the conversation."
    )
    files = [
        f"<system-reminder>Read before: {name}\n{writer.output(1_500)}</system-reminder>"
        for name in writer.subject.files[:2]
    ]
    return [user(f"{start}\n\n{summary}", *files, "Continue with the task.")]


def _compaction_block(agent: Agent, summary: str) -> list[Message]:
    block = Block(
        "native", native={"type": "compaction", "content": summary, "signature": agent.session.writer.signature()}
    )
    return [user(agent.messages[0].blocks[0].text), Message("assistant", [block]), user("Continue.")]


def _handover(agent: Agent, summary: str) -> list[Message]:
    asked = [each for each in agent.messages if each.role == "user" and each.blocks[0].kind == "text"][-2:]
    start = (
        "Another language model started to solve this problem and produced a summary of its thinking process. "
        "Use this to build on the work."
    )
    return [*asked, user(f"{start}\n{summary}")]


def summary_and_tail(agent: Agent, summary: str) -> list[Message]:
    """The summary replaces all but the last exchange."""
    last = max(at for at, each in enumerate(agent.messages) if each.role == "user" and each.blocks[0].kind == "text")
    return [
        user(f"[Earlier messages were condensed]\n{summary}"),
        assistant("I have read the summary."),
        *agent.messages[last:],
    ]


def _compacted(make: Callable[[Agent, str], list[Message]], times: int = 1) -> Scenario:
    def run(session: Session) -> None:
        agent = session.agent()
        for _ in range(times):
            agent.work(6)
            if agent.messages[-1].role == "assistant":
                agent.ask()
            agent.messages = make(agent, session.writer.prose(9_500))
            agent.send("compacted", reply="text")
        agent.work(3)

    return run


# Parallel requests


def _map_over_document(session: Session) -> None:
    """Questions on one document are sent at once, each a conversation of its own."""
    document = f"<document>\n{session.writer.prose(24_000)}\n</document>"
    start, shared = session.now, 0
    first = session.agent(marked=-2)
    for count in range(4):
        agent = first if not count else session.agent(system=first.system, tools=first.tools, marked=-2)
        agent.messages = [user(document), user(session.writer.question())]
        if not count:
            shared = agent.send(at=start).total - 150
        else:
            agent.send("parallel_request", at=start + 60 * count, potential=shared)
    session.now = start + 12_000
    for agent in [first]:
        agent.ask().send()


def _hedged(session: Session) -> None:
    """After a pause, a request is sent twice, because the first answer is slow."""
    agent = session.agent()
    agent.work(5)
    agent.ask() if agent.messages[-1].role == "assistant" else None
    session.idle(17 * 3_600)
    start = session.now
    agent.send("cache_expired", keep=False, at=start)
    agent.send("parallel_request", keep=False, at=start + 400, also=["cache_expired"], accept=["cache_expired"])
    session.now = start + 10_000
    agent.send()
    agent.work(2)


def _fanned_out(session: Session) -> None:
    """A conversation is continued in three ways at once, after a long result."""
    agent = session.agent()
    agent.work(3)
    agent.ask() if agent.messages[-1].role == "assistant" else None
    agent.send(reply="call", result=22_000)
    agent.marked = -2
    start, history = session.now, copied(agent.messages)
    for count in range(3):
        agent.messages = [*copied(history), user(f"Variant {count}: {session.writer.question()}")]
        agent.send(None if not count else "parallel_request", at=start + 45 * count, keep=False)
    session.now = start + 9_900
    agent.send()


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    # Compaction
    add("compacted-files", ("anthropic",), _compacted(_with_files, 2), model="claude-opus-5", **MIDDLE)
    add("compacted-block", ("anthropic",), _compacted(_compaction_block), model="claude-sonnet-5-5", **MIDDLE)
    add("compacted-handover", ("responses",), _compacted(_handover, 2), model="gpt-5.6-sol", **MIDDLE)
    add("compacted-tail", ("chat", "gemini", "bedrock"), _compacted(summary_and_tail), **MIDDLE)
    # Parallel requests
    add("parallel_request-document", ("anthropic", "chat", "gemini"), _map_over_document, ids={"anthropic": "explicit"})
    add("parallel_request-hedged", ("responses", "bedrock"), _hedged)
    add("parallel_request-variants", ALL, _fanned_out, model={"anthropic": "claude-opus-5"})
