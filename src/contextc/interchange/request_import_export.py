"""Import of provider requests as conversations, and export of conversations as provider requests.

An import stores all parts unchanged, with the provider's own fields. Blank messages are not stored. A request is stored
completely or not at all. An export contains the current branch since its last reset, in the provider's format.
"""

from collections.abc import Mapping
from typing import NamedTuple

from contextc._json import JSON, JSONObject
from contextc.errors import ConversationExists, InvalidMessage, InvalidRequest
from contextc.formats import formatter
from contextc.formats.base import ConversionNote, Formatter, Request
from contextc.interchange.contextc_jsonl_lines import Progress, blob_names
from contextc.linting.tolerant_decoding import coerce_request
from contextc.messages import Message, validate_message
from contextc.store import Conversation, Store, append_and_load, message_rows
from contextc.store.backend_interface import Transaction
from contextc.store.branches import load_conversation


class ImportedRequest(NamedTuple):
    conversation: Conversation
    warnings: list[str]


class ExportedRequest(NamedTuple):
    body: JSONObject
    warnings: list[str]


def import_requests(
    store: Store, bodies: Mapping[str, JSON], *, format: str, progress: Progress | None = None
) -> list[ImportedRequest]:
    """Create one conversation per request or bare list of messages, named by its key: all of them, or none.

    A system prompt becomes the first message.
    """
    form = formatter(format)
    read = [_read(form, name, body) for name, body in bodies.items()]

    def work(tx: Transaction) -> list[Conversation]:
        made: list[Conversation] = []
        for done, (name, entries, _) in enumerate(read, 1):
            if message_rows.find_tip(tx, name, lock=True) is not None:
                raise ConversationExists(name)
            append_and_load.append_messages(tx, name, entries)
            made.append(load_conversation(tx, name))
            if progress:
                progress(done, len(read))
        return made

    return [ImportedRequest(made, each[2]) for made, each in zip(store.write(work), read, strict=True)]


def _read(form: Formatter, name: str, body: JSON) -> tuple[str, list[append_and_load.PendingMessage], list[str]]:
    shaped = coerce_request(form, body)
    request = form.decode_request(shaped.body)
    messages = [*([request.system] if request.system is not None else []), *request.messages]
    kept = [message for message in messages if has_content(message)]
    if not kept:
        raise InvalidRequest(f"{name!r} has no message.")
    notes = [ConversionNote("left out", f"the setting `{setting}`") for setting in request.settings]
    if request.tools:
        notes.append(ConversionNote("left out", f"the definitions of {_count(len(request.tools), 'tool')}"))
    if len(kept) < len(messages):
        notes.append(ConversionNote("left out", f"{_count(len(messages) - len(kept), 'message')} without content"))
    if shaped.malformed_count:
        notes.append(
            ConversionNote(
                "described", f"content with an invalid structure, in {_count(shaped.malformed_count, 'place')}"
            )
        )
    return (
        name,
        [append_and_load.prepare_entry(validate_message(message)) for message in kept],
        [str(note) for note in notes],
    )


def export_request(store: Store, conversation: str, *, format: str) -> ExportedRequest:
    """Return the conversation as the body of a request, with its system prompt if it begins with one."""
    form = formatter(format)
    history = store.load(conversation, after=store.conversation(conversation).context_start)
    sent = [message for message in history if message.status == "sent"]
    leads = bool(sent) and sent[0].role == "system"
    request = Request(messages=tuple(sent[1:] if leads else sent), system=sent[0] if leads else None)
    blobs = {name: store.blob(name) for message in sent for name in blob_names(message)}
    written = form.encode_with_notes(request, blobs=blobs)
    warnings = [str(note) for note in written.notes]
    if len(sent) < len(history):
        failed = _count(len(history) - len(sent), "message")
        warnings.append(str(ConversionNote("left out", f"{failed} that failed or were cancelled")))
    return ExportedRequest(written.body, list(dict.fromkeys(warnings)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def has_content(message: Message) -> bool:
    """Return True if a message has content to store. An invalid message is reported when it is stored."""
    try:
        validate_message(message)
    except InvalidMessage:
        return bool(message.tool_calls or message.tool_results or message.text.strip())
    return True
