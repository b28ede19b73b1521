"""Traces of the half `tune`: settings that changed, and entries that expired."""

from typing import Any

from tests.analysis.traces.case_builder import ALL, MARKED, OPENAI, Cases, Edit, Scenario, edited
from tests.analysis.traces.simulated_client import Agent, Session
from tests.analysis.traces.wire_formats import Block

# Settings


def _set(name: str, value: object) -> Edit:
    return lambda agent, _: agent.settings.__setitem__(name, value)


def _add_image(agent: Agent, _: int) -> None:
    agent.messages[-1].blocks.append(Block("image", agent.session.writer.image()))


# Expiry


def _idle(seconds: float, cause: str | None, **fields: Any) -> Scenario:
    return edited(cause, lambda _agent, _count: None, idle=seconds, times=2, after=1, **fields)


HOUR = {"system": "1h", "tail": "1h"}


def _kept_alive(session: Session) -> None:
    agent = session.agent()
    agent.work(3)
    agent.ask()
    for _ in range(4):
        session.idle(235)
        agent.send(keep=False, size=10)
    session.idle(200)
    agent.send()


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    # Settings
    add(
        "settings_changed-tool-choice", ("anthropic",), edited("settings_changed", _set("tool_choice", {"type": "any"}))
    )
    add(
        "settings_changed-tool-choice",
        ("bedrock",),
        edited("settings_changed", _set("toolConfig", {"toolChoice": {"any": {}}})),
    )
    add(
        "settings_changed-thinking",
        ("anthropic",),
        edited("settings_changed", _set("thinking", {"type": "enabled", "budget_tokens": 4096})),
    )
    add(
        "settings_changed-effort",
        ("anthropic",),
        edited(
            "settings_changed", _set("output_config", {"effort": "high"}), settings={"output_config": {"effort": "low"}}
        ),
        model="claude-opus-4-8",
    )
    add(
        "settings_changed-effort",
        ("responses",),
        edited("settings_changed", _set("reasoning", {"effort": "high"}), settings={"reasoning": {"effort": "low"}}),
    )
    add(
        "settings_changed-cache-key",
        OPENAI,
        edited(
            "settings_changed",
            lambda agent, count: agent.settings.update(prompt_cache_key=f"{agent.session.id}-{count}"),
            settings={"prompt_cache_key": "stock"}, times=2,
        ),
    )  # fmt: skip
    add(
        "settings_changed-image-added",
        MARKED,
        edited("settings_changed", _add_image, accept=["message_changed", "message_inserted"]),
    )
    # Expiry
    add("cache_expired-short", MARKED, _idle(560, "cache_expired"))
    add("cache_expired-long", ("anthropic",), _idle(4_700, "cache_expired", ttl=HOUR))
    add("cache_expired-hours", ("chat", "gemini"), _idle(4 * 3_600, "cache_expired"))
    add("cache_expired-half-hour", ("responses",), _idle(3_100, "cache_expired"), model="gpt-5.6-sol")
    add("cache_expired-tail", ("anthropic", "bedrock"), _idle(1_000, "cache_expired", ttl={"system": "1h"}, warm=6))
    add("clean-hour-idle", MARKED, _idle(1_200, None, ttl=HOUR))
    add("clean-short-idle", ALL, _idle(200, None))
    add("clean-kept-alive", ("anthropic",), _kept_alive)
