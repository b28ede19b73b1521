"""Calls that Codex runs without reporting an item are recorded too."""

from pathlib import Path

import pytest

import contextc as cc
from tests.conftest import some
from tests.fake_vendors import FakeVendors, Reply, Scripted, ScriptedCall, faults
from tests.sessions.cli_agents import CODEX, AgentSetup, answered, run_turns

UNTOLD = {
    "denied by the sandbox": ScriptedCall("exec_command", {"cmd": "touch there"}),
    "a tool that is not there": ScriptedCall("nosuch", {"thing": "it"}),
}


@pytest.mark.parametrize("asked", some([pytest.param(asked, id=name) for name, asked in UNTOLD.items()], 1))
def test_a_call_that_codex_does_not_report_of_is_recorded(asked: ScriptedCall, tmp_path: Path) -> None:
    """Guarantee 9.7: what the provider produced, all of it; also in a thread that is gone on with."""
    setup = AgentSetup(cc.open_store(f"sqlite:///{tmp_path / 'chat.db'}"), tmp_path)
    script = Scripted([Reply("I try.", [asked]), "It failed.", Reply("Again.", [asked]), "It failed again."])
    with FakeVendors(script, faults=lambda ask: faults.slow(0.03)) as standin:
        for text in ("Try it.", "Once more."):
            run_turns(setup.agent(CODEX, standin, settings={"sandbox": "read-only"}), "talk", text)
    messages = setup.store.load("talk")
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"] * 2
    for call in (messages[1].tool_calls[0], messages[5].tool_calls[0]):
        if call.name == "shell":  # on a busy machine Codex reports a denied command after all, as an item of its own
            assert "touch there" in str(call.arguments["command"])
        else:
            assert (call.name, call.arguments) == (asked.name, asked.arguments)
    assert messages[2].tool_results[0].text
    assert len(answered(standin)) == 4
    assert not standin.refused
