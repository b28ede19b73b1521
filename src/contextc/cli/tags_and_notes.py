"""`contextc tag` and `contextc note`: what people write about conversations. No model gets it."""

from typing import Annotated

import msgspec

from contextc.cli.command_line import Argument, Option
from contextc.cli.console import JSONOption, out, print_json, replace_control_characters
from contextc.cli.inputs import StoreOption, open_configured_store
from contextc.store import Note
from contextc.store.approval_rules import format_time

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
    about: Annotated[str, Option("--about", help="The request it is about, as CHANNEL/NUMBER.")] = "",
    remove: Annotated[int | None, Option("--remove", help="Remove the note with this number.")] = None,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Add a note to a conversation or to one of its requests, list them, or remove one."""
    with open_configured_store(store) as handle:
        if remove is not None:
            handle.delete_note(conversation, remove)
        if text is not None:
            handle.add_note(conversation, text, who=WHO, request=about)
        found = handle.notes(conversation)
    if json:
        print_json(msgspec.to_builtins(found))
    else:
        out.file.writelines([_format(each) for each in found])


def _format(note: Note) -> str:
    about = f", about request {note.request}" if note.request else ""
    by = f" by {note.who}" if note.who else ""
    head = replace_control_characters(f"{note.number}  {format_time(note.time)}{by}{about}")
    lines = [f"    {replace_control_characters(line)}\n" for line in note.text.splitlines()]
    return f"{head}\n{''.join(lines)}"
