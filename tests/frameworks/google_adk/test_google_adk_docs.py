"""The page and the example of Google's ADK run against the fake vendors."""

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


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_page_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantees 21.4 and 21.6. ADK does not close its HTTP client."""
    monkeypatch.chdir(tmp_path)
    call = Reply(None, [ScriptedCall("read_page", {"number": 3})])
    with FakeVendors(Scripted([call, "The valve was replaced."])) as fake:
        monkeypatch.setenv("GOOGLE_API_KEY", KEY)
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.url("gemini"))
        assert run_page("google_adk") == 2
        assert not fake.refused


def test_the_example_runs(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("A valve.")
    call = Reply(None, [ScriptedCall("read_file", {"path": "README.md"})])
    with FakeVendors(Scripted([call, "It is about a valve.", "Yes."])) as fake:
        settings = {
            "GOOGLE_API_KEY": KEY,
            "GOOGLE_GENAI_USE_VERTEXAI": "0",
            "GOOGLE_GEMINI_BASE_URL": fake.url("gemini"),
        }
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples/frameworks/google_adk_agent.py"), "What is it about?", "Sure?"],
            cwd=tmp_path,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.splitlines() == ["It is about a valve.", "Yes.", "6 messages are stored"], done.stderr
        assert not fake.refused
