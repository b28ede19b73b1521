"""Traces of the set `fresh`: entries that expired, requests at once, and the provider's faults."""

from tests.analysis.traces.case_builder import ALL, MARKED, Cases, copied, user
from tests.analysis.traces.fresh.steps import HOUR, LARGE, MIDDLE, NEWER, last_longer, loop, ready
from tests.analysis.traces.simulated_client import Session

# Expiry


def _around_five_minutes(session: Session) -> None:
    """Pauses just below and just above the TTL."""
    agent = session.agent()
    loop(agent, 3)
    for seconds in (265, 345, 240, 420):
        session.idle(seconds)
        loop(agent, 1, "cache_expired" if seconds > 300 else None)
        loop(agent, 1)


def _around_an_hour(session: Session) -> None:
    agent = session.agent(ttl=HOUR)
    loop(agent, 3)
    for minutes in (50, 66, 20, 240):
        session.idle(minutes * 60)
        loop(agent, 1, "cache_expired" if minutes > 60 else None)
        loop(agent, 1)


def _around_half_an_hour(session: Session) -> None:
    agent = session.agent()
    loop(agent, 3)
    for minutes in (18, 55, 10, 180):
        session.idle(minutes * 60)
        loop(agent, 1, "cache_expired" if minutes > 30 else None)
        loop(agent, 1)


def _after_a_night(session: Session) -> None:
    """A session is resumed two times after a night, and nothing has changed."""
    agent = session.agent()
    for night in range(3):
        session.idle(16 * 3_600 if night else 0)
        loop(agent, 1, "cache_expired" if night else "unset")
        agent.work(4)


def _slow_answer(session: Session) -> None:
    """An answer takes seven minutes. The entry was last used when the request began."""
    agent = session.agent()
    loop(agent, 4)
    last_longer(session, 430)
    loop(agent, 1, "cache_expired")
    loop(agent, 2)


def _overloaded(session: Session) -> None:
    """Requests fail for twelve minutes. They do not keep entries alive."""
    agent = session.agent()
    loop(agent, 5)
    for _ in range(8):
        agent.send(fail=529 if session.wire == "anthropic" else 503)
        session.idle(90)
    agent.send("cache_expired", reply="call")
    loop(agent, 2)


def _short_tail(session: Session) -> None:
    """Tools and system prompt are kept for an hour, messages for five minutes."""
    agent = session.agent(marks={"tools", "system", "tail"}, ttl={"tools": "1h", "system": "1h"})
    loop(agent, 6)
    session.idle(1_100)
    loop(agent, 1, "cache_expired")
    session.idle(130)
    loop(agent, 2)
    session.idle(3 * 3_600)
    loop(agent, 1, "cache_expired")


def _agent_waits(session: Session) -> None:
    """A sub-agent works for a long time, and the main conversation expires meanwhile; a second one waits for it."""
    main = session.agent()
    loop(main, 4)
    helper = session.agent(system=[session.writer.prose(7_000)], tools=session.writer.tools(4, 800))
    other = session.agent(system=[session.writer.prose(9_000)], tools=session.writer.tools(5, 800))
    loop(other, 3)
    for _ in range(6):
        loop(helper, 1)
        session.idle(110)
    loop(main, 1, "cache_expired")
    loop(helper, 1)
    loop(other, 1, "cache_expired")
    loop(main, 2)


# Requests at once


def _batch(session: Session) -> None:
    """Five jobs with one long instruction begin at once, five more when it is in the cache."""
    first = session.agent(marks={"system"})
    start, shared = session.now, 0
    for count in range(5):
        job = first if not count else session.agent(system=first.system, tools=first.tools, marks={"system"})
        job.ask()
        if not count:
            shared = job.send(at=start).total - 120
        else:
            job.send("parallel_request", at=start + 35 * count, potential=shared)
    session.now = start + 20_000
    start = session.now
    for count in range(5):
        job = session.agent(system=first.system, tools=first.tools, marks={"system"})
        job.ask().send(None, at=start + 35 * count)
    session.now = start + 15_000


def _typed_ahead(session: Session) -> None:
    """The user sends the next message before the answer to a long one has begun."""
    agent = session.agent()
    agent.work(3)
    for _ in range(2):
        agent.ask(size=16_000)
        start = session.now
        agent.send(keep=False, at=start)
        agent.ask("Wait, also look at the other file.")
        agent.send("parallel_request", at=start + 450)
        session.now = start + 12_000
        agent.ask().send()


