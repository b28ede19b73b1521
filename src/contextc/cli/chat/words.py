"""What a model or a tool said, in lines of a terminal: printed as they are given here, never as markup."""

from rich.cells import cell_len, chop_cells

from contextc._json import JSONObject, encode, parse_object
from contextc.agents.words import clean

SHORT = 160


def short(text: str, width: int = SHORT) -> str:
    """One line of it."""
    line = clean(" ".join(text.split()))
    return line if cell_len(line) <= width else chop_cells(line, max(1, width - 1))[0] + "…"


def folded(text: str, width: int) -> list[str]:
    """The lines of a text, broken so that none is wider: a long one cannot look like two."""
    return [piece for line in text.split("\n") for piece in (chop_cells(line, max(8, width)) or [""])]


def call_line(name: str, written: str, width: int = SHORT) -> str:
    """A call as one line: `read_file(path="a.py")`."""
    arguments: JSONObject | None = parse_object(written) if written.strip() else {}
    if arguments is None:
        told = written
    else:
        told = ", ".join([f"{key}={encode(value).decode()}" for key, value in arguments.items()])
    return short(f"{name}({told})", width)
