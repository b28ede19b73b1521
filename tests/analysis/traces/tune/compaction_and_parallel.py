"""Traces of the half `tune`: compaction, and requests at once."""

from collections.abc import Callable

from tests.analysis.traces.case_builder import ALL, Cases, Scenario, assistant, user
from tests.analysis.traces.simulated_client import Agent, Session
from tests.analysis.traces.wire_formats import Message

# Compaction


def _compacted(make: Callable[[Agent, str], list[Message]], *, header: bool = False, asks: bool = True) -> Scenario:
    def run(session: Session) -> None:
        agent = session.agent()
        agent.work(7, result=6_000)
        if agent.messages[-1].role == "assistant" and asks:
            agent.ask("Your task is to create a detailed summary of the conversation so far.").send(size=2_500)
        agent.messages = make(agent, session.writer.prose(7_500))
        if header:
            agent.headers["x-claude-code-context-compacted"] = "true"
        agent.send("compacted", reply="call")
        agent.headers.pop("x-claude-code-context-compacted", None)
        agent.work(3)

    return run


def _claude_summary(agent: Agent, summary: str) -> list[Message]:
    start = (
        "This session is being continued from a previous conversation that ran out of context. "
        "The conversation is summarized below:"
    )
    return [user(f"{start}\nAnalysis:\n{summary}", "Please continue with the last task.")]


def _codex_summary(agent: Agent, summary: str) -> list[Message]:
    asked = [each for each in agent.messages if each.role == "user" and each.blocks[0].kind == "text"][:1]
    start = "Another language model started to solve this problem and produced a summary of its thinking process."
    return [*asked, user(f"{start} {summary}")]


def _plain_summary(agent: Agent, summary: str) -> list[Message]:
    return [user(f"Summary of the conversation so far:\n{summary}"), assistant("Understood."), user("Go on.")]


# Parallel requests


def _same_at_once(session: Session) -> None:
    """A request is sent three times at once, after a long document was added."""
    agent = session.agent()
    agent.work(3)
    agent.ask(size=14_000)
    start = session.now
    agent.send(keep=False, at=start)
    agent.send("parallel_request", keep=False, at=start + 90)
    agent.send("parallel_request", keep=False, at=start + 210)
    session.now = start + 11_000
    agent.send()
    agent.work(2)


def _agents_at_once(session: Session) -> None:
    """Sub-agents with one system prompt start at once."""
    main = session.agent()
    main.work(2)
    start, shared = session.now, session.agent(system=[session.writer.prose(12_000)])
    shared.ask().send(at=start, reply="call")
    assert shared.last is not None
    for count in range(2):
        agent = session.agent(system=shared.system, tools=shared.tools)
        agent.ask()
        agent.send("parallel_request", at=start + 150 * (count + 1), potential=shared.last.total - 200)
    session.now = start + 10_000
    shared.work(2)
    main.work(2)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    # Compaction
    add("compacted-claude-code", ("anthropic",), _compacted(_claude_summary))
    add(
        "compacted-claude-code-header",
        ("anthropic",),
        _compacted(_claude_summary, header=True),
        model="claude-opus-4-8",
    )
    add("compacted-codex", ("responses",), _compacted(_codex_summary))
    add("compacted-summary", ("chat", "gemini", "bedrock"), _compacted(_plain_summary))
    # Parallel requests
    add("parallel_request-same", ALL, _same_at_once)
    add("parallel_request-agents", ("anthropic", "responses"), _agents_at_once)
