"""Options of a Claude Code call: tools, permissions, directory, system prompt; and its errors.

The CLI is the real one, the API a strict stand-in on this machine.
"""

import asyncio
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from contextc._json import JSONObject, decode
from contextc.errors import FailureKind, InvalidSetting, ProviderFailed
from contextc.messages import ToolCall, ToolResult
from contextc.providers import provider
from contextc.providers.claude_code import client
from contextc.providers.claude_code.client import result_failure
from tests.conftest import some
from tests.fake_vendors import AcceptedRequest, FakeVendors, Plan, Reply, Script, ScriptedCall, faults
from tests.providers.claude_code_program import KEY_NAME, Host, ProgramReply, call_program, echo, gone, opened, shown

pytestmark = pytest.mark.skipif(find_spec("claude_agent_sdk") is None, reason="claude-agent-sdk is not installed")

WEATHER: JSONObject = {
    "name": "weather",
    "description": "How it is outside.",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def calling(name: str, **arguments: object) -> Reply:
    return Reply("I look.", calls=[ScriptedCall(name, arguments, id="toolu_01look")])


def then_done(first: Reply) -> Script:
    """Return a script: one call, and a short text after its result."""

    def script(ask: AcceptedRequest) -> Reply:
        return Reply("Done.") if b'"tool_result"' in ask.raw else first

    return script


def once(standin: FakeVendors, home: Path, *, options: JSONObject | None = None, **fields: object) -> ProgramReply:
    async def run() -> ProgramReply:
        async with opened(standin, home, **(options or {})) as endpoint:
            return await call_program(endpoint, home, "Hello", **fields)

    return asyncio.run(run())


def test_a_tool_of_ours_is_run_by_the_host_under_the_calls_own_id(tmp_path: Path) -> None:
    """Our tools are offered with their schemas as they are, and run in the turn without the CLI asking."""
    host = Host("12 degrees")
    with FakeVendors(then_done(calling("mcp__contextc__weather", city="Oslo"))) as standin:
        reply = once(standin, tmp_path, host=host, body={"tools": [WEATHER]})
        (call,) = host.ran
        assert (call.id, call.name, call.arguments) == ("toolu_01look", "weather", {"city": "Oslo"})
        assert host.asked == []
        assert reply.text == "Done."
        assert shown(standin.records[-1])[-1] == ("user", "toolu_01look: 12 degrees")
        offered = {tool["name"]: tool for tool in decode(standin.records[0].raw)["tools"]}
        assert offered["mcp__contextc__weather"]["input_schema"] == WEATHER["inputSchema"]


def test_a_tool_of_the_clis_own_is_asked_for_and_may_be_denied(tmp_path: Path) -> None:
    """Guarantee 11.12: the host is asked with the call as it was made; why not is what the model reads."""
    host = Host(why_not="Not today.")
    script = then_done(calling("Bash", command="touch forbidden", description="Touch"))
    with FakeVendors(script) as standin:
        once(standin, tmp_path, host=host, body={"builtin_tools": ["Bash"]})
        assert [(call.id, call.name) for call in host.asked] == [("toolu_01look", "Bash")]
        assert shown(standin.records[-1])[-1] == ("user", "toolu_01look: Not today.")
        allowed = Host(why_not="")
        once(standin, tmp_path, host=allowed, body={"builtin_tools": ["Bash"]})
        assert (tmp_path / "forbidden").exists()


@pytest.mark.thorough
def test_without_a_host_the_clis_own_rules_decide(tmp_path: Path) -> None:
    """Without an approver, a call that needs approval does not run."""
    with FakeVendors(then_done(calling("Bash", command="touch forbidden", description="Touch"))) as standin:
        reply = once(standin, tmp_path, body={"builtin_tools": ["Bash"]})
        assert reply.lines[-1]["permission_denials"][0]["tool_name"] == "Bash"
        assert not (tmp_path / "forbidden").exists()


def test_our_system_prompt_comes_behind_the_clis_own_or_in_its_place(tmp_path: Path) -> None:
    """Guarantee 8.2: the static fragments are the session's system prompt."""
    with FakeVendors(echo) as standin:
        once(standin, tmp_path, options={"prompt": "append"})
        once(standin, tmp_path, options={"prompt": "replace"})
        behind, whole = ([block["text"] for block in decode(record.raw)["system"]] for record in standin.records)
        assert behind[-1].endswith("Be brief.")
        assert len(behind[-1]) > 1000
        assert whole[-1] == "Be brief."


@pytest.mark.thorough
def test_a_model_of_small_output_is_asked_for_no_more(tmp_path: Path) -> None:
    """Guarantee 7.1: the CLI lets any model go on for 32,000 tokens or more, and a small one may not find an end."""
    with FakeVendors(echo) as standin:
        small = provider("claude-code:tiny", url=standin.url("anthropic"), key=KEY_NAME, window=8192, output=512)
        once(standin, tmp_path, provider=small)
        once(standin, tmp_path)
        few, own = (decode(record.raw)["max_tokens"] for record in standin.records)
        assert few == 512
        assert own >= 32_000


@pytest.mark.thorough
def test_headers_of_a_call_reach_the_api(tmp_path: Path) -> None:
    """What a proxy asks for is sent with every request of the CLI."""
    with FakeVendors(echo) as standin:
        once(standin, tmp_path, headers={"x-team": "blue", "x-room": "4"})
        assert [standin.records[0].headers.get(name) for name in ("x-team", "x-room")] == ["blue", "4"]


def test_options_that_the_program_does_not_take_are_reported_with_its_text(tmp_path: Path) -> None:
    """Guarantee 15.1: it ends at once, and another attempt would not help."""
    with FakeVendors(echo) as standin, pytest.raises(ProviderFailed, match="no-such-flag") as failed:
        once(standin, tmp_path, body={"extra_args": {"no-such-flag": None}})
    assert failed.value.kind == "invalid"


@pytest.mark.thorough
def test_the_program_runs_in_the_calls_directory(tmp_path: Path) -> None:
    """Guarantee 9.1: a session belongs to a directory. In one that is not there nothing is run."""
    (tmp_path / "work").mkdir()
    with FakeVendors(echo) as standin:
        reply = once(standin, tmp_path, directory=str(tmp_path / "work"))
        assert reply.lines[0]["cwd"] == str(tmp_path / "work")
        with pytest.raises(ProviderFailed, match="does not exist") as failed:
            once(standin, tmp_path, directory=str(tmp_path / "nowhere"))
        assert failed.value.kind == "invalid"


@pytest.mark.thorough
def test_another_option_needs_another_program_and_continues_with_the_session(tmp_path: Path) -> None:
    """A program serves the calls it was started for; nothing of the conversation is lost with it."""
    with FakeVendors(echo) as standin:

        async def run() -> tuple[ProgramReply, ProgramReply]:
            async with opened(standin, tmp_path) as endpoint:
                first = await call_program(endpoint, tmp_path, "Hello")
                second = await call_program(endpoint, tmp_path, "Now think", after=first, body={"effort": "low"})
                assert await gone(first.pid)
                return first, second

        first, second = asyncio.run(run())
        assert (second.session, second.notes) == (first.session, [])
        assert second.pid != first.pid
        assert decode(standin.records[-1].raw)["output_config"] == {"effort": "low"}
        assert shown(standin.records[-1])[0] == ("user", "Hello")


@pytest.mark.thorough
def test_programs_that_are_not_needed_are_ended(tmp_path: Path) -> None:
    """No more than `programs` are kept, and none for longer than `idle` seconds; the session goes on all the same."""
    with FakeVendors(echo) as standin:

        async def run() -> None:
            async with opened(standin, tmp_path, programs=1, idle=600) as endpoint:
                first = await call_program(endpoint, tmp_path, "Hello")
                second = await call_program(endpoint, tmp_path, "Another one")
                assert await gone(first.pid)
                assert not await gone(second.pid, 0.0)
                again = await call_program(endpoint, tmp_path, "Still there?", after=first)
                assert again.session == first.session
            async with opened(standin, tmp_path, idle=0.1) as endpoint:
                third = await call_program(endpoint, tmp_path, "One more")
                assert await gone(third.pid)
                again = await call_program(endpoint, tmp_path, "Still there?", after=third)
                assert again.session == third.session

        asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"permision_mode": "plan"}, "Did you mean 'permission_mode'"),
        ({"fork_session": True}, "unknown request setting of Claude Code"),
        ({"prompt": "prepend"}, '"append" or "replace"'),
    ],
)
def test_a_setting_that_the_cli_does_not_have_is_refused(tmp_path: Path, settings: JSONObject, expected: str) -> None:
    """Guarantee 15.1: before anything is started, and with the way out."""
    with FakeVendors(echo) as standin:
        with pytest.raises(InvalidSetting, match=expected):
            once(standin, tmp_path, body=settings)
        assert standin.records == []


