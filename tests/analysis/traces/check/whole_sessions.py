"""Traces of the set `check`: longer sessions in which several things happen, one after the other."""

from tests.analysis.traces.case_builder import Cases, user
from tests.analysis.traces.check.steps import HOUR, LONGER, MINUTE, SMALLER, WIDE, blocks, steps, talk, turn
from tests.analysis.traces.simulated_client import Session


def _working_day(session: Session) -> None:
    """A coding session: a late tool, lunch, a summary, and another model in the evening."""
    agent = session.agent()
    steps(agent, 3)
    agent.tools.append(session.writer.tool("notebook_edit", 600))
    agent.send("tools_changed", reply="call")
    steps(agent, 4)
    session.idle(HOUR)
    agent.send("cache_expired", reply="call")
    steps(agent, 4)
    summary = session.writer.prose(9_000)
    agent.messages = [user(f"This session is being continued from a previous conversation. Summary:\n{summary}")]
    agent.send("compacted", reply="call")
    steps(agent, 3)
    agent.model = SMALLER[session.wire]
    agent.send("model_changed", reply="call")
    steps(agent, 2)


def _helpdesk(session: Session) -> None:
    """A support chat: the customer's name is added to the prompt, pauses, old turns dropped."""
    agent = session.agent()
    talk(agent, 3)
    agent.system[-1] += f"\nThe customer is number {session.rng.randrange(99_999)}."
    talk(agent, 1, cause="system_changed")
    talk(agent, 3)
    session.idle(17 * MINUTE)
    talk(agent, 1, cause="cache_expired")
    del agent.messages[:4]
    talk(agent, 1, cause="message_removed")
    talk(agent, 1)


def _main_and_worker(session: Session) -> None:
    """A worker runs for longer than the entries of its parent live; the worker's own history is edited."""
    main = session.agent()
    steps(main, 5)
    worker = session.agent()
    steps(worker, 5)
    blocks(worker, "result")[0].text = "[cleared]"
    worker.send("message_changed", reply="call")
    session.idle(11 * MINUTE)
    worker.send("cache_expired", reply="call")
    steps(worker, 2)
    turn(main).send("cache_expired", reply="call")
    steps(main, 2)


def _unstable_tools(session: Session) -> None:
    """Tools come in another order twice, and one of them is gone the third time."""
    agent = session.agent()
    steps(agent, 4)
    for _ in range(2):
        agent.tools.append(agent.tools.pop(0))
        agent.send("tools_reordered", reply="call")
        steps(agent, 2)
    agent.tools = list(reversed(agent.tools[1:]))
    agent.send("tools_changed", reply="call")
    steps(agent, 2)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("session-day", ("anthropic", "responses", "bedrock"), _working_day, **LONGER)
    add("session-helpdesk", ("chat", "gemini", "anthropic"), _helpdesk)
    add("session-worker", ("anthropic", "responses", "gemini"), _main_and_worker, **LONGER)
    add("session-tools", ("bedrock", "chat", "gemini"), _unstable_tools, **WIDE)
