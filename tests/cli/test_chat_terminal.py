"""`contextc chat` at a terminal: colours, prompts, Ctrl-C, and input typed during a turn."""

import sys
from pathlib import Path

import pytest

import contextc as cc
from tests.cli.chat_terminal import Terminal, recorded
from tests.executor.scripted_provider import call, says

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
NASTY = "[red]x[/] \x1b[2J\x1b]0;title\x07 \u202e end"


def store(folder: Path) -> cc.Store:
    return cc.open_store(folder / "chat.db")


def test_a_turn_streams_with_its_thoughts_tools_and_a_gauge(tmp_path: Path) -> None:
    """Guarantee 12.1: what happens is shown where it happened."""
    (tmp_path / "note.txt").write_text("remember the milk\n")
    model = recorded(
        tmp_path / "a.jsonl",
        says("Let me look.", call(1, "read_file", path="note.txt")),
        says("It says ", "milk.", thinks=("A note", " about milk.")),
    )
    with Terminal(tmp_path, "-m", model, "--store", "sqlite:///chat.db") as terminal:
        terminal.wait_for("> ")
        terminal.type("What is in note.txt?")
        turn = terminal.wait_for("tool call")
        terminal.wait_for("> ")
        terminal.type("/quit")
        assert terminal.leave() == 0
    wanted = ["Let me look.", '→ read_file(path="note.txt")', "✓ ", "A note about milk.", "It says milk.", "context "]
    places = [turn.index(each) for each in wanted]
    assert places == sorted(places)
    assert "2 steps, 1 tool call" in turn
    assert "\x1b[2;3m" in terminal.seen  # thoughts are dimmed
    assert "\x1b[36m→" in terminal.seen


def test_a_command_is_shown_whole_and_runs_only_after_a_yes(tmp_path: Path) -> None:
    """No answer means no, and the model gets the reason of a no."""
    long = f"echo {'x' * 150} > made.txt\necho second line"
    model = recorded(
        tmp_path / "a.jsonl",
        says(call(1, "run_command", command=long)),
        says(call(2, "run_command", command="echo yes > made.txt")),
        says("Done."),
    )
    with Terminal(tmp_path, "-m", model, "--store", "sqlite:///chat.db", "-c", "demo") as terminal:
        terminal.wait_for("> ")
        terminal.type("make it")
        asked = terminal.wait_for("why not: ")
        shown = "".join(line.strip().removeprefix("│ ") for line in asked.splitlines() if line.startswith("│ "))
        assert shown == long.replace("\n", "")
        assert not (tmp_path / "made.txt").exists()
        terminal.type("too long")
        terminal.wait_for("why not: ")
        assert not (tmp_path / "made.txt").exists()
        terminal.type("y")
        terminal.wait_for("Done.")
        terminal.wait_for("> ")
        terminal.type("/quit")
        assert terminal.leave() == 0
    assert (tmp_path / "made.txt").read_text() == "yes\n"
    with store(tmp_path) as handle:
        results = [result.text for message in handle.load("demo") for result in message.tool_results]
    assert results[0] == "Not run: the user declined: too long"


