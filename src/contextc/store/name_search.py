"""Search for a text in the names and given titles of conversations, in list order. Case is ignored.

The database compares ASCII names. Others are compared here, by all of Unicode's rules. PostgreSQL has an index of the
parts of names, which is used for all but the most recently active conversations: a text that many names have is found
there, and one that few names have is found by the index. So the cost does not depend on the number of conversations.
"""

from collections.abc import Sequence
from functools import cache
from itertools import chain

from contextc.store.backend_interface import Row, Transaction
from contextc.store.conversation_list import LIST_ORDER, PageCursor, after_cursor, is_named

NAMES_PER_QUERY = 500
RECENT = 1_000
"""Number of most recently active conversations whose names are compared without the index."""
SEPARATOR = "\x1f"
"""Character between the parts of a value. No name has it, because it is not printable."""
LAST_CASED = 0x1_E944
"""Above the last character that has upper and lower case."""


def find_named(tx: Transaction, wanted: str, after: PageCursor | None, limit: int) -> list[int]:
    """Return the numbers of conversations with a text in their name or given title. `wanted` is case-folded."""
    if not _has_index(tx, wanted):
        return [number for number, *_ in _scan(tx, wanted, after, limit)]
    which, values = after_cursor(after)
    order = f"{which} {LIST_ORDER} OFFSET {RECENT - 1:d} LIMIT 1"
    last = tx.row(f"SELECT c.spoken, c.number FROM conversation c {order}", *values)
    found = _scan(tx, wanted, after, limit, recent=True)
    if last is not None and len(found) < limit:
        found += _scan(tx, wanted, PageCursor(*last), limit - len(found), indexed=True)
    return [number for number, *_ in found]


def _has_index(tx: Transaction, wanted: str) -> bool:
    """Return True if the store has an index, and if the text has parts that are in it."""
    if tx.dialect.name != "postgres" or SEPARATOR in wanted or not (_triples(wanted) or not wanted.isascii()):
        return False
    encoding = tx.row("SELECT current_setting('server_encoding')")  # in others a letter may be one byte
    return encoding is not None and encoding[0] == "UTF8"


def _scan(
    tx: Transaction,
    wanted: str,
    after: PageCursor | None,
    limit: int,
    *,
    recent: bool = False,
    indexed: bool = False,
) -> list[Row]:
    """Return conversations with the text: among the `RECENT` ones, by the index, or among all after the cursor."""
    is_postgres = tx.dialect.name == "postgres"
    contains = 'position(? in lower({} COLLATE "C")) > 0' if is_postgres else "instr(lower({}), ?) > 0"
    is_long = "octet_length({0}) > length({0})" if is_postgres else "length(CAST({0} AS BLOB)) > length({0})"
    tests = [test.format(column) for test in (contains, is_long) for column in ("c.name", "c.title")]
    if is_postgres:  # in other encodings a letter may be one byte
        encoding = "(SELECT current_setting('server_encoding')) <> 'UTF8'"
        tests.append(f"({encoding} AND (c.name ~ '[^ -~]' OR c.title ~ '[^ -~]'))")
    condition, values = _indexed(wanted) if indexed else ("", [])
    found: list[Row] = []
    while len(found) < limit:
        which, place = after_cursor(after)
        source = "conversation c"
        if recent:
            inner = f"SELECT number, spoken, name, title FROM conversation c {which} {LIST_ORDER} LIMIT {RECENT:d}"
            source, which = f"({inner}) c", ""
        rows = tx.rows(
            f"SELECT c.number, c.spoken, c.name, c.title FROM {source} {which or 'WHERE true'}{condition}"
            f" AND ({' OR '.join(tests)}) {LIST_ORDER} LIMIT {RECENT if recent else NAMES_PER_QUERY:d}",
            *place,
            *values,
            wanted,
            wanted,
        )
        found += [row for row in rows if is_named(wanted, row[2], row[3])]
        if recent or len(rows) < NAMES_PER_QUERY:
            break
        after = PageCursor(rows[-1][1], rows[-1][0])
    return found[:limit]


def _indexed(wanted: str) -> tuple[str, list[str]]:
    """Return the condition that names with a text fulfil, by the index, and its values."""
    triples, others = _triples(wanted), sorted({each for each in wanted if not each.isascii()})
    part = "n.parts {} string_to_array(?, chr(31))"
    tests = [part.format("@>")] if triples else []
    tests += [part.format("&&")] * len(others)
    values = [SEPARATOR.join(triples)] if triples else []
    values += [SEPARATOR.join(_folded_to().get(each, each) + each) for each in others]
    either = [f"({' AND '.join(tests)})"]
    if triples:  # a name may have them in another form, such as ß for ss
        either.append(part.format("&&"))
        values.append(SEPARATOR.join(_folded_to()["ascii"]))
    return f" AND c.number IN (SELECT n.number FROM conversation_name n WHERE {' OR '.join(either)})", values


def _triples(wanted: str) -> Sequence[str]:
    """Return all three ASCII characters in a row of a text."""
    found = {wanted[start : start + 3] for start in range(len(wanted) - 2)}
    return sorted([each for each in found if each.isascii()])


@cache
def _folded_to() -> dict[str, str]:
    """Return the characters whose case-folded form has a certain other character, by that character.

    `ascii` has those whose form has an ASCII character.
    """
    found: dict[str, str] = {"ascii": ""}
    for each in map(chr, chain(range(0x80, 0xD800), range(0xE000, LAST_CASED))):
        folded = each.casefold()
        if folded != each:
            for character in folded:
                name = "ascii" if character.isascii() else character
                if each not in found.get(name, ""):
                    found[name] = found.get(name, "") + each
    return found
