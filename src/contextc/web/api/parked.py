"""Turns that workers gave up on: list, resume and cancel."""

from typing import Literal

from msgspec import Struct

from contextc.store.conversation_types import DEFAULT_AGENT
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import EmptyObject, endpoint
from contextc.worker import cancel_parked, parked_turns, resume_parked

TAG = "turns"


class ParkedTurn(Struct, frozen=True, kw_only=True):
    """A parked turn. `turn` is 0 if no worker could open one. `parked` is the time in Unix milliseconds."""

    conversation: str
    agent: str
    turn: int
    parked: int
    reason: str


class ParkedTurns(Struct, frozen=True, kw_only=True):
    """All parked turns of the store, oldest first."""

    turns: list[ParkedTurn]


class ParkedBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resume submits the turn to workers again. Cancel gives it up; its input stays in the conversation."""

    action: Literal["resume", "cancel"]
    agent: str = DEFAULT_AGENT


@endpoint("GET", "/parked")
def list_parked(app: AppState) -> ParkedTurns:
    """List the turns that workers gave up on."""
    turns = [
        ParkedTurn(
            conversation=each.conversation, agent=each.agent, turn=each.turn, parked=each.parked, reason=each.reason
        )
        for each in parked_turns(app.store)
    ]
    return ParkedTurns(turns=turns)


@endpoint("POST", "/conversations/{name}/parked")
def end_parking(app: AppState, name: str, body: ParkedBody) -> EmptyObject:
    """Resume or cancel a parked turn."""
    (resume_parked if body.action == "resume" else cancel_parked)(app.store, name, agent=body.agent)
    return EmptyObject()
