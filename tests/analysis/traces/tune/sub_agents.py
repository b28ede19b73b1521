"""Traces of the half `tune`: sub-agents that begin at once, with the prefix of each other or of the main agent."""

from tests.analysis.traces.case_builder import ALL, Cases, copied, user
from tests.analysis.traces.simulated_client import Agent, Session

TASK_TOKENS = 150
"""More than a task has."""


def _fork(session: Session, main: Agent, document: str) -> Agent:
    """Return a sub-agent that continues the main agent's history with a document and a task of its own.

    A breakpoint is after the document.
    """
    fork = session.agent(system=main.system, tools=main.tools, messages=copied(main.messages))
    fork.messages += [user(document), user(session.writer.question())]
    fork.marked = len(fork.messages) - 2
    return fork


def _forks_with_document(session: Session) -> None:
    """The history of the main agent is in the cache, the document after it is not."""
    main = session.agent()
    main.work(3)
    start, document = session.now, session.writer.prose(18_000)
    shared = _fork(session, main, document).send(at=start, reply="call").total - TASK_TOKENS
    for count in range(1, 4):
        _fork(session, main, document).send("parallel_request", at=start + 120 * count, potential=shared)
    session.now = start + 12_000
    _fork(session, main, document).send(None)
    main.ask().send()


def _forks_one_by_one(session: Session) -> None:
    """The first fork is sent alone, and the others when its answer has begun: they read all of it."""
    main = session.agent()
    main.work(3)
    start, document = session.now, session.writer.prose(18_000)
    _fork(session, main, document).send(at=start, reply="call")
    for count in range(3):
        _fork(session, main, document).send(None, at=start + 2_550 + 10 * count)
    session.now = start + 14_000
    main.ask().send()


def _helpers(session: Session, count: int, cause: str | None, gap: int = 60) -> None:
    """Helpers with one system prompt and own tasks begin at once. `cause` is that of all but the first."""
    start, first = session.now, session.agent(system=[session.writer.prose(14_000)], marks={"system", "tail"})
    shared = first.ask().send(at=start, reply="call").total - TASK_TOKENS
    for number in range(1, count):
        helper = session.agent(system=first.system, tools=first.tools)
        helper.ask().send(cause, at=start + gap * number, potential=shared if cause else None)
    session.now = start + 12_000
    first.work(2)
    session.now += 1_000


def _many_helpers(session: Session) -> None:
    _helpers(session, 12, "parallel_request")


def _helpers_beside_main(session: Session) -> None:
    """Helpers begin while the first answer of the main agent, which has their prefix, has not begun."""
    main = session.agent()
    start = session.now
    shared = main.ask().send(at=start, reply="call").total - TASK_TOKENS
    for number in range(1, 3):
        helper = session.agent(system=main.system, tools=main.tools)
        helper.ask().send("parallel_request", at=start + 200 * number, potential=shared)
    session.now = start + 10_000
    main.work(2)


def _helpers_after_main(session: Session) -> None:
    """The prefix of the helpers was written by the main agent before: all of them read it at once."""
    main = session.agent()
    main.work(2)
    start = session.now
    for number in range(4):
        helper = session.agent(system=main.system, tools=main.tools)
        helper.ask().send(None, at=start + 50 * number)
    session.now = start + 10_000
    main.ask().send()


def _one_reads_nothing(session: Session) -> None:
    """Helpers begin at once, and their prefix is in the cache. The provider does not find it for the last one."""
    main = session.agent()
    main.work(2)
    start = session.now
    for number in range(4):
        helper = session.agent(system=main.system, tools=main.tools)
        helper.ask().send("first_request", at=start + 50 * number, lose="all" if number == 3 else "")
    session.now = start + 10_000
    main.ask().send()


def _attributed_helpers(session: Session) -> None:
    """Each helper has an attribution line of its own, which the provider leaves out of the prefix."""
    main = session.agent()
    main.work(2)
    start, prompt = session.now, session.writer.prose(14_000)
    tools, shared = session.writer.tools(3, 900), 0
    for number in range(4):
        line = f"x-anthropic-billing-header: cc_version=2.1.330; cch={session.rng.randrange(16**5):05x};"
        helper = session.agent(system=[line, prompt], tools=tools)
        helper.ask()
        if number:
            helper.send("parallel_request", at=start + 90 * number, potential=shared)
        else:
            shared = helper.send(at=start).total - TASK_TOKENS
    session.now = start + 10_000
    main.ask().send()


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("parallel_request-forks-document", ALL, _forks_with_document)
    add("parallel_request-many-helpers", ALL, _many_helpers)
    add("parallel_request-no-ids", ("chat", "gemini", "bedrock"), _many_helpers, ids="none")
    add("parallel_request-beside-main", ("anthropic", "responses", "gemini"), _helpers_beside_main)
    add("parallel_request-attribution", ("anthropic",), _attributed_helpers)
    add("clean-forks-one-by-one", ALL, _forks_one_by_one)
    add("clean-helpers-after-main", ALL, _helpers_after_main)
    add("clean-helpers-lost", ("anthropic", "responses", "gemini"), _one_reads_nothing)
