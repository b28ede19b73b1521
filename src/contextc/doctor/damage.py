"""Damage of the files themselves, as the database's own check finds it, and what can still be read in spite of it.

Nothing is healed there: whoever writes into a damaged file may lose what is left. What can be read is said, because it
can be exported.
"""

from collections.abc import Iterator

from contextc.doctor.findings import Finding, counted
from contextc.errors import StoreCorrupt
from contextc.store import Store

MOST_SAID = 3
WHY = "Nothing that stands there can be believed."
WOULD = "cannot be healed: restore a copy, or recover the file with the database's own tools"


def damages(store: Store) -> Iterator[Finding]:
    """What is wrong with the files; after that, each conversation that cannot be read whole for it."""
    said = _said(store)
    if not said:
        return
    more = f" And {len(said) - MOST_SAID:,} more." if len(said) > MOST_SAID else ""
    whole, torn = _read(store)
    would = WOULD
    if whole:
        listed = ", ".join(map(repr, whole))
        would += f". What can still be read whole: {listed}. Export it, with ?mode=ro behind the address of the store"
    yield _fault(None, "database", " ".join(said[:MOST_SAID]) + more, would)
    for name, error in torn.items():
        yield _fault(name, "database", f"It cannot be read whole: {error}", WOULD)


def conversation_names(store: Store) -> list[str]:
    """The conversations of a store, those too that cannot be described. Nothing, where not even that can be read."""
    try:
        rows = store.read(lambda tx: tx.rows("SELECT name FROM conversation ORDER BY name"))
    except StoreCorrupt:
        return []
    return [str(name) for (name,) in rows]


def _said(store: Store) -> list[str]:
    try:
        rows = store.read(lambda tx: tx.rows(tx.dialect.check) if tx.dialect.check else [])
    except StoreCorrupt as error:  # so damaged that not even the check goes through
        return [f"Its own check ends with: {_reason(error)}"]
    lines = [line.strip().rstrip(".") for (text,) in rows if text != "ok" for line in str(text).splitlines()]
    return [f"{line}." for line in lines if line and not line.startswith("***")]


def _reason(error: StoreCorrupt) -> str:
    """What the database said, where it was the database."""
    return f"{str(error.__cause__ or error).rstrip('.')}."


def _read(store: Store) -> tuple[list[str], dict[str, str]]:
    """The conversations that can be read whole, and those that cannot, with the reason."""
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
            torn[name] = f"{counted(length - found, 'message')} of {length:,} cannot be found."
    return whole, torn


def _fault(conversation: str | None, where: str, text: str, would: str) -> Finding:
    return Finding(
        kind="fault",
        code="damaged-file",
        conversation=conversation,
        where=where,
        text=text,
        why=WHY,
        would=would,
    )
