"""The tool `fetch_result`: reads a message that is no longer in a request, or that was left out or shortened there.

That is a tool result, a text file, the text of a person, a reply or a trigger. An id is `r` and the seq of the message,
and the number of a result or file in it: `r57.2` is the second one. `r57` is the first; the text if there is none.
`r57.0` is the text in any case.
"""

import re
from collections.abc import Sequence

from contextc.compiler.visibility import Viewer
from contextc.errors import InvalidInput, UnknownConversation, UnknownMessage
from contextc.messages import Media, Message, read_text_file
from contextc.store import Store
from contextc.store.history_index import Section, list_sections

RESULT_ID = re.compile(r"r(\d{1,9})(?:\.(\d{1,4}))?")
MAX_LENGTH = 20_000


def result_id(seq: int, number: int) -> str:
    """Return the id of a result for `fetch_result`: the message's seq, and the number of the result in it, or of the
    media part in a user's message.
    """
    return f"r{seq}" if number == 1 else f"r{seq}.{number}"


def section_id(message: Message, number: int) -> str:
    """Return the id of a message's text, which has number 0, or of a result or file in it."""
    has_more = message.tool_results or (message.role == "user" and any(type(part) is Media for part in message.parts))
    return f"r{message.seq}" if number == 0 and not has_more else result_id(message.seq, number)


def visible_sections(sections: Sequence[Section], message: Message, viewer: Viewer) -> list[Section]:
    """Return what an agent may see of a visible message. Of another agent's message, that is the text."""
    if message.role == "user" or viewer.is_own(message):
        return list(sections)
    return [each for each in sections if each.kind == "text"]


def fetch_result(
    store: Store, conversation: str, viewer: Viewer, name: object, offset: object = 0, length: object = MAX_LENGTH
) -> str:
    """Return a section of a message as text for the model. Invalid arguments produce a text that explains the error."""
    match = RESULT_ID.fullmatch(name.strip()) if isinstance(name, str) else None
    if match is None:
        return f"{name!r} is no id of a result. Ids look like r57, and stand in the line that says what was left out."
    start, count = _as_count(offset, 0), min(_as_count(length, MAX_LENGTH) or MAX_LENGTH, MAX_LENGTH)
    try:
        if int(match[1]) <= store.conversation(conversation).context_start:
            return f"There is no result {name} in this conversation."
        (message,) = store.load(conversation, after=int(match[1]) - 1, until=int(match[1]))
    except (UnknownMessage, UnknownConversation, InvalidInput, ValueError):
        return f"There is no result {name} in this conversation."
    if message.redacted:
        return f"The result {name} was removed."
    text = _find_text(store, message, viewer, int(match[2]) if match[2] else None)
    if text is None:
        return f"There is no result {name} in this conversation."
    piece = text[start : start + count]
    rest = len(text) - start - len(piece)
    if rest > 0:
        return f"{piece}\n[{rest:,} characters follow; read on with offset {start + len(piece)}.]"
    return piece or f"[The result has {len(text):,} characters; there is nothing at offset {start}.]"


def _find_text(store: Store, message: Message, viewer: Viewer, number: int | None) -> str | None:
    """Return the text with a number in a message; None if there is none, or if the agent may not see it."""
    if message.role == "system":
        is_meant = message.audience in (None, viewer.agent) or str(message.audience).startswith(f"{viewer.agent} on ")
        return message.text if message.trigger and is_meant and number in (None, 1) else None
    if viewer.find_hidden(message) is not None:
        return None

    def read_file(media: Media) -> str | None:
        return read_text_file(media, store.blob(media.blob) if media.blob else None)

    sections = visible_sections(list_sections(message, read_file), message, viewer)
    texts = [f"{each.tool}: {each.text}" if each.kind == "call" else each.text for each in sections if not each.number]
    others = {each.number: each.text for each in sections if each.number}
    if number is None:
        number = 1 if others.get(1) or not texts else 0
    return "\n\n".join(texts) if number == 0 and texts else others.get(number)


def _as_count(value: object, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return default
    try:
        return max(0, int(value))
    except (ValueError, OverflowError):
        return default
