"""Traces of the set `fresh`: the system prompt, the tools and the model."""

import json

from tests.analysis.traces.case_builder import Cases, Scenario, clock, edited
from tests.analysis.traces.fresh.steps import HOUR, LARGE, MIDDLE, NEWER, OTHER, in_turns, loop, ready
from tests.analysis.traces.simulated_client import Agent, Session

# System prompt


def _minute_clock(session: Session) -> None:
    """The time in minutes is in the middle of the system prompt. Some pauses are longer than every TTL."""
    agent = session.agent()
    first, rest = agent.system[0][:6_000], agent.system[0][6_000:]
    before = ""
    for pause in (0, 3, 2, 75, 0, 4 * 3_600, 1, 90):
        session.idle(pause)
        now = clock(agent, "%H:%M")
        agent.system[0] = f"{first}\nLocal time: {now}\n{rest}"
        also = ["cache_expired"] if pause > 3_600 else []
        cause = "unset" if not before else None if now == before else "system_changed"
        loop(agent, 1, cause, also=also)
        before = now


def _next_day(session: Session) -> None:
    """A session is resumed after a night, and the system prompt has another date."""
    agent = session.agent(ttl=HOUR)
    agent.system.append("Today's date: Tuesday.")
    agent.work(5)
    agent.system[-1] = "Today's date: Wednesday."
    session.idle(14 * 3_600)
    ready(agent).send("system_changed", also=["cache_expired"])
    agent.work(2)


def _midnight(session: Session) -> None:
    """The date changes within a conversation, seconds after the request before."""
    agent = session.agent()
    agent.system.insert(0, "Date: 2026-10-30")
    agent.work(4)
    agent.system[0] = "Date: 2026-10-31"
    ready(agent).send("system_changed")
    agent.work(2)


def _beside_other_client(session: Session) -> None:
    """Two clients without ids take turns on one model; one of them changes its system prompt."""
    one = session.agent()
    two = session.agent(tools=one.tools, system=[session.writer.prose(8_000)])
    rounds = in_turns(one, two)
    for agent in rounds(3):
        loop(agent, 1)
    two.system = [f"{two.system[0]}\nLearned: {session.writer.prose(200)}"]
    loop(one, 1)
    loop(two, 1, "system_changed")
    for agent in rounds(2):
        loop(agent, 1)


def _attribution_on_resume(session: Session) -> None:
    """The attribution line is the same within a run, and another one when the session is resumed."""
    agent = session.agent()
    agent.system.insert(0, "")
    for run in range(3):
        agent.system[0] = (
            f"x-anthropic-billing-header: cc_version=2.1.320.{session.rng.randrange(4096):03x}; cch=00{run};"
        )
        session.idle(40)
        loop(agent, 1, "system_changed" if run else "unset")
        agent.work(3)


def _memory(session: Session) -> None:
    """A file of instructions is a block of the system prompt, and is written by the model itself."""
    agent = session.agent(marks={"tools", "system", "tail"})
    agent.system = [agent.system[0], f"# Memory\n{session.writer.prose(900)}", session.writer.prose(3_000)]
    agent.work(5)
    agent.system[1] += "\n- Use the short form of dates."
    ready(agent).send("system_changed", reply="call")
    agent.work(3)


def _instructions(session: Session) -> None:
    """The field `instructions` names the working directory, which changes."""
    agent = session.agent(settings={"instructions": True})
    agent.system.append("cwd: /srv/one")
    agent.work(4)
    agent.system[-1] = "cwd: /srv/two"
    agent.work(1, "system_changed")
    agent.work(3)


# Tools


def _late_server(session: Session) -> None:
    """An MCP server is connected after two requests, is gone for one request, and comes back."""
    agent = session.agent()
    own = agent.tools
    more = [session.writer.tool(f"mcp__files__{name}", 700) for name in ("list", "stat", "watch")]
    loop(agent, 2)
    agent.tools = [*own, *more]
    loop(agent, 1, "tools_changed")
    loop(agent, 3)
    agent.tools = own
    loop(agent, 1, "tools_changed")
    agent.tools = [*own, *more]
    assert agent.last is not None
    size = int(len(json.dumps(more)) / session.cache.ratio)
    loop(agent, 1, maybe="tools_changed", potential=agent.last.total + size)
    loop(agent, 2)


