"""The pages of frameworks run in the environments of these: every ```py block, with the output that the page shows."""

import re

from tests.test_docs import ROOT, matches, run_python

BLOCK = re.compile(r"^```py\n(.*?)^```\n(?:```\n(.*?)^```$)?", re.M | re.S)
"""A block of Python, and the block of output right after it, if there is one."""


def run_page(framework: str) -> int:
    """Run the examples of a page, compare what they print, and return the number of outputs that it shows."""
    names: dict[str, object] = {"__name__": "example"}
    shown = 0
    for code, output in BLOCK.findall((ROOT / "docs" / "frameworks" / f"{framework}.md").read_text()):
        printed = run_python(code, names)
        assert matches(output, printed), printed
        shown += bool(output)
    return shown
