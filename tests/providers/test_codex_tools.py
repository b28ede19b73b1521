"""Tools during a turn of Codex: ours, and its own that need approval. With the real program."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from contextc._json import JSONObject, decode
from tests.fake_vendors import AcceptedRequest, FakeVendors, Reply, Scripted, ScriptedCall
from tests.providers.codex_program import LOOK, Codex, Host, is_alive, seen


def last_item(ask: AcceptedRequest) -> JSONObject:
    return decode(ask.raw)["input"][-1]


async def ended(pid: int) -> None:
    """Wait for the end of a process, whose parent has yet to notice."""
    async with asyncio.timeout(60):
        while is_alive(pid):
            await asyncio.sleep(0.01)


async def test_a_tool_of_ours_is_run_by_the_host(tmp_path: Path) -> None:
    """A thread gets our tools; Codex calls them, and the host's result goes to the model."""

    def script(ask: AcceptedRequest) -> Reply:
        if last_item(ask)["type"] == "message":
            return Reply("Let me look.", [ScriptedCall("look", {"thing": "the key"})])
        return Reply(f"I see: {last_item(ask)['output']}.")

    host = Host()
    with FakeVendors(script) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            tools = {"dynamicTools": [LOOK]}
            answer = await codex.ask(line, "Look for it.", host=host, settings=tools)
            alone = await codex.ask(line, "Look again.", answer, settings=tools)
        assert [(call.name, call.arguments) for call in host.ran] == [("look", {"thing": "the key"})]
        assert answer.text == "I see: the key is there."
        assert [message.role for message in answer.reader.messages()] == ["assistant", "tool", "assistant"]
        assert alone.text == "I see: Nobody is here to run this tool.."
        assert not standin.refused


@pytest.mark.parametrize("approved", [(), ("shell",)])
async def test_a_command_that_needs_approval_is_put_to_the_host(tmp_path: Path, approved: tuple[str, ...]) -> None:
    """What the host declines is not run; the turn goes on either way."""
    made = tmp_path / "made.txt"

    def script(ask: AcceptedRequest) -> Reply:
        if last_item(ask)["type"] == "message":
            asks = {"sandbox_permissions": "require_escalated", "justification": "May I?", "login": False}
            return Reply(None, [ScriptedCall("exec_command", {"cmd": f"echo made > {made}", **asks})])
        return Reply("Done.")

    host = Host(*approved)
    with FakeVendors(script) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            answer = await codex.ask(line, "Make it.", host=host, settings={"approvalPolicy": "on-request"})
        (call,) = host.asked
        assert call.name == "shell"
        assert str(made) in call.arguments["command"]
        assert call.arguments["reason"] == "May I?"
        assert answer.text == "Done."
        assert made.exists() is bool(approved)


async def test_nothing_that_needs_approval_is_done_without_a_host(tmp_path: Path) -> None:
    patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: made.txt\n+hi\n*** End Patch\nEOF\n"

    def script(ask: AcceptedRequest) -> Reply:
        return Reply(None, [ScriptedCall("exec_command", {"cmd": patch})]) if ask.number == 0 else Reply("Done.")

    with FakeVendors(script) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            answer = await codex.ask(line, "Make it.", settings={"approvalPolicy": "untrusted"})
        changes = [event["params"]["item"] for event in answer.events if event["method"] == "item/completed"]
        assert [item["status"] for item in changes if item["type"] == "fileChange"] == ["declined"]
        assert answer.text == "Done."
        assert not (codex.home / "made.txt").exists()


async def test_closing_a_stream_interrupts_the_turn_and_ends_its_commands(tmp_path: Path) -> None:
    """Guarantee 11.10: what is cancelled leaves nothing running; the program stays for the next call."""
    started = tmp_path / "started"

    def script(ask: AcceptedRequest) -> Reply:
        command = f"echo $$ > {started}; exec sleep 60"
        return (
            Reply(None, [ScriptedCall("exec_command", {"cmd": command, "login": False})])
            if ask.number == 0
            else Reply("ok")
        )

    with FakeVendors(script) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            free = {"sandbox": "danger-full-access", "approvalPolicy": "never"}
            async with aclosing(line.stream(codex.call("Wait.", settings=free))) as events:
                async for _ in events:
                    if started.exists() and started.read_text().strip():
                        break
                    await asyncio.sleep(0)
            pid = line.pid
            await ended(int(started.read_text()))
            assert (await codex.ask(line, "Another.")).text == "ok"
            assert line.pid == pid


@pytest.mark.parametrize("again", ["the same program", "another program"])
async def test_a_thread_cannot_be_given_other_tools(tmp_path: Path, again: str) -> None:
    """Guarantee 9.3: Codex would go on with the old ones and not say so; a new thread is asked for instead."""
    other = {**LOOK, "name": "listen"}

    with FakeVendors(Scripted(["answer 1", "answer 2"])) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(line, "one", settings={"dynamicTools": [LOOK]})
            if again == "another program":
                await line.close()
            refused = await codex.ask(line, "two", first, settings={"dynamicTools": [LOOK, other]})
            second = await codex.ask(line, "two", first, settings={"dynamicTools": [LOOK]})
        assert refused.error is not None
        assert refused.error.kind == "session"
        assert "has other tools than the request" in refused.error.said
        assert second.session == first.session
        assert [seen(record) for record in standin.records] == [["one"], ["one", "answer 1", "two"]]
