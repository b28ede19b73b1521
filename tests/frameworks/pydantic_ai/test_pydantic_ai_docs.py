"""The page and the example of pydantic-ai run against the fake vendors."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import KEY
from tests.test_docs import ROOT, matches, run_python

BLOCK = re.compile(r"^```(py|output)\n(.*?)^```$", re.M | re.S)


def test_the_page_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = Reply(None, [ScriptedCall("read_page", {"number": 3})])
    with FakeVendors(Scripted([call, "The valve was replaced."])) as fake:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url("openai_responses"))
        names: dict[str, object] = {"__name__": "example"}
        printed, shown = "", 0
        for kind, block in BLOCK.findall((ROOT / "docs" / "frameworks" / "pydantic_ai.md").read_text()):
            if kind == "py":
                printed = run_python(block, names)
            else:
                shown += 1
                assert matches(block, printed), printed
        assert shown == 2
        assert not fake.refused


def test_the_example_runs_and_continues_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("A valve.")
    call = Reply(None, [ScriptedCall("read_file", {"path": "README.md"})])
    with FakeVendors(Scripted([call, "It is about a valve.", "Yes."])) as fake:

        def run(question: str) -> list[str]:
            done = subprocess.run(
                [sys.executable, str(ROOT / "examples/frameworks/pydantic_ai_agent.py"), question],
                cwd=tmp_path,
                env={**os.environ, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": fake.url("openai_responses")},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout.splitlines()

        assert run("What is it about?") == ["It is about a valve.", "4 messages are stored"]
        assert run("Sure?") == ["Yes.", "6 messages are stored"]
        assert not fake.refused