def _dated_tool(session: Session) -> None:
    """The description of a search tool names the day."""
    agent = session.agent()
    tool = agent.tools[-1]
    for day in (12, 13):
        agent.tools = [*agent.tools[:-1], {**tool, "description": f"{tool['description']} Today is {day} November."}]
        session.idle(90)
        loop(agent, 1, "tools_changed" if day == 13 else "unset")
        agent.work(3)


def _final_without_tools(session: Session) -> None:
    """The last answer of an agent is asked for without tools."""
    agent = session.agent()
    loop(agent, 5)
    agent.tools = []
    agent.send("tools_changed")


def _plan_mode(session: Session) -> None:
    """A mode of the client leaves out the tools that write, for three requests."""
    agent = session.agent(ttl=HOUR)
    loop(agent, 4)
    every = agent.tools
    agent.tools = [tool for tool in every if "edit" not in tool["name"] and "write" not in tool["name"]][:-1]
    loop(agent, 1, "tools_changed")
    loop(agent, 2)
    agent.tools = every
    loop(agent, 1, "tools_changed")
    loop(agent, 2)


def _one_gone_rest_sorted(session: Session) -> None:
    agent = session.agent()
    agent.work(4)
    agent.tools = sorted(agent.tools[1:], key=lambda tool: str(tool["name"]), reverse=True)
    ready(agent).send("tools_changed", reply="call")
    agent.work(2)


def _schema_default(session: Session) -> None:
    """A default value in one schema is made anew for each process."""
    agent = session.agent()
    plain = agent.tools
    for run in range(3):
        tool = json.loads(json.dumps(plain[4]))
        tool["schema"]["properties"]["limit"]["default"] = 100 + run
        agent.tools = [*plain[:4], tool, *plain[5:]]
        session.idle(20)
        loop(agent, 1, "tools_changed" if run else "unset")
        loop(agent, 2)


def _workers(session: Session) -> None:
    """Three workers serve one conversation in turns, and each has an order of tools of its own."""
    agent = session.agent()
    orders = [list(agent.tools) for _ in range(3)]
    orders[1].reverse()
    orders[2] = [*orders[2][3:], *orders[2][:3]]
    for count in range(8):
        agent.tools = orders[count % 3]
        loop(agent, 1, "unset" if not count else "tools_reordered")


def _order_of_servers(session: Session) -> None:
    """The order of two MCP servers depends on which one answers first, when a session is resumed."""
    agent = session.agent()
    one = [session.writer.tool(f"mcp__a__{name}", 500) for name in ("get", "put")]
    two = [session.writer.tool(f"mcp__b__{name}", 500) for name in ("find", "sum")]
    agent.tools = [*agent.tools, *one, *two]
    agent.work(4)
    agent.tools = [*agent.tools[:-4], *two, *one]
    session.idle(100)
    ready(agent).send("tools_reordered", reply="call")
    agent.work(3)


def _order_and_idle(session: Session) -> None:
    agent = session.agent(ttl=HOUR)
    agent.work(4)
    agent.tools = agent.tools[::-1]
    session.idle(9 * 3_600)
    ready(agent).send("tools_reordered", also=["cache_expired"], reply="call")
    agent.work(2)


# Model


def _router(session: Session) -> None:
    """A router gives every third request to another model."""
    agent = session.agent()
    for count in range(9):
        is_other = count % 3 == 2
        was_other = count % 3 == 0 and count > 0
        agent.model = OTHER[session.wire] if is_other else session.model
        if count == 2:
            loop(agent, 1, "model_changed")
        elif is_other or was_other:
            loop(agent, 1, maybe="model_changed")
        else:
            loop(agent, 1)


