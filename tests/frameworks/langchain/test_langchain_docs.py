"""The page and the example of LangChain run against the fake vendors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import KEY
from tests.frameworks.docs_pages import run_page
from tests.test_docs import ROOT


def test_the_page_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = Reply(None, [ScriptedCall("read_page", {"number": 3})])
    with FakeVendors(Scripted([call, "The valve was replaced."])) as fake:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url("openai_chat"))
        assert run_page("langchain") == 2
        assert not fake.refused


def test_the_example_runs(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("A valve.")
    call = Reply(None, [ScriptedCall("read_file", {"path": "README.md"})])
    with FakeVendors(Scripted([call, "It is about a valve.", "Yes."])) as fake:
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples/frameworks/langchain_agent.py"), "What is it about?", "Sure?"],
            cwd=tmp_path,
            env={**os.environ, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": fake.url("openai_chat")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.splitlines() == ["It is about a valve.", "Yes.", "6 messages are stored"], done.stderr
        assert not fake.refused
