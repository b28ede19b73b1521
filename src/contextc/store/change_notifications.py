"""Notifications of PostgreSQL about new events, deletions and requests to end a turn, for watchers.

Triggers notify once per transaction and conversation. They exist only in stores with a queue of turns. A notification
has the number of a conversation. If it is about new events, the number of the last one follows. A listener needs a
connection of its own to the server; behind a pooler, watchers poll the store instead.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, LiteralString, cast

from contextc.store.backend_interface import Transaction

if TYPE_CHECKING:
    import psycopg

TRIGGER_NAME = "contextc_notify"
CREATE_TRIGGERS = """
CREATE FUNCTION "{schema}".contextc_notify_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('{channel}', (place >> 32) || ' ' || max(place & 4294967295)) FROM added GROUP BY place >> 32;
    RETURN NULL;
END $$;
CREATE FUNCTION "{schema}".contextc_notify_request() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('{channel}', (SELECT number FROM "{schema}".conversation WHERE name = NEW.conversation)::text);
    RETURN NULL;
END $$;
CREATE FUNCTION "{schema}".contextc_notify_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('{channel}', OLD.number::text);
    RETURN NULL;
END $$;
CREATE TRIGGER contextc_notify AFTER INSERT ON "{schema}".event REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION "{schema}".contextc_notify_event();
CREATE TRIGGER contextc_notify AFTER UPDATE ON "{schema}".lease
    FOR EACH ROW WHEN (NEW.request <> '' AND NEW.request <> OLD.request)
    EXECUTE FUNCTION "{schema}".contextc_notify_request();
CREATE TRIGGER contextc_notify AFTER DELETE ON "{schema}".conversation
    FOR EACH ROW EXECUTE FUNCTION "{schema}".contextc_notify_deleted();
"""


def channel_name(schema: str) -> str:
    """Return the channel of a schema. Channels belong to the whole database, and their names are short."""
    return f"contextc_{sha256(schema.encode()).hexdigest()[:16]}"


def create_triggers_sql(schema: str) -> LiteralString:
    """Return the statements that create the triggers. The name of a schema consists of letters and digits."""
    return cast(LiteralString, CREATE_TRIGGERS.format(schema=schema, channel=channel_name(schema)))


def has_triggers(tx: Transaction) -> bool:
    row = tx.row(
        "SELECT 1 FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = ? AND c.relname = 'event' AND t.tgname = ?",
        tx.schema,
        TRIGGER_NAME,
    )
    return row is not None


class ChangeListener:
    """A connection that waits for changes of conversations."""

    def __init__(self, connection: "psycopg.Connection[tuple[object, ...]]", schema: str) -> None:
        self._connection = connection
        connection.execute(cast(LiteralString, f'LISTEN "{channel_name(schema)}"'))

    def wait(self, seconds: float) -> dict[int, int] | None:
        """Return the conversations that changed, each with the number of its last event. None: the connection ended.

        The number is 0 if something else than events has changed.
        """
        import psycopg

        try:
            found = list(self._connection.notifies(timeout=seconds, stop_after=1))
        except psycopg.Error:
            return None
        return merge_changes([parse_notification(each.payload) for each in found])

    def close(self) -> None:
        import psycopg

        with suppress(psycopg.Error):
            self._connection.close()


def parse_notification(payload: str) -> dict[int, int]:
    """Return the conversation of a notification, and the number of its last event, 0 if it is not about events."""
    conversation, _, last = payload.partition(" ")
    if not conversation.isdigit() or not (last or "0").isdigit():
        return {}
    return {int(conversation): int(last or 0)}


def merge_changes(found: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return several changes as one. 0 counts more than the number of an event."""
    merged: dict[int, int] = {}
    for each in found:
        for conversation, last in each.items():
            before = merged.get(conversation, last)
            merged[conversation] = max(before, last) if before and last else 0
    return merged
