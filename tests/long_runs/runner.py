"""Run a proof in pieces, in two processes. The first failing piece ends it."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import NamedTuple, Protocol

from tests.long_runs import Counts, proof

CORES = 2


class Piece(NamedTuple):
    """One piece of work: so many of these subjects, by this seed."""

    proof: str
    subjects: tuple[str, ...]
    seed: int
    size: int


class Failed(NamedTuple):
    piece: Piece
    trace: str


def work(piece: Piece) -> Counts | Failed:
    try:
        return proof(piece.proof).run(piece.subjects, piece.seed, piece.size)
    except BaseException:
        return Failed(piece, traceback.format_exc())


def pieces(name: str, subjects: Sequence[str], scale: float) -> Iterator[Piece]:
    of = proof(name)
    goal = max(1, round(of.GOAL * scale))
    for group in [tuple(subjects)] if of.TOGETHER else [(each,) for each in subjects]:
        for seed, first in enumerate(range(0, goal, of.SHARE)):
            yield Piece(name, group, seed, min(of.SHARE, goal - first))


class Keeps(Protocol):
    """What is done already."""

    done: dict[Piece, Counts]

    def keep(self, piece: Piece, counts: Counts) -> None: ...


def prove(work_of: Sequence[Piece], kept: Keeps, report: Callable[[int, int], None]) -> Counts | Failed:
    """All of these pieces; what was counted, or the first piece that failed."""
    waiting = [piece for piece in work_of if piece not in kept.done]
    total = sum(piece.size for piece in work_of)
    with ProcessPoolExecutor(CORES, mp_context=get_context("spawn"), max_tasks_per_child=20) as pool:
        running: dict[Future[Counts | Failed], Piece] = {}
        while waiting or running:
            while waiting and len(running) < CORES:
                piece = waiting.pop(0)
                running[pool.submit(work, piece)] = piece
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                piece, result = running.pop(future), future.result()
                if isinstance(result, Failed):
                    return result
                kept.keep(piece, result)
                report(sum(piece.size for piece in work_of if piece in kept.done), total)
    found: Counts = {subject: Counter() for piece in work_of for subject in piece.subjects}
    for piece in work_of:
        for subject, counts in kept.done[piece].items():
            found[subject] += counts
    return found
