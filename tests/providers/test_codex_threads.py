"""Codex threads that continued, were interrupted, are in use or were deleted, with the real program."""

import asyncio
import os
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

import contextc as cc
from contextc.providers.codex.app_server import AppServer, LaunchConfig
from tests.fake_vendors import AcceptedRequest, FakeVendors, Fault, Reply, Scripted, faults
from tests.providers.codex_program import CallResult, Codex, answered, seen, text_message


def replies() -> Scripted:
    return Scripted([f"answer {number}" for number in range(1, 9)])


def second(fault: Fault) -> faults.Plan:
    return faults.listed(None, fault)


async def test_a_failed_prompt_is_taken_back_in_place(tmp_path: Path) -> None:
    """Guarantee 9.8: Codex keeps a prompt that failed; before the next one the thread is brought back to the cursor."""
    with FakeVendors(replies(), faults=second(faults.overloaded())) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line(retries=0) as line:
            first = await codex.ask(line, "one")
            failed = await codex.ask(line, "two, and it fails", first)
            third = await codex.ask(line, "three", first, revert=True)
            fourth = await codex.ask(line, "four", third)
        assert failed.error is not None
        assert seen(standin.records[2]) == ["one", "answer 1", "three"]
        assert third.session == fourth.session == first.session
        assert seen(standin.records[3]) == ["one", "answer 1", "three", third.text, "four"]
        assert third.reader.notes == []


async def test_history_of_a_failed_attempt_is_taken_back_with_it(tmp_path: Path) -> None:
    """Guarantee 9.8: what was taken in belongs to no turn, and a revert would leave it; a fork at the cursor does
    not.
    """
    with FakeVendors(replies(), faults=second(faults.overloaded())) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line(retries=0) as line:
            first = await codex.ask(line, [text_message("zero"), answered("nought"), text_message("one")])
            await codex.ask(line, [text_message("elsewhere"), answered("of another time"), text_message("two")], first)
            third = await codex.ask(
                line, [text_message("elsewhere"), answered("as it is now"), text_message("two")], first, revert=True
            )
        kept = ["zero", "nought", "one", "answer 1"]
        assert seen(standin.records[1]) == [*kept, "elsewhere", "of another time", "two"]
        assert seen(standin.records[2]) == [*kept, "elsewhere", "as it is now", "two"]
        assert third.session != first.session
        assert not standin.refused


async def test_history_that_went_in_before_the_prompt_did_is_taken_back(tmp_path: Path) -> None:
    """Guarantee 9.8: a program that dies between import and prompt leaves history that belongs to no turn."""
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(line, "one")
        launch = LaunchConfig.for_provider(codex.provider(), codex.environment)
        server = await AppServer.start(launch.command, launch.environment)
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "left over"}]}
        await server.request("thread/resume", {"threadId": first.session, "excludeTurns": True})
        await server.request("thread/inject_items", {"threadId": first.session, "items": [item]})
        await server.close()
        async with codex.line() as line:
            third = await codex.ask(line, "three", first, revert=True)
        assert seen(standin.records[-1]) == ["one", "answer 1", "three"]
        assert third.error is None


@pytest.mark.thorough
async def test_a_program_killed_in_the_stream_costs_nothing_but_its_turn(tmp_path: Path) -> None:
    """Guarantee 9.8: kill -9 in the middle of a reply; the prompt stays in the thread, and is taken back."""
    with FakeVendors(replies(), faults=second(faults.stalled(0.6))) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(line, "one")

            async def die() -> None:
                async with aclosing(line.stream(codex.call("two, and it dies", first))) as events:
                    async for event in events:
                        if event["method"] == "item/agentMessage/delta":
                            os.kill(line.pid or 0, signal.SIGKILL)

            with pytest.raises(cc.errors.ProviderFailed, match="it exited with status -9") as caught:
                await die()
            assert caught.value.kind == "transient"
            third = await codex.ask(line, "three", first, revert=True)
        assert seen(standin.records[-1]) == ["one", "answer 1", "three"]
        assert third.session == first.session


async def test_a_cancelled_turn_is_taken_back(tmp_path: Path) -> None:
    """Guarantee 11.10: nothing of it is left in the thread, not even that it was interrupted."""
    with FakeVendors(replies(), faults=second(faults.stalled(0.6))) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(line, "one")
            begun = asyncio.Event()

            async def read() -> None:
                async for event in line.stream(codex.call("two, given up", first)):
                    if event["method"] == "item/agentMessage/delta":
                        begun.set()

            task = asyncio.create_task(read())
            await asyncio.wait_for(begun.wait(), 60)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            third = await codex.ask(line, "three", first, revert=True)
        assert seen(standin.records[-1]) == ["one", "answer 1", "three"]
        assert b"turn_aborted" not in standin.records[-1].raw
        assert third.session == first.session


async def test_a_silent_api_is_given_up_in_time(tmp_path: Path) -> None:
    """The timeout of a call applies between two pieces of a reply, and the turn is interrupted."""

    def plan(ask: AcceptedRequest) -> Fault | None:  # by its text: the call may end before its request arrives
        return faults.stalled(4) if ask.request.messages[-1].text == "two" else None

    with FakeVendors(replies(), faults=plan) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(line, "one")
            silent = await codex.ask(line, "two", first, timeout=2)
            third = await codex.ask(line, "three", first, revert=True)
        assert silent.error is not None
        assert silent.error.kind == "transient"
        assert "no data received for 2 s" in silent.error.said
        assert seen(standin.records[-1]) == ["one", "answer 1", "three"]
        assert third.session == first.session