def test_an_edit_is_shown_as_a_difference(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    model = recorded(
        tmp_path / "a.jsonl",
        says(call(1, "edit_file", path="a.py", old="two = 2", new="two = 22")),
        says("Done."),
    )
    with Terminal(tmp_path, "-m", model, "--store", "sqlite:///chat.db", "change it") as terminal:
        asked = terminal.wait_for("why not: ")
        terminal.type("y")
        assert terminal.leave() == 0
    bars = [line.rstrip() for line in asked.splitlines() if line.startswith("│")]
    assert bars == ["│ @@ -1,4 +1,4 @@", "│  one = 1", "│ -two = 2", "│ +two = 22", "│  three = 3", "│"]
    assert (tmp_path / "a.py").read_text() == "one = 1\ntwo = 22\nthree = 3\n"


def test_ctrl_c_stops_a_turn_and_loses_nothing(tmp_path: Path) -> None:
    """Guarantee 11.10, and what follows: a second one at the prompt leaves, and another process goes on."""
    texts = [f"word{number} " for number in range(2_000)]
    slow = recorded(tmp_path / "slow.jsonl", says(*texts)) + "?seconds=0.05"
    with Terminal(tmp_path, "-m", slow, "--store", "sqlite:///chat.db", "-c", "demo") as terminal:
        terminal.wait_for("> ")
        terminal.type("talk")
        terminal.wait_for("word5 ")
        terminal.interrupt()
        terminal.wait_for("The partial answer is kept")
        terminal.wait_for("> ")
        terminal.interrupt()
        assert terminal.leave() == 0
    with store(tmp_path) as handle:
        asked, partial = handle.load("demo")
    assert (asked.text, partial.status) == ("talk", "cancelled")
    assert partial.text.startswith("word0 word1 word2 word3 word4 word5 ")
    assert not partial.text.endswith("word1999 ")

    fresh = recorded(tmp_path / "fresh.jsonl", says("Here is all of it."))
    with Terminal(tmp_path, "-m", fresh, "--store", "sqlite:///chat.db", "--continue") as terminal:
        assert "continuing demo: 2 messages" in terminal.wait_for("> ")
        terminal.type("/continue")
        terminal.wait_for("Here is all of it.")
        terminal.wait_for("> ")
        terminal.type("/quit")
        assert terminal.leave() == 0
    with store(tmp_path) as handle:
        assert [message.status for message in handle.load("demo")] == ["sent", "cancelled", "sent"]


def test_the_first_ctrl_c_at_the_prompt_explains_how_to_leave(tmp_path: Path) -> None:
    model = recorded(tmp_path / "a.jsonl", says("Hello."))
    with Terminal(tmp_path, "-m", model, "--store", "sqlite:///chat.db") as terminal:
        terminal.wait_for("> ")
        terminal.interrupt()
        terminal.wait_for("Press Ctrl-C again to exit")
        terminal.wait_for("> ")
        terminal.type("hi")
        terminal.wait_for("Hello.")
        terminal.wait_for("> ")
        terminal.interrupt()
        terminal.wait_for("Press Ctrl-C again to exit")
        terminal.wait_for("> ")
        terminal.interrupt()
        assert terminal.leave() == 0


def test_a_line_typed_while_a_turn_runs_reaches_the_next_step(tmp_path: Path) -> None:
    """Guarantee 11.9: it steers. A command waits until the turn is over."""
    first = says("word3 ", call(1, "run_command", command="until [ -e typed ]; do sleep 0.02; done"))
    model = recorded(tmp_path / "a.jsonl", first, says("As you wish."))
    with Terminal(tmp_path, "-m", model, "--store", "sqlite:///chat.db", "-c", "demo", "--yes") as terminal:
        terminal.wait_for("> ")
        terminal.type("talk")
        terminal.wait_for("word3 ")
        terminal.type("be brief")
        terminal.type("/todos")
        terminal.wait_for("queued for the next step: be brief")
        (tmp_path / "typed").touch()
        terminal.wait_for("queued input is sent")
        terminal.wait_for("As you wish.")
        terminal.wait_for("The todo list is empty.")
        terminal.wait_for("> ")
        terminal.type("/quit")
        assert terminal.leave() == 0
    with store(tmp_path) as handle:
        texts = [
            (message.role, message.text) for message in handle.load("demo") if message.role in ("user", "assistant")
        ]
    assert [role for role, _ in texts] == ["user", "assistant", "user", "assistant"]
    assert (texts[2][1], texts[3][1]) == ("be brief", "As you wish.")


def test_no_model_output_can_style_or_steer_the_terminal(tmp_path: Path) -> None:
    """Text, reasoning, names, arguments, results and approval questions are data."""
    (tmp_path / "nasty.txt").write_text(NASTY)
    model = recorded(
        tmp_path / "a.jsonl",
        says(NASTY, ("c1", NASTY, {NASTY: NASTY})),
        says(call(2, "read_file", path="nasty.txt")),
        says(call(3, "run_command", command=f"true {NASTY}")),
        says(NASTY, *NASTY, thinks=(NASTY,)),
    )
    with Terminal(tmp_path, "-m", model, "--store", "sqlite:///chat.db", "-c", NASTY[:9], "hello") as terminal:
        asked = terminal.wait_for("why not: ")
        terminal.type("n")
        assert terminal.leave() == 0
    for sequence in ("\x1b[2J", "\x1b]0;", "\x07", "\u202e"):
        assert sequence not in terminal.seen
    assert "true [red]x[/] ⟨U+001B⟩[2J⟨U+001B⟩]0;title⟨U+0007⟩ ⟨U+202E⟩ end" in asked
    assert terminal.seen.count("[red]x[/]") >= 5


def test_a_long_command_cannot_look_like_our_question(tmp_path: Path) -> None:
    """It is wrapped behind the bar, so that no part of it is at the position of the question."""
    forged = "true".ljust(41) + "Do it? y/n, always, or why not: y"
    model = recorded(tmp_path / "a.jsonl", says(call(1, "run_command", command=forged)), says("Fine."))
    with Terminal(tmp_path, "-m", model, "--store", "sqlite:///chat.db", "hi", columns=44) as terminal:
        asked = terminal.wait_for("why not: y") + terminal.wait_for("why not: ")
        terminal.type("")
        assert terminal.leave() == 0
    assert [line for line in asked.splitlines() if "Do it?" in line] == [
        "│ Do it? y/n, always, or why not: y",
        "Do it? y/n, always, or why not: ",
    ]


def test_ctrl_d_is_a_no_and_ctrl_c_at_a_question_stops_the_turn(tmp_path: Path) -> None:
    """Guarantee 11.10: an open call is answered."""
    model = recorded(
        tmp_path / "a.jsonl",
        says(call(1, "run_command", command="echo one > made.txt")),
        says("Then not."),
        says(call(2, "run_command", command="echo two > made.txt")),
    )
    with Terminal(tmp_path, "-m", model, "--store", "sqlite:///chat.db", "-c", "demo") as terminal:
        terminal.wait_for("> ")
        terminal.type("make it")
        terminal.wait_for("why not: ")
        terminal.press("\x04")
        terminal.wait_for("Then not.")
        terminal.wait_for("> ")
        terminal.type("make it all the same")
        terminal.wait_for("why not: ")
        terminal.interrupt()
        terminal.wait_for("The partial answer is kept")
        terminal.wait_for("> ")
        terminal.press("\x04")
        assert terminal.leave() == 0
    assert not (tmp_path / "made.txt").exists()
    with store(tmp_path) as handle:
        results = [result.text for message in handle.load("demo") for result in message.tool_results]
    assert results[0] == "Not run: the user declined."
    assert results[1].startswith("Not run")


def test_summing_up_shows_its_time_and_is_stopped_by_ctrl_c(tmp_path: Path) -> None:
    """Guarantee 11.10: nothing of it is stored; input typed meanwhile waits, and is then processed."""
    answers = [says(f"Answer {number}. " + "word " * 700, input=720 * number, output=700) for number in (1, 2, 3)]
    slow = recorded(tmp_path / "a.jsonl", *answers, says(*[f"word{number} " for number in range(400)]))
    options = ("-m", f"{slow}?window=9000&output=1000&seconds=0.05", "--store", "sqlite:///chat.db", "-c", "demo")
    with Terminal(tmp_path, *options, "--tools", "none") as terminal:
        for question in ("first", "second", "third"):
            terminal.wait_for("> ")
            terminal.type(question)
            terminal.wait_for("context ")
        terminal.wait_for("> ")
        terminal.type("/compact")
        terminal.wait_for("summarizing … 0:00:01")
        terminal.type("/todos")
        terminal.wait_for("… queued: /todos")
        terminal.interrupt()
        terminal.wait_for("stopped")
        terminal.wait_for("The todo list is empty.")
        terminal.wait_for("> ")
        terminal.type("/quit")
        assert terminal.leave() == 0
    assert "Traceback" not in terminal.seen
    assert "never retrieved" not in terminal.seen
    with store(tmp_path) as handle:
        assert [message.role for message in handle.load("demo")] == ["user", "assistant"] * 3


def test_the_gauge_of_a_turn_that_was_stopped_has_the_last_figures(tmp_path: Path) -> None:
    """A provider that measures less than we count must not look like an empty context."""
    unmeasured = says(call(1, "run_command", command="true")).recording()
    unmeasured["events"].pop()
    model = recorded(tmp_path / "a.jsonl", says("Hello.", input=700, output=20), unmeasured)
    with Terminal(tmp_path, "-m", model, "--store", "sqlite:///chat.db") as terminal:
        terminal.wait_for("> ")
        terminal.type("hi")
        terminal.wait_for("context ")
        terminal.wait_for("> ")
        terminal.type("do it")
        terminal.wait_for("why not: ")
        terminal.interrupt()
        terminal.wait_for("stopped.")
        gauge = terminal.wait_for(" tokens")
        terminal.wait_for("> ")
        terminal.type("/quit")
        assert terminal.leave() == 0
    assert int(gauge.partition(" · ")[2].split()[0].replace(",", "")) > 0, gauge
