"""Commands of the chat: lines that begin with a slash. One function per command."""

import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rich.table import Table

from contextc._worker_threads import run_blocking
from contextc.cli.chat.formatting import format_dollars
from contextc.cli.compact import describe_compaction, describe_undo
from contextc.cli.console import escape_markup, out, pluralize
from contextc.cli.manifest_view import print_manifest, print_overflow
from contextc.compiler.ledger.known_sessions import SessionManager
from contextc.errors import ContextOverflow, InvalidInput, UnknownConversation
from contextc.providers.registry import provider_names
from contextc.tools.todos import format_todos

if TYPE_CHECKING:
    from contextc.cli.chat.session import ChatSession

CommandCoroutine: TypeAlias = Coroutine[Any, Any, None]  # the type of every coroutine
COMMAND_LINE = re.compile(r"/([a-z]*)(?:\s+(.*))?", re.DOTALL)


class ParsedCommand(NamedTuple):
    """A command that was typed, with its argument."""

    run: Callable[["ChatSession", str], CommandCoroutine]
    argument: str


class CommandSpec(NamedTuple):
    run: Callable[["ChatSession", str], CommandCoroutine]
    usage: str
    description: str


def parse_command(line: str) -> ParsedCommand | None:
    """Return the command of a line; None if it is not one, as `/etc/hosts`. An unknown one raises when it is run."""
    found = COMMAND_LINE.fullmatch(line.strip())
    if found is None:
        return None
    name, given = found[1], (found[2] or "").strip()
    known = COMMANDS.get(name)
    if known is None:
        return ParsedCommand(_unknown(name), given)
    if known.usage and not known.usage.startswith("[") and not given:
        return ParsedCommand(_missing_argument(name, known), given)
    return ParsedCommand(known.run, given)


def _unknown(name: str) -> Callable[["ChatSession", str], CommandCoroutine]:
    async def refuse(session: "ChatSession", given: str) -> None:
        close = get_close_matches(name, COMMANDS, n=1)
        meant = f" Did you mean /{close[0]}?" if close else ""
        there = ", ".join(f"/{each}" for each in COMMANDS)
        raise InvalidInput(f"Command /{name} not found.{meant} Commands: {there}.")

    return refuse


def _missing_argument(name: str, known: CommandSpec) -> Callable[["ChatSession", str], CommandCoroutine]:
    async def refuse(session: "ChatSession", given: str) -> None:
        raise InvalidInput(f"/{name} needs an argument: /{name} {known.usage} {known.description}.")

    return refuse


async def _help(session: "ChatSession", given: str) -> None:
    table = Table(box=None, show_header=False)
    for name, known in COMMANDS.items():
        table.add_row(f"[bold]/{name}[/] {escape_markup(known.usage)}", known.description)
    out.print(table)
    out.print(
        "A line typed during a turn is sent to the model with its next step. A line that ends with \\ continues. "
        "Ctrl-C stops a turn.",
        soft_wrap=True,
    )


async def _model(session: "ChatSession", given: str) -> None:
    if given:
        await session.switch_model(given)
    provider = session.executor.provider
    room = f"window {provider.model.window:,}"
    out.print(
        f"[bold]{escape_markup(provider.name)}:{escape_markup(provider.model_id)}[/], {provider.format}, {room}",
        soft_wrap=True,
    )


async def _models(session: "ChatSession", given: str) -> None:
    with suppress(UnknownConversation):
        for each in SessionManager(session.store).sessions(session.conversation):
            if each.requests:
                channel = each.channel
                asked = pluralize(each.requests, "request")
                out.print(
                    f"[bold]{escape_markup(channel.provider)}:{escape_markup(channel.model)}[/], {asked} here",
                    soft_wrap=True,
                )
    out.print(f"providers: {', '.join(provider_names())}", soft_wrap=True)
    out.print("Switch with /model provider:model, as in /model anthropic:claude-opus-5-5", soft_wrap=True)


async def _context(session: "ChatSession", given: str) -> None:
    executor = session.executor
    if session.report_if_empty():
        return
    try:
        compiled = await run_blocking(
            lambda: executor.compiler.compile(
                session.conversation, budget=executor.budget, dry_run=True, **executor.compile_arguments
            )
        )
    except ContextOverflow as error:
        print_overflow(error, out)
        return
    print_manifest(compiled.manifest)


