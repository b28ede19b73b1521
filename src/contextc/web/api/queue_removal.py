"""Removal of queued input."""

from contextc.store import turn_and_event_records
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import load_tip
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import EmptyObject, endpoint
from contextc.web.http_errors import HTTPError

TAG = "queue"
NOT_QUEUED = "Queued input not found: a turn has taken it, or it was already removed."


@endpoint("DELETE", "/conversations/{name}/queue/{number}")
def withdraw(app: AppState, name: str, number: int) -> EmptyObject:
    """Remove queued input. Input that a turn has taken is in the conversation, and stays."""
    agent = app.options.agent

    def work(tx: Transaction) -> bool:
        at = load_tip(tx, name, lock=True)
        waits = any(each.number == number for each in turn_and_event_records.load_queue(tx, at.conversation, agent))
        return waits and turn_and_event_records.dequeue(tx, number)

    if not app.store.write(work):
        raise HTTPError(409, NOT_QUEUED, "NotWaiting")
    return EmptyObject()
