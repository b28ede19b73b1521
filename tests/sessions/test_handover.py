"""One conversation that goes from hand to hand: each provider is given what it has not seen, whoever said it, with the
calls and the results of everybody's tools (Guarantee 9.10).
"""

from collections import Counter
from pathlib import Path

import contextc as cc
from contextc.providers.client import endpoint
from tests.fake_vendors import AcceptedRequest, FakeVendors, Reply, RequestRecord, ScriptedCall
from tests.sessions.cli_agents import CLAUDE, CODEX, VARIABLE, AgentSetup, answered, marks, run_turns


class Relay:
    """Uses a tool the first time it is asked something, then says that it did."""

    def __init__(self) -> None:
        self.said = 0

    def __call__(self, ask: AcceptedRequest) -> Reply:
        last = ask.request.messages[-1]
        text = "".join(message.text for message in ask.request.messages[-2:])
        if last.role != "tool" and "«use look»" in text:
            return Reply("I look.", [ScriptedCall("look", {"thing": "«arg1»"})])
        if last.role != "tool" and "«use bash»" in text:
            return Reply(
                "I run it.", [ScriptedCall("Bash", {"command": "echo «out$((1+1))»", "description": "Say it"})]
            )
        if last.role != "tool" and "«use exec»" in text:
            return Reply("I run it.", [ScriptedCall("exec_command", {"cmd": "echo «exec$((1+1))»"})])
        self.said += 1
        return Reply(f"«a{self.said}» Done.")


def look(thing: str) -> str:
    """Look at a thing."""
    return f"«seen» {thing[1:-1]} is there."


def shown(record: RequestRecord, *expected: str) -> None:
    found = marks(record)
    assert {mark: found[mark] for mark in expected} == dict.fromkeys(expected, 1)


def test_openai_then_claude_code_then_anthropic_then_codex_and_back(tmp_path: Path) -> None:
    """Guarantee 9.10."""
    setup = AgentSetup(cc.open_store(f"sqlite:///{tmp_path / 'chat.db'}"), tmp_path)
    everything: list[str] = []
    with FakeVendors(Relay()) as standin:

        def stateless(spec: str, format: str) -> cc.AgentExecutor:
            provider = cc.provider(spec, url=standin.url(format), key=VARIABLE)
            return cc.AgentExecutor(setup.store, provider, tools=[look], endpoint=endpoint(provider), triggers=())

        def go_on(agent: cc.AgentExecutor, text: str, *added: str) -> None:
            run_turns(agent, "talk", text)
            everything.extend(added)

        go_on(stateless("openai:gpt-5.4", "openai_responses"), "«u1» Please «use look».", "«u1»", "«arg1»", "«seen»")
        shown(answered(standin)[-1], *everything)
        claude = setup.agent(CLAUDE, standin, settings={"allowed_tools": ["Bash"]})
        go_on(claude, "«u2» Please «use bash».", "«a1»", "«u2»", "«out2»")
        shown(answered(standin)[-1], *everything)
        go_on(stateless("anthropic:claude-sonnet-4-5", "anthropic"), "«u3» What did you see?", "«a2»", "«u3»")
        shown(answered(standin)[-1], *everything)
        codex = setup.agent(CODEX, standin, settings={"approvalPolicy": "never", "sandbox": "danger-full-access"})
        go_on(codex, "«u4» Please «use exec».", "«a3»", "«u4»", "«exec2»")
        shown(answered(standin)[-1], *everything)
        go_on(claude, "«u5» And what do you know now?", "«a4»", "«u5»")
        shown(answered(standin)[-1], *everything)
    assert not standin.refused
    modes = Counter(
        setup.agent(CLAUDE, standin).compiler.explain("talk", number, directory=str(setup.work)).mode
        for number in (1, 2)
    )
    assert modes == {"full": 1, "resume": 1}, "Claude Code went on in the session it had"
