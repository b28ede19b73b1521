"""Checkpoints of finished work on one commit, so that an interrupted run can continue.

Only where nothing is changed beside the commit: what was proved of other code proves nothing.
"""

from collections import Counter
from pathlib import Path

import msgspec

from tests.long_runs import Counts
from tests.long_runs.runner import Piece

FOLDER = Path(__file__).parent.parent.parent / ".cache" / "proofs"


class Kept:
    """What is done on a commit; of one that ends with `+`, which has changes, nothing is kept."""

    def __init__(self, commit: str, folder: Path = FOLDER) -> None:
        self.path = folder / f"{commit}.jsonl" if commit.isalnum() else None
        self.done: dict[Piece, Counts] = {}
        for line in self.path.read_bytes().splitlines() if self.path is not None and self.path.exists() else ():
            try:
                piece, counts = msgspec.json.decode(line, type=tuple[Piece, dict[str, dict[str, int]]])
            except msgspec.MsgspecError:  # it was broken off while it wrote
                continue
            self.done[piece] = {subject: Counter(each) for subject, each in counts.items()}

    def keep(self, piece: Piece, counts: Counts) -> None:
        self.done[piece] = counts
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode((piece, counts)) + b"\n")
