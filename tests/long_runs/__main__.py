"""`make prove`: run the proofs in two processes, with a bar for each, and write down what was counted.

`make prove PROOFS="histories turns"` runs these alone, `ONLY=bedrock` one subject of them; `SCALE=0.01` tries a
hundredth and writes nothing down. What goes wrong is shown, with what it takes to see it again. A run that was broken
off goes on where it was, if nothing has changed since.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.long_runs import proof, proof_names
from tests.long_runs.checkpoints import Kept
from tests.long_runs.results import FILE, PAGE, ROOT, added, load, save
from tests.long_runs.runner import Failed, pieces, prove


def main() -> int:
    asked = argparse.ArgumentParser(prog="make prove", description=__doc__)
    asked.add_argument("proofs", nargs="*", metavar="proof", help=f"of {', '.join(proof_names())} (default: all)")
    asked.add_argument("--only", default="", help="subjects, with commas between them")
    asked.add_argument("--scale", type=float, default=1.0, help="how much of it; nothing is written down but for 1")
    given = asked.parse_args()
    if strange := [name for name in given.proofs if name not in proof_names()]:
        asked.error(f"there is no proof {strange[0]!r}. There are: {', '.join(proof_names())}.")
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        for name in given.proofs or proof_names():
            wanted = [each for each in given.only.split(",") if each]
            subjects = [each for each in proof(name).subjects() if not wanted or each in wanted]
            if subjects and not _proved(name, subjects, given.scale, bar, console):
                return 1
    return 0


def _proved(name: str, subjects: Sequence[str], scale: float, bar: Progress, console: Console) -> bool:
    """Run one proof, and write it down; whether everything was right."""
    task, began = bar.add_task(proof(name).TITLE, total=None), time.monotonic()
    commit = _commit()
    work = list(pieces(name, subjects, scale))
    counts = prove(work, Kept(commit), lambda done, total: bar.update(task, completed=done, total=total))
    if isinstance(counts, Failed):
        console.print(counts.trace, markup=False, highlight=False)
        console.print(f"{counts.piece} failed; nothing was written down of {name}.", markup=False)
        return False
    seconds = round(time.monotonic() - began)
    for subject, each in counts.items():
        console.print(f"{name}: {subject}: {dict(each)}", markup=False, highlight=False)
    console.print(f"{name}: {seconds} s", markup=False)
    if scale == 1:
        save(added(load(), name, counts, day=_today(), commit=commit))
    return True


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _commit() -> str:
    """The commit, and whether there was more than is in it; what proofs write down themselves is not."""
    commit = _git("rev-parse", "--short=7", "HEAD")
    own = [f":(exclude){path.relative_to(ROOT)}" for path in (PAGE, FILE)]
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *own)
    return f"{commit}+" if changed else commit or "-"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=ROOT).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