@pytest.mark.parametrize(
    ("plan", "options", "kind", "status"),
    some(
        [
            (faults.listed(faults.rate()), {}, "rate", 429),
            (faults.listed(faults.quota()), {}, "quota", 400),
            (None, {"env": {KEY_NAME: "sk-wrong-key-000"}}, "auth", 401),
            (faults.listed(faults.cut()), {}, "transient", None),
        ],
        1,
    ),
)
def test_what_the_api_refuses_is_reported_as_everywhere(
    tmp_path: Path, plan: Plan | None, options: JSONObject, kind: FailureKind, status: int | None
) -> None:
    """Guarantee 11.11: `subtype` says success even so. Here the CLI does not ask again."""
    with FakeVendors(lambda ask: Reply("Some words that can be cut."), faults=plan) as standin:
        with pytest.raises(ProviderFailed) as failed:
            once(standin, tmp_path, options={"retries": 0, **options})
        assert (failed.value.kind, failed.value.status) == (kind, status)
        assert "sk-wrong" not in str(failed.value)
        assert len(standin.records) == 1


@pytest.mark.thorough
def test_the_cli_asks_its_api_again_and_it_is_reported(tmp_path: Path) -> None:
    """Guarantee 11.11: a retry is announced, and is not an error. A turn whose tools have run goes on."""
    plan = faults.listed(faults.overloaded(), None, faults.reset())
    with FakeVendors(then_done(calling("mcp__contextc__weather", city="Oslo")), faults=plan) as standin:
        host = Host()
        reply = once(standin, tmp_path, host=host, body={"tools": [WEATHER]})
        assert reply.notes == [
            "Claude Code retried its API request (529 overloaded).",
            "Claude Code retried its API request (connection lost).",
        ]
        assert reply.text == "Done."
        assert len(host.ran) == 1


