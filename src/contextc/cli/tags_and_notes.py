"""`contextc tag` and `contextc note`: what people write about conversations. No model gets it."""

from typing import Annotated

import msgspec

from contextc.cli.command_line import Argument, Option
from contextc.cli.console import JSONOption, out, print_json, replace_control_characters
from contextc.cli.inputs import StoreOption, open_configured_store, parse_request
from contextc.errors import InvalidInput, InvalidSetting
from contextc.inspection.request_timeline import load_timeline
from contextc.store import Note, Store
from contextc.store.approval_rules import format_time
from contextc.store.ledger_schema import channel_id

WHO = "command line"


def tag_conversation(
    conversation: Annotated[str | None, Argument(help="The conversation. Without it, all tags are listed.")] = None,
    tags: Annotated[list[str] | None, Argument(help="Tags to add. Without any, its tags are listed.")] = None,
    remove: Annotated[bool, Option("--remove", help="Remove these tags instead.")] = False,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Add tags to a conversation, or remove them. `contextc list --tag TAG` lists those with a tag."""
    with open_configured_store(store) as handle:
        if conversation is None:
            found = handle.tags()
        elif not tags:
            found = handle.tags(conversation)
        else:
            found = handle.untag(conversation, *tags) if remove else handle.tag(conversation, *tags)
    if json:
        print_json(found)
    else:
        out.file.writelines([f"{replace_control_characters(each)}\n" for each in found])


def note_conversation(
    conversation: Annotated[str, Argument(help="The conversation.")],
    text: Annotated[str | None, Argument(help="The note. Without it, the notes are listed.")] = None,
    request: Annotated[
        str | None, Option("--request", help="The request it is about, by its number or CHANNEL/NUMBER.")
    ] = None,
    about: Annotated[str | None, Option("--about", hidden=True)] = None,
    remove: Annotated[int | None, Option("--remove", help="Remove the note with this number.")] = None,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Add a note to a conversation or to one of its requests, list them, or remove one."""
    with open_configured_store(store) as handle:
        if remove is not None:
            handle.delete_note(conversation, remove)
        if text is not None:
            about = _name_request(handle, conversation, request if request is not None else about)
            handle.add_note(conversation, text, who=WHO, request=about)
        found = handle.notes(conversation)
    if json:
        print_json(msgspec.to_builtins(found))
    else:
        out.file.writelines([_format(each) for each in found])


def _name_request(store: Store, conversation: str, named: str | None) -> str:
    """Return the CHANNEL/NUMBER of a request; "" without one."""
    channel, number = parse_request(named)
    if named is None or channel:
        return named or ""
    found = [channel_id(each.channel) for each in load_timeline(store, conversation) if each.number == number]
    if not found:
        raise InvalidInput(f"{conversation!r} has no request {number}", fix="`contextc explain --requests` lists them.")
    if len(found) > 1:
        channels = ", ".join(found)
        raise InvalidSetting(f"request {number} is in several channels: {channels}", fix="Write --request CHANNEL/N.")
    return f"{found[0]}/{number}"


def _format(note: Note) -> str:
    about = f", about request {note.request}" if note.request else ""
    by = f" by {note.who}" if note.who else ""
    head = replace_control_characters(f"{note.number}  {format_time(note.time)}{by}{about}")
    lines = [f"    {replace_control_characters(line)}\n" for line in note.text.splitlines()]
    return f"{head}\n{''.join(lines)}"