def _named_in_prompt(session: Session) -> None:
    """The system prompt names the model, so both change."""
    agent = session.agent()
    agent.system.append(f"You are powered by the model {agent.model}.")
    agent.work(4)
    agent.model = OTHER[session.wire]
    agent.system[-1] = f"You are powered by the model {agent.model}."
    ready(agent).send("model_changed", also=["system_changed"], reply="call")
    agent.work(3)


def _plan_and_work(session: Session) -> None:
    """One model plans, another one works. The second keeps what it wrote while the first is asked once more."""
    agent = session.agent(ttl=HOUR)
    agent.work(3)
    agent.model = OTHER[session.wire]
    ready(agent).send("model_changed", reply="call")
    loop(agent, 4)
    agent.model = session.model
    ready(agent).send("model_changed", size=200)
    agent.model = OTHER[session.wire]
    agent.ask("Go on.").send(maybe="model_changed")


def _after_errors(session: Session) -> None:
    """Three errors, then another model answers, and the first one again."""
    agent = session.agent()
    loop(agent, 5)
    for _ in range(3):
        agent.send(fail=529 if session.wire == "anthropic" else 500)
        session.idle(2)
    agent.model = OTHER[session.wire]
    agent.send("model_changed", size=150)
    agent.model = session.model
    agent.ask("Thanks.").send(maybe="model_changed")


def _shuffle_and_drop(cause: str) -> Scenario:
    def edit(agent: Agent, _: int) -> None:
        before = [tool["name"] for tool in agent.tools]
        while [tool["name"] for tool in agent.tools] == before:
            agent.session.rng.shuffle(agent.tools)

    return edited(cause, edit, warm=3, times=3, after=1)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("system_changed-minute", ("anthropic", "chat", "gemini", "bedrock"), _minute_clock, **MIDDLE)
    add("system_changed-next-day", ("anthropic", "responses", "bedrock"), _next_day, **MIDDLE)
    add("system_changed-midnight", ("responses", "gemini"), _midnight, model=NEWER, **LARGE)
    add(
        "system_changed-beside-other-client",
        ("chat", "anthropic", "gemini"),
        _beside_other_client,
        ids="none",
        **MIDDLE,
    )
    add("system_changed-attribution-on-resume", ("bedrock",), _attribution_on_resume)
    add(
        "system_changed-attribution-on-resume",
        ("anthropic",),
        _attribution_on_resume,
        ignores_attribution=False,
        url="https://llm.example.org/v1/messages",
    )
    add("system_changed-memory", ("anthropic", "bedrock"), _memory, model=NEWER, **MIDDLE)
    add("system_changed-instructions", ("responses",), _instructions, **MIDDLE)
    add("tools_changed-late-server", ("anthropic", "chat", "responses", "gemini", "bedrock"), _late_server, **MIDDLE)
    add("tools_changed-dated", ("anthropic", "chat"), _dated_tool)
    add("tools_changed-final", ("anthropic", "chat", "responses", "gemini"), _final_without_tools, **MIDDLE)
    add("tools_changed-plan-mode", ("anthropic", "bedrock"), _plan_mode, **MIDDLE)
    add("tools_changed-and-sorted", ("responses", "bedrock"), _one_gone_rest_sorted)
    add("tools_changed-default", ("gemini", "chat"), _schema_default, model=NEWER, **LARGE)
    add("tools_reordered-workers", ("anthropic", "chat", "bedrock"), _workers, **LARGE)
    add("tools_reordered-servers", ("anthropic", "responses", "gemini"), _order_of_servers, **MIDDLE)
    add("tools_reordered-and-night", ("bedrock", "chat"), _order_and_idle, **MIDDLE)
    add("tools_reordered-shuffled", ("gemini", "responses"), _shuffle_and_drop("tools_reordered"))
    add("model_changed-router", ("anthropic", "responses"), _router, **LARGE)
    add("model_changed-named", ("anthropic", "chat", "gemini"), _named_in_prompt, **MIDDLE)
    add("model_changed-plan-and-work", ("anthropic", "bedrock"), _plan_and_work, **MIDDLE)
    add("model_changed-after-errors", ("anthropic", "chat", "gemini"), _after_errors, **MIDDLE)
