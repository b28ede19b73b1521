"""The scripted agent of `scenario.py`: its tasks, its tools and the steps that the model takes.

`remember.py` runs the same files of frameworks with other sessions: an assignment then names a file with the prompts,
the tools and their results.

This file needs the standard library only, because every framework imports it in an environment of its own. A file of a
framework, `NAME_agent.py`, has a coroutine per variant and ends with `run_variants({"own": …, "adapter": …})`. It
must not have the name of the package that it imports.
"""

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

STEPS = 60
END = "There is nothing more to ask."
"""The answer after which no prompt follows."""
WINDOW = 32_000
OPENAI_MODEL, ANTHROPIC_MODEL, GEMINI_MODEL = "gpt-5.5", "claude-opus-5-5", "gemini-3.5-flash"
INSTRUCTIONS = (
    "You maintain a large Python project. Work on one task at a time: read the files that matter, search for uses of "
    "what you change, and run the tests of every module that you touched. State what you found before each call. "
    "Never claim that tests passed without a run that shows it. " * 6
).strip()
SIZES = (400, 1_500, 4_000, 200, 9_000, 2_000, 800, 16_000, 1_200, 6_000)
"""Characters of tool results."""
PARALLEL = 6
"""Every so many steps, the model makes two calls at once."""
WORDS = (
    "return",
    "value",
    "index",
    "parser",
    "token",
    "branch",
    "message",
    "append",
    "client",
    "server",
    "retry",
    "field",
    "option",
    "window",
    "budget",
    "cache",
    "prefix",
    "session",
    "stream",
    "reader",
    "writer",
    "error",
    "result",
    "record",
    "number",
    "offset",
    "length",
    "stored",
    "loaded",
    "checked",
    "failed",
    "passed",
    "module",
)


class Assignment(NamedTuple):
    """The input of a framework's process: one run of the scenario."""

    variant: str
    url: str
    """The address of the stand-in, without a path: OpenAI's clients need `/v1` after it."""
    key: str
    turns: int
    window: int
    folder: str
    """An empty folder, for a store."""
    session: str = ""
    """The file of another session than the one below."""

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def prompts(self) -> list[str]:
        return _load(self.session)["prompts"] if self.session else tasks(self.turns)

    @property
    def instructions(self) -> str:
        return _load(self.session)["instructions"] if self.session else INSTRUCTIONS

    @property
    def tools(self) -> tuple[Callable[[str], str], ...]:
        if not self.session:
            return TOOLS
        given = _load(self.session)
        return tuple(_tool(name, description, given["results"]) for name, description in given["tools"])

    @property
    def max_steps(self) -> int:
        """Limit on the requests of a turn. A model whose request has lost its task repeats the same call for ever."""
        return 5_000 if self.session else 200


class Call(NamedTuple):
    name: str
    arguments: dict[str, str]


class Step(NamedTuple):
    """What the model answers: a text and calls, or the final text of a turn."""

    text: str
    calls: tuple[Call, ...] = ()


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_file(path: str) -> str:
    """Return the content of a file."""
    return _content(path)


def search_code(query: str) -> str:
    """Return the lines of the project that contain a text."""
    return _content(query)


def run_tests(target: str) -> str:
    """Run the tests of a module and return their output."""
    return _content(target)


TOOLS = (read_file, search_code, run_tests)


def _tool(tool: str, description: str, results: dict[str, str]) -> Callable[[str], str]:
    def call(name: str) -> str:
        return results.get(name, "Not found.")

    call.__name__, call.__doc__ = tool, description
    return call


@cache
def _load(path: str) -> dict[str, Any]:
    return json.loads(Path(path).read_text())


def _content(name: str) -> str:
    """Return a text that depends on the argument only. Its number selects the size."""
    number = int("".join([each for each in name if each.isdigit()]) or 0)
    size, chance = SIZES[number % len(SIZES)], random.Random(name)
    lines: list[str] = []
    while sum(map(len, lines)) + len(lines) < size:
        lines.append(f"{len(lines) + 1:4} " + " ".join(chance.choices(WORDS, k=chance.randint(4, 14))))
    return "\n".join(lines)


# ── the script ────────────────────────────────────────────────────────────────────────────────────────────────────────


def task(turn: int) -> str:
    """Return the user's message that begins a turn."""
    return (
        f"Task {turn + 1}: module {turn + 1} returns a wrong value for empty input. Find the cause, fix it, and report "
        "which tests cover it."
    )


def tasks(turns: int) -> list[str]:
    return [task(turn) for turn in range(turns)]


def step(turn: int, number: int, turns: int) -> Step:
    """Return what the model does in a step of a turn."""
    each = STEPS // turns
    if number >= each:
        return Step(f"Task {turn + 1} is done. The cause was an unchecked index, and {each} calls confirmed the fix.")
    at = turn * each + number
    tool = TOOLS[at % len(TOOLS)]
    calls = [_call(tool.__name__, at)]
    if at % PARALLEL == PARALLEL - 1:
        calls.append(_call(TOOLS[(at + 1) % len(TOOLS)].__name__, at + 100))
    return Step(f"Step {at + 1}: I need to see what {tool.__name__} gives for number {at}.", tuple(calls))


def _call(name: str, number: int) -> Call:
    values = {
        "read_file": ("path", f"src/module_{number}.py"),
        "search_code": ("query", f"def parse_{number}"),
        "run_tests": ("target", f"tests/test_module_{number}.py"),
    }
    field, value = values[name]
    return Call(name, {field: value})


# ── a framework's process ─────────────────────────────────────────────────────────────────────────────────────────────

Ask = Callable[[str], Awaitable[str]]
"""Runs one turn: the user's message → the agent's answer."""
Variant = Callable[[Assignment], Awaitable[None]]


async def play(assignment: Assignment, ask: Ask) -> None:
    """Run the turns of a scenario, and print the answers and the failures. A turn that fails does not end the run."""
    answers: list[str] = []
    failures: list[str] = []
    for prompt in assignment.prompts:
        try:
            answers.append(await ask(prompt))
            if answers[-1] == END:
                break
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}"[:500])
    print(json.dumps({"answers": answers, "failures": failures}))


def run_variants(variants: Mapping[str, Variant], unlisted: Mapping[str, Variant] | None = None) -> None:
    """Run the variant that the command line names. Without one, print the names of all variants but the unlisted."""
    if len(sys.argv) == 1:
        print(json.dumps([*variants]))
        return
    assignment = Assignment(**json.loads(sys.argv[1]))
    Path(assignment.folder).mkdir(parents=True, exist_ok=True)
    asyncio.run(_run({**variants, **(unlisted or {})}[assignment.variant], assignment))


async def _run(variant: Variant, assignment: Assignment) -> None:
    await variant(assignment)
