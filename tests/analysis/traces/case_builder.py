"""Descriptions of traces, and steps that scenarios of both halves share."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from tests.analysis.traces.simulated_client import Agent, Session
from tests.analysis.traces.trace import Trace
from tests.analysis.traces.wire_formats import Block, Message, texts

Scenario = Callable[[Session], None]
Edit = Callable[[Agent, int], None]
MARKED = ("anthropic", "bedrock")
OPENAI = ("chat", "responses")
ALL = ("anthropic", "chat", "responses", "gemini", "bedrock")


class Case(NamedTuple):
    """The description of one trace."""

    name: str
    half: str
    wire: str
    subject: str
    scenario: Scenario
    options: dict[str, Any]

    def build(self) -> Trace:
        session = Session(self.name, self.half, self.wire, self.subject, **self.options)
        self.scenario(session)
        return session.trace()


class Cases:
    """The cases of one half."""

    def __init__(self, half: str, subjects: tuple[str, ...]) -> None:
        self.half, self.subjects, self.all = half, subjects, list[Case]()

    def add(self, name: str, wires: Iterable[str], scenario: Scenario, **options: Any) -> None:
        """Add a case for each wire format. An option with a dictionary has a value for each wire format."""
        for wire in wires:
            given = {key: found for key, value in options.items() if (found := _for_wire(value, wire)) is not None}
            subject = self.subjects[len(self.all) % len(self.subjects)]
            self.all.append(Case(f"{self.half}-{name}-{wire}", self.half, wire, subject, scenario, given))


def _for_wire(value: Any, wire: str) -> Any:
    return cast(dict[str, Any], value).get(wire) if isinstance(value, dict) else value


def edited(
    cause: str | None,
    edit: Edit,
    *,
    warm: int = 4,
    times: int = 1,
    after: int = 2,
    idle: float = 0,
    also: Iterable[str] = (),
    accept: Iterable[str | None] = (),
    ready: Callable[[Agent], None] | None = None,
    **agent: Any,
) -> Scenario:
    """Return a scenario: work, then `times` an edit with a miss, each followed by `after` requests that hit."""

    def run(session: Session) -> None:
        one = session.agent(**{key: _fresh(value) for key, value in agent.items()})
        if ready is not None:
            ready(one)
        one.work(warm)
        for count in range(times):
            if one.messages[-1].role == "assistant":
                one.ask()
            edit(one, count)
            if idle:
                session.idle(idle)
            one.send(cause, also=also, accept=accept, reply="call")
            one.work(after)

    return run


def _fresh(value: object) -> object:
    return value.copy() if isinstance(value, dict | set | list) else value  # pyright: ignore[reportUnknownVariableType]


def prefix_system(make: Callable[[Agent, int], str]) -> Edit:
    """Return an edit of the first line of the system prompt."""

    def edit(agent: Agent, count: int) -> None:
        _, _, rest = agent.system[0].partition("\n")
        agent.system[0] = f"{make(agent, count)}\n{rest}"

    return edit


def suffix_system(make: Callable[[Agent, int], str]) -> Edit:
    """Return an edit of the last line of the system prompt."""

    def edit(agent: Agent, count: int) -> None:
        start = agent.system[-1].rpartition("\n")[0] if count else agent.system[-1]
        agent.system[-1] = f"{start}\n{make(agent, count)}"

    return edit


def clock(agent: Agent, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    return datetime.fromtimestamp(agent.session.now / 1000, UTC).strftime(pattern)


def find(agent: Agent, kind: str, nth: int = 0) -> tuple[int, int]:
    """Return the message and block index of the nth block of a kind."""
    found = [
        (at, index)
        for at, message in enumerate(agent.messages)
        for index, block in enumerate(message.blocks)
        if block.kind == kind
    ]
    return found[nth]


def block_of(agent: Agent, kind: str, nth: int = 0) -> Block:
    at, index = find(agent, kind, nth)
    return agent.messages[at].blocks[index]


def replace_text(agent: Agent, kind: str, nth: int, text: str) -> None:
    block_of(agent, kind, nth).text = text


def drop_blocks(agent: Agent, kind: str) -> None:
    """Remove all blocks of a kind."""
    for message in agent.messages:
        message.blocks = [block for block in message.blocks if block.kind != kind]


def user(*values: str) -> Message:
    return Message("user", texts(*values))


def assistant(*values: str) -> Message:
    return Message("assistant", texts(*values))


def system(*values: str) -> Message:
    return Message("system", texts(*values))


def copied(messages: Iterable[Message]) -> list[Message]:
    """Return copies, so that edits of one conversation leave others as they are."""
    return [Message(each.role, list(each.blocks)) for each in messages]
