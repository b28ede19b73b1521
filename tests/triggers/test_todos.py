"""Open todos are listed at the start of a session and after a compaction."""

import contextc as cc
from contextc.tools.todos import TodoState
from contextc.triggers import TriggerContext, TriggerTime, todo_triggers
from tests.triggers.run_triggers import Play


def left(when: TriggerTime, *states: TodoState) -> list[str]:
    todos = tuple(cc.tools.Todo(number=n, text=f"Paint wall {n}", state=state) for n, state in enumerate(states, 1))
    return [message.text for message in Play(todo_triggers()).at(TriggerContext(when=when, todos=todos))]


def test_a_session_that_starts_with_open_todos_is_reported() -> None:
    """Guarantee 11.5."""
    assert left("session_start", "done", "open", "doing") == [
        "Todos: this session begins with work left, 2 of 3 todos are not done (numbers 2, 3). Number 3 was being "
        "worked on; go on there, unless the user asks for something else, and keep the list up to date."
    ]


def test_after_a_compaction_the_open_todos_are_recalled() -> None:
    """Guarantee 11.5."""
    assert left("after_compaction", "done", "open") == [
        "Todos: earlier messages were replaced by a summary, and 1 of 2 todos is not done (number 2). Go on with "
        "number 2, unless the user asks for something else, and keep the list up to date."
    ]


def test_nothing_left_and_no_message() -> None:
    assert left("session_start") == left("after_compaction") == []
    assert left("session_start", "done", "dropped") == []


def test_before_a_step_nothing_is_reported_of_todos() -> None:
    """Guarantee 8.4: the current list is shown by a prompt fragment."""
    assert left("before_step", "open") == []


def test_the_text_of_todos_are_not_repeated_in_the_log() -> None:
    """Guarantee 8.4: the texts are state, and nothing is in both classes."""
    assert "Paint" not in left("session_start", "open")[0]


def test_a_long_list_is_named_in_part() -> None:
    thirty: list[TodoState] = ["open"] * 30
    (text,) = left("session_start", *thirty)
    assert "30 of 30 todos are not done (numbers 1, 2," in text
    assert "19, 20, …)" in text


def test_a_session_start_that_is_asked_about_twice_fires_once_and_each_compaction_by_itself() -> None:
    todos = (cc.tools.Todo(number=1, text="x"),)
    play = Play(todo_triggers())
    moments = [
        TriggerContext(when="session_start", todos=todos),
        TriggerContext(when="session_start", todos=todos),
        TriggerContext(when="after_compaction", todos=todos, step=3),
        TriggerContext(when="after_compaction", todos=todos, step=9),
        TriggerContext(when="session_start", todos=todos, turn=2),
    ]
    assert [len(play.at(moment)) for moment in moments] == [1, 0, 1, 1, 1]
