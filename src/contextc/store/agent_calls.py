"""Agents that were called as tools, as rows: which conversation answers which call. Functions over a transaction.

A called agent works in a conversation of its own. Its turn has the same guarantees as any other, so its call is never
"started" in the sense of a tool that must not run twice: a turn that is resumed finds the conversation again, and goes
on there. While the called agent waits for approval, so does its caller, and an answer continues the outermost caller.

A conversation is locked before those of the agents that it called, never after them.
"""

from collections.abc import Collection
from secrets import token_hex
from typing import NamedTuple

from msgspec.structs import replace

from contextc.messages import Usage, add_usage
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import TurnRecord, load_last_turn

MAX_NAME_CHARACTERS = 120
"""Characters of the caller's conversation in the name of the conversation of a called agent."""
COLUMNS = (
    "a.conversation, c.name, a.parent, a.turn, a.seq, a.position, a.call, a.agent, a.caller, a.depth, a.answered"
    " FROM main.agent_call a JOIN main.conversation c ON c.number = a.conversation"
)


class AgentCall(NamedTuple):
    """A call of an agent. `conversation` and `name` are those of the called agent, `parent` that of its caller."""

    conversation: int
    name: str
    parent: int
    turn: int
    seq: int
    position: int
    call: str
    agent: str
    caller: str
    depth: int
    answered: int = 0


def find_call(tx: Transaction, parent: int, turn: int, seq: int, position: int) -> AgentCall | None:
    """Return the call of a stored reply, if an agent has begun to work on it."""
    rows = tx.rows(
        f"SELECT {COLUMNS} WHERE a.parent = ? AND a.turn = ? AND a.seq = ? AND a.position = ?",
        *(parent, turn, seq, position),
    )
    return AgentCall(*rows[0]) if rows else None


def load_depth(tx: Transaction, conversation: int) -> int:
    """Return how many callers are above a conversation."""
    row = tx.row("SELECT depth FROM main.agent_call WHERE conversation = ?", conversation)
    return row[0] if row is not None else 0


def make_name(parent: str, tool: str) -> str:
    """Return a name for the conversation of a called agent."""
    return f"{parent[:MAX_NAME_CHARACTERS]}.{tool}-{token_hex(4)}"


def insert_agent_call(tx: Transaction, made: AgentCall) -> AgentCall:
    tx.run(
        "INSERT INTO main.agent_call (conversation, parent, turn, seq, position, call, agent, caller, depth)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(made.conversation, *made[2:-1]),
    )
    return made


def mark_answered(tx: Transaction, conversation: int) -> None:
    """Record that the call has its result, or gets none any more."""
    tx.run("UPDATE main.agent_call SET answered = 1 WHERE conversation = ?", conversation)


def load_agent_calls(tx: Transaction, parent: int, turn: int | None = None) -> list[AgentCall]:
    """Return the agents that a conversation has called, or one turn of it, oldest first."""
    which, values = (" AND a.turn = ?", [turn]) if turn is not None else ("", [])
    rows = tx.rows(f"SELECT {COLUMNS} WHERE a.parent = ?{which} ORDER BY a.conversation", parent, *values)
    return [AgentCall(*row) for row in rows]


def load_open_calls(tx: Transaction, parent: int, turn: int) -> list[AgentCall]:
    """Return the agents that a turn has called and that have not answered."""
    return [each for each in load_agent_calls(tx, parent, turn) if not each.answered]


def load_all_open_calls(tx: Transaction) -> list[AgentCall]:
    """Return the calls of agents without an answer in the whole store."""
    return [AgentCall(*row) for row in tx.rows(f"SELECT {COLUMNS} WHERE a.answered = 0 ORDER BY a.conversation")]


def find_agent_call(tx: Transaction, conversation: int) -> AgentCall | None:
    """Return the call that a conversation answers, or None."""
    rows = tx.rows(f"SELECT {COLUMNS} WHERE a.conversation = ?", conversation)
    return AgentCall(*rows[0]) if rows else None


