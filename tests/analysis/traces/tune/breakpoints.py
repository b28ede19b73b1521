"""Traces of the half `tune`: breakpoints that are missing or too far away."""

from tests.analysis.traces.case_builder import MARKED, Cases, Scenario, assistant, user
from tests.analysis.traces.simulated_client import Session

# Breakpoints


def _never_marked(session: Session) -> None:
    agent = session.agent(marks=set())
    agent.ask().send(accept=["breakpoint_missing"], reply="call")
    agent.work(4, "breakpoint_missing")


def _only_system_marked(session: Session) -> None:
    agent = session.agent(marks={"system"})
    agent.work(1)
    agent.work(6, maybe="breakpoint_missing")


def _once_unmarked(session: Session) -> None:
    agent = session.agent()
    agent.work(4)
    agent.ask("And now?")
    marks, agent.marks = agent.marks, set()
    agent.send("breakpoint_missing", size=150)
    agent.marks = marks
    agent.ask("Thank you. What else?")
    agent.send()
    agent.work(2)


def _explicit_unmarked(session: Session) -> None:
    agent = session.agent(settings={"prompt_cache_options": {"mode": "explicit"}}, marks=set(), tools=[])
    agent.ask(size=3_000).send(accept=["breakpoint_missing"])
    for _ in range(3):
        agent.ask(size=900).send("breakpoint_missing")


def _explicit(session: Session) -> None:
    agent = session.agent(settings={"prompt_cache_options": {"mode": "explicit"}}, tools=[])
    for _ in range(5):
        agent.ask(size=900).send()


def _attachments(count: int, cause: str | None) -> Scenario:
    def run(session: Session) -> None:
        agent = session.agent()
        agent.work(6)
        writer = session.writer
        files = [f"<file name='{at}'>\n{writer.prose(150)}\n</file>" for at in range(count)]
        if agent.messages[-1].role == "user":
            agent.send()
        agent.ask(*files, writer.question()).send(cause)
        agent.work(2)

    return run


def _batch_of_turns(session: Session) -> None:
    """Turns of another program are appended at once."""
    agent = session.agent()
    for _ in range(4):
        agent.ask(size=1_200).send()
    for _ in range(13):
        agent.messages += [user(session.writer.question()), assistant(session.writer.prose(150))]
    agent.ask().send("lookback_exceeded")
    agent.work(2)


def _many_calls(session: Session) -> None:
    agent = session.agent()
    agent.work(2)
    agent.ask() if agent.messages[-1].role == "assistant" else None
    agent.send(reply="call", calls=26, result=300)
    agent.work(3)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("breakpoint_missing-never", MARKED, _never_marked)
    add("breakpoint_missing-only-system", MARKED, _only_system_marked)
    add("breakpoint_missing-once", ("anthropic", "bedrock"), _once_unmarked)
    add("breakpoint_missing-explicit", ("responses",), _explicit_unmarked, model="gpt-5.6-sol")
    add("clean-explicit", ("responses",), _explicit, model="gpt-5.6-sol")
    add("lookback_exceeded-attachments", MARKED, _attachments(27, "lookback_exceeded"))
    add("lookback_exceeded-turns", MARKED, _batch_of_turns)
    add("lookback_exceeded-files", ("anthropic",), _attachments(40, "lookback_exceeded"), model="claude-opus-4-8")
    add("clean-attachments", ("anthropic", "chat"), _attachments(11, None))
    add("clean-many-calls", MARKED, _many_calls)
