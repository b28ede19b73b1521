"""The real Claude Code through our client: its API gets the conversation and nothing else, turn by turn.

The CLI is the real one, the API a strict stand-in on this machine. All of it stands on two private names of the SDK
(the CLI's lines, and its process), so an SDK without them fails here first.
"""

import asyncio
import gc
import os
import signal
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path

import pytest

import contextc as cc
from contextc.errors import ProviderFailed
from tests.conftest import some
from tests.fake_vendors import FakeVendors, Reply, faults
from tests.providers.claude_code_program import (
    SLOW,
    ProgramReply,
    assistant,
    call_of,
    call_program,
    echo,
    gone,
    line_to,
    opened,
    shown,
    slow_where_asked,
    stream_after_first_delta,
    user,
)

pytestmark = pytest.mark.skipif(find_spec("claude_agent_sdk") is None, reason="claude-agent-sdk is not installed")


def test_a_session_continues_in_one_program_which_is_given_only_what_is_new(tmp_path: Path) -> None:
    """Guarantee 9.4: a history that is sent again would be in the request twice. A path in a prompt
    is text, and no file is read for it."""
    with FakeVendors(echo) as standin:

        async def run() -> tuple[ProgramReply, ProgramReply]:
            async with opened(standin, tmp_path) as endpoint:
                first = await call_program(endpoint, tmp_path, "Look at @/etc/hostname")
                second = await call_program(endpoint, tmp_path, "And now?", after=first)
            assert await gone(first.pid)
            return first, second

        first, second = asyncio.run(run())
        assert first.session == second.session
        assert first.pid == second.pid != 0
        assert [shown(record) for record in standin.records] == [
            [("user", "Look at @/etc/hostname")],
            [
                ("user", "Look at @/etc/hostname"),
                ("assistant", "You said: Look at @/etc/hostname"),
                ("user", "And now?"),
            ],
        ]
        assert second.text == "You said: And now?"
        assert first.lines[-1]["type"] == "result"
        assert not standin.refused


@pytest.mark.thorough
def test_another_process_continues_with_the_session_from_the_store(tmp_path: Path) -> None:
    """Guarantee 9.5: the record of a session lies with the conversation, so that it can be resumed from anywhere; a
    program that is ended loses nothing."""
    store = cc.open_store(f"sqlite:{tmp_path / 'store.db'}")
    store.append("talk", cc.user("Hello"))
    with FakeVendors(echo) as standin:

        async def turn(home: str, text: str, after: ProgramReply | None = None) -> ProgramReply:
            async with opened(standin, tmp_path / home, store=store) as endpoint:
                return await call_program(endpoint, tmp_path, text, after=after, conversation="talk")

        first = asyncio.run(turn("one", "Hello"))
        second = asyncio.run(turn("two", "Are you there?", first))
        assert (second.session, second.notes) == (first.session, [])
        assert shown(standin.records[-1]) == [
            ("user", "Hello"),
            ("assistant", "You said: Hello"),
            ("user", "Are you there?"),
        ]


@pytest.mark.thorough
def test_a_prompt_that_failed_is_not_in_the_next_request(tmp_path: Path) -> None:
    """Guarantee 9.8: the CLI keeps a prompt that its API refused, and would show it beside the next one."""
    with FakeVendors(echo, faults=faults.listed(None, faults.overloaded())) as standin:

        async def run() -> tuple[ProgramReply, ProgramReply, ProviderFailed]:
            async with opened(standin, tmp_path, retries=0) as endpoint:
                first = await call_program(endpoint, tmp_path, "Hello")
                with pytest.raises(ProviderFailed) as failed:
                    await call_program(endpoint, tmp_path, "Fails", after=first)
                assert await gone(first.pid)
                again = await call_program(endpoint, tmp_path, "Once more", after=first, revert=True)
                return first, again, failed.value

        first, again, failed = asyncio.run(run())
        assert (failed.kind, failed.status) == ("transient", 529)
        assert len(standin.records) == 3, "the CLI asked by itself again"
        assert shown(standin.records[-1]) == [
            ("user", "Hello"),
            ("assistant", "You said: Hello"),
            ("user", "Once more"),
        ]
        assert again.session != first.session
        assert first.session in again.notes[0]
        assert again.session in again.notes[0]


@pytest.mark.thorough
def test_a_program_that_is_killed_in_the_stream_leaves_no_prompt_behind(tmp_path: Path) -> None:
    """Guarantee 9.8. Nothing else is lost with it: what was acknowledged before is in the next request."""
    with FakeVendors(echo, faults=slow_where_asked) as standin:

        async def run() -> None:
            async with opened(standin, tmp_path) as endpoint:
                first = await call_program(endpoint, tmp_path, "Hello")
                lines = await stream_after_first_delta(endpoint, call_of(endpoint, tmp_path, SLOW, after=first))
                os.kill(first.pid, signal.SIGKILL)
                with pytest.raises(ProviderFailed, match="the program ended") as failed:
                    async for _ in lines:  # what it had written before
                        pass
                assert failed.value.kind == "transient"
                await call_program(endpoint, tmp_path, "Once more", after=first, revert=True)

        asyncio.run(run())
        assert shown(standin.records[-1]) == [
            ("user", "Hello"),
            ("assistant", "You said: Hello"),
            ("user", "Once more"),
        ]


