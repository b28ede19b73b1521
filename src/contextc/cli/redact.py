"""`contextc redact`: remove the content of one message."""

from typing import Annotated

import typer

from contextc.cli.agent_options import parse_reference
from contextc.cli.console import JSONOption, YesOption, confirm, escape_markup, out, print_json
from contextc.cli.open_store import StoreOption, open_configured_store, warn_pending_erasure
from contextc.messages.message import to_plain_text
from contextc.store.redaction import load_redaction_target

MAX_PREVIEW = 60


def run(
    conversation: Annotated[str, typer.Argument(help="The conversation's name.")],
    message: Annotated[str, typer.Argument(help="The message to redact: its number, uid or id.")],
    store: StoreOption = None,
    yes: YesOption = False,
    json: JSONOption = False,
) -> None:
    """Remove the content of one message, in every fork. Its id and its place stay."""
    with open_configured_store(store) as handle:
        found = handle.read(lambda tx: load_redaction_target(tx, conversation, parse_reference(message)))
        what = f"message {found.seq} of {conversation}"
        lines = to_plain_text(found).strip().splitlines() or [""]
        first = lines[0] if len(lines) == 1 and len(lines[0]) <= MAX_PREVIEW else f"{lines[0][:MAX_PREVIEW]}…"
        if not confirm(f"Redact {what}", yes, detail=f"({found.role}: {first})", json=json):
            return
        handle.redact(conversation, found.uid)  # a number may refer to another message by now
        pending = handle.pending_erasure
    if json:
        print_json(
            {"conversation": conversation, "message": found.seq, "uid": found.uid, "role": found.role}
            | {"pending_erasure": pending}
        )
        return
    out.print(f"redacted {escape_markup(what)}", soft_wrap=True)
    warn_pending_erasure(pending)
