"""Todos of a conversation: numbered, safe with many writers, copied by a fork. Every test runs on every store."""

import multiprocessing
import threading
from collections import Counter
from multiprocessing.synchronize import Barrier

import pytest

import contextc as cc
from contextc.tools.todos import MAX_TEXT_CHARACTERS, MAX_TODOS, TODO_TOOL, Todo, TodoChange, apply_todo_call

WRITERS, ADDS = 4, 25
PROCESSES = multiprocessing.get_context("forkserver")


def listed(store: cc.Store, conversation: str = "demo", agent: str = "assistant") -> list[tuple[int, str, str]]:
    return [(todo.number, todo.text, todo.state) for todo in store.todos(conversation, agent)]


def test_todos_are_numbered_as_they_are_added_and_change_their_state(store: cc.Store) -> None:
    """Guarantee 8.4: todos have an API."""
    assert store.add_todo("demo", "Read the code") == Todo(number=1, text="Read the code", state="open")
    store.add_todo("demo", "Write tests")
    assert store.set_todo("demo", 1, state="done") == Todo(number=1, text="Read the code", state="done")
    assert store.set_todo("demo", 2, text="Write more tests", state="doing").text == "Write more tests"
    assert listed(store) == [(1, "Read the code", "done"), (2, "Write more tests", "doing")]


def test_each_agent_has_a_list_of_its_own(store: cc.Store) -> None:
    store.add_todo("demo", "Code", agent="coder")
    store.add_todo("demo", "Review", agent="reviewer")
    assert (listed(store), listed(store, agent="coder")) == ([], [(1, "Code", "open")])
    assert listed(store, agent="reviewer") == [(1, "Review", "open")]


def test_a_whole_list_is_written_in_the_order_given(store: cc.Store) -> None:
    store.add_todo("demo", "Old")
    kept = Todo(number=7, text="Kept", state="doing")
    assert store.replace_todos("demo", ["First", kept]) == store.todos("demo")
    assert listed(store) == [(1, "First", "open"), (2, "Kept", "doing")]
    assert store.replace_todos("demo", []) == []


def test_a_todo_is_one_line(store: cc.Store) -> None:
    """A line break could pass for a second todo."""
    assert store.add_todo("demo", " a\n2. [done]\tb \ud83d").text == "a 2. [done] b \ufffd"


def test_todos_may_come_before_the_first_message(store: cc.Store) -> None:
    store.add_todo("new", "Begin")
    assert (listed(store, "new"), store.load("new")) == ([(1, "Begin", "open")], [])
    store.replace_todos("newer", ["Begin"])
    assert store.conversation("newer").length == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" \n", "is blank. Say what"),
        (5, "text of a todo must be a string, got int"),
        ("a\0b", "NUL character. Leave it out"),
        ("x" * (MAX_TEXT_CHARACTERS + 1), "2,001 characters and the limit is 2,000"),
    ],
    ids=["blank", "number", "nul", "long"],
)
def test_an_invalid_text_is_refused(store: cc.Store, text: str, expected: str) -> None:
    """Guarantee 15.1: what is wrong and the way out, and nothing is stored."""
    store.add_todo("demo", "Sound")
    with pytest.raises(cc.errors.InvalidInput, match=expected):
        store.add_todo("demo", text)
    with pytest.raises(cc.errors.InvalidInput, match=expected):
        store.set_todo("demo", 1, text=text)
    with pytest.raises(cc.errors.InvalidInput, match=r"todos\[1\]: "):
        store.replace_todos("demo", ["Fine", text])
    assert listed(store) == [(1, "Sound", "open")]


