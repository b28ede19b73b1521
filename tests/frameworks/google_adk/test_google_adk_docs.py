"""The page and the example of Google's ADK run against the fake vendors."""

from pathlib import Path

import pytest

from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import KEY
from tests.frameworks.docs_pages import reading_model, run_example, run_page


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
    with reading_model(tmp_path) as fake:
        variables = {"GOOGLE_GENAI_USE_VERTEXAI": "0", "GOOGLE_GEMINI_BASE_URL": fake.url("gemini")}
        printed = run_example("google_adk", tmp_path, "What is it about?", "Sure?", GOOGLE_API_KEY=KEY, **variables)
    assert printed == ["It is about a valve.", "Yes.", "6 messages are stored"]