def _forks(session: Session) -> None:
    """Sub-agents continue the history of the main conversation at once, right after a long document was added."""
    main = session.agent(marks={"system", "tail", "previous"})
    main.work(2)
    main.ask(size=20_000)
    start = session.now
    shared = main.send(at=start, keep=False).total - 60
    for count in range(3):
        fork = session.agent(system=main.system, tools=main.tools, messages=copied(main.messages))
        fork.marks = {"system", "tail"}
        fork.send("parallel_request", at=start + 100 + 70 * count, potential=shared)
    session.now = start + 14_000
    main.ask().send()


# The provider's fault


def _moved_marks(session: Session) -> None:
    """The provider loses its entries in a request whose breakpoints moved as well."""
    agent = session.agent()
    loop(agent, 4)
    agent.marks = {"tools", "system", "tail", "previous"}
    loop(agent, 1, "provider_missed", lose="all")
    loop(agent, 2)
    agent.marks = {"tail"}
    loop(agent, 1)


def _after_an_error(session: Session) -> None:
    """A request fails, and the next attempt reaches a server that knows nothing."""
    agent = session.agent()
    loop(agent, 5)
    agent.send(fail=500)
    session.idle(3)
    agent.send("provider_missed", lose="all", reply="call")
    loop(agent, 2)


def _within_the_ttl(session: Session) -> None:
    agent = session.agent()
    loop(agent, 4)
    session.idle(210)
    loop(agent, 1, "provider_missed", lose="all")
    loop(agent, 2)


def _other_servers(session: Session) -> None:
    """Two requests reach a server that only knows the first request."""
    agent = session.agent()
    loop(agent, 6)
    loop(agent, 1, "provider_missed", lose="oldest")
    loop(agent, 1)
    loop(agent, 1, "provider_missed", lose="oldest")
    loop(agent, 1)


def _beside_agents(session: Session) -> None:
    """The messages are lost once, while a sub-agent with another prompt works beside."""
    main = session.agent()
    helper = session.agent(system=[session.writer.prose(6_000)], tools=main.tools)
    for count in range(7):
        if count == 5:
            loop(main, 1, "provider_missed", lose="messages")
        else:
            loop(main, 1)
        loop(helper, 1)


def _new_session_id(session: Session) -> None:
    """A session is continued under a new id: at once, and after a night."""
    one = session.agent()
    loop(one, 5)
    two = session.agent(system=one.system, tools=one.tools, messages=copied(one.messages))
    ready(two).send(None)
    loop(two, 2)
    session.idle(15 * 3_600)
    three = session.agent(system=one.system, tools=one.tools, messages=copied(two.messages))
    ready(three).send("first_request", accept=["cache_expired"])
    loop(three, 2)


def _hedged(session: Session) -> None:
    """Two requests are sent twice at once, with a long result that is new."""
    agent = session.agent()
    loop(agent, 3)
    for _ in range(2):
        agent.messages.append(user(f"Log:\n{session.writer.output(15_000)}"))
        start = session.now
        agent.send(at=start, keep=False)
        agent.send("parallel_request", at=start + 220)
        session.now = start + 11_000
        loop(agent, 1)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("cache_expired-five-minutes", MARKED, _around_five_minutes, **MIDDLE)
    add("cache_expired-an-hour", MARKED, _around_an_hour, model=NEWER, **MIDDLE)
    add("cache_expired-half-an-hour", ("responses",), _around_half_an_hour, model=NEWER, **MIDDLE)
    add("cache_expired-nights", ALL, _after_a_night, model=NEWER, **MIDDLE)
    add("cache_expired-slow-answer", ("anthropic",), _slow_answer, **MIDDLE)
    add("cache_expired-overloaded", MARKED, _overloaded, **MIDDLE)
    add("cache_expired-short-tail", MARKED, _short_tail, **MIDDLE)
    add("cache_expired-agent-waits", MARKED, _agent_waits, **MIDDLE)
    add("parallel_request-batch", ALL, _batch, ids="explicit", system=16_000)
    add("parallel_request-typed-ahead", ("anthropic", "responses", "gemini"), _typed_ahead)
    add("parallel_request-forks", ("anthropic", "responses"), _forks)
    add("parallel_request-hedged", ("chat", "bedrock"), _hedged, model=NEWER)
    add("provider_missed-moved-marks", MARKED, _moved_marks, **MIDDLE)
    add("provider_missed-after-error", ("chat", "anthropic", "gemini"), _after_an_error, **MIDDLE)
    add("provider_missed-within-ttl", ("anthropic", "responses", "bedrock"), _within_the_ttl, **LARGE)
    add("provider_missed-other-servers", ("chat", "responses", "gemini"), _other_servers, **MIDDLE)
    add("provider_missed-beside-agents", MARKED, _beside_agents, **MIDDLE)
    add("clean-new-session-id", ("anthropic", "chat"), _new_session_id, ids={"chat": "none", "anthropic": "explicit"})
