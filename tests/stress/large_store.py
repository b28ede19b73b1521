"""A store of many conversations: how long the list, a page of it, a search, the doctor and opening take.

`python -m tests.stress.large_store [conversations] [messages each]`, 20,000 and 50 by default. A store of a
twentieth of the conversations is measured first: what should not grow with their number must take about as long there.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from time import perf_counter

import contextc as cc
from contextc.doctor import scan_store
from contextc.messages import validate_message
from contextc.store import message_log
from contextc.store.message_log import BranchTip
from contextc.store.transaction_engine import Transaction

WORDS = "the quick brown fox jumps over the lazy dog while nobody looks at it "
CONVERSATIONS, MESSAGES, PART = 20_000, 50, 20
FLAT, SLACK = 3.0, 0.05
"""What should be flat may take so many times as long in the large store, and so many seconds more."""
LIST_SECONDS, SEARCH_SECONDS = 10.0, 2.0


def build(path: Path, conversations: int, messages: int) -> None:
    """Fill a new store, many conversations in a transaction; each was last spoken in at another second."""
    with cc.open_store(path) as store:
        numbers = iter(range(conversations))
        while some := list(islice(numbers, 500)):
            store.write(lambda tx, some=some: [_fill(tx, number, messages) for number in some])


def _fill(tx: Transaction, number: int, messages: int) -> None:
    at, rows = (
        message_log.insert_conversation(tx, f"conversation {number:05}"),
        list[tuple[int, bytes, int, bytes]](),
    )
    for seq in range(messages):
        make = cc.assistant if seq % 2 else cc.user
        time = 1_700_000_000_000 + (number * 60 + seq) * 1000
        _, row = message_log.build_row(
            at, message_log.prepare_entry(validate_message(make(f"{number} {seq} {WORDS * 4}", time=time)))
        )
        rows.append(row)
        at = BranchTip(at.conversation, at.tree, at.branch, at.revision, at.seq + 1, row[1], at.last_active)
    tx.run_many("INSERT INTO main.message (place, id, time, body) VALUES (?, ?, ?, ?)", rows)
    message_log.update_last_active(tx, f"conversation {number:05}")


def measured(path: Path) -> dict[str, float]:
    """The seconds that each use takes."""
    found: dict[str, float] = {}

    def take(name: str, work: Callable[[], object]) -> None:
        began = perf_counter()
        work()
        found[name] = perf_counter() - began

    take("open", lambda: cc.open_store(path).close())
    with cc.open_store(path) as store:
        store.overviews(limit=50)  # the first reads what has to be read from the disk
        take("first page of the list", lambda: store.overviews(limit=50))
        middle = f"{(1_700_000_000 + len(store.conversations()) * 30)}-{1 << 40}"
        take("a page from the middle", lambda: store.overviews(limit=50, before=middle))
        take("a page of a fruitless search", lambda: store.overviews(search="zebra", limit=50))
        take("a search by name", lambda: store.overviews(search="conversation 00007", limit=1))
        take("append", lambda: store.append("conversation 00003", cc.user("one more")))
        take("branches of one", lambda: store.branches("conversation 00003"))
        take("conversations()", lambda: store.conversations())
        take("a whole fruitless search", lambda: _searched(store, "zebra"))
        take("doctor", lambda: _sound(store))
    take("contextc list", lambda: _listed(path))
    return found


def _searched(store: cc.Store, text: str) -> None:
    page = store.overviews(search=text)
    while page.next:
        assert not page.found
        page = store.overviews(search=text, before=page.next)


def _sound(store: cc.Store) -> None:
    assert list(scan_store(store)) == []


def _listed(path: Path) -> None:
    command = [sys.executable, "-m", "contextc", "list", "--store", f"sqlite:///{path}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(conversations: int = CONVERSATIONS, messages: int = MESSAGES) -> int:
    """Measure both stores, print the figures, and say how many are worse than they may be."""
    figures: list[dict[str, float]] = []
    sizes = [conversations // PART, conversations]
    for count in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path, began = Path(folder) / "large.db", perf_counter()
            build(path, count, messages)
            _report(f"built {count:,} conversations of {messages} messages in {perf_counter() - began:.1f} s")
            figures.append(measured(path))
    small, large = figures
    flat = ("open", "first page of the list", "a page from the middle", "append", "branches of one")
    slow = [name for name in flat if large[name] > small[name] * FLAT + SLACK]
    slow += ["a page of a fruitless search"] if large["a page of a fruitless search"] > SEARCH_SECONDS else []
    slow += ["contextc list"] if large["contextc list"] > LIST_SECONDS else []
    _report(f"{'seconds':32}{sizes[0]:>12,}{sizes[1]:>12,}")
    for name in large:
        _report(f"{name:32}{small[name]:12.4f}{large[name]:12.4f}{'  TOO SLOW' if name in slow else ''}")
    return len(slow)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
