"""Traces of the set `check`: another model, other tools, another order of tools, another system prompt."""

from typing import Any

from tests.analysis.traces.case_builder import ALL, MARKED, Cases, clock
from tests.analysis.traces.check.steps import HOUR, LONGER, MINUTE, RECENT, SMALLER, WIDE, steps, talk, turn
from tests.analysis.traces.simulated_client import Session

JSONObject = dict[str, Any]

# Models


def _fallback_and_back(session: Session) -> None:
    """The model is overloaded; another one answers two requests, then the first one is used again."""
    agent = session.agent()
    steps(agent, 5)
    for status in (529, 529, 503):
        agent.send(fail=status)
    usual, agent.model = agent.model, SMALLER[session.wire]
    agent.send("model_changed", reply="call")
    steps(agent, 1)
    agent.model = usual
    agent.send(maybe="model_changed", reply="call")
    steps(agent, 2)


def _plan_then_act(session: Session) -> None:
    """A plan is made with a large model, its steps with a small one that thinks less."""
    setting: dict[str, JSONObject] = {
        "anthropic": {"thinking": {"type": "enabled", "budget_tokens": 12_000}},
        "responses": {"reasoning": {"effort": "high"}},
        "bedrock": {"additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 8_000}}},
        "chat": {"reasoning_effort": "high"},
    }
    agent = session.agent(settings={**setting[session.wire]}, model=RECENT[session.wire])
    steps(agent, 4)
    agent.model, agent.settings = SMALLER[session.wire], {}
    turn(agent).send("model_changed", also=["settings_changed"], reply="call")
    steps(agent, 4)


def _model_in_prompt(session: Session) -> None:
    """The prompt names the model, so that both change."""
    agent = session.agent()
    agent.system[-1] += f"\n\nYou are powered by the model {agent.model}."
    talk(agent, 4)
    agent.model = SMALLER[session.wire]
    agent.system[-1] = agent.system[-1].rpartition("\n")[0] + f"\nYou are powered by the model {agent.model}."
    talk(agent, 1, cause="model_changed", also=["system_changed"])
    talk(agent, 2)


def _cheap_in_between(session: Session) -> None:
    """A router takes a small model for easy questions, in the same conversation."""
    agent = session.agent()
    talk(agent, 3)
    usual = agent.model
    for model in (SMALLER[session.wire], usual, SMALLER[session.wire]):
        agent.model = model
        talk(agent, 1, size=6_000, maybe="model_changed")


# Tools


def _late_server(session: Session) -> None:
    """A tool server is ready after some requests; tools are sorted by name."""
    agent = session.agent()
    agent.tools.sort(key=lambda tool: tool["name"])
    steps(agent, 4)
    for name in ("browser_click", "browser_open", "browser_read"):
        agent.tools.append(session.writer.tool(name, 500))
    agent.tools.sort(key=lambda tool: tool["name"])
    turn(agent).send("tools_changed", reply="call")
    steps(agent, 2)


def _server_gone(session: Session) -> None:
    """A tool server stops and comes back; its tools are last."""
    agent = session.agent(marks={"tools", "system", "tail"})
    agent.tools += [session.writer.tool(f"calendar_{name}", 700) for name in ("list", "create")]
    steps(agent, 4)
    gone, agent.tools = agent.tools[-2:], agent.tools[:-2]
    turn(agent).send("tools_changed", reply="call")
    steps(agent, 1)
    session.idle(HOUR)
    agent.tools = [*agent.tools, *gone]
    turn(agent).send("tools_changed", also=["cache_expired"], reply="call")
    steps(agent, 1)


def _agents_in_description(session: Session) -> None:
    """The description of a tool lists what can be delegated to, and that list grows."""
    agent = session.agent()
    tool = agent.tools[len(agent.tools) // 2]
    steps(agent, 3)
    for name in ("reviewer", "translator"):
        tool["description"] += f"\n- {name}: {session.writer.question()}"
        turn(agent).send("tools_changed", reply="call")
        steps(agent, 2)


def _last_step_without_tools(session: Session) -> None:
    """At its step limit, a loop leaves the tools out, so that the model must answer."""
    agent = session.agent()
    steps(agent, 6)
    kept, agent.tools = agent.tools, []
    agent.send("tools_changed")
    agent.tools = kept
    agent.ask().send(maybe="tools_changed", reply="call")
    steps(agent, 1)


def _tools_and_mode(session: Session) -> None:
    """A mode with fewer tools has another system prompt too."""
    agent = session.agent()
    steps(agent, 4)
    agent.tools = agent.tools[:4]
    agent.system[0] = f"You are in read-only mode.\n{agent.system[0]}"
    turn(agent).send("tools_changed", also=["system_changed"], reply="call")
    steps(agent, 2)


def _other_order(session: Session) -> None:
    """Tools come from a set, whose order is another one after a restart."""
    agent = session.agent()
    steps(agent, 4)
    session.idle(70)
    before = list(agent.tools)
    while agent.tools[0] is before[0]:
        session.rng.shuffle(agent.tools)
    turn(agent).send("tools_reordered", reply="call")
    steps(agent, 2)


def _used_first(session: Session) -> None:
    """The tool that was used last is put first."""
    agent = session.agent(marks={"tools", "system", "tail"})
    steps(agent, 3)
    for at in (5, 3):
        agent.tools.insert(0, agent.tools.pop(at))
        turn(agent).send("tools_reordered", reply="call")
        steps(agent, 2)


def _servers_swapped(session: Session) -> None:
    """Two tool servers answer in another order; the tools of the client stay first. The clock in the prompt too."""
    agent = session.agent()
    agent.system[-1] += f"\nTime: {clock(agent)}"
    steps(agent, 4)
    agent.tools = [*agent.tools[:2], *agent.tools[5:], *agent.tools[2:5]]
    agent.system[-1] = agent.system[-1].rpartition("\n")[0] + f"\nTime: {clock(agent)}"
    turn(agent).send("tools_reordered", also=["system_changed"], reply="call")
    steps(agent, 2)


# System prompts


def _git_status(session: Session) -> None:
    """The end of the prompt has the state of the repository, made anew for each question."""
    agent = session.agent()
    base = agent.system[-1]
    for count in range(4):
        lines = [f" M {session.rng.choice(session.writer.subject.files)}" for _ in range(count + 1)]
        agent.system[-1] = f"{base}\n\ngitStatus: main, {count} ahead\n" + "\n".join(lines)
        agent.ask(size=1_500)
        agent.send("system_changed" if count else "first_request", reply="call")
        steps(agent, 2)
        agent.send()


def _memory_file(session: Session) -> None:
    """A memory file in a block of its own is written by a tool, and read again."""
    agent = session.agent()
    agent.system.append("# Memory\n" + session.writer.prose(1_200))
    agent.system.append("# Rules\n" + session.writer.prose(2_000))
    steps(agent, 4)
    agent.system[1] += "\n- " + session.writer.question()
    turn(agent).send("system_changed", reply="call")
    steps(agent, 3)


def _midnight(session: Session) -> None:
    """The date is in the prompt, and the session goes on after midnight."""
    agent = session.agent()
    start, end = agent.system[0][:4_000], agent.system[0][4_000:]
    agent.system[0] = f"{start}\nToday's date: 2026-11-16\n{end}"
    steps(agent, 5)
    agent.system[0] = agent.system[0].replace("2026-11-16", "2026-11-17")
    turn(agent).send("system_changed", reply="call")
    steps(agent, 3)


def _remaining_budget(session: Session) -> None:
    """The instructions count the remaining tokens, in each request."""
    agent = session.agent()
    agent.system[0] = "Remaining budget: 400000 tokens\n" + agent.system[0]
    agent.ask().send(reply="call")
    for count in range(1, 4):
        rest = agent.system[0].partition("\n")[2]
        agent.system[0] = f"Remaining budget: {400_000 - count * 9_417} tokens\n{rest}"
        turn(agent).send("system_changed", reply="call")


def _language(session: Session) -> None:
    """After a pause, the user sets another language: one word near the start."""
    agent = session.agent()
    agent.system[0] = f"Answer in English.\n{agent.system[0]}"
    talk(agent, 4)
    session.idle(22 * MINUTE)
    agent.system[0] = agent.system[0].replace("English", "Portuguese", 1)
    talk(agent, 1, cause="system_changed", also=["cache_expired"])
    talk(agent, 2)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("model_changed-fallback", ("anthropic", "chat", "gemini"), _fallback_and_back, **LONGER)
    add("model_changed-plan", ("anthropic", "responses", "bedrock"), _plan_then_act, **WIDE)
    add("model_changed-named", ("gemini", "bedrock", "chat"), _model_in_prompt)
    add("model_changed-router", ("chat", "anthropic"), _cheap_in_between, ids="explicit")
    add("tools_changed-late-server", ALL, _late_server, **LONGER)
    add("tools_changed-server-gone", ("anthropic", "responses"), _server_gone, **WIDE)
    add("tools_changed-agents", ("anthropic", "gemini", "chat"), _agents_in_description, **WIDE)
    add("tools_changed-last-step", ("chat", "responses", "gemini"), _last_step_without_tools, **LONGER)
    add("tools_changed-mode", MARKED, _tools_and_mode, **LONGER)
    add("tools_reordered-restart", ALL, _other_order, **WIDE)
    add("tools_reordered-used-first", ("anthropic", "bedrock", "chat"), _used_first, **WIDE)
    add("tools_reordered-servers", ("anthropic", "chat"), _servers_swapped, **WIDE)
    add("system_changed-git-status", ("anthropic", "bedrock", "chat"), _git_status, **LONGER)
    add("system_changed-memory", ("anthropic", "gemini"), _memory_file, **LONGER)
    add("system_changed-midnight", ("responses", "gemini", "bedrock"), _midnight, model=RECENT, **LONGER)
    add("system_changed-budget", ("responses", "chat"), _remaining_budget)
    add("system_changed-language", ("anthropic", "responses"), _language)
