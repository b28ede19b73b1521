"""The page and the example of LangGraph run against the fake vendors."""

from pathlib import Path

import pytest

from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import KEY
from tests.frameworks.docs_pages import reading_model, run_example, run_page


def test_the_page_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = Reply(None, [ScriptedCall("read_page", {"number": 3})])
    with FakeVendors(Scripted([call, "The valve was replaced."])) as fake:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url("openai_chat"))
        assert run_page("langgraph") == 2
        assert not fake.refused


def test_the_example_runs(tmp_path: Path) -> None:
    with reading_model(tmp_path) as fake:
        variables = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": fake.url("openai_chat")}
        printed = run_example("langgraph", tmp_path, "What is it about?", "Sure?", **variables)
    assert printed == ["It is about a valve.", "Yes.", "6 messages are stored"]
