"""Traces of the half `report`: settings that changed, and entries that expired."""

from typing import Any

from tests.analysis.traces.case_builder import ALL, MARKED, Cases, Edit, Scenario, edited
from tests.analysis.traces.report.sizes import LARGE, MIDDLE, SMALL_MODELS
from tests.analysis.traces.simulated_client import Agent, Session
from tests.analysis.traces.wire_formats import Block, texts

# Settings


def _set(**values: object) -> Edit:
    return lambda agent, _: agent.settings.update(values)


def _changed(edit: Edit, **options: Any) -> Scenario:
    return edited("settings_changed", edit, warm=5, **options)


def _screenshot(agent: Agent, _: int) -> None:
    agent.messages[-1].blocks += [*texts("See the screenshot."), Block("image", agent.session.writer.image())]


def _new_cache_key(agent: Agent, _: int) -> None:
    agent.settings["prompt_cache_key"] = f"user-{agent.session.writer.identifier('', 6)}"


# Expiry

HOUR = {"system": "1h", "tail": "1h"}


def pause(seconds: float, cause: str | None = "cache_expired", **fields: Any) -> Scenario:
    return edited(cause, lambda _agent, _count: None, idle=seconds, **fields)


def _lunch_with_agents(session: Session) -> None:
    """The main conversation waits for long sub-agents, whose requests do not keep its entries alive."""
    main = session.agent()
    main.work(4)
    main.ask() if main.messages[-1].role == "assistant" else None
    other = session.agent(system=[session.writer.prose(6_000)], tools=session.writer.tools(3, 500))
    for _ in range(5):
        other.work(1)
        session.idle(150)
    main.send("cache_expired")
    main.work(2)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    # Settings
    add(
        "settings_changed-thinking",
        ("anthropic",),
        _changed(_set(thinking={"type": "adaptive"})),
        model="claude-opus-5",
    )
    add(
        "settings_changed-tool-choice",
        ("anthropic",),
        _changed(_set(tool_choice={"type": "none"})),
        model="claude-sonnet-5-5",
    )
    add("settings_changed-speed", ("anthropic",), _changed(_set(speed="fast")), model="claude-opus-5-5", **MIDDLE)
    add(
        "settings_changed-effort",
        ("anthropic",),
        _changed(_set(output_config={"effort": "max"})),
        model="claude-opus-4-7",
    )
    add(
        "settings_changed-thinking",
        ("bedrock",),
        _changed(_set(additionalModelRequestFields={"thinking": {"type": "enabled", "budget_tokens": 2048}})),
    )
    add(
        "settings_changed-tool",
        ("bedrock",),
        edited(
            "settings_changed",
            lambda agent, _: agent.settings.update(
                toolConfig={"toolChoice": {"tool": {"name": agent.tools[0]["name"]}}}
            ),
            warm=6,
        ),
    )  # fmt: skip
    add("settings_changed-verbosity", ("responses",), _changed(_set(text={"verbosity": "low"})), model="gpt-6.1-terra")
    add(
        "settings_changed-format",
        ("responses",),
        _changed(_set(text={"format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}})),
    )
    add("settings_changed-effort", ("chat",), _changed(_set(reasoning_effort="high")), model="gpt-5.1")
    add(
        "settings_changed-cache-key",
        ("responses", "chat"),
        edited(
            "settings_changed",
            _new_cache_key,
            settings={"prompt_cache_key": "user-1"}, warm=2, times=3, after=0,
        ),
        model=SMALL_MODELS,
    )  # fmt: skip
    add(
        "settings_changed-screenshot",
        MARKED,
        _changed(_screenshot, accept=["message_changed", "message_inserted"]),
        **MIDDLE,
    )
    # Expiry
    add("cache_expired-minutes", MARKED, pause(420, times=2), model=SMALL_MODELS, **MIDDLE)
    add("cache_expired-two-hours", ("bedrock",), pause(7_300, ttl=HOUR), **MIDDLE)
    add("cache_expired-overnight", ALL, pause(15 * 3_600, times=1), **LARGE)
    add(
        "cache_expired-twelve-hours",
        ("responses",),
        pause(14 * 3_600, settings={"prompt_cache_options": {"ttl": "12h"}}),
        model="gpt-5.6-sol",
    )
    add("cache_expired-agents", ("anthropic", "bedrock"), _lunch_with_agents)
    add("clean-hour-idle", MARKED, pause(1_200, None, ttl=HOUR, times=3), **MIDDLE)
    add(
        "clean-twelve-hours",
        ("responses",),
        pause(3 * 3_600, None, settings={"prompt_cache_options": {"ttl": "12h"}}),
        model="gpt-5.6-sol",
    )
    add("clean-coffee", ALL, pause(150, None, times=3, after=0), model=SMALL_MODELS, **MIDDLE)
