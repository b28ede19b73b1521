"""`contextc explain`: print the manifest of a committed request."""

from typing import Annotated

import typer
from rich.table import Table

from contextc.cli.console import JSONOption, escape_markup, out, print_json
from contextc.cli.file_io import write_output
from contextc.cli.manifest_view import print_manifest, print_requests
from contextc.cli.open_store import StoreOption, open_configured_store
from contextc.compiler.ledger import KnownSession, SessionManager
from contextc.compiler.past_requests import compute_usage_cost, explain, load_channel_formatter, load_records, rebuild
from contextc.errors import InvalidInput, InvalidSetting
from contextc.store import Store
from contextc.store.ledger_schema import Channel

NO_REQUESTS = (
    "{name!r} has no committed request. A program commits one with `attempt.commit(reply)`. "
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
    with open_configured_store(store) as handle:
        found = find_channels(handle, conversation, model, agent, directory)
        if requests and (len(found) == 1 or not json):
            for each in found:
                _print_requests(handle, each.channel, json=json)
            return
        if len(found) > 1:
            _print_channels(found, json=json)
            return
        channel = found[0].channel
        if body:
            write_output("-", rebuild(handle, channel, load_channel_formatter(handle, channel), request))
        else:
            manifest = explain(handle, channel, request)
            if json:
                print_json(manifest.as_json())
            else:
                print_manifest(manifest)


def _print_requests(store: Store, channel: Channel, *, json: bool) -> None:
    costs = [(record, compute_usage_cost(channel, record.usage)) for record in load_records(store, channel)]
    if json:
        print_json([{"record": record, "cost": cost} for record, cost in costs])
    else:
        out.print(f"[bold]{escape_markup(channel.conversation)}[/]: {escape_markup(str(channel))}")
        print_requests(costs)


def find_channels(
    store: Store, conversation: str, model: str | None, agent: str | None, directory: str | None
) -> list[KnownSession]:
    """Return the matching channels of a conversation that have committed requests."""
    store.conversation(conversation)  # raises if it does not exist
    found = [each for each in SessionManager(store).sessions(conversation) if each.requests]
    if not found:
        raise InvalidInput(NO_REQUESTS.format(name=conversation))
    chosen = [each for each in found if _matches(each.channel, model, agent, directory)]
    if not chosen:
        there = "; ".join(str(each.channel) for each in found)
        raise InvalidSetting(f"{conversation!r} has no matching channel", fix=f"Select one of: {there}.")
    return chosen


def _matches(channel: Channel, model: str | None, agent: str | None, directory: str | None) -> bool:
    named = model is None or model in (channel.model, f"{channel.provider}:{channel.model}")
    return named and agent in (None, channel.agent) and directory in (None, channel.directory)


def _print_channels(found: list[KnownSession], *, json: bool) -> None:
    if json:
        print_json([{**each.channel._asdict(), "requests": each.requests, "epoch": each.epoch} for each in found])
        return
    out.print("several channels; select one with --model, --agent or --directory, or list all with --requests")
    table = Table(box=None, header_style="bold")
    for name in ("agent", "model", "directory", "requests", "epoch", "session"):
        figure = name in ("requests", "epoch")
        table.add_column(name, justify="right" if figure else "left", no_wrap=figure, overflow="fold")
    for each in found:
        channel = each.channel
        table.add_row(
            escape_markup(channel.agent),
            escape_markup(f"{channel.provider}:{channel.model}"),
            escape_markup(channel.directory),
            f"{each.requests:,}",
            f"{each.epoch:,}",
            escape_markup(each.id or each.lost),
        )
    out.print(table)
