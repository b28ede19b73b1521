"""A heading, which is never cut, and what there is to say of it below: for findings, at any width.

A name in a heading can be marked and pasted. Nothing else of a table is lost: no column is too narrow for a sentence.
"""

from rich.text import Text

from contextc.cli.terminal import out

INDENT = 4


def print_block(heading: str, *below: str) -> None:
    """Print markup: the heading on one line, the rest indented."""
    out.print(heading, soft_wrap=True)
    for each in below:
        for line in Text.from_markup(each).wrap(out, max(20, out.width - INDENT)):
            line.rstrip()
            out.print(Text(" " * INDENT) + line, soft_wrap=True)
