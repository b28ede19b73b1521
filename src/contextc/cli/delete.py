"""`contextc delete`: delete a conversation."""

from typing import Annotated

import typer

from contextc.cli.console import JSONOption, YesOption, confirm, escape_markup, out, pluralize, print_json
from contextc.cli.open_store import StoreOption, open_configured_store, warn_pending_erasure


def run(
    conversation: Annotated[str, typer.Argument(help="The conversation to delete.")],
    store: StoreOption = None,
    yes: YesOption = False,
    json: JSONOption = False,
) -> None:
    """Delete a conversation with all its branches, except the messages that a fork of it shares."""
    with open_configured_store(store) as handle:
        found, branches = handle.conversation(conversation), len(handle.branches(conversation))
        size = pluralize(found.length, "message") + (f", {branches} branches" if branches > 1 else "")
        if not confirm(f"Delete {conversation} ({size})", yes, json=json):
            return
        handle.delete(conversation)
        pending = handle.pending_erasure
    if json:
        print_json({"conversation": conversation, "messages": found.length, "pending_erasure": pending})
        return
    out.print(f"deleted [bold]{escape_markup(conversation)}[/]: {size}", soft_wrap=True)
    warn_pending_erasure(pending)
