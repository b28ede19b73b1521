"""Processes that open the same new file at the same moment."""

import multiprocessing
from multiprocessing.synchronize import Barrier
from pathlib import Path

import contextc as cc

PROCESSES = multiprocessing.get_context("forkserver")
OPENERS, FILES = 4, 25


def open_all(folder: str, start: Barrier) -> None:
    for number in range(FILES):
        start.wait(60)
        cc.open_store(f"sqlite:///{folder}/{number}.db").close()


def test_concurrent_processes_can_open_a_new_file(tmp_path: Path) -> None:
    """Guarantee 3.2: the process that creates the file does not lock out others."""
    start = PROCESSES.Barrier(OPENERS)
    openers = [PROCESSES.Process(target=open_all, args=(str(tmp_path), start)) for _ in range(OPENERS)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join(120)
    assert [opener.exitcode for opener in openers] == [0] * OPENERS
