"""Shortening and wrapping of model and tool texts for the terminal. The results are printed literally."""

from rich.cells import cell_len, chop_cells

from contextc._json import JSONObject, encode, parse_object
from contextc.agents.words import clean

SHORT = 160


def short(text: str, width: int = SHORT) -> str:
    """Return the text in one line, cut to `width`."""
    line = clean(" ".join(text.split()))
    return line if cell_len(line) <= width else chop_cells(line, max(1, width - 1))[0] + "…"


def folded(text: str, width: int) -> list[str]:
    """Return the lines of a text, wrapped to `width`."""
    return [piece for line in text.split("\n") for piece in (chop_cells(line, max(8, width)) or [""])]


def call_line(name: str, written: str, width: int = SHORT) -> str:
    """Return a call in one line: `read_file(path="a.py")`."""
    arguments: JSONObject | None = parse_object(written) if written.strip() else {}
    if arguments is None:
        told = written
    else:
        told = ", ".join([f"{key}={encode(value).decode()}" for key, value in arguments.items()])
    return short(f"{name}({told})", width)
