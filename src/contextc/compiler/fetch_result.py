"""The tool `fetch_result`: reads what was left out of a request or shortened.

That is a tool result, a text file, or the text of a trigger.
"""

import re

from contextc.errors import InvalidInput, UnknownConversation, UnknownMessage
from contextc.messages import Media
from contextc.messages.text_files import read_text_file
from contextc.store import Store
from contextc.tools.spec import Tool

FETCH_TOOL = Tool(
    name="fetch_result",
    description=(
        "Reads a tool result that was left out of the conversation, or shortened, to save room. The line that stands "
        "in its place says its id."
    ),
    parameters={
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id of the result, such as r57."},
            "offset": {"type": "integer", "description": "The character to begin at; 0 is the first."},
            "length": {"type": "integer", "description": "How many characters to read; at most 20000."},
        },
        "required": ["id"],
    },
)
RESULT_ID = re.compile(r"r(\d{1,9})(?:\.(\d{1,4}))?")
MAX_LENGTH = 20_000


def result_id(seq: int, number: int) -> str:
    """Return the id of a result for `fetch_result`: the message's seq, and the number of the result in it, or of the
    media part in a user's message.
    """
    return f"r{seq}" if number == 1 else f"r{seq}.{number}"


def fetch_result(
    store: Store, conversation: str, agent: str, name: object, offset: object = 0, length: object = MAX_LENGTH
) -> str:
    """Return a section of a tool result as text for the model. Invalid arguments produce a text that explains the
    error.
    """
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
    number = int(match[2] or 1)
    if message.redacted:
        return f"The result {name} was removed."
    texts = [result.text for result in message.tool_results]
    if message.role == "user":
        files = [part for part in message.parts if isinstance(part, Media)]
        texts = [read_text_file(file, store.blob(file.blob) if file.blob else None) or "" for file in files]
    elif message.trigger and (message.audience in (None, agent) or str(message.audience).startswith(f"{agent} on ")):
        texts = [message.text]
    if not 1 <= number <= len(texts) or (message.role != "user" and (message.author or agent) != agent):
        return f"There is no result {name} in this conversation."
    text = texts[number - 1]
    piece = text[start : start + count]
    rest = len(text) - start - len(piece)
    if rest > 0:
        return f"{piece}\n[{rest:,} characters follow; read on with offset {start + len(piece)}.]"
    return piece or f"[The result has {len(text):,} characters; there is nothing at offset {start}.]"


def _as_count(value: object, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return default
    try:
        return max(0, int(value))
    except (ValueError, OverflowError):
        return default
