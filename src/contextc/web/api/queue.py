"""Removal of queued input."""

from contextc.store import turns
from contextc.store.base import Transaction
from contextc.store.places import head
from contextc.web.desk import Desk
from contextc.web.endpoint import Nothing, endpoint
from contextc.web.problems import Refused

TAKEN = "Queued input not found: a turn has taken it, or it was already removed."


@endpoint("DELETE", "/conversations/{name}/queue/{number}")
def withdraw(desk: Desk, name: str, number: int) -> Nothing:
    """Remove queued input. Input that a turn has taken is in the conversation, and stays."""
    agent = desk.options.agent

    def work(tx: Transaction) -> bool:
        at = head(tx, name, lock=True)
        waits = any(each.number == number for each in turns.queued(tx, at.conversation, agent))
        return waits and turns.withdraw(tx, number)

    if not desk.store.write(work):
        raise Refused(409, TAKEN, "NotWaiting")
    return Nothing()
