"""Tables on narrow terminals and in pipes: required columns are never truncated."""

from pathlib import Path

import pytest

import contextc as cc
from tests.cli.conftest import Run

WORDS = "result left out, can be fetched"
LOOK = cc.Tool(name="look", parameters={"type": "object"})
SMALL = cc.provider("anthropic:claude-sonnet-4-5", window=3_000, output=500)


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A conversation with long messages, of which old results were left out."""
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        compiler = cc.MessageCompiler(store, SMALL)

        def answered(reply: cc.Message) -> None:
            with compiler.attempt(compiler.compile("demo", tools=[LOOK])) as attempt:
                attempt.commit(reply)

        store.append("demo", cc.user("First the plan: " + "find the bugs one after the other. " * 40))
        answered(cc.assistant("Good."))
        for number in range(1, 4):
            store.append("demo", cc.user(f"Find bug {number}, wherever in this large and old program it may be."))
            answered(cc.assistant(tool_calls=[cc.ToolCall(id=f"c{number}", name="look", arguments={})]))
            store.append("demo", cc.tool_result(f"c{number}", "look", f"print({number})\n" * 75))
            answered(cc.assistant("Found it."))
    return address


@pytest.mark.parametrize("columns", ["80", "60", None])
def test_the_account_fits_and_cuts_only_messages(run: Run, address: str, columns: str | None) -> None:
    """Guarantee 13.1. None is a pipe of unknown width."""
    shown = run("explain", "demo", "--store", address, **({"COLUMNS": columns} if columns else {"COLUMNS": ""}))
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    head = next(index for index, line in enumerate(lines) if line.split()[:1] == ["seq"])
    table = lines[head:]
    assert max(len(line) for line in table) <= int(columns or 80)
    assert table[0].split() == ["seq", "role", "tokens", "what", "why"]
    firsts = [line.split() for line in table[1:] if line[1] in "+-"]
    assert [first[1] for first in firsts[:3]] == ["1", "2", "3"]
    assert {first[2] for first in firsts} == {"user", "assistant", "tool"}
    assert all(first[3].replace(",", "").isdigit() for first in firsts if first[0] == "+")
    assert any("…" in line for line in table)
    at = table[0].index("why")
    left_out = next(index for index, line in enumerate(table) if line.split()[1:2] == ["5"])
    reason = [table[left_out][at:].strip()]
    for line in table[left_out + 1 :]:
        if line[1] in "+-":
            break
        reason.append(line.strip())
    assert " ".join(reason) == WORDS
    assert all(len(each) > 5 for each in reason)


@pytest.mark.parametrize("columns", ["80", "60"])
def test_the_bar_and_its_signs_fit(run: Run, address: str, columns: str) -> None:
    """Guarantee 13.1."""
    with cc.open_store(address) as store:
        store.append("demo", cc.user("Once more."))
        compiler = cc.MessageCompiler(store, SMALL)
        compiler.commit(compiler.compile("demo", tools=[LOOK], instructions="Be brief."), cc.assistant("Found it."))
    lines = run("explain", "demo", "--store", address, COLUMNS=columns).stdout.splitlines()
    bar = next(index for index, line in enumerate(lines) if "▓▓" in line)
    assert lines[bar].endswith(" 3,000")
    signs = lines[bar : next(index for index, line in enumerate(lines) if line.startswith("shared"))]
    assert max(len(line) for line in signs) <= int(columns)
    names = ["system", "tools", "messages", "reserve", "margin", "free"]
    assert [name for line in signs[1:] for name in line.split() if name in names] == names


@pytest.mark.parametrize("columns", ["80", "60"])
def test_a_list_of_requests_keeps_its_figures_and_reasons(run: Run, address: str, columns: str) -> None:
    """Guarantee 13.1: if there is no room for the reasons beside them, they are on a line below."""
    lines = run("explain", "demo", "--requests", "--store", address, COLUMNS=columns).stdout.splitlines()
    assert max(len(line) for line in lines) <= int(columns)
    assert lines[1].split()[:7] == ["request", "mode", "epoch", "input", "shared", "output", "cost"]
    assert lines[2].split()[:3] == ["1", "full", "1"]
    assert "first request" in "\n".join(lines)
    assert "…" not in "\n".join(lines)
