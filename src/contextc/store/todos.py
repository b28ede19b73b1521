"""Todo lists: one per conversation and agent, read and written as a whole or by number.

A writer locks the conversation first, so concurrent additions get different numbers. A fork copies its parent's lists
as they are now, at whichever message it begins: todos have no history. Rewinding, editing and resetting do not change
them.
"""

from collections.abc import Iterable

from contextc.errors import InvalidInput, UnknownConversation
from contextc.store.append_and_load import insert_conversation
from contextc.store.backend_interface import Row, Transaction
from contextc.store.message_rows import check_name, find_tip, load_tip
from contextc.tools.todos import Todo, TodoChange, check_count, validated_state, validated_text

LOAD_TODOS = (
    "SELECT t.number, t.text, t.state FROM conversation c LEFT JOIN todo t ON t.conversation = c.name AND t.agent = ?"
    " WHERE c.name = ? ORDER BY t.number"
)
"""Returns one row without values if the conversation has no todos, and no row if the conversation does not exist."""


def decode_todos(conversation: str, rows: list[Row]) -> list[Todo]:
    """Return the todos from the rows of LOAD_TODOS."""
    if not rows:
        raise UnknownConversation(conversation)
    return [Todo(number=number, text=text, state=state) for number, text, state in rows if number is not None]


def load_todos(tx: Transaction, conversation: str, agent: str) -> list[Todo]:
    check_name(agent, "agent")
    load_tip(tx, conversation)
    return _rows(tx, conversation, agent)


def add_todo(tx: Transaction, conversation: str, agent: str, text: str) -> Todo:
    """Add a todo. `text` has been validated."""
    _lock_or_create(tx, conversation, agent)
    numbers = tx.row(
        "SELECT count(*), max(number) FROM todo WHERE conversation = ? AND agent = ?", conversation, agent
    ) or (0, 0)
    check_count(numbers[0] + 1)
    todo = Todo(number=(numbers[1] or 0) + 1, text=text)
    _insert(tx, conversation, agent, [todo])
    return todo


def replace_todos(tx: Transaction, conversation: str, agent: str, todos: list[Todo]) -> list[Todo]:
    """Replace the list. `todos` have been validated and numbered."""
    _lock_or_create(tx, conversation, agent)
    tx.run("DELETE FROM todo WHERE conversation = ? AND agent = ?", conversation, agent)
    _insert(tx, conversation, agent, todos)
    return todos


def change_todos(tx: Transaction, conversation: str, agent: str, changes: list[TodoChange]) -> list[Todo]:
    """Apply all changes, or none. `changes` have been validated."""
    check_name(agent, "agent")
    load_tip(tx, conversation, lock=True)
    for each in changes:
        changed = tx.run(
            "UPDATE todo SET state = coalesce(?, state), text = coalesce(?, text)"
            " WHERE conversation = ? AND agent = ? AND number = ?",
            each.state,
            each.text,
            conversation,
            agent,
            each.number,
        )
        if not changed:
            known = ", ".join(str(todo.number) for todo in _rows(tx, conversation, agent))
            raise InvalidInput(
                f"There is no todo {each.number} in the list of {agent!r} in conversation {conversation!r}. "
                + (f"It has {known}." if known else "The list is empty: add it, or write a whole list.")
            )
    return _rows(tx, conversation, agent)


def copy_todos(tx: Transaction, source: str, name: str) -> None:
    """Copy the lists of a conversation to a new one."""
    tx.run(
        "INSERT INTO todo (conversation, agent, number, text, state)"
        " SELECT CAST(? AS TEXT), agent, number, text, state FROM todo WHERE conversation = ?",
        name,
        source,
    )


def check_changes(changes: Iterable[object]) -> list[TodoChange]:
    found: list[TodoChange] = []
    for each in changes:
        if not isinstance(each, TodoChange):
            raise InvalidInput(f"a {type(each).__name__} is not a change. Write TodoChange(number=1, state=…).")
        if isinstance(each.number, bool) or not isinstance(each.number, int) or not 0 < each.number < 1 << 31:
            raise InvalidInput(f"{each.number!r} is no number of a todo. They count from 1.")
        if each.state is None and each.text is None:
            raise InvalidInput(f"Todo {each.number}: give a state, a text, or both.")
        state = None if each.state is None else validated_state(each.state)
        text = None if each.text is None else validated_text(each.text)
        found.append(TodoChange(number=each.number, state=state, text=text))
    return found


def _lock_or_create(tx: Transaction, conversation: str, agent: str) -> None:
    check_name(agent, "agent")
    if find_tip(tx, conversation, True) is None:
        insert_conversation(tx, conversation)


def _rows(tx: Transaction, conversation: str, agent: str) -> list[Todo]:
    rows = tx.rows(
        "SELECT number, text, state FROM todo WHERE conversation = ? AND agent = ? ORDER BY number", conversation, agent
    )
    return [Todo(number=number, text=text, state=state) for number, text, state in rows]


def _insert(tx: Transaction, conversation: str, agent: str, todos: list[Todo]) -> None:
    tx.run_many(
        "INSERT INTO todo (conversation, agent, number, text, state) VALUES (?, ?, ?, ?, ?)",
        [(conversation, agent, todo.number, todo.text, todo.state) for todo in todos],
    )
