"""`contextc fork`: create a conversation that shares the history of another."""

from typing import Annotated

import typer

from contextc.cli.agent_options import parse_reference
from contextc.cli.console import JSONOption, escape_markup, out, pluralize, print_json
from contextc.cli.open_store import StoreOption, open_configured_store


def run(
    conversation: Annotated[str, typer.Argument(help="The conversation to fork.")],
    name: Annotated[str, typer.Argument(help="The name of the new conversation.")],
    at: Annotated[str | None, typer.Option("--at", help="The last message to share: its number, uid or id.")] = None,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Create a conversation that shares all messages up to one. Nothing is copied."""
    with open_configured_store(store) as handle:
        found = handle.fork(conversation, name, at=None if at is None else parse_reference(at))
    if json:
        print_json(found)
    else:
        out.print(
            f"[bold]{escape_markup(found.name)}[/] shares {pluralize(found.length, 'message')} with "
            f"[bold]{escape_markup(conversation)}[/]"
        )