def test_other_bad_input_is_refused(store: cc.Store) -> None:
    """Guarantee 15.1."""
    store.add_todo("demo", "a")
    with pytest.raises(cc.errors.InvalidInput, match="Use open, doing, done or dropped"):
        store.set_todo("demo", 1, state="finished")  # pyright: ignore[reportArgumentType]
    with pytest.raises(cc.errors.InvalidInput, match="Todo 1: give a state, a text, or both"):
        store.set_todo("demo", 1)
    with pytest.raises(
        cc.errors.InvalidInput, match=r"no todo 2 in the list of 'assistant' in conversation 'demo'. It has 1\."
    ):
        store.set_todo("demo", 2, state="done")
    with pytest.raises(cc.errors.InvalidInput, match="The list is empty"):
        store.set_todo("demo", 1, state="done", agent="other")
    for number in (0, -1, True, 1 << 80, "1"):
        with pytest.raises(cc.errors.InvalidInput, match="They count from 1"):
            store.set_todo("demo", number, state="done")  # pyright: ignore[reportArgumentType]
    with pytest.raises(cc.errors.InvalidInput, match=r"todos must be a list, got str\. Pass \[text"):
        store.replace_todos("demo", "one")
    with pytest.raises(cc.errors.InvalidInput, match="agent name must be"):
        store.add_todo("demo", "a", agent="")
    for call in (lambda: store.todos("nope"), lambda: store.set_todo("nope", 1, state="done")):
        with pytest.raises(cc.errors.UnknownConversation):
            call()
    assert listed(store) == [(1, "a", "open")]


def test_a_list_has_a_limit(store: cc.Store) -> None:
    """A model that adds forever must not fill its own context."""
    store.replace_todos("demo", map(str, range(MAX_TODOS)))
    with pytest.raises(cc.errors.InvalidInput, match=r"longer than the limit of 200\. Write a shorter list"):
        store.add_todo("demo", "one more")
    with pytest.raises(cc.errors.InvalidInput, match="longer than the limit"):
        store.replace_todos("demo", map(str, range(MAX_TODOS + 1)))
    assert len(store.todos("demo")) == MAX_TODOS


def test_several_changes_are_made_together_or_not_at_all(store: cc.Store) -> None:
    """Guarantee 15.1: bad input never leaves a half-written record."""
    store.replace_todos("demo", ["a", "b"])
    with pytest.raises(cc.errors.InvalidInput, match="no todo 9"):
        store.change_todos("demo", [TodoChange(number=1, state="done"), TodoChange(number=9, state="done")])
    assert listed(store) == [(1, "a", "open"), (2, "b", "open")]
    store.change_todos("demo", [TodoChange(number=1, state="done"), TodoChange(number=2, state="doing")])
    assert listed(store) == [(1, "a", "done"), (2, "b", "doing")]


def test_a_fork_begins_with_its_parents_todos_and_goes_its_own_way(store: cc.Store) -> None:
    """Guarantee 3.5: todos have no history, so a fork at any message begins with the list as it is now."""
    store.append("demo", cc.user("hi"))
    store.add_todo("demo", "a")
    store.add_todo("demo", "b", agent="coder")
    store.fork("demo", "other", at=0)
    store.set_todo("other", 1, state="done")
    store.add_todo("demo", "c")
    assert listed(store) == [(1, "a", "open"), (2, "c", "open")]
    assert (listed(store, "other"), listed(store, "other", "coder")) == ([(1, "a", "done")], [(1, "b", "open")])


def test_rewinding_and_resetting_leave_todos_alone_and_deleting_takes_them(store: cc.Store) -> None:
    """Guarantee 3.4: only `delete` deletes."""
    store.extend("demo", [cc.user("a"), cc.user("b")])
    store.add_todo("demo", "keep")
    store.rewind("demo", 1)
    store.reset("demo")
    assert listed(store) == [(1, "keep", "open")]
    store.delete("demo")
    store.append("demo", cc.user("again"))
    assert listed(store) == []
    assert store.read(lambda tx: tx.rows("SELECT * FROM main.todo")) == []


def add_many(address: str, writer: int, start: Barrier) -> None:
    with cc.open_store(address) as store:
        start.wait(300)
        for number in range(ADDS):
            todo = store.add_todo("demo", f"{writer}:{number}")
            store.set_todo("demo", todo.number, state="done")


