"""Triggers for open todos, at the start of a session and after a compaction.

The list itself is state, and a prompt fragment contains it (Guarantee 8.4). The trigger reports the event: at the start
of a session or after a compaction there is work to continue. The message stays in the log, so it contains the numbers
of the todos, which do not change, and not their texts, which may.
"""

from collections.abc import Callable, Sequence

from contextc._json import JSONObject
from contextc.todos import Todo
from contextc.triggers.base import Trigger, TriggerContext, TriggerMessage, TriggerTime

MAX_LISTED = 20


class OpenTodosTrigger(Trigger, frozen=True, kw_only=True):
    """A message at every evaluation with open todos."""

    lead: Callable[[str], str]

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        left = [todo for todo in moment.todos if todo.state in ("open", "doing")]
        if not left:
            return None, state
        count = f"{len(left)} of {len(moment.todos)} todos {'is' if len(left) == 1 else 'are'} not done"
        text = f"{self.lead(count)} ({_listed_numbers(left)}). {_continue_text(left)}"
        return TriggerMessage(text=text, title="Todos left"), state


def todo_triggers() -> list[Trigger]:
    return [
        _open_todos_trigger(
            "todos_at_start", "session_start", lambda count: f"Todos: this session begins with work left, {count}"
        ),
        _open_todos_trigger(
            "todos_after_compaction",
            "after_compaction",
            lambda count: f"Todos: earlier messages were replaced by a summary, and {count}",
        ),
    ]


def _open_todos_trigger(name: str, when: TriggerTime, lead: Callable[[str], str]) -> Trigger:
    return OpenTodosTrigger(name=name, priority=10, at=(when,), lead=lead)


def _listed_numbers(left: Sequence[Todo]) -> str:
    named = ", ".join(str(todo.number) for todo in left[:MAX_LISTED])
    return f"number{'s' if len(left) > 1 else ''} {named}{', …' if len(left) > MAX_LISTED else ''}"


def _continue_text(left: Sequence[Todo]) -> str:
    doing = [todo.number for todo in left if todo.state == "doing"]
    where = f"Number {doing[0]} was being worked on; go on there" if doing else f"Go on with number {left[0].number}"
    return f"{where}, unless the user asks for something else, and keep the list up to date."
