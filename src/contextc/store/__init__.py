"""Durable storage of conversations: one interface and three back-ends, selected by address."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from contextc._lazy import lazy_names
from contextc.config import mask_secrets
from contextc.errors import InvalidSetting
from contextc.store.approval_rules import Always, ApprovalRule
from contextc.store.approvals import Approval
from contextc.store.message_log import Branch, Conversation, Lease, Recovered, Reference
from contextc.store.store import Store, open_with
from contextc.store.tags_and_notes import Note
from contextc.store.transaction_engine import TransactionEngine
from contextc.store.turn_controls import TurnRequest
from contextc.store.turn_records import Stream

if TYPE_CHECKING:
    from contextc.store.async_store import AsyncStore, AsyncStream

__all__ = [
    "Always",
    "Approval",
    "ApprovalRule",
    "AsyncStore",
    "AsyncStream",
    "Branch",
    "Conversation",
    "Lease",
    "Note",
    "Recovered",
    "Reference",
    "Store",
    "Stream",
    "TurnRequest",
    "open_for_inspection",
    "open_store",
]

if not TYPE_CHECKING:  # or type checkers would accept every name
    __getattr__ = lazy_names(__name__, {"async_store": "AsyncStore AsyncStream"})


def open_store(address: str | os.PathLike[str], *, retention: timedelta | None = None) -> Store:
    """Open the store at an address, create or migrate its tables, and recover turns whose process died.

    `memory:`, `sqlite:///chat.db` (`sqlite:////var/lib/chat.db` for an absolute path, `?mode=ro` to read only),
    `postgresql://user@host/database` (`?schema=name` for another schema than `contextc`, `&pool=20` for more than 10
    connections at once), or a path to a SQLite file.
    With `retention`, the content of older messages is redacted first.
    """
    if retention is not None and not isinstance(retention, timedelta):
        raise InvalidSetting(
            "retention must be a timedelta", got=retention, fix="Pass an age such as timedelta(days=90)."
        )
    store = open_with(_backend(address))
    try:
        if retention is not None:
            store.expire(retention)
    except BaseException:
        store.close()
        raise
    return store


def open_for_inspection(address: str) -> Store:
    """Open a store for reading as it is: no tables are created or migrated, and no turn is recovered.

    The doctor uses it for files in which these operations fail.
    """
    read_only = address.startswith("sqlite:") and "?" not in address
    return Store(_backend(f"{address}?mode=ro" if read_only else address))


def _masked_repr(address: object) -> str:
    return repr(mask_secrets(address) if isinstance(address, str) else address)


# A back-end and its driver are imported when the first store of that kind is opened.


def _backend(address: str | os.PathLike[str]) -> TransactionEngine[Any]:
    if isinstance(address, os.PathLike):
        address = f"sqlite:///{os.fspath(address).replace('?', '%3f')}"
    scheme = address.partition(":")[0] if isinstance(address, str) else None
    if scheme not in BACKENDS:
        maybe = f" Did you mean sqlite:///{address}?" if isinstance(address, str) and address.endswith(".db") else ""
        raise InvalidSetting(
            f"unknown store address {_masked_repr(address)}",
            fix=f"Use memory:, sqlite:///chat.db or postgresql://user@host/database.{maybe}",
        )
    return BACKENDS[scheme](address)


def _memory(address: str) -> TransactionEngine[Any]:
    from contextc.store.sqlite import MemoryEngine

    return MemoryEngine()


def _sqlite(address: str) -> TransactionEngine[Any]:
    from contextc.store.sqlite import SQLiteEngine

    path, _, query = address.removeprefix("sqlite:").removeprefix("///").partition("?")
    if path == ":memory:":
        raise InvalidSetting("SQLite address must name a file", got=address, fix="Use memory: for a store in memory.")
    if not path or (address.startswith("sqlite://") and not address.startswith("sqlite:///")):
        raise InvalidSetting(
            "SQLite address must name a file",
            got=address,
            fix="Use sqlite:///chat.db, or sqlite:////absolute/path/chat.db.",
        )
    if query not in ("", "mode=ro"):
        raise InvalidSetting(
            f"{address!r}: unknown option of a SQLite address", got=query, fix="The only one is ?mode=ro."
        )
    return SQLiteEngine(path.replace("%3f", "?"), read_only=query == "mode=ro")


def _postgres(address: str) -> TransactionEngine[Any]:
    from contextc.store.postgres import PostgresEngine

    return PostgresEngine(address)


BACKENDS: dict[str, Callable[[str], TransactionEngine[Any]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
}
