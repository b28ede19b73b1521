"""What can be said to the chat itself: a line that begins with a slash. One function a command."""

import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rich.table import Table

from contextc.cli.account import show, show_overflow
from contextc.cli.chat.gauge import dollars
from contextc.cli.terminal import count, out, plain
from contextc.errors import ContextOverflow, InvalidInput, UnknownConversation
from contextc.executor.threads import durable
from contextc.ledger.sessions import SessionManager
from contextc.providers.named import provider_names
from contextc.todos import list_todos

if TYPE_CHECKING:
    from contextc.cli.chat.session import Session

Work: TypeAlias = Coroutine[Any, Any, None]  # as every coroutine is typed
WORD = re.compile(r"/([a-z]*)(?:\s+(.*))?", re.DOTALL)


class Command(NamedTuple):
    """A command that was typed, with what stands behind it."""

    run: Callable[["Session", str], Work]
    given: str


class Known(NamedTuple):
    run: Callable[["Session", str], Work]
    takes: str
    does: str


def parse(line: str) -> Command | None:
    """The command of a line; None where it is none: `/etc/hosts` is not. One that does not exist is refused."""
    found = WORD.fullmatch(line.strip())
    if found is None:
        return None
    name, given = found[1], (found[2] or "").strip()
    known = COMMANDS.get(name)
    if known is None:
        return Command(_unknown(name), given)
    if known.takes and not known.takes.startswith("[") and not given:
        return Command(_lacking(name, known), given)
    return Command(known.run, given)


def _unknown(name: str) -> Callable[["Session", str], Work]:
    async def refuse(session: "Session", given: str) -> None:
        close = get_close_matches(name, COMMANDS, n=1)
        meant = f" Did you mean /{close[0]}?" if close else ""
        there = ", ".join(f"/{each}" for each in COMMANDS)
        raise InvalidInput(f"There is no command /{name}.{meant} There are: {there}.")

    return refuse


def _lacking(name: str, known: Known) -> Callable[["Session", str], Work]:
    async def refuse(session: "Session", given: str) -> None:
        raise InvalidInput(f"/{name} needs something behind it: /{name} {known.takes} {known.does}.")

    return refuse


async def _help(session: "Session", given: str) -> None:
    table = Table(box=None, show_header=False)
    for name, known in COMMANDS.items():
        table.add_row(f"[bold]/{name}[/] {plain(known.takes)}", known.does)
    out.print(table)
    out.print(
        "A line you type while a turn runs is given to the model with its next step. A line that ends with \\ goes on. "
        "Ctrl-C stops a turn.",
        soft_wrap=True,
    )


async def _model(session: "Session", given: str) -> None:
    if given:
        await session.switch(given)
    provider = session.executor.provider
    room = f"window {provider.model.window:,}"
    out.print(f"[bold]{plain(provider.name)}:{plain(provider.asks_for)}[/], {provider.format}, {room}", soft_wrap=True)


async def _models(session: "Session", given: str) -> None:
    with suppress(UnknownConversation):
        for each in SessionManager(session.store).sessions(session.conversation):
            if each.requests:
                channel = each.channel
                asked = count(each.requests, "request")
                out.print(f"[bold]{plain(channel.provider)}:{plain(channel.model)}[/], {asked} here", soft_wrap=True)
    out.print(f"providers: {', '.join(provider_names())}", soft_wrap=True)
    out.print("/model provider:model switches, as in /model anthropic:claude-opus-5-5", soft_wrap=True)


async def _context(session: "Session", given: str) -> None:
    executor = session.executor
    if session.is_empty():
        return
    try:
        compiled = await durable(
            lambda: executor.compiler.compile(
                session.conversation, budget=executor.budget, dry_run=True, **executor.asked
            )
        )
    except ContextOverflow as error:
        show_overflow(error, out)
        return
    show(compiled.manifest)


