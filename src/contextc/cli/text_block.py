"""Layout of findings: a heading that is never cut, and indented text below it, at any width.

Names in a heading can be copied. In contrast to a table, no column is too narrow for a sentence.
"""

from rich.text import Text

from contextc.cli.console import out

INDENT = 4


def print_block(heading: str, *below: str) -> None:
    """Print markup: the heading on one line, the rest indented."""
    out.print(heading, soft_wrap=True)
    for each in below:
        for line in Text.from_markup(each).wrap(out, max(20, out.width - INDENT)):
            line.rstrip()
            out.print(Text(" " * INDENT) + line, soft_wrap=True)
