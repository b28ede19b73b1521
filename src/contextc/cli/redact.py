"""`contextc redact`: remove the content of one message, or a text from all that is stored of a conversation."""

from typing import Annotated

import typer

from contextc.cli.agent_options import parse_reference
from contextc.cli.console import JSONOption, YesOption, confirm, escape_markup, out, pluralize, print_json
from contextc.cli.file_io import read_input
from contextc.cli.open_store import StoreOption, open_configured_store, warn_pending_erasure
from contextc.errors import InvalidSetting
from contextc.messages import to_plain_text
from contextc.store import Store
from contextc.store.redaction import load_redaction_target

MAX_PREVIEW = 60


def run(
    conversation: Annotated[str, typer.Argument(help="The conversation's name.")],
    message: Annotated[
        str | None, typer.Argument(help="The message to redact: its number, uid or id.", show_default=False)
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Remove this text wherever the conversation and its forks have it; - reads standard input."),
    ] = None,
    store: StoreOption = None,
    yes: YesOption = False,
    json: JSONOption = False,
) -> None:
    """Remove the content of one message, in every fork. Its id and its place stay. With --text, remove a text."""
    if (message is None) == (text is None):
        raise InvalidSetting("redact needs a message or --text", fix="Pass one of them.")
    with open_configured_store(store) as handle:
        if text is not None:
            _redact_text(handle, conversation, text, yes=yes, json=json)
        elif message is not None:
            _redact_message(handle, conversation, message, yes=yes, json=json)


def _redact_message(handle: Store, conversation: str, message: str, *, yes: bool, json: bool) -> None:
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


def _redact_text(handle: Store, conversation: str, text: str, *, yes: bool, json: bool) -> None:
    handle.conversation(conversation)  # raises if it does not exist
    wanted = read_input("-").decode(errors="replace").rstrip("\r\n") if text == "-" else text
    if not confirm(f"Remove the text from {conversation} and its forks", yes, json=json):
        return
    found = handle.redact_text(conversation, wanted)
    pending = handle.pending_erasure
    if json:
        print_json({"conversation": conversation, "uids": [each.uid for each in found], "pending_erasure": pending})
        return
    what = f"redacted {pluralize(len(found), 'message')} of {conversation} and removed the text elsewhere"
    out.print(escape_markup(what), soft_wrap=True)
    warn_pending_erasure(pending)
