"""What a model or a tool said, made safe to print: it is data, and nothing in it may style or steer a terminal.

Texts are printed as they are given here, never as markup. Two ways: `clean` for reading, where what cannot be printed
is a mark; `visible` for deciding, where everything that cannot be seen is spelled out.
"""

from rich.cells import cell_len, chop_cells

from contextc._json import JSONObject, encode, parse_object

TAB = "    "
MARK = "\ufffd"
SHORT = 160


def clean(text: str) -> str:
    """A text for reading: line ends and tabs stay, other characters that cannot be printed become a mark."""
    plain = text.replace("\r\n", "\n").replace("\t", TAB)
    return "".join([each if each.isprintable() or each == "\n" else MARK for each in plain])


def visible(text: str) -> str:
    """A text for deciding: what cannot be seen is written out, as in \\x1b."""
    return "".join([each if each.isprintable() or each == "\n" else _spelled(each) for each in text])


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


def _spelled(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
