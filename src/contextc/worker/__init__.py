"""Run turns on many machines: submit input to a queue on PostgreSQL, and run workers that take turns from it."""

from contextc._lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.store.submitted_turns import SubmittedInput
    from contextc.store.turn_queue import WorkerTurn
    from contextc.worker.submission import (
        cancel_parked,
        create_queue_tables,
        parked_turns,
        resume_parked,
        submit,
        submit_sync,
    )
    from contextc.worker.turn_worker import TurnWorker, WorkerOptions

__all__ = [
    "SubmittedInput",
    "TurnWorker",
    "WorkerOptions",
    "WorkerTurn",
    "cancel_parked",
    "create_queue_tables",
    "parked_turns",
    "resume_parked",
    "submit",
    "submit_sync",
]

if not TYPE_CHECKING:  # or type checkers would accept every name
    __getattr__ = lazy_names(
        __name__,
        {
            "submission": "SubmittedInput WorkerTurn cancel_parked create_queue_tables parked_turns resume_parked"
            " submit submit_sync",
            "turn_worker": "TurnWorker WorkerOptions",
        },
    )
