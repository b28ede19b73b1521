"""`contextc redact`: remove the content of one message."""

from typing import Annotated

import typer

from contextc.cli.options import reference
from contextc.cli.terminal import (
    JSONOption,
    StoreOption,
    YesOption,
    agreed,
    opened,
    out,
    plain,
    print_json,
    warn_of_pending,
)
from contextc.messages.words import words
from contextc.store.redaction import message_to_redact

LONGEST = 60


def run(
    conversation: Annotated[str, typer.Argument(help="The conversation's name.")],
    message: Annotated[str, typer.Argument(help="The message to redact: its number, uid or id.")],
    store: StoreOption = None,
    yes: YesOption = False,
    json: JSONOption = False,
) -> None:
    """Remove the content of one message, in every fork. Its id and its place stay."""
    with opened(store) as handle:
        found = handle.read(lambda tx: message_to_redact(tx, conversation, reference(message)))
        what = f"message {found.seq} of {conversation}"
        lines = words(found).strip().splitlines() or [""]
        first = lines[0] if len(lines) == 1 and len(lines[0]) <= LONGEST else f"{lines[0][:LONGEST]}…"
        if not agreed(f"Redact {what}", yes, detail=f"({found.role}: {first})", json=json):
            return
        handle.redact(conversation, found.uid)  # a number may refer to another message by now
        pending = handle.pending_erasure
    if json:
        print_json(
            {"conversation": conversation, "message": found.seq, "uid": found.uid, "role": found.role}
            | {"pending_erasure": pending}
        )
        return
    out.print(f"redacted {plain(what)}", soft_wrap=True)
    warn_of_pending(pending)
