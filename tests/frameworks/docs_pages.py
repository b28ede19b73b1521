"""The pages and the examples of frameworks run in the environments of these, against the fake vendors.

So do the programs of the page that shows libraries side by side.
"""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.doc_examples import matches, run_python
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import KEY
from tests.side_by_side import MOVING, TOPIC, answering_model, programs
from tests.test_docs import ROOT

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


def run_side_by_side(library: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run the programs of a library, compare what they print, and return their topics."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    found = programs(library)
    with answering_model(monkeypatch):
        for topic, (code, output) in found.items():
            printed = run_python(code, {"__name__": "example"})
            assert matches(output, printed), f"{topic}: {printed}"
    return [*found]


def run_before_moving(section: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the program of a framework in docs/moving.md, and return what it printed."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    (text,) = [text for title, text in TOPIC.findall(MOVING.read_text()) if title == section]
    (code, _) = BLOCK.findall(text)[0]
    with answering_model(monkeypatch) as fake:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.url("gemini"))
        monkeypatch.setenv("GOOGLE_API_KEY", KEY)
        return run_python(code, {"__name__": "example"}).strip()


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
