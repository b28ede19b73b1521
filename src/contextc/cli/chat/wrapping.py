"""Shortening and wrapping of model and tool texts for the terminal. The results are printed literally."""

from rich.cells import cell_len, chop_cells

from contextc._json import JSONObject, encode, parse_object
from contextc.app.sanitize import sanitize

DEFAULT_WIDTH = 160


def to_one_line(text: str, width: int = DEFAULT_WIDTH) -> str:
    """Return the text in one line, cut to `width`."""
    line = sanitize(" ".join(text.split()))
    return line if cell_len(line) <= width else chop_cells(line, max(1, width - 1))[0] + "…"


def wrap_lines(text: str, width: int) -> list[str]:
    """Return the lines of a text, wrapped to `width`."""
    return [piece for line in text.split("\n") for piece in (chop_cells(line, max(8, width)) or [""])]


def format_call(name: str, arguments_json: str, width: int = DEFAULT_WIDTH) -> str:
    """Return a call in one line: `read_file(path="a.py")`."""
    arguments: JSONObject | None = parse_object(arguments_json) if arguments_json.strip() else {}
    if arguments is None:
        told = arguments_json
    else:
        told = ", ".join([f"{key}={encode(value).decode()}" for key, value in arguments.items()])
    return to_one_line(f"{name}({told})", width)