async def _explain(session: "ChatSession", given: str) -> None:
    if given and not given.isdecimal():
        raise InvalidInput(
            "/explain needs the number of a request", got=given, fix="Leave it out for the last request."
        )
    if session.report_if_empty():
        return
    request = int(given) if given else None
    print_manifest(session.executor.compiler.explain(session.conversation, request, agent=session.agent))


async def _todos(session: "ChatSession", given: str) -> None:
    text = ""
    with suppress(UnknownConversation):
        text = format_todos(session.store.todos(session.conversation, session.agent))
    out.print(escape_markup(text) or "The todo list is empty.", soft_wrap=True)


async def _compact(session: "ChatSession", given: str) -> None:
    """Compact the context as the executor does near its limit. The current model writes the summary."""
    if session.report_if_empty():
        return
    with session.show_progress("summarizing"):
        done = await session.executor.compact(session.conversation, instructions=given)
    out.print(describe_compaction(done), soft_wrap=True)


async def _undo_compaction(session: "ChatSession", given: str) -> None:
    if session.report_if_empty():
        return
    out.print(describe_undo(session.executor.undo_compaction(session.conversation)), soft_wrap=True)


async def _fork(session: "ChatSession", given: str) -> None:
    if session.report_if_empty():
        return
    found = session.store.fork(session.conversation, given)
    before, session.conversation = session.conversation, found.name
    out.print(
        f"[bold]{escape_markup(found.name)}[/] shares {pluralize(found.length, 'message')} with "
        f"{escape_markup(before)} and is now current",
        soft_wrap=True,
    )


async def _list(session: "ChatSession", given: str) -> None:
    table = Table("", "conversation", "messages", "created", box=None, header_style="bold")
    for each in session.store.conversations():
        begun = datetime.fromtimestamp(each.created / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        here = "[green]>[/]" if each.name == session.conversation else ""
        table.add_row(here, escape_markup(each.name), f"{each.length:,}", begun)
    out.print(table)


async def _resume(session: "ChatSession", given: str) -> None:
    session.open_conversation(given)


async def _continue(session: "ChatSession", given: str) -> None:
    await session.run_turn(None, resume=True)


async def _clear(session: "ChatSession", given: str) -> None:
    if session.report_if_empty():
        return
    found = session.store.reset(session.conversation)
    cleared = pluralize(found.context_start, "message")
    out.print(f"The model no longer sees the {cleared} before this. They stay in the store.")


async def _cost(session: "ChatSession", given: str) -> None:
    turns = []
    with suppress(UnknownConversation):
        turns = session.store.turns(session.conversation)
    used = [turn.usage for turn in turns if turn.usage is not None]
    figures = f"{sum(each.input for each in used):,} tokens in, {sum(each.output for each in used):,} out"
    known = [turn.cost for turn in turns if turn.cost is not None]
    cost = (
        format_dollars(sum(known))
        if len(known) == len(turns)
        else f"{format_dollars(sum(known))} as far as prices are known"
    )
    out.print(f"{pluralize(len(turns), 'turn')}: {figures}, {cost}", soft_wrap=True)


async def _quit(session: "ChatSession", given: str) -> None:
    session.is_exiting = True


COMMANDS = {
    "help": CommandSpec(_help, "", "shows this list"),
    "model": CommandSpec(_model, "[provider:model]", "switches to another model; alone, shows the current one"),
    "models": CommandSpec(_models, "", "lists the used models and the providers"),
    "context": CommandSpec(_context, "", "shows the next request, and how full the context is"),
    "explain": CommandSpec(_explain, "[request]", "shows the content of a request (default: the last), and why"),
    "todos": CommandSpec(_todos, "", "shows the todo list of the agent"),
    "compact": CommandSpec(_compact, "[what to keep]", "summarizes old messages"),
    "uncompact": CommandSpec(_undo_compaction, "", "takes the last summary back"),
    "clear": CommandSpec(_clear, "", "clears the context: messages stay stored, but are no longer sent"),
    "fork": CommandSpec(_fork, "NAME", "continues in a new conversation that shares this history"),
    "list": CommandSpec(_list, "", "lists the conversations"),
    "resume": CommandSpec(_resume, "NAME", "continues another conversation"),
    "continue": CommandSpec(_continue, "", "continues after a stop or a crash"),
    "cost": CommandSpec(_cost, "", "shows tokens and cost of this conversation"),
    "quit": CommandSpec(_quit, "", "exits"),
}
