"""Traces of the set `fresh`: long sessions with several causes."""

from tests.analysis.traces.case_builder import ALL, Cases, assistant, user
from tests.analysis.traces.fresh.steps import HOUR, MIDDLE, NEWER, OTHER, blocks_of, loop, ready
from tests.analysis.traces.simulated_client import Session


def _day(session: Session) -> None:
    """A day of one user: a late server, lunch, another model, a compaction, a night."""
    main = session.agent()
    helper_prompt, helper_tools = [session.writer.prose(6_000)], session.writer.tools(4, 600)
    loop(main, 2)
    main.tools = [*main.tools, session.writer.tool("mcp__late__get", 600)]
    loop(main, 1, "tools_changed")
    loop(main, 3)
    for _ in range(2):
        helper = session.agent(system=helper_prompt, tools=helper_tools)
        loop(helper, 2)
        loop(main, 1)
    session.idle(3 * 3_600)
    loop(main, 1, "cache_expired")
    loop(main, 2)
    main.send(fail=500)
    loop(main, 1)
    main.model = OTHER[session.wire]
    loop(main, 1, "model_changed")
    loop(main, 2)
    ready(main)
    main.messages = [
        user(f"This session is being continued from a previous conversation.\nSummary:\n{session.writer.prose(9_000)}"),
        assistant("I continue with the last step."),
        user("Go on."),
    ]
    main.send("compacted", reply="call")
    loop(main, 4)
    session.idle(15 * 3_600)
    main.system[0] = f"{main.system[0]}\nToday is another day."
    loop(main, 1, "system_changed", also=["cache_expired"])
    loop(main, 2)


def _careless(session: Session) -> None:
    """A program that trims, stubs and rewrites, one thing after the other."""
    agent = session.agent(ttl=HOUR)
    loop(agent, 6)
    for block in blocks_of(agent, "result")[:3]:
        block.text = "[cleared]"
    loop(agent, 1, "message_changed")
    loop(agent, 2)
    agent.tools = agent.tools[::-1]
    loop(agent, 1, "tools_reordered")
    loop(agent, 2)
    agent.messages.insert(0, user(f"Project notes:\n{session.writer.prose(1_000)}"))
    loop(agent, 1, "message_inserted")
    loop(agent, 2)
    at = next(at for at, each in enumerate(agent.messages) if at > 2 and each.blocks[-1].kind == "call")
    del agent.messages[at : at + 2]
    loop(agent, 1, "message_removed")
    loop(agent, 1)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    cases.add("day", ALL, _day, **MIDDLE)
    cases.add("careless", ALL, _careless, model=NEWER, **MIDDLE)
