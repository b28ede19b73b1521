"""Texts for the terminal: shortened and wrapped texts of models and tools, calls, and the context meter.

The results are printed literally.
"""

from rich.cells import cell_len, chop_cells
from rich.text import Text

from contextc._json import JSONObject, encode, parse_object
from contextc.app.sanitize import sanitize
from contextc.messages import Usage

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
        text = arguments_json
    else:
        text = ", ".join([f"{key}={encode(value).decode()}" for key, value in arguments.items()])
    return to_one_line(f"{name}({text})", width)


BAR = 20
FULL, HIGH = 0.9, 0.7


def render_meter(
    used: int, available: int, *, usage: Usage | None = None, cost: float | None = None, suffix: str = ""
) -> Text:
    """Return the context meter in one line: a bar with used and available tokens, usage and cost.

    It is readable without colours too.
    """
    share = used / available if available else 1.0
    filled = min(BAR, max(1 if used else 0, round(share * BAR)))
    style = "red" if share >= FULL else "yellow" if share >= HIGH else "green"
    facts = [f"context {share:.0%}", f"{used:,} of {available:,} tokens"]
    if usage is not None:
        cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
        facts.append(f"{usage.input:,} in{cached}, {usage.output:,} out")
    if cost:
        facts.append(format_dollars(cost))
    facts += [suffix] if suffix else []
    return Text.assemble(("█" * filled, style), ("░" * (BAR - filled), "dim"), (" " + " · ".join(facts), "dim"), end="")


def format_dollars(cost: float) -> str:
    return f"${cost:,.4f}"
