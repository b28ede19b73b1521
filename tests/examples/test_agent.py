"""The example of a complete agent, with the real SDK and a strict fake API."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import contextc as cc
from tests.fake_vendors import KEY, FakeVendors, Reply, Scripted, ScriptedCall

README = Path(__file__).parent.parent.parent / "README.md"
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "agent.py"
QUESTION = "How is Paris? Write home about it."


def test_the_first_example_of_the_readme_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 20.1: an answer takes three lines."""
    code = README.read_text().partition("```py\n")[2].partition("```")[0]
    assert len([line for line in code.splitlines() if line]) == 3
    with FakeVendors(Scripted([Reply("Air scatters blue light most.")])) as vendors:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", vendors.url("anthropic"))
        exec(compile(code, "README.md", "exec"), {})
        assert (vendors.refused, vendors.defects, len(vendors.records)) == ([], [], 1)
    assert capsys.readouterr().out == "Air scatters blue light most.\n"


def test_an_agent_asks_its_tools_and_a_person(tmp_path: Path) -> None:
    """Guarantees 11.1, 11.3: and its trigger fires before the third step."""
    script = Scripted(
        [
            Reply(
                "Let me look.",
                [ScriptedCall("get_weather", {"city": "Paris"}), ScriptedCall("get_weather", {"city": "Cairo"})],
            ),
            Reply("", [ScriptedCall("send_postcard", {"city": "Paris", "text": "It rains."})]),
            Reply("It rains in Paris, and your card is on its way."),
        ]
    )
    with FakeVendors(script) as standin:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": standin.url("anthropic"),
        }
        done = subprocess.run(
            [sys.executable, EXAMPLE, "anthropic:claude-opus-5-5", QUESTION],
            cwd=tmp_path,
            env=environment,
            input="y\n",
            capture_output=True,
            text=True,
            check=False,
        )
        assert standin.refused == []
        assert standin.defects == []

    assert done.returncode == 0, done.stderr
    assert "[get_weather: 18 °C, rain]" in done.stdout
    assert "[two_calls: You have asked for the weather twice. Answer now.]" in done.stdout
    assert "send_postcard({'city': 'Paris', 'text': 'It rains.'})? y/n" in done.stdout
    assert done.stdout.endswith("your card is on its way.\nstop after 3 steps and 3 tool calls\n")
    with cc.open_store(f"sqlite:///{tmp_path / 'agent.db'}") as store:
        results = [result.text for message in store.load("weather") for result in message.tool_results]
        assert sorted(results[:2]) == ["18 °C, rain", "34 °C, clear"]  # asked for together, stored as they come
        assert results[2:] == ["A postcard from Paris is on its way: It rains."]