@pytest.mark.thorough
def test_an_answer_that_was_given_but_never_stored_is_taken_from_the_record(tmp_path: Path) -> None:
    """Guarantee 9.8: a call found to have gone through after all is acknowledged, and not sent a second time. Another
    prompt is: the answer was not to it."""
    store = cc.open_store("memory:")
    store.append("talk", cc.user("Hello"))
    with FakeVendors(echo) as standin:

        async def turn(text: str, after: ProgramReply | None = None, **fields: object) -> ProgramReply:
            async with opened(standin, tmp_path, store=store) as endpoint:
                return await call_program(endpoint, tmp_path, text, after=after, conversation="talk", **fields)

        first = asyncio.run(turn("Hello"))
        lost = asyncio.run(turn("Are you there?", first))
        found = asyncio.run(turn("Are you there?", first, revert=True))
        assert len(standin.records) == 2
        assert (found.text, found.cursor, found.session) == (lost.text, lost.cursor, lost.session)
        assert "already answered this prompt" in found.notes[0]
        other = asyncio.run(turn("Something else", first, revert=True))
        assert shown(standin.records[-1])[-1] == ("user", "Something else")
        assert ("user", "Are you there?") not in shown(standin.records[-1])
        assert other.session != lost.session


def test_a_session_that_is_not_in_the_record_is_reported_as_missing(tmp_path: Path) -> None:
    """Guarantees 9.5, 9.6: the caller begins a new one. No program is started for it, and nothing is sent."""
    with FakeVendors(echo) as standin:

        async def run() -> list[str]:
            async with opened(standin, tmp_path) as endpoint:
                kinds: list[str] = []
                first = await call_program(endpoint, tmp_path, "Hello")
                for fields in (
                    {"session": "7b0c3f6e-5d1f-4f0e-9d0a-2f1c4b5a6d7e", "cursor": first.cursor},
                    {"session": first.session, "cursor": "7b0c3f6e-5d1f-4f0e-9d0a-2f1c4b5a6d7e"},
                    {"session": first.session, "revert": True},
                ):
                    with pytest.raises(ProviderFailed) as failed:
                        await call_program(endpoint, tmp_path, "Are you there?", **fields)
                    kinds.append(failed.value.kind)
                return kinds

        assert asyncio.run(run()) == ["session"] * 3
        assert len(standin.records) == 1


def test_a_history_from_elsewhere_is_the_sessions_own_with_its_tool_calls(tmp_path: Path) -> None:
    """Guarantee 9.10: through the CLI's own import, so that calls and results are calls and results to the model."""
    call: dict[str, object] = {"type": "tool_use", "id": "toolu_01a", "name": "sum", "input": {"of": [2, 2]}}
    result = user([{"type": "tool_result", "tool_use_id": "toolu_01a", "content": "4"}])
    history = [user("What is 2 + 2?"), assistant("I add.", call), result, assistant("It is 4.")]
    with FakeVendors(echo) as standin:

        async def run() -> tuple[ProgramReply, ProgramReply]:
            async with opened(standin, tmp_path) as endpoint:
                first = await call_program(endpoint, tmp_path, *history, "And 3 + 3?")
                return first, await call_program(endpoint, tmp_path, "Thank you.", after=first)

        first, second = asyncio.run(run())
        imported = [
            ("user", "What is 2 + 2?"),
            ("assistant", "I add."),
            ("assistant", 'toolu_01a: sum({"of":[2,2]})'),
            ("user", "toolu_01a: 4"),
            ("assistant", "It is 4."),
            ("user", "And 3 + 3?"),
        ]
        assert shown(standin.records[0]) == imported
        assert shown(standin.records[1]) == [
            *imported,
            ("assistant", "You said: And 3 + 3?"),
            ("user", "Thank you."),
        ]
        assert (second.session, second.pid) == (first.session, first.pid)


def test_a_turn_that_broke_off_after_its_tools_is_continued(tmp_path: Path) -> None:
    """Guarantee 9.8: there is no new message, and the CLI answers prompts only: it is prompted to continue. A session
    that ends with anything but a reply is ended by the CLI with its own text, which is reported.
    """
    call: dict[str, object] = {"type": "tool_use", "id": "toolu_01a", "name": "sum", "input": {}}
    result = user([{"type": "tool_result", "tool_use_id": "toolu_01a", "content": "4"}])
    with FakeVendors(echo) as standin:

        async def run() -> ProgramReply:
            async with opened(standin, tmp_path) as endpoint:
                return await call_program(endpoint, tmp_path, "What is 2 + 2?", assistant(call), result)

        assert "No response requested." in asyncio.run(run()).notes[0]
        assert shown(standin.records[0]) == [
            ("user", "What is 2 + 2?"),
            ("assistant", "toolu_01a: sum({})"),
            ("user", "toolu_01a: 4"),
            ("assistant", "No response requested."),
            ("user", "[System Context]: Go on where you were."),
        ]


