"""Todos: the list of an agent's tasks in a conversation, and the tool with which a model updates it.

Todos are state, not messages: the list is stored beside the conversation, and a prompt fragment contains the current
list at every turn. A todo is one line. Its number is its position in the list and its id. Invalid arguments of a model
do not raise: the result of the call describes the problem.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, TypeAlias, get_args

import msgspec
from msgspec import Struct

from contextc._json import fix_surrogates
from contextc.errors import InvalidInput
from contextc.tools.definitions import Tool

TodoState: TypeAlias = Literal["open", "doing", "done", "dropped"]
TODO_STATES: tuple[TodoState, ...] = get_args(TodoState)
MAX_TEXT_CHARACTERS = 2_000
MAX_TODOS = 200


class Todo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One task. `number` counts from 1 in the list of one agent in one conversation."""

    number: int
    text: str
    state: TodoState = "open"


class TodoChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of todo `number`. A field of None stays unchanged."""

    number: int
    state: TodoState | None = None
    text: str | None = None


class TodoStore(Protocol):
    """The part of a store that `apply_todo_call` uses."""

    def todos(self, conversation: str, agent: str = ...) -> list[Todo]: ...

    def replace_todos(self, conversation: str, todos: Iterable[str | Todo], *, agent: str = ...) -> list[Todo]: ...

    def change_todos(self, conversation: str, changes: Iterable[TodoChange], *, agent: str = ...) -> list[Todo]: ...


def validated_text(text: object) -> str:
    """Return a todo's text as one line, with single spaces."""
    if not isinstance(text, str):
        raise InvalidInput(f"text of a todo must be a string, got {type(text).__name__}.")
    line = " ".join(fix_surrogates(text).split())
    if not line:
        raise InvalidInput("The text of a todo is blank. Say what is to be done.")
    if "\0" in line:
        raise InvalidInput("The text of a todo holds a NUL character. Leave it out.")
    if len(line) > MAX_TEXT_CHARACTERS:
        raise InvalidInput(
            f"The text of a todo has {len(line):,} characters and the limit is {MAX_TEXT_CHARACTERS:,}. Say it "
            "in one line, and "
            "keep the details elsewhere."
        )
    return line


def validated_state(state: object) -> TodoState:
    if not isinstance(state, str) or state not in TODO_STATES:
        raise InvalidInput(f"{state!r} is no state of a todo. Use {', '.join(TODO_STATES[:-1])} or {TODO_STATES[-1]}.")
    return state


def check_count(count: int) -> None:
    if count > MAX_TODOS:
        raise InvalidInput(
            f"A list of {count:,} todos is longer than the limit of {MAX_TODOS}. Write a shorter list with "
            "`replace_todos`: leave out what is done, or join what belongs together."
        )


def numbered_todos(todos: Iterable[object]) -> list[Todo]:
    """Return a new list, numbered in this order. Strings become open todos; todos keep their state."""
    if isinstance(todos, str | Todo) or not isinstance(todos, Iterable):
        raise InvalidInput(
            f"todos must be a list, got {type(todos).__name__}", fix="Pass [text, …], or use `add_todo` for one todo."
        )
    found: list[Todo] = []
    for number, each in enumerate(todos, 1):
        text, state = (each.text, each.state) if isinstance(each, Todo) else (each, "open")
        try:
            found.append(Todo(number=number, text=validated_text(text), state=validated_state(state)))
        except InvalidInput as error:
            raise InvalidInput(f"todos[{number - 1}]: {error}") from None
    check_count(len(found))
    return found


def format_todos(todos: Sequence[Todo]) -> str:
    """Return the list as text for a model. Dropped todos are omitted, and a finished list is one line."""
    if not todos:
        return ""
    if all(todo.state in ("done", "dropped") for todo in todos):
        done = sum(todo.state == "done" for todo in todos)
        dropped = f", {len(todos) - done} dropped" if done < len(todos) else ""
        return f"Nothing is left to do: {done} done{dropped}."
    return "\n".join(f"{todo.number}. [{todo.state}] {todo.text}" for todo in todos if todo.state != "dropped")


_STATE = {"type": "string", "enum": list(TODO_STATES)}
_TEXT = {"type": "string", "description": "One line: what is to be done."}

TODO_TOOL = Tool(
    name="todos",
    description=(
        "Keep your todo list. Give `todos` to write the whole list anew, in order; it replaces what was there. Or give "
        "`changes` to change the state or the text of single todos by their number. Use it for work of several steps: "
        "set one todo to doing before you begin it and to done as soon as it is finished. The answer is the list as it "
        "then stands."
    ),
    parameters={
        "type": "object",
        "properties": {
            "todos": {
                "type": "array",
                "description": "The whole list, in order.",
                "items": {
                    "type": "object",
                    "properties": {"text": _TEXT, "state": _STATE},
                    "required": ["text"],
                    "additionalProperties": False,
                },
            },
            "changes": {
                "type": "array",
                "description": "Todos that change, by their number.",
                "items": {
                    "type": "object",
                    "properties": {"number": {"type": "integer"}, "state": _STATE, "text": _TEXT},
                    "required": ["number"],
                    "additionalProperties": False,
                },
            },
        },
        "additionalProperties": False,
    },
)


class _Item(Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    state: TodoState = "open"


class _Call(Struct, frozen=True, forbid_unknown_fields=True):
    todos: list[str | _Item] | None = None
    changes: list[TodoChange] | None = None


def apply_todo_call(store: TodoStore, conversation: str, agent: str, arguments: object) -> str:
    """Apply a call of `TODO_TOOL` atomically, and return the updated list as text.

    Problems with the arguments are described in the returned text. Problems with the store or the conversation's name
    are raised, because the model cannot correct them.
    """
    store.todos(conversation, agent)
    try:
        call = _parse_call(arguments)
        if call.todos is not None:
            todos = store.replace_todos(conversation, [_as_todo(item) for item in call.todos], agent=agent)
        else:
            todos = store.change_todos(conversation, call.changes or (), agent=agent)
    except InvalidInput as error:
        return f"Nothing was changed. {error}"
    return format_todos(todos) or "The list is empty."


def _parse_call(arguments: object) -> _Call:
    try:
        call = msgspec.convert(arguments, _Call, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        problem, _, path = str(error).partition(" - at `$")
        where = path.strip(".`")
        raise InvalidInput(
            f"{where + ': ' if where else ''}{problem}. Give `todos`, a list of {{text, state}}, or `changes`, a list "
            f"of {{number, state, text}}; states are {', '.join(TODO_STATES)}."
        ) from error
    if (call.todos is None) == (call.changes is None):
        given = "neither" if call.todos is None else "both"
        raise InvalidInput(f"Give either `todos`, the whole list, or `changes`; here is {given}.")
    return call


def _as_todo(item: str | _Item) -> str | Todo:
    return item if isinstance(item, str) else Todo(number=0, text=item.text, state=item.state)