def test_many_processes_add_todos_and_none_is_lost(shared_address: str) -> None:
    """Guarantee 3.2."""
    start = PROCESSES.Barrier(WRITERS)
    writers = [PROCESSES.Process(target=add_many, args=(shared_address, number, start)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(400)
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    with cc.open_store(shared_address) as store:
        todos = store.todos("demo")
    assert [todo.number for todo in todos] == list(range(1, WRITERS * ADDS + 1))
    assert Counter(todo.text.split(":")[0] for todo in todos) == {str(number): ADDS for number in range(WRITERS)}
    assert {todo.state for todo in todos} == {"done"}


def test_many_threads_add_todos_to_one_store(store: cc.Store) -> None:
    """Guarantee 3.2: on the store in memory, too."""
    threads = [threading.Thread(target=lambda: [store.add_todo("demo", "x") for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [todo.number for todo in store.todos("demo")] == list(range(1, 81))


def test_a_model_writes_its_list_and_changes_it(store: cc.Store) -> None:
    """Guarantee 8.4: todos have a tool; it answers with the current list."""
    store.append("demo", cc.user("go"))
    written = {"todos": [{"text": "Read"}, {"text": "Write", "state": "doing"}, "Check"]}
    answer = apply_todo_call(store, "demo", "coder", written)
    assert answer == "1. [open] Read\n2. [doing] Write\n3. [open] Check"
    changed = {"changes": [{"number": 1, "state": "dropped"}, {"number": "2", "state": "done", "text": "Wrote"}]}
    assert apply_todo_call(store, "demo", "coder", changed) == "2. [done] Wrote\n3. [open] Check"
    finished = apply_todo_call(store, "demo", "coder", {"changes": [{"number": 3, "state": "done"}]})
    assert finished == "Nothing is left to do: 2 done, 1 dropped."
    assert apply_todo_call(store, "demo", "coder", {"todos": []}) == "The list is empty."
    assert store.todos("demo") == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "Give either `todos`, the whole list, or `changes`; here is neither."),
        ({"todos": [], "changes": []}, "here is both"),
        ("todos", "Expected `object`, got `str`. Give `todos`, a list of {text, state}"),
        (None, "Expected `object`, got `null`."),
        ({"todos": "a"}, "todos: Expected `array | null`, got `str`."),
        ({"todos": [{"text": "a", "state": "completed"}]}, "todos[0].state: Invalid enum value 'completed'."),
        ({"todos": [{"content": "a"}]}, "todos[0]: Object contains unknown field `content`"),
        ({"todos": [{"text": " "}]}, "todos[0]: The text of a todo is blank."),
        ({"todos": ["a\0"]}, "NUL"),
        ({"changes": [{"number": 1, "state": "done"}, {"number": 9, "state": "done"}]}, "There is no todo 9"),
        ({"changes": [{"number": 1}]}, "Todo 1: give a state"),
        ({"changes": [{"number": 10**30, "state": "done"}]}, "no number of a todo"),
        ({"changes": [{"state": "done"}]}, "changes[0]: Object missing required field `number`"),
    ],
)
def test_a_call_that_makes_no_sense_is_answered_and_changes_nothing(
    store: cc.Store, arguments: object, expected: str
) -> None:
    """Guarantee 2.3: nothing crashes because of what a model wrote."""
    store.add_todo("demo", "a")
    answer = apply_todo_call(store, "demo", "assistant", arguments)
    assert answer.startswith("Nothing was changed. ")
    assert expected in answer
    assert listed(store) == [(1, "a", "open")]


def test_what_no_model_could_help_is_raised(store: cc.Store) -> None:
    """Guarantee 15.1: a wrong conversation is the program's mistake, not the model's."""
    with pytest.raises(cc.errors.UnknownConversation):
        apply_todo_call(store, "nope", "assistant", {"todos": ["a"]})


def test_the_tool_reports_what_it_takes() -> None:
    assert TODO_TOOL.name == "todos"
    assert TODO_TOOL.parameters["properties"]["todos"]["items"]["properties"]["state"]["enum"] == [
        "open",
        "doing",
        "done",
        "dropped",
    ]
