"""Traces of the half `report`: breakpoints that are missing or too far away."""

from typing import Any

from tests.analysis.traces.case_builder import MARKED, Cases, Scenario
from tests.analysis.traces.report.sizes import MIDDLE, SMALL_MODELS
from tests.analysis.traces.report.system_and_tools import OTHER_MODEL
from tests.analysis.traces.simulated_client import Session

# Breakpoints


def _only_tools(session: Session) -> None:
    agent = session.agent(marks={"tools"})
    agent.work(1)
    agent.work(5, maybe="breakpoint_missing")


def _lost_for_a_while(session: Session) -> None:
    agent = session.agent(marks={"system", "tail", "previous"})
    agent.work(5)
    agent.marks = {"system"}
    agent.work(3, "breakpoint_missing")
    agent.marks = {"system", "tail"}
    agent.ask("Short question.") if agent.messages[-1].role == "assistant" else None
    agent.send(maybe="breakpoint_missing", accept=["lookback_exceeded"])
    agent.work(2)


def _automatic_removed(session: Session) -> None:
    agent = session.agent(marks={"auto"})
    agent.work(5)
    agent.marks = set()
    agent.work(2, "breakpoint_missing")


def _explicit_system(session: Session) -> None:
    agent = session.agent(settings={"prompt_cache_options": {"mode": "explicit"}}, marks={"system"}, tools=[])
    agent.ask(size=4_000).send()
    for _ in range(4):
        agent.ask(size=2_000).send("breakpoint_missing")


def _unmarked(session: Session) -> None:
    agent = session.agent(marks=set())
    agent.ask(size=2_000).send(accept=["breakpoint_missing"])
    for _ in range(3):
        agent.ask(size=600).send("breakpoint_missing")


def _pages(count: int, cause: str | None, **fields: Any) -> Scenario:
    def run(session: Session) -> None:
        agent = session.agent(**fields)
        for _ in range(4):
            agent.ask(size=1_700).send()
        pages = [f"Page {at + 1}\n{session.writer.prose(220)}" for at in range(count)]
        agent.ask(*pages, "Summarize these pages.").send(cause)
        agent.ask().send()
        agent.ask().send()

    return run


def _turns_elsewhere(session: Session) -> None:
    """Another model works for eleven turns; the first one then finds nothing within its lookback."""
    agent = session.agent()
    for _ in range(4):
        agent.ask(size=1_500).send()
    agent.model = OTHER_MODEL[session.wire]
    for count in range(12):
        agent.ask().send("model_changed" if not count else None, size=200)
    agent.model = session.model
    agent.ask().send("lookback_exceeded", accept=["model_changed"])
    agent.ask().send()


def _steps_between_marks(session: Session) -> None:
    """A framework sends the steps of a long run only at its end."""
    agent = session.agent(thinks=True)
    for _ in range(3):
        agent.ask(size=1_900).send()
    agent.ask()
    for _ in range(8):
        answer = agent.answer("call")
        results = agent.results(answer, 500)
        assert results is not None
        agent.messages += [answer, results]
    agent.send("lookback_exceeded")
    agent.ask().send()


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("breakpoint_missing-only-tools", MARKED, _only_tools, **MIDDLE)
    add("breakpoint_missing-for-a-while", MARKED, _lost_for_a_while, **MIDDLE)
    add("breakpoint_missing-automatic", ("anthropic",), _automatic_removed, model="claude-sonnet-5-5")
    add("breakpoint_missing-explicit-system", ("responses",), _explicit_system, model="gpt-6.1-terra")
    add("breakpoint_missing-never", ("bedrock", "anthropic"), _unmarked, model=SMALL_MODELS, ids={"anthropic": "none"})
    add("lookback_exceeded-pages", MARKED, _pages(31, "lookback_exceeded"), model=SMALL_MODELS)
    add("lookback_exceeded-elsewhere", ("anthropic",), _turns_elsewhere)
    add(
        "lookback_exceeded-steps",
        MARKED,
        _steps_between_marks,
        model={"anthropic": "claude-opus-4-8", "bedrock": "us.anthropic.claude-opus-4-8-v1:0"},
    )
    add("clean-pages", ("chat", "gemini", "responses"), _pages(31, None))
    add("clean-pages-two-marks", MARKED, _pages(28, None, marks={"system", "tail", "previous"}))
