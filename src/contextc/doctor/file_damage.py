"""Damage of the database files, as the database's own check reports it, and what can still be read.

Nothing is repaired: a write into a damaged file may destroy more. Readable conversations are listed, so that they
can be exported.
"""

from collections.abc import Iterator

from contextc.doctor.findings import Finding, pluralize
from contextc.errors import StoreCorrupt
from contextc.store import Store

MAX_LINES = 3
CONSEQUENCE = "The data in the file cannot be trusted."
NO_REPAIR = "cannot be repaired: restore a backup, or recover the file with the database's own tools"


def find_file_damage(store: Store) -> Iterator[Finding]:
    """Return the damage of the files, then each conversation that cannot be read completely."""
    report = _check_output(store)
    if not report:
        return
    more = f" And {len(report) - MAX_LINES:,} more." if len(report) > MAX_LINES else ""
    whole, torn = _readable_conversations(store)
    would = NO_REPAIR
    if whole:
        listed = ", ".join(map(repr, whole))
        would += f". Readable conversations: {listed}. Export them, with ?mode=ro appended to the store address"
    yield _fault(None, "database", " ".join(report[:MAX_LINES]) + more, would)
    for name, error in torn.items():
        yield _fault(name, "database", f"It cannot be read completely: {error}", NO_REPAIR)


def conversation_names(store: Store) -> list[str]:
    """Return the names of all conversations, also of damaged ones. Empty if the names cannot be read."""
    try:
        rows = store.read(lambda tx: tx.rows("SELECT name FROM conversation ORDER BY name"))
    except StoreCorrupt:
        return []
    return [str(name) for (name,) in rows]


def _check_output(store: Store) -> list[str]:
    try:
        rows = store.read(lambda tx: tx.rows(tx.dialect.integrity_query) if tx.dialect.integrity_query else [])
    except StoreCorrupt as error:  # the check itself fails
        return [f"The check of the database failed: {_reason(error)}"]
    lines = [line.strip().rstrip(".") for (text,) in rows if text != "ok" for line in str(text).splitlines()]
    return [f"{line}." for line in lines if line and not line.startswith("***")]


def _reason(error: StoreCorrupt) -> str:
    """Return the text of the database error, if there is one."""
    return f"{str(error.__cause__ or error).rstrip('.')}."


def _readable_conversations(store: Store) -> tuple[list[str], dict[str, str]]:
    """Return the conversations that can be read completely, and the others with the reason."""
    whole, torn = list[str](), dict[str, str]()
    for name in conversation_names(store):
        try:
            length, found = store.conversation(name).length, len(store.load(name))
        except StoreCorrupt as error:
            torn[name] = _reason(error)
            continue
        if found == length:
            whole.append(name)
        else:
            torn[name] = f"{pluralize(length - found, 'message')} of {length:,} not found."
    return whole, torn


def _fault(conversation: str | None, where: str, text: str, would: str) -> Finding:
    return Finding(
        kind="fault",
        code="damaged-file",
        conversation=conversation,
        where=where,
        text=text,
        why=CONSEQUENCE,
        would=would,
    )