def load_name(tx: Transaction, conversation: int) -> str:
    """Return the name of a conversation, "" if it does not exist."""
    row = tx.row("SELECT name FROM main.conversation WHERE number = ?", conversation)
    return row[0] if row is not None else ""


def load_caller_name(tx: Transaction, conversation: int) -> str:
    """Return the name of the conversation that called the agent of this one, "" if there is none."""
    row = tx.row(
        "SELECT p.name FROM main.agent_call a JOIN main.conversation p ON p.number = a.parent WHERE a.conversation = ?",
        conversation,
    )
    return row[0] if row is not None else ""


def belongs_to_agent_calls(tx: Transaction, conversation: int) -> bool:
    """Return True if a conversation called agents, or is the one of a called agent."""
    values = conversation, conversation
    return tx.row("SELECT 1 FROM main.agent_call WHERE conversation = ? OR parent = ? LIMIT 1", *values) is not None


def find_outermost_caller(tx: Transaction, conversation: int, agent: str) -> tuple[int, str]:
    """Return the conversation and the agent whose turn goes on when a turn of this agent does."""
    while True:
        call = find_agent_call(tx, conversation)
        if call is None or call.answered or call.agent != agent:
            return conversation, agent
        conversation, agent = call.parent, call.caller


def list_with_called(tx: Transaction, conversation: int) -> list[int]:
    """Return a conversation, and those of the agents below it that have not answered."""
    found = level = [conversation]
    while level:
        marks = ", ".join("?" * len(level))
        rows = tx.rows(f"SELECT conversation FROM main.agent_call WHERE answered = 0 AND parent IN ({marks})", *level)
        level = [each for (each,) in rows]
        found = [*found, *level]
    return found


def list_with_callers(tx: Transaction, names: Collection[str]) -> frozenset[str]:
    """Return names of conversations, and those of the callers that wait for them."""
    above = {
        name: caller
        for name, caller in tx.rows(
            "SELECT c.name, p.name FROM main.agent_call a JOIN main.conversation c ON c.number = a.conversation"
            " JOIN main.conversation p ON p.number = a.parent WHERE a.answered = 0"
        )
    }
    found = set(names)
    for name in names:
        while (name := above.get(name, "")) and name not in found:
            found.add(name)
    return frozenset(found)


def load_called_turn(tx: Transaction, call: AgentCall) -> TurnRecord | None:
    """Return the turn that answers a call, or None if it has not begun."""
    return load_last_turn(tx, call.conversation, call.agent)


def load_uncounted_turns(tx: Transaction, parent: int, turn: int) -> dict[int, TurnRecord]:
    """Return the turns of the agents that a turn has called and that have not answered, by their conversation.

    Each has what the agents below it have used, too.
    """
    found: dict[int, TurnRecord] = {}
    for call in load_open_calls(tx, parent, turn):
        if (called := load_called_turn(tx, call)) is not None:
            for below in load_uncounted_turns(tx, call.conversation, called.number).values():
                called = add_called_turn(called, below)
            found[call.conversation] = called
    return found


def add_called_turn(turn: TurnRecord, called: TurnRecord) -> TurnRecord:
    """Return the record of a turn with what an agent that it called has used."""
    usage, cost = turn.usage, turn.cost
    if called.usage is not None:
        usage = add_usage(turn.usage or Usage(), called.usage)
        cost = turn.cost + called.cost if turn.cost is not None and called.cost is not None else None
    return replace(
        turn,
        usage=usage,
        cost=cost,
        cost_is_lower_bound=turn.cost_is_lower_bound or called.cost_is_lower_bound,
        agent_steps=turn.agent_steps + called.steps + called.agent_steps,
        agent_tool_calls=turn.agent_tool_calls + called.tool_calls + called.agent_tool_calls,
    )
