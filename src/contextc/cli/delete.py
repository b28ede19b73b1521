"""`contextc delete`: delete a conversation."""

from typing import Annotated

import typer

from contextc.cli.terminal import (
    JSONOption,
    StoreOption,
    YesOption,
    agreed,
    count,
    opened,
    out,
    plain,
    print_json,
    warn_of_pending,
)


def run(
    conversation: Annotated[str, typer.Argument(help="The conversation to delete.")],
    store: StoreOption = None,
    yes: YesOption = False,
    json: JSONOption = False,
) -> None:
    """Delete a conversation with all its branches, except the messages that a fork of it shares."""
    with opened(store) as handle:
        found, branches = handle.conversation(conversation), len(handle.branches(conversation))
        size = count(found.length, "message") + (f", {branches} branches" if branches > 1 else "")
        if not agreed(f"Delete {conversation} ({size})", yes, json=json):
            return
        handle.delete(conversation)
        pending = handle.pending_erasure
    if json:
        print_json({"conversation": conversation, "messages": found.length, "pending_erasure": pending})
        return
    out.print(f"deleted [bold]{plain(conversation)}[/]: {size}", soft_wrap=True)
    warn_of_pending(pending)
