"""The examples of a page, and what they print. Nothing but Python is needed, so it runs beside an installed package:

python -I tests/doc_examples.py README.md
"""

import contextlib
import io
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def matches(shown: str, printed: str) -> bool:
    """Return True if a page shows what was printed. `…` stands for anything."""
    lines = [re.escape(line.rstrip()).replace("…", ".*") for line in shown.strip().splitlines()]
    return re.fullmatch("\n".join(lines), "\n".join(line.rstrip() for line in printed.strip().splitlines())) is not None


def run_python(code: str, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "example", "exec"), names)
    return printed.getvalue()


def main(page: Path) -> int:
    """Run the ```python blocks of a page in one session. Return their number, or raise an error at a difference."""
    names: dict[str, object] = {"__name__": "example"}
    printed, count = "", 0
    for kind, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            printed, count = run_python(block, names), count + 1
        elif kind == "text" and not matches(block, printed):
            raise SystemExit(f"{page.name} shows:\n{block}\nbut it prints:\n{printed}")
    return count


if __name__ == "__main__":
    sys.stdout.write(f"{main(Path(sys.argv[1]))}\n")
