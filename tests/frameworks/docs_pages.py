"""The pages and the examples of frameworks run in the environments of these, against the fake vendors."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import KEY
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


def run_example(framework: str, folder: Path, *questions: str, vendor: str = "openai_chat") -> list[str]:
    """Run an example on a model that reads a file and then answers, and return the lines that it printed."""
    (folder / "README.md").write_text("A valve.")
    call = Reply(None, [ScriptedCall("read_file", {"path": "README.md"})])
    with FakeVendors(Scripted([call, "It is about a valve.", "Yes."])) as fake:
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "frameworks" / f"{framework}_agent.py"), *questions],
            cwd=folder,
            env={**os.environ, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": fake.url(vendor)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert not fake.refused
    return done.stdout.splitlines()
