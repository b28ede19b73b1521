"""The examples of docs/frameworks/openai_agents.md, against a stand-in of OpenAI."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from agents import set_tracing_disabled

import contextc as cc
from tests.fake_vendors import KEY, AcceptedRequest, FakeVendors, Reply, ScriptedCall

PAGE = Path(__file__).parents[3] / "docs" / "frameworks" / "openai_agents.md"
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.M | re.S)


def answer(ask: AcceptedRequest) -> Reply:
    """Call the tool once for each user message, then answer."""
    if ask.request.messages[-1].role == "tool":
        return Reply("It prints 1.")
    return Reply("", [ScriptedCall("read_file", {"path": "a.py"})])


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantees 21.1, 21.4 and 21.6: before, after, and without a session."""
    set_tracing_disabled(True)
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    names: dict[str, object] = {"__name__": "example"}
    printed = io.StringIO()
    with FakeVendors(answer) as fakes, contextlib.redirect_stdout(printed):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{fakes.url()}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        for block in blocks:
            exec(compile(block, "example", "exec"), names)
        assert [record.refused for record in fakes.records] == [""] * len(fakes.records)
    assert printed.getvalue().splitlines() == ["It prints 1.", "It prints 1.", "8 messages"]
    with cc.open_store("sqlite:///chat.db") as store:
        compiler = cc.MessageCompiler(store, cc.provider("openai:gpt-5.4", format="openai_responses"))
        requests = [compiler.explain("user-1", number).record for number in (1, 2)]
        assert all(record.usage is not None and record.usage.input > 0 for record in requests)
