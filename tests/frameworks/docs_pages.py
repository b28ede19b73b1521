"""The pages and the examples of frameworks run in the environments of these, against the fake vendors."""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.test_docs import ROOT, matches, run_python

BLOCK = re.compile(r"^```py\n(.*?)^```\n(?:```\n(.*?)^```$)?", re.M | re.S)
"""A block of Python, and the block of output right after it, if there is one."""


def run_page(framework: str) -> int:
    """Run every ```py block of a page, compare what they print, and return the number of outputs that it shows."""
    names: dict[str, object] = {"__name__": "example"}
    shown = 0
    for code, output in BLOCK.findall((ROOT / "docs" / "frameworks" / f"{framework}.md").read_text()):
        printed = run_python(code, names)
        assert matches(output, printed), printed
        shown += bool(output)
    return shown


@contextmanager
def reading_model(folder: Path) -> Generator[FakeVendors]:
    """A model for the examples: it reads a file of the folder, and then answers twice."""
    (folder / "README.md").write_text("A valve.")
    call = Reply(None, [ScriptedCall("read_file", {"path": "README.md"})])
    with FakeVendors(Scripted([call, "It is about a valve.", "Yes."])) as fake:
        yield fake
        assert not fake.refused


def run_example(framework: str, folder: Path, *questions: str, **variables: str) -> list[str]:
    """Run an example with environment variables, and return the lines that it printed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "frameworks" / f"{framework}_agent.py"), *questions],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