def test_a_message_from_elsewhere_meanwhile_comes_before_the_prompt(tmp_path: Path) -> None:
    """Guarantee 9.10: a delta may hold replies of another provider; they go into the session, and are not answered."""
    with FakeVendors(echo) as standin:

        async def run() -> tuple[ProgramReply, ProgramReply]:
            async with opened(standin, tmp_path) as endpoint:
                first = await call_program(endpoint, tmp_path, "Hello")
                delta = ["Who else is there?", assistant("Another model."), "And you?"]
                return first, await call_program(endpoint, tmp_path, *delta, after=first)

        first, second = asyncio.run(run())
        assert second.session == first.session
        assert shown(standin.records[-1]) == [
            ("user", "Hello"),
            ("assistant", "You said: Hello"),
            ("user", "Who else is there?"),
            ("assistant", "Another model."),
            ("user", "And you?"),
        ]


@pytest.mark.thorough
def test_two_calls_at_once_are_served_one_after_the_other_and_none_sees_the_other(tmp_path: Path) -> None:
    """Guarantee 9.5: each gets the context of its cursor. Otherwise two resumes lose one of their branches."""
    with FakeVendors(echo) as standin:

        async def run() -> tuple[ProgramReply, ProgramReply, ProgramReply]:
            async with opened(standin, tmp_path) as endpoint:
                first = await call_program(endpoint, tmp_path, "Hello")
                left, right = await asyncio.gather(
                    call_program(endpoint, tmp_path, "Left", after=first),
                    call_program(endpoint, tmp_path, "Right", after=first),
                )
                return first, left, right

        first, left, right = asyncio.run(run())
        began = [("user", "Hello"), ("assistant", "You said: Hello")]
        assert [shown(record) for record in standin.records[1:]] == [
            [*began, ("user", "Left")],
            [*began, ("user", "Right")],
        ]
        assert left.session == first.session != right.session


def test_a_client_that_disconnects_ends_the_program_at_once(tmp_path: Path) -> None:
    """Guarantee 11.10: nothing is left running, and the prompt that was given up is not in the next request."""
    with FakeVendors(echo, faults=slow_where_asked) as standin:

        async def run() -> None:
            async with opened(standin, tmp_path) as endpoint:
                first = await call_program(endpoint, tmp_path, "Hello")
                lines = await stream_after_first_delta(endpoint, call_of(endpoint, tmp_path, SLOW, after=first))
                await asyncio.wait_for(lines.aclose(), 60)
                assert await gone(first.pid, 0.0)
                assert endpoint.running == set()
                second = await call_program(endpoint, tmp_path, "Once more", after=first, revert=True)
                begun = asyncio.Event()

                async def read() -> None:
                    lines = await stream_after_first_delta(endpoint, call_of(endpoint, tmp_path, SLOW, after=second))
                    async with aclosing(lines):
                        begun.set()
                        async for _ in lines:
                            pass

                reading = asyncio.create_task(read())
                await asyncio.wait_for(begun.wait(), 60)
                reading.cancel()
                await asyncio.wait({reading}, timeout=60)
                assert reading.cancelled()
                assert await gone(second.pid, 0.0)

        asyncio.run(run())
        requests = [shown(record) for record in standin.records]
        assert requests[2] == [("user", "Hello"), ("assistant", "You said: Hello"), ("user", "Once more")]


@pytest.mark.thorough
def test_a_closed_endpoint_ends_its_calls(tmp_path: Path) -> None:
    """A call that is still running ends with an error, and its program with it."""
    with FakeVendors(lambda ask: Reply("word " * 100), faults=lambda ask: faults.slow(0.05)) as standin:

        async def run() -> str:
            async with opened(standin, tmp_path) as endpoint:
                lines = await stream_after_first_delta(endpoint, call_of(endpoint, tmp_path, "Hello"))
                (live,) = endpoint.running
                await endpoint.close()
                assert await gone(live.pid, 0.0)
                with pytest.raises(ProviderFailed) as failed:
                    async for _ in lines:
                        pass
                return failed.value.kind

        assert asyncio.run(run()) == "abort"


@pytest.mark.thorough
@pytest.mark.parametrize("seconds", some([0.02, 0.0], 1))
def test_a_loop_that_ends_while_a_program_does_leaves_nothing_open(tmp_path: Path, seconds: float) -> None:
    """What the SDK has open is closed also then; what was not would be an error of whatever test comes next."""
    with FakeVendors(echo) as standin:

        async def run() -> int:
            endpoint = line_to(standin, tmp_path, idle=0)
            first = await call_program(endpoint, tmp_path, "Hello")
            await asyncio.sleep(seconds)
            return first.pid

        pid = asyncio.run(run())
        assert not os.path.exists(f"/proc/{pid}")
        gc.collect()