async def _explain(session: "Session", given: str) -> None:
    if given and not given.isdecimal():
        raise InvalidInput(f"{given!r} is not the number of a request. Without one, the last is explained.")
    if session.is_empty():
        return
    request = int(given) if given else None
    show(session.executor.compiler.explain(session.conversation, request, agent=session.agent))


async def _todos(session: "Session", given: str) -> None:
    told = ""
    with suppress(UnknownConversation):
        told = list_todos(session.store.todos(session.conversation, session.agent))
    out.print(plain(told) or "There is nothing on the list.", soft_wrap=True)


async def _compact(session: "Session", given: str) -> None:
    """As the executor does it when room is short; the model that is asked now writes the summary."""
    if session.is_empty():
        return
    with session.working("summing up"):
        done = await session.executor.compact(session.conversation)
    if done is None:
        out.print("There is nothing old enough to sum up.")
        return
    digest = f" (without the model: {plain(done.fallback)})" if done.fallback else ""
    out.print(
        f"summed up what came before message {done.upto + 1}: {done.before:,} tokens became {done.after:,}{digest}",
        soft_wrap=True,
    )


async def _fork(session: "Session", given: str) -> None:
    if session.is_empty():
        return
    found = session.store.fork(session.conversation, given)
    before, session.conversation = session.conversation, found.name
    out.print(
        f"[bold]{plain(found.name)}[/] shares {count(found.length, 'message')} with {plain(before)}; you are in it now",
        soft_wrap=True,
    )


async def _list(session: "Session", given: str) -> None:
    table = Table("", "conversation", "messages", "begun", box=None, header_style="bold")
    for each in session.store.conversations():
        begun = datetime.fromtimestamp(each.created / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        here = "[green]>[/]" if each.name == session.conversation else ""
        table.add_row(here, plain(each.name), f"{each.length:,}", begun)
    out.print(table)


async def _resume(session: "Session", given: str) -> None:
    session.open(given)


async def _continue(session: "Session", given: str) -> None:
    await session.turn(None, resume=True)


async def _clear(session: "Session", given: str) -> None:
    if session.is_empty():
        return
    found = session.store.reset(session.conversation)
    out.print(f"The model no longer sees the {count(found.edge, 'message')} before this. They stay in the record.")


async def _cost(session: "Session", given: str) -> None:
    turns = []
    with suppress(UnknownConversation):
        turns = session.store.turns(session.conversation)
    used = [turn.usage for turn in turns if turn.usage is not None]
    figures = f"{sum(each.input for each in used):,} tokens in, {sum(each.output for each in used):,} out"
    known = [turn.cost for turn in turns if turn.cost is not None]
    cost = dollars(sum(known)) if len(known) == len(turns) else f"{dollars(sum(known))} as far as prices are known"
    out.print(f"{count(len(turns), 'turn')}: {figures}, {cost}", soft_wrap=True)


async def _quit(session: "Session", given: str) -> None:
    session.leaving = True


COMMANDS = {
    "help": Known(_help, "", "this"),
    "model": Known(_model, "[provider:model]", "goes on with another model; alone, says which it is"),
    "models": Known(_models, "", "whom there is to ask"),
    "context": Known(_context, "", "what the model would see now, and how full that is"),
    "explain": Known(_explain, "[request]", "what it was shown with the last request, and why"),
    "todos": Known(_todos, "", "what the agent means to do"),
    "compact": Known(_compact, "", "sums up what is old"),
    "clear": Known(_clear, "", "begins anew: what was said stays, but is not shown to the model"),
    "fork": Known(_fork, "NAME", "goes on in a new conversation that shares this one's past"),
    "list": Known(_list, "", "the conversations there are"),
    "resume": Known(_resume, "NAME", "goes on with another conversation"),
    "continue": Known(_continue, "", "asks again after a stop, goes on after a crash"),
    "cost": Known(_cost, "", "what this conversation has taken"),
    "quit": Known(_quit, "", "leaves"),
}