@pytest.mark.parametrize("again", ["the same program", "another program"])
async def test_an_answer_that_is_in_the_thread_is_taken_from_there(tmp_path: Path, again: str) -> None:
    """Guarantee 9.8: our process died between the answer and its commit. The same prompt is not asked twice."""
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        delta = [text_message("elsewhere"), answered("said elsewhere"), text_message("two")]
        async with codex.line() as line:
            first = await codex.ask(line, "one")
            lost = await codex.ask(line, delta, first)
            if again == "another program":
                await line.close()
            found = await codex.ask(line, delta, first, revert=True)
            third = await codex.ask(line, "three", found)
        assert len(standin.records) == 3
        assert (found.text, found.session, found.cursor) == (lost.text, lost.session, lost.cursor)
        assert found.reader.finished
        assert found.reader.message().usage == lost.reader.message().usage
        assert "had already answered this prompt" in found.reader.notes[0]
        assert seen(standin.records[-1])[-4:] == ["said elsewhere", "two", "answer 2", "three"]
        assert third.session == first.session


async def test_another_prompt_than_the_one_that_was_answered_is_asked(tmp_path: Path) -> None:
    """Guarantee 9.8: an answer to something else is taken back, whole."""
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(line, "one")
            await codex.ask(line, "two", first)
            third = await codex.ask(line, "two, in other words", first, revert=True)
        assert seen(standin.records[-1]) == ["one", "answer 1", "two, in other words"]
        assert third.text == "answer 3"


async def test_a_thread_that_is_gone_is_reported_as_such(tmp_path: Path) -> None:
    """Guarantee 9.6: the file deleted, an unknown id, an unknown turn: the kind is `session`, and nothing was sent."""
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(line, "one")
        no_turn = CallResult(first.events, codex.provider().formatter.create_reader())
        no_turn.reader.session, no_turn.reader.cursor = first.session, "01a1dfb0-8cf9-7e71-91bb-fc567abed7cf"
        no_thread = CallResult([], codex.provider().formatter.create_reader())
        no_thread.reader.session, no_thread.reader.cursor = no_turn.cursor, first.cursor
        async with codex.line() as line:
            lost = [await codex.ask(line, "two", each) for each in (no_turn, no_thread)]
            (rollout,) = codex.home.glob("sessions/**/*.jsonl")
            rollout.unlink()
            lost += [await codex.ask(line, "two", first, revert=each) for each in (False, True)]
        assert [each.error and each.error.kind for each in lost] == ["session"] * 4
        assert len(standin.records) == 1


async def test_an_invalid_thread_id_is_never_sent(tmp_path: Path) -> None:
    """Guarantee 9.6: Codex may begin a new thread for an id it cannot read. Not even the program is started."""
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            wrong = CallResult([], codex.provider().formatter.create_reader())
            wrong.reader.session, wrong.reader.cursor = "the-one-of-yesterday", "1"
            answer = await codex.ask(line, "two", wrong)
            assert line.pid is None
        assert answer.error is not None
        assert answer.error.kind == "session"
        assert not standin.records


async def test_a_thread_is_let_go_of_so_that_another_process_can_continue(tmp_path: Path) -> None:
    """Guarantee 9.5: a thread has one writer. It is free after a while; before that, the other one goes on in a
    fork.
    """
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line(idle=60.0) as holds, codex.line(idle=0.0) as other, codex.line() as third:
            first = await codex.ask(holds, "one")
            forked = await codex.ask(other, "two", first)
            assert forked.session != first.session
            assert "is held by another process" in forked.reader.notes[0]
            went_on = await codex.ask(third, "three", forked)
            assert went_on.session == forked.session
            assert went_on.reader.notes == []
        assert seen(standin.records[-1]) == ["one", "answer 1", "two", "answer 2", "three"]


async def test_threads_of_one_program_run_side_by_side(tmp_path: Path) -> None:
    """One program, many threads: events of one do not reach the other."""

    def echo(ask: AcceptedRequest) -> Reply:
        return Reply(f"to {ask.request.messages[-1].text}")

    with FakeVendors(echo, faults=lambda ask: faults.slow(0.01)) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            answer = await asyncio.gather(*[codex.ask(line, name) for name in ("a", "b", "c")])
            assert line.pid is not None
        assert [each.text for each in answer] == ["to a", "to b", "to c"]
        assert len({each.session for each in answer}) == 3


async def test_the_history_of_a_thread_survives_that_codex_shortens_it(tmp_path: Path) -> None:
    """A thread that is loaded again without its instructions would lose them with its first compaction."""
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line(idle=0.0) as line:
            first = await codex.ask(line, "one")
            limit = {"settings": {"config": {"model_auto_compact_token_limit": 100}}}
            second = await codex.ask(line, "two", first, **limit)
        assert second.reader.compacted
        assert b"Be brief." in standin.records[-1].raw
        assert seen(standin.records[-1])[-1] == "two"
