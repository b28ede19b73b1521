"""Traces of the half `tune`: the system prompt, the tools and the model."""

from tests.analysis.traces.case_builder import ALL, Cases, clock, edited, prefix_system, suffix_system
from tests.analysis.traces.simulated_client import Agent, Session

# System prompt


def now(agent: Agent, _: int) -> str:
    return f"Current time: {clock(agent)}"


def _attribution_harmless(session: Session) -> None:
    agent = session.agent()
    agent.system.insert(0, "")
    for count in range(5):
        agent.system[0] = f"x-anthropic-billing-header: cc_version=2.1.{count}; cch={session.rng.randrange(16**5):05x};"
        agent.work(1)


# Tools


def _add_tool(agent: Agent, count: int) -> None:
    agent.tools = [*agent.tools, agent.session.writer.tool(f"mcp__tracker__call_{count}", 400)]


def _remove_tool(agent: Agent, _: int) -> None:
    agent.tools = agent.tools[:2] + agent.tools[3:]


def _describe_tool(agent: Agent, count: int) -> None:
    first, *rest = agent.tools
    agent.tools = [{**first, "description": f"{first['description']} Available agents: general-{count}."}, *rest]


def _rotate(agent: Agent, _: int) -> None:
    agent.tools = [*agent.tools[1:], agent.tools[0]]


def _shuffle(agent: Agent, _: int) -> None:
    before = list(agent.tools)
    while agent.tools == before:
        agent.session.rng.shuffle(agent.tools)


def _shuffle_and_change(agent: Agent, count: int) -> None:
    _shuffle(agent, count)
    agent.tools[0] = {**agent.tools[0], "description": agent.session.writer.prose(500)}


# Model

OTHER_MODEL = {
    "anthropic": "claude-opus-4-8", "chat": "gpt-4o", "responses": "gpt-5.1", "gemini": "gemini-2.5-flash",
    "bedrock": "us.anthropic.claude-opus-4-8-v1:0",
}  # fmt: skip


def _switch(session: Session) -> None:
    agent = session.agent()
    agent.work(4)
    agent.model = OTHER_MODEL[session.wire]
    agent.work(1, "model_changed").work(3)


def _switch_and_return(session: Session) -> None:
    agent = session.agent()
    agent.work(4)
    agent.ask()
    agent.model = OTHER_MODEL[session.wire]
    agent.send("model_changed", size=300)
    agent.ask("Thanks, go on.")
    agent.model = session.model
    agent.send(None)
    agent.work(2)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    # System prompt
    add("system_changed-clock-first", ALL, edited("system_changed", prefix_system(now), warm=1, times=4, after=0))
    add(
        "system_changed-clock-last",
        ("anthropic", "chat", "gemini"),
        edited("system_changed", suffix_system(now), warm=4, times=3, after=0),
        tools=1500,
    )
    add(
        "system_changed-clock-and-idle",
        ("anthropic", "responses", "bedrock"),
        edited("system_changed", prefix_system(now), warm=4, idle=900, also=["cache_expired"]),
    )
    add(
        "system_changed-attribution",
        ("anthropic",),
        edited(
            "system_changed",
            lambda agent, count: agent.system.__setitem__(0, f"x-client-line: v=3.{count}; cch={agent.session.now:x};"),
            warm=2, times=3, after=0,
            ready=lambda agent: agent.system.insert(0, "x-client-line: v=3.0; cch=00000;"),
        ),
        ignores_attribution=False,
    )  # fmt: skip
    add("clean-attribution-ignored", ("anthropic",), _attribution_harmless)
    # Tools
    add("tools_changed-added", ("anthropic", "chat", "gemini"), edited("tools_changed", _add_tool, times=2, after=2))
    add("tools_changed-removed", ("responses", "bedrock"), edited("tools_changed", _remove_tool))
    add("tools_changed-description", ALL[:3], edited("tools_changed", _describe_tool, times=2, after=1))
    add("tools_reordered-rotated", ALL, edited("tools_reordered", _rotate))
    add("tools_reordered-shuffled", ("anthropic", "responses"), edited("tools_reordered", _shuffle, times=3, after=0))
    add("tools_changed-and-reordered", ("anthropic", "chat"), edited("tools_changed", _shuffle_and_change))
    # Model
    add("model_changed-for-good", ALL, _switch)
    add("model_changed-and-back", ("anthropic", "chat", "bedrock"), _switch_and_return)
