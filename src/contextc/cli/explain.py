"""`contextc explain`: print the manifest of a committed request."""

from typing import Annotated

import typer
from rich.table import Table

from contextc.cli.account import show, show_requests
from contextc.cli.files import write
from contextc.cli.terminal import JSONOption, StoreOption, opened, out, plain, print_json
from contextc.compiler.account import explain, formatter_of, rebuild, records, spent
from contextc.errors import InvalidInput, InvalidSetting
from contextc.ledger.sessions import KnownSession, SessionManager
from contextc.ledger.standing import Channel
from contextc.store import Store

NONE_YET = (
    "{name!r} has no committed request. A program commits one with `compiler.commit(compiled, reply)`. "
    "Preview the next request with `contextc compile`."
)


def run(
    conversation: Annotated[str, typer.Argument(help="The conversation's name.")],
    request: Annotated[int | None, typer.Argument(help="The number of the request (default: the last).")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Provider and model, to select a channel.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="The agent, to select a channel.")] = None,
    directory: Annotated[str | None, typer.Option("--directory", help="The directory, to select a channel.")] = None,
    requests: Annotated[bool, typer.Option("--requests", help="List all requests instead.")] = False,
    body: Annotated[bool, typer.Option("--body", help="Print the exact request that was sent.")] = False,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Show the content of a request: what was sent, what was left out, and why."""
    with opened(store) as handle:
        found = _channels(handle, conversation, model, agent, directory)
        if len(found) > 1:
            _list(found, json=json)
            return
        channel = found[0].channel
        if requests:
            told = [(record, spent(channel, record)) for record in records(handle, channel)]
            if json:
                print_json([{"record": record, "cost": cost} for record, cost in told])
            else:
                out.print(f"[bold]{plain(conversation)}[/]: {plain(str(channel))}")
                show_requests(told)
        elif body:
            write("-", rebuild(handle, channel, formatter_of(handle, channel), request))
        else:
            manifest = explain(handle, channel, request)
            if json:
                print_json(manifest.as_json())
            else:
                show(manifest)


def _channels(
    store: Store, conversation: str, model: str | None, agent: str | None, directory: str | None
) -> list[KnownSession]:
    """Return the matching channels of a conversation that have committed requests."""
    store.conversation(conversation)  # raises if it does not exist
    found = [each for each in SessionManager(store).sessions(conversation) if each.requests]
    if not found:
        raise InvalidInput(NONE_YET.format(name=conversation))
    chosen = [each for each in found if _is_meant(each.channel, model, agent, directory)]
    if not chosen:
        there = "; ".join(str(each.channel) for each in found)
        raise InvalidSetting(f"{conversation!r} has no matching channel", fix=f"Select one of: {there}.")
    return chosen


def _is_meant(channel: Channel, model: str | None, agent: str | None, directory: str | None) -> bool:
    named = model is None or model in (channel.model, f"{channel.provider}:{channel.model}")
    return named and agent in (None, channel.agent) and directory in (None, channel.directory)


def _list(found: list[KnownSession], *, json: bool) -> None:
    if json:
        print_json([{**each.channel._asdict(), "requests": each.requests, "epoch": each.epoch} for each in found])
        return
    out.print("several channels; select one with --model, --agent or --directory")
    table = Table(box=None, header_style="bold")
    for name in ("agent", "model", "directory", "requests", "epoch", "session"):
        figure = name in ("requests", "epoch")
        table.add_column(name, justify="right" if figure else "left", no_wrap=figure, overflow="fold")
    for each in found:
        channel = each.channel
        table.add_row(
            plain(channel.agent),
            plain(f"{channel.provider}:{channel.model}"),
            plain(channel.directory),
            f"{each.requests:,}",
            f"{each.epoch:,}",
            plain(each.id or each.lost),
        )
    out.print(table)