@pytest.mark.thorough
def test_an_api_that_stays_overloaded_fails_the_turn_soon(tmp_path: Path) -> None:
    """Guarantees 11.11, 9.8: after two more requests, and nothing of the prompt is in the next one."""
    with FakeVendors(echo, faults=lambda ask: faults.overloaded() if b"Fails" in ask.raw else None) as standin:

        async def run() -> ProviderFailed:
            async with opened(standin, tmp_path) as endpoint:
                first = await call_program(endpoint, tmp_path, "Hello")
                with pytest.raises(ProviderFailed) as failed:
                    await asyncio.wait_for(call_program(endpoint, tmp_path, "Fails", after=first), 60)
                await call_program(endpoint, tmp_path, "Once more", after=first, revert=True)
                return failed.value

        assert (asyncio.run(run()).kind, len(standin.records)) == ("transient", 5)
        assert shown(standin.records[-1])[-1] == ("user", "Once more")


@pytest.mark.thorough
def test_a_prompt_that_is_too_long_is_a_matter_of_the_context(tmp_path: Path) -> None:
    """Guarantee 9.8: the CLI tries to shorten its own history, fails, and leaves a session that goes back to its
    cursor.
    """
    with FakeVendors(echo, window=1500) as standin:

        async def run() -> tuple[FailureKind, ProgramReply]:
            async with opened(standin, tmp_path) as endpoint:
                first = await call_program(endpoint, tmp_path, "Hello")
                with pytest.raises(ProviderFailed) as failed:
                    await call_program(endpoint, tmp_path, "long " * 3000, after=first)
                return failed.value.kind, await call_program(endpoint, tmp_path, "Short", after=first, revert=True)

        kind, reply = asyncio.run(run())
        assert kind == "context"
        assert reply.text == "You said: Short"
        assert shown(standin.records[-1])[0] == ("user", "Hello")


@pytest.mark.thorough
def test_a_timeout_ends_the_call_but_a_running_tool_is_not_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time limit is between two pieces of an answer. While a tool runs, there is none."""
    limits: list[float | None] = []

    def timeout(seconds: float | None) -> asyncio.Timeout:
        limits.append(seconds)
        return asyncio.timeout(seconds)

    class Waiting(Host):
        async def run(self, call: ToolCall) -> ToolResult:
            while limits[-1] is not None:
                await asyncio.sleep(0.001)
            return await super().run(call)

    with (
        monkeypatch.context() as patched,
        FakeVendors(then_done(calling("mcp__contextc__weather", city="Oslo"))) as standin,
    ):
        patched.setattr(client, "asyncio", SimpleNamespace(**{**vars(asyncio), "timeout": timeout}))
        reply = once(standin, tmp_path, host=Waiting(), body={"tools": [WEATHER]}, timeout=60)
        assert reply.text == "Done."
    assert {*limits} >= {60, None}
    with (
        FakeVendors(echo, faults=faults.listed(faults.hang())) as standin,
        pytest.raises(ProviderFailed, match=r"no data received for 0\.6 s") as failed,
    ):
        once(standin, tmp_path, timeout=0.6)
    assert failed.value.kind == "transient"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ({"subtype": "error_max_turns", "errors": ["Reached maximum number of turns (3)"]}, "abort"),
        ({"subtype": "error_max_budget_usd"}, "quota"),
        ({"subtype": "success", "api_error_type": "max_output_tokens"}, "abort"),
        ({"subtype": "error_during_execution", "errors": ["No conversation found with session ID: 1"]}, "session"),
        ({"subtype": "success", "result": "Prompt is too long"}, "context"),
        ({"subtype": "success", "result": "Not logged in · Please run /login"}, "auth"),
        ({"subtype": "success", "result": "API Error: Connection to the API was lost (ECONNRESET)."}, "transient"),
        ({"subtype": "success", "api_error_status": 500, "api_error_type": "api_error"}, "transient"),
    ],
)
def test_the_last_line_of_a_turn_reports_what_helps(line: JSONObject, kind: FailureKind) -> None:
    """Guarantee 15.1: the CLI's own sentences, and what its API answered."""
    assert result_failure("claude-code", {"type": "result", "is_error": True, **line}).kind == kind
