"""Notifications of PostgreSQL about new events, deletions and requests to end a turn, for watchers.

Triggers notify once per transaction and conversation. They exist only in stores with a queue of turns. A listener needs
a connection of its own to the server; behind a pooler, watchers poll the store instead.
"""

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
    PERFORM pg_notify('{channel}', (NEW.place >> 32)::text);
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
CREATE TRIGGER contextc_notify AFTER INSERT ON "{schema}".event
    FOR EACH ROW EXECUTE FUNCTION "{schema}".contextc_notify_event();
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

    def wait(self, seconds: float) -> set[int] | None:
        """Return the numbers of conversations that changed, empty if none did. None: the connection has ended."""
        import psycopg

        try:
            found = list(self._connection.notifies(timeout=seconds, stop_after=1))
        except psycopg.Error:
            return None
        return {int(each.payload) for each in found if each.payload.isdigit()}

    def close(self) -> None:
        import psycopg

        with suppress(psycopg.Error):
            self._connection.close()
