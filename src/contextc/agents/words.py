"""What a model or a tool said, made safe to show: it is data, and nothing in it may style or steer what shows it.

Two ways: `clean` for reading, where what cannot be printed is a mark; `visible` for deciding, where everything that
cannot be seen is spelled out.
"""

TAB = "    "
MARK = "\ufffd"


def clean(text: str) -> str:
    """A text for reading: line ends and tabs stay, other characters that cannot be printed become a mark."""
    plain = text.replace("\r\n", "\n").replace("\t", TAB)
    return "".join([each if each.isprintable() or each == "\n" else MARK for each in plain])


def visible(text: str) -> str:
    """A text for deciding: what cannot be seen is written out, as in \\x1b."""
    return "".join([each if each.isprintable() or each == "\n" else _spelled(each) for each in text])


def _spelled(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
