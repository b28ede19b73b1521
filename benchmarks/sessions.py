"""Ten turns with the real Claude Code and the real Codex: what contextc sends them, beside the naive way.

The naive way is what most agents do that resume a session: with every turn the whole history goes into it as text,
though the program has it already. Both speak to the same strict stand-in of the vendor's API, on loopback, where what
reaches the model is counted: the tokens of all requests, and how often each message is in the last one.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple, TypeAlias

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fake_vendors import FakeVendors
from tests.sessions.cli_agents import PROGRAMS, AgentSetup, Marked, ProgramUnderTest, answered, marks, turn

import contextc as cc
from contextc._json import JSONObject, encode
from contextc.models.tokens import get_counter
from contextc.providers.client import ProviderCall

TURNS = 10
WORDS = "The lighthouse keeper writes down the weather, the ships and the hour, and nobody reads it until winter. "


class Turn(NamedTuple):
    """The tokens that the program was sent, and the seconds it took."""

    given: int
    seconds: float


class Figures(NamedTuple):
    """What ten turns came to. `own` are the tokens of what the program says by itself in all its requests."""

    requests: int
    turns: list[Turn]
    input: int
    own: int
    copies: Counter[str]
    missing: int


Way: TypeAlias = Callable[[ProgramUnderTest, AgentSetup, FakeVendors], Coroutine[object, object, list[Turn]]]


def question(number: int) -> str:
    return f"«u{number}» {WORDS * 4}What is in line {number}?"


def note(number: int) -> str:
    return f"«s{number}» {WORDS}It is {number} o'clock."


def tokens(text: str) -> int:
    return get_counter("o200k_base", provider="openai", model="gpt-5.4").count_text(text)


async def ours(program: ProgramUnderTest, setup: AgentSetup, standin: FakeVendors) -> list[Turn]:
    agent, turns = setup.agent(program, standin), list[Turn]()
    for number in range(1, TURNS + 1):
        began = perf_counter()
        setup.store.append("talk", cc.system(note(number)))
        await turn(agent, "talk", question(number))
        took = perf_counter() - began
        turns.append(Turn(tokens(agent.compiler.rebuild("talk", directory=str(setup.work)).decode()), took))
    await (await agent.client()).close()
    return turns


async def naive(program: ProgramUnderTest, setup: AgentSetup, standin: FakeVendors) -> list[Turn]:
    provider = setup.provider(program, standin)
    line, history, turns = setup.line(provider), list[str](), list[Turn]()
    session = cursor = ""
    for number in range(1, TURNS + 1):
        began = perf_counter()
        history += [f"System: {note(number)}", f"User: {question(number)}"]
        message = cc.user("\n\n".join(history))
        settings: JSONObject = {"model": provider.model_id, **provider.stream_settings}
        body = encode({**settings, provider.formatter.messages_key: provider.formatter.format([message])})
        call = ProviderCall(provider=provider, body=body, session=session, cursor=cursor, directory=str(setup.work))
        reader = provider.formatter.create_reader()
        async with aclosing(line.stream(call)) as events:
            async for event in events:
                reader.read(event)
        session, cursor = reader.session, reader.cursor
        history.append(f"Assistant: {reader.message().text}")
        turns.append(Turn(tokens(body.decode()), perf_counter() - began))
    await line.close()
    return turns


def measured(program: ProgramUnderTest, way: Way) -> Figures:
    with TemporaryDirectory() as folder, FakeVendors(Marked()) as standin:
        store = cc.open_store(f"sqlite:///{folder}/chat.db")
        turns = asyncio.run(way(program, AgentSetup(store, Path(folder)), standin))
        store.close()
        records = answered(standin)
        assert not standin.refused, standin.refused[0].refused
        found = marks(records[-1])
        said = [f"«{kind}{number}»" for number in range(1, TURNS + 1) for kind in "us"]
        said += [f"«a{number}»" for number in range(1, TURNS)]
        inputs = [record.tokens.input for record in records if record.tokens]
        own = (inputs[0] - turns[0].given) * len(inputs)
        copies = Counter({mark: found[mark] for mark in said})
        return Figures(len(records), turns, sum(inputs), own, copies, sum(not found[mark] for mark in said))


def main() -> None:
    console = Console(width=int(os.environ.get("COLUMNS", "120")))
    table = Table(title=f"{TURNS} turns, with a message of the system in each", title_justify="left")
    table.add_column("program")
    table.add_column("way")
    for column in ("requests", "sent in turn 2", f"in turn {TURNS}", "input at the API", "of it ours", "ratio"):
        table.add_column(column, justify="right")
    for column in ("copies of a message", "missing", "a turn"):
        table.add_column(column, justify="right")
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("turns", total=2 * len(PROGRAMS))
        for program in PROGRAMS:
            found: dict[str, Figures] = {}
            for name, way in (("contextc", ours), ("naive", naive)):
                found[name] = measured(program, way)
                progress.advance(task)
            least_input = found["contextc"].input - found["contextc"].own
            for name, figures in found.items():
                least, most = min(figures.copies.values()), max(figures.copies.values())
                table.add_row(
                    program.name,
                    name,
                    str(figures.requests),
                    f"{figures.turns[1].given:,}",
                    f"{figures.turns[-1].given:,}",
                    f"{figures.input:,}",
                    f"{figures.input - figures.own:,}",
                    f"{(figures.input - figures.own) / least_input:.1f}",
                    str(most) if least == most else f"{least} to {most}",
                    str(figures.missing),
                    f"{median(turn.seconds for turn in figures.turns) * 1000:,.0f} ms",
                )
            table.add_section()
    table.caption = "Tokens. Sent: to the program. Ours: without what it says itself. Copies: in the last request."
    console.print(table)


if __name__ == "__main__":
    main()
