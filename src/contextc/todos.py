"""Todos: what an agent means to do in a conversation, and the tool with which a model keeps its own list.

They are state, not messages: the list is stored beside the conversation, and a prompt fragment shows it afresh at every
turn. A todo is one line. Its number is its place in the list and its name. Nothing here raises because of what a model
wrote: a call that makes no sense is answered in words the model can act on.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, TypeAlias, get_args

import msgspec
from msgspec import Struct

from contextc._json import well_formed
from contextc.errors import InvalidInput
from contextc.tools import Tool

TodoState: TypeAlias = Literal["open", "doing", "done", "dropped"]
STATES: tuple[TodoState, ...] = get_args(TodoState)
MAX_TEXT = 2_000
MAX_TODOS = 200


class Todo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing to do. `number` counts from 1 in the list of one agent in one conversation."""

    number: int
    text: str
    state: TodoState = "open"


class TodoChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be different about todo `number`; None leaves it as it is."""

    number: int
    state: TodoState | None = None
    text: str | None = None


class KeepsTodos(Protocol):
    """What `apply_todo_call` needs of a store."""

    def todos(self, conversation: str, agent: str = ...) -> list[Todo]: ...

    def replace_todos(self, conversation: str, todos: Iterable[str | Todo], *, agent: str = ...) -> list[Todo]: ...

    def change_todos(self, conversation: str, changes: Iterable[TodoChange], *, agent: str = ...) -> list[Todo]: ...


def check_text(text: object) -> str:
    """The one line a todo's text comes to: white space becomes single spaces."""
    if not isinstance(text, str):
        raise InvalidInput(f"a {type(text).__name__} is not the text of a todo. Give one line of text.")
    line = " ".join(well_formed(text).split())
    if not line:
        raise InvalidInput("The text of a todo is blank. Say what is to be done.")
    if "\0" in line:
        raise InvalidInput("The text of a todo holds a NUL character. Leave it out.")
    if len(line) > MAX_TEXT:
        raise InvalidInput(
            f"The text of a todo has {len(line):,} characters and the limit is {MAX_TEXT:,}. Say it in one line, and "
            "keep the details elsewhere."
        )
    return line


def check_state(state: object) -> TodoState:
    if not isinstance(state, str) or state not in STATES:
        raise InvalidInput(f"{state!r} is no state of a todo. Use {', '.join(STATES[:-1])} or {STATES[-1]}.")
    return state


def check_count(count: int) -> None:
    if count > MAX_TODOS:
        raise InvalidInput(
            f"A list of {count:,} todos is longer than the limit of {MAX_TODOS}. Write a shorter list with "
            "`replace_todos`: leave out what is done, or join what belongs together."
        )


def numbered(todos: Iterable[object]) -> list[Todo]:
    """A whole new list: texts, which are open, and todos, which keep their state. It is numbered in this order."""
    if isinstance(todos, str | Todo) or not isinstance(todos, Iterable):
        raise InvalidInput(
            f"a {type(todos).__name__} is not a list of todos. Write [text, …], or use `add_todo` for one."
        )
    found: list[Todo] = []
    for number, each in enumerate(todos, 1):
        text, state = (each.text, each.state) if isinstance(each, Todo) else (each, "open")
        try:
            found.append(Todo(number=number, text=check_text(text), state=check_state(state)))
        except InvalidInput as error:
            raise InvalidInput(f"todos[{number - 1}]: {error}") from None
    check_count(len(found))
    return found


def list_todos(todos: Sequence[Todo]) -> str:
    """The list as a model reads it: what was dropped is left out, and a finished list is one line."""
    if not todos:
        return ""
    if all(todo.state in ("done", "dropped") for todo in todos):
        done = sum(todo.state == "done" for todo in todos)
        dropped = f", {len(todos) - done} dropped" if done < len(todos) else ""
        return f"Nothing is left to do: {done} done{dropped}."
    return "\n".join(f"{todo.number}. [{todo.state}] {todo.text}" for todo in todos if todo.state != "dropped")


_STATE = {"type": "string", "enum": list(STATES)}
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


def apply_todo_call(store: KeepsTodos, conversation: str, agent: str, arguments: object) -> str:
    """Do what a call of `TODO_TOOL` asks for, all of it or nothing, and say how the list stands now.

    What is wrong with the arguments is said in the answer. What is wrong with the store, or with the conversation's
    name, is raised: no model could help it.
    """
    store.todos(conversation, agent)
    try:
        call = _read(arguments)
        if call.todos is not None:
            todos = store.replace_todos(conversation, [_todo(item) for item in call.todos], agent=agent)
        else:
            todos = store.change_todos(conversation, call.changes or (), agent=agent)
    except InvalidInput as error:
        return f"Nothing was changed. {error}"
    return list_todos(todos) or "The list is empty."


def _read(arguments: object) -> _Call:
    try:
        call = msgspec.convert(arguments, _Call, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        problem, _, path = str(error).partition(" - at `$")
        where = path.strip(".`")
        raise InvalidInput(
            f"{where + ': ' if where else ''}{problem}. Give `todos`, a list of {{text, state}}, or `changes`, a list "
            f"of {{number, state, text}}; states are {', '.join(STATES)}."
        ) from error
    if (call.todos is None) == (call.changes is None):
        given = "neither" if call.todos is None else "both"
        raise InvalidInput(f"Give either `todos`, the whole list, or `changes`; here is {given}.")
    return call


def _todo(item: str | _Item) -> str | Todo:
    return item if isinstance(item, str) else Todo(number=0, text=item.text, state=item.state)
