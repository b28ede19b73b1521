"""Tags and notes of conversations, which people write: functions over a transaction.

They belong to a conversation, beside its messages. Nothing that compiles a request reads them, so no model gets them. A
fork begins without them.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from contextc.errors import InvalidInput
from contextc.store.message_log import load_tip, now_ms
from contextc.store.transaction_engine import Transaction

MAX_TAG, MAX_TAGS = 50, 50
MAX_NOTE, MAX_NOTES = 10_000, 1_000
MAX_REQUEST = 100
SLICE = 500


class Note(Struct, frozen=True, kw_only=True):
    """A note: its number in the store, its time in Unix milliseconds, and who wrote it.

    `request` is the request it is about, as `CHANNEL/NUMBER`; "" if it is about the conversation.
    """

    number: int
    text: str
    time: int
    who: str = ""
    request: str = ""


def check_tag(tag: str) -> str:
    """Return a tag as it is stored: on one line, without spaces around it."""
    if not isinstance(tag, str):
        raise InvalidInput(f"a tag must be a string, got {type(tag).__name__}")
    line = " ".join(tag.split())
    if not line or len(line) > MAX_TAG or "," in line or not line.isprintable():
        raise InvalidInput(f"a tag must have 1 to {MAX_TAG} printable characters and no comma", got=tag[: 2 * MAX_TAG])
    return line


def check_note(text: str) -> str:
    """Return the text of a note without spaces around it."""
    if not isinstance(text, str):
        raise InvalidInput(f"a note must be a string, got {type(text).__name__}")
    if not text.strip() or len(text) > MAX_NOTE:
        raise InvalidInput(f"a note must have 1 to {MAX_NOTE:,} characters", got=len(text))
    return text.strip().encode(errors="replace").decode().replace("\0", "\ufffd")


def load_tags(tx: Transaction, conversation: str) -> list[str]:
    """Return the tags of a conversation, sorted. Raises `UnknownConversation`."""
    number = load_tip(tx, conversation).conversation
    return load_tags_by_number(tx, [number]).get(number, [])


def load_tags_by_number(tx: Transaction, numbers: Sequence[int]) -> dict[int, list[str]]:
    """Return the tags of conversations that have any, sorted, by the number of the conversation."""
    found: dict[int, list[str]] = {}
    for start in range(0, len(numbers), SLICE):
        some = numbers[start : start + SLICE]
        marks = ", ".join("?" for _ in some)
        for number, name in tx.rows(f"SELECT conversation, name FROM main.tag WHERE conversation IN ({marks})", *some):
            found.setdefault(number, []).append(name)
    return {number: sorted(names) for number, names in found.items()}


def load_all_tags(tx: Transaction) -> dict[str, list[str]]:
    """Return the tags of all conversations that have any, sorted, by name."""
    found: dict[str, list[str]] = {}
    for conversation, name in tx.rows(
        "SELECT c.name, t.name FROM main.tag t JOIN main.conversation c ON c.number = t.conversation"
    ):
        found.setdefault(conversation, []).append(name)
    return {conversation: sorted(names) for conversation, names in found.items()}


def list_tags(tx: Transaction) -> list[str]:
    """Return all tags of the store, sorted."""
    return sorted([name for (name,) in tx.rows("SELECT DISTINCT name FROM main.tag")])


def find_tagged(tx: Transaction, tag: str) -> frozenset[int]:
    """Return the numbers of the conversations with a tag."""
    return frozenset(
        [number for (number,) in tx.rows("SELECT conversation FROM main.tag WHERE name = ?", check_tag(tag))]
    )


def change_tags(
    tx: Transaction, conversation: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()
) -> list[str]:
    """Add and remove tags, and return those that the conversation has then. Raises `UnknownConversation`."""
    number = load_tip(tx, conversation, lock=True).conversation
    known = load_tags_by_number(tx, [number]).get(number, [])
    gone = {check_tag(each) for each in remove}
    new = [each for each in dict.fromkeys(map(check_tag, add)) if each not in known and each not in gone]
    kept = [each for each in known if each not in gone]
    if new and len(kept) + len(new) > MAX_TAGS:
        raise InvalidInput(f"a conversation has at most {MAX_TAGS} tags", got=len(kept) + len(new))
    for name in gone.intersection(known):
        tx.run("DELETE FROM main.tag WHERE conversation = ? AND name = ?", number, name)
    for name in new:
        tx.run("INSERT INTO main.tag (conversation, name) VALUES (?, ?)", number, name)
    return sorted([*kept, *new])


def load_notes(tx: Transaction, conversation: str) -> list[Note]:
    """Return the notes of a conversation, oldest first. Raises `UnknownConversation`."""
    rows = tx.rows(
        "SELECT number, text, time, who, request FROM main.note WHERE conversation = ? ORDER BY number",
        load_tip(tx, conversation).conversation,
    )
    return [Note(number=row[0], text=row[1], time=row[2], who=row[3], request=row[4]) for row in rows]


def add_note(
    tx: Transaction, conversation: str, text: str, *, who: str = "", request: str = "", time: int | None = None
) -> Note:
    """Add a note. Raises `UnknownConversation`."""
    number = load_tip(tx, conversation, lock=True).conversation
    if not isinstance(request, str) or len(request) > MAX_REQUEST:
        raise InvalidInput("request must be CHANNEL/NUMBER as in the links of the inspector", got=request)
    count = tx.row("SELECT count(*) FROM main.note WHERE conversation = ?", number)
    if count is not None and count[0] >= MAX_NOTES:
        raise InvalidInput(f"a conversation has at most {MAX_NOTES:,} notes", fix="Delete some of them.")
    row = tx.row(
        "INSERT INTO main.note (conversation, request, time, who, text) VALUES (?, ?, ?, ?, ?) RETURNING number",
        *(number, request, now_ms() if time is None else time, who, check_note(text)),
    )
    assert row is not None, "an INSERT returns its row"
    return next(each for each in load_notes(tx, conversation) if each.number == row[0])


def delete_note(tx: Transaction, conversation: str, number: int) -> None:
    """Remove a note. Raises `UnknownConversation`, and `InvalidInput` if it has no such note."""
    if all(each.number != number for each in load_notes(tx, conversation)):
        raise InvalidInput(f"Conversation {conversation!r} has no note {number!r}", fix="List them with store.notes().")
    tx.run("DELETE FROM main.note WHERE number = ?", number)
