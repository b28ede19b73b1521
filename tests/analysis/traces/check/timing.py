"""Traces of the set `check`: expired entries, requests at the same time, and entries that the provider lost."""

from tests.analysis.traces.case_builder import ALL, MARKED, Cases, Scenario
from tests.analysis.traces.check.steps import HOUR, LONGER, MINUTE, NIGHT, ONE_HOUR, WIDE, blocks, steps, talk, turn
from tests.analysis.traces.simulated_client import Session

LIFE = {"anthropic": 5, "bedrock": 5, "chat": 10, "responses": 10, "gemini": 10}
"""Minutes that an entry lives after its last use."""


def _slow_tool(session: Session) -> None:
    """A build takes longer than the entry lives; the next one is fast."""
    agent = session.agent()
    steps(agent, 4)
    session.idle((LIFE[session.wire] + 2.5) * MINUTE)
    agent.send("cache_expired", reply="call")
    steps(agent, 2)
    session.idle((LIFE[session.wire] - 2) * MINUTE)
    steps(agent, 2)


def _approval(session: Session) -> None:
    """The user approves a call late, three times in a day."""
    agent = session.agent()
    steps(agent, 3)
    for hours in (0.4, 3, 13):
        session.idle(hours * HOUR)
        turn(agent).send("cache_expired", reply="call")
        steps(agent, 1)
        agent.send()


def _only_head_lives(session: Session) -> None:
    """Tools and system prompt are kept for an hour, messages for five minutes."""
    agent = session.agent(marks={"tools", "system", "tail"}, ttl={"tools": "1h", "system": "1h"})
    steps(agent, 5)
    session.idle(24 * MINUTE)
    agent.send("cache_expired", reply="call")
    steps(agent, 2)


def _hour_is_over(session: Session) -> None:
    """A meeting of fifty minutes, and one of seventy."""
    agent = session.agent(ttl=ONE_HOUR)
    steps(agent, 4)
    session.idle(50 * MINUTE)
    steps(agent, 2)
    session.idle(70 * MINUTE)
    agent.send("cache_expired", reply="call")
    steps(agent, 1)


def _errors_do_not_refresh(session: Session) -> None:
    """The provider is down for a quarter of an hour; failed requests keep nothing alive."""
    agent = session.agent()
    steps(agent, 5)
    for _ in range(5):
        agent.send(fail=529)
        session.idle(3 * MINUTE)
    agent.send("cache_expired", reply="call")
    steps(agent, 2)


def _half_hour(session: Session) -> None:
    """A newer model keeps entries for thirty minutes."""
    agent = session.agent()
    steps(agent, 4)
    session.idle(26 * MINUTE)
    steps(agent, 2)
    session.idle(41 * MINUTE)
    agent.send("cache_expired", reply="call")
    steps(agent, 1)


# At the same time


def _samples(session: Session) -> None:
    """Three answers are asked for at the same time, after a long question; one is kept."""
    agent = session.agent()
    talk(agent, 3)
    agent.ask(size=11_000)
    start = session.now
    agent.send(at=start, keep=False)
    agent.send("parallel_request", at=start + 90, keep=False)
    agent.send("parallel_request", at=start + 230)
    session.idle(14)
    talk(agent, 2)


def _samples_first(session: Session) -> None:
    """A session begins with four requests at once."""
    agent = session.agent()
    agent.ask(size=3_000)
    start = session.now
    agent.send(at=start, keep=False)
    for count in range(1, 4):
        agent.send("parallel_request", at=start + 40 * count, keep=count == 3)
    session.idle(11)
    talk(agent, 2)


def _hedged(session: Session) -> None:
    """A request is sent a second time because the first one is slow; the same happens after a pause."""
    agent = session.agent()
    steps(agent, 3)
    for pause in (0, NIGHT):
        agent.ask(size=10_000)
        session.idle(pause)
        start = session.now
        agent.send("cache_expired" if pause else "unset", at=start, keep=False)
        expired = ["cache_expired"] if pause else []
        agent.send("parallel_request", at=start + 450, also=expired, accept=expired, reply="call")
        session.idle(12)
        steps(agent, 2)


# Lost by the provider


def _lost(lose: str, *, idle: float = 0, times: int = 1) -> Scenario:
    def run(session: Session) -> None:
        agent = session.agent()
        steps(agent, 5)
        for _ in range(times):
            session.idle(idle)
            agent.send("provider_missed", lose=lose, reply="call")
            steps(agent, 2)

    return run


def _lost_after_change(session: Session) -> None:
    """A result is shortened; two requests later the provider finds nothing, though nothing changed again."""
    agent = session.agent()
    steps(agent, 5)
    blocks(agent, "result")[0].text = "[shortened]"
    agent.send("message_changed", reply="call")
    steps(agent, 1)
    agent.send("provider_missed", lose="all", reply="call")
    steps(agent, 1)


def _restarted(session: Session) -> None:
    """All entries are gone at once, for two conversations."""
    one, two = session.agent(), session.agent()
    for agent in (one, two):
        talk(agent, 3, size=3_000)
    session.cache.clear()
    for agent in (two, one):
        talk(agent, 1, cause="provider_missed")
        talk(agent, 1)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("cache_expired-slow-tool", ALL, _slow_tool, **LONGER)
    add("cache_expired-approval", ("anthropic", "gemini", "chat"), _approval, **WIDE)
    add("cache_expired-head-lives", MARKED, _only_head_lives, **LONGER)
    add("cache_expired-hour", MARKED, _hour_is_over, **LONGER)
    add("cache_expired-errors", ("anthropic", "chat"), _errors_do_not_refresh, **LONGER)
    add("cache_expired-half-hour", ("responses",), _half_hour, model="gpt-5.6-terra", **LONGER)
    add("parallel_request-samples", ALL, _samples)
    add("parallel_request-first", ("chat", "anthropic", "gemini"), _samples_first)
    add("parallel_request-hedged", ("responses", "bedrock"), _hedged)
    add("provider_missed-all", ALL, _lost("all"), **LONGER)
    add("provider_missed-messages", MARKED, _lost("messages", idle=100), **LONGER)
    add("provider_missed-replica", ("chat", "responses", "gemini"), _lost("oldest", times=2), **LONGER)
    add("provider_missed-after-change", ("anthropic", "responses"), _lost_after_change, **LONGER)
    add("provider_missed-restart", ("chat", "bedrock"), _restarted)
