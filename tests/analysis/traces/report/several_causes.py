"""Traces of the half `report`: several causes at once, and neighbours that are easily confused."""

from tests.analysis.traces.case_builder import ALL, MARKED, Cases, Edit, Scenario, edited
from tests.analysis.traces.report.compaction_and_parallel import summary_and_tail
from tests.analysis.traces.report.messages import stub_results
from tests.analysis.traces.report.settings_and_expiry import pause
from tests.analysis.traces.report.sizes import MIDDLE
from tests.analysis.traces.report.system_and_tools import leave_out, narrow, put_back, swap
from tests.analysis.traces.simulated_client import Agent, Session

# Several causes, and neighbours that are easily confused


def _tools_and_messages(agent: Agent, count: int) -> None:
    narrow(agent, count)
    stub_results(agent, count)


def _system_and_compaction(session: Session) -> None:
    agent = session.agent()
    agent.work(6)
    agent.system[0] += "\nThe conversation was summarized once."
    agent.messages = summary_and_tail(agent, session.writer.prose(8_000))
    if agent.messages[-1].role == "assistant":
        agent.ask()
    agent.send("system_changed", accept=["compacted"], also=["compacted"])
    agent.work(2)


def _flip(cause: str, edit: Edit, back: Edit) -> Scenario:
    """A change is made, and taken back two requests later, when the first prefix is still in the cache."""

    def run(session: Session) -> None:
        agent = session.agent()
        agent.work(4)
        edit(agent, 0)
        agent.work(1, cause)
        agent.work(1)
        back(agent, 0)
        agent.work(1, maybe=cause)
        agent.work(2)

    return run


def _cleared(session: Session) -> None:
    """The user starts again in the same session, with the same tools and system prompt."""
    agent = session.agent()
    agent.work(6)
    assert agent.last is not None
    agent.messages = []
    agent.ask().send(None, accept=["first_request"])
    agent.work(2)


def _question_edited(session: Session) -> None:
    """The user edits an early question; what came after it is not sent again."""
    agent = session.agent()
    for _ in range(6):
        agent.ask(size=1_400).send()
    del agent.messages[4:]
    agent.ask("Sorry, I meant something else. " + session.writer.question()).send(None)
    agent.ask(size=600).send()


def _regenerated(session: Session) -> None:
    agent = session.agent()
    agent.work(3)
    agent.ask() if agent.messages[-1].role == "assistant" else None
    for _ in range(3):
        agent.send(keep=False)
    agent.send()
    agent.work(1)


def _large_result(session: Session) -> None:
    """A result is larger than everything before it. All that could be read was read."""
    agent = session.agent()
    agent.work(3, reply="call")
    agent.send(reply="call", result=90_000)
    agent.send(reply="call")
    agent.work(2)


def _kept_warm_by_others(session: Session) -> None:
    """Other conversations keep tools and system prompt in the cache, while the messages expire."""
    agent = session.agent()
    agent.work(6)
    agent.ask() if agent.messages[-1].role == "assistant" else None
    for _ in range(6):
        session.idle(170)
        session.agent(system=agent.system, tools=agent.tools).work(1)
    agent.send("cache_expired")
    agent.work(2)


def _replica(session: Session) -> None:
    """A request reaches a server that knows only the beginning of the conversation."""
    agent = session.agent()
    agent.work(6)
    agent.work(1, "provider_missed", lose="oldest")
    agent.work(2)


def _two_runs(session: Session) -> None:
    """A test suite runs the same conversation twice, without ids."""
    first = session.agent(tools=[])
    questions = [session.writer.question() for _ in range(3)]
    for question in questions:
        first.ask(question).send()
    second = session.agent(system=first.system, tools=[])
    for question in questions:
        second.ask(question).send(None if question == questions[0] else "unset")


def _little(session: Session) -> None:
    agent = session.agent(tools=session.writer.tools(1, 300))
    agent.work(5, result=500)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add(
        "tools_changed-and-messages",
        ("responses", "bedrock", "chat"),
        edited("tools_changed", _tools_and_messages, warm=8),
        **MIDDLE,
    )
    add("system_changed-and-compacted", ("anthropic", "chat"), _system_and_compaction, **MIDDLE)
    add("tools_reordered-and-back", ("anthropic", "responses"), _flip("tools_reordered", swap, swap), **MIDDLE)
    add("tools_changed-and-back", ("bedrock", "chat"), _flip("tools_changed", leave_out, put_back), **MIDDLE)
    add("clean-cleared", ("anthropic", "responses", "chat"), _cleared)
    add("clean-question-edited", ("anthropic", "gemini", "chat"), _question_edited)
    add("clean-regenerated", ALL, _regenerated)
    add("clean-large-result", ALL, _large_result)
    add("cache_expired-messages", MARKED, _kept_warm_by_others, ids="explicit", **MIDDLE)
    add("cache_expired-tail", MARKED, pause(800, ttl={"tools": "1h", "system": "1h"}, warm=6), **MIDDLE)
    add("provider_missed-replica", ("chat", "responses", "gemini"), _replica, **MIDDLE)
    add("clean-two-runs", ("chat", "anthropic"), _two_runs, ids="none")
    add("clean-small-prompt", ("anthropic",), _little, model="claude-opus-5-5", system=1_500)
    add("clean-small-prompt-2048", ("bedrock",), _little, model="us.anthropic.claude-opus-4-7-v1:0", system=9_500)
