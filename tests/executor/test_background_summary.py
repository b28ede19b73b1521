"""Summaries that are written while a turn goes on, and used where the context is trimmed next: Guarantee 7.13."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject, encode
from contextc.compiler.compaction import LIVE_REQUEST, CompactionSteps, SummarizerInput
from contextc.events import CompactionFinished, StepStart, TurnFinish
from contextc.executor.summaries import SUMMARY_INSTRUCTIONS, BackgroundSummaries, summarize
from contextc.providers.client import Endpoint, ProviderCall
from tests.executor.scripted_provider import SONNET, Say, Scripted, fails, played, says

SUMMARY = "Things were written down."
LIVE, SEPARATE = encode(LIVE_REQUEST)[1:-1], encode(SUMMARY_INSTRUCTIONS.partition("\n")[0])[1:-1]


class Writer(Endpoint):
    """A model that writes down one thing after the other, and sums up when it is asked to and `may_answer` is set."""

    def __init__(self, steps: int, release: Callable[[int], bool] = lambda _: True) -> None:
        self.steps, self.release = steps, release
        self.bodies, self.summaries = list[bytes](), list[int]()
        """The requests of the turn, and how many there were when each summary was asked for."""
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()
        if release(0):
            self.may_answer.set()
        self.failures = 0

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        if LIVE in call.body or SEPARATE in call.body:
            self.summaries.append(len(self.bodies))
            self.asked.set()
            if self.failures:
                self.failures -= 1
                raise fails("quota", "no credit left")
            await self.may_answer.wait()
            reply = says(SUMMARY, input=7, output=3)
        else:
            self.bodies.append(call.body)
            if self.release(len(self.bodies)):
                self.may_answer.set()
            number = len(self.bodies)
            reply = says("Done.", input=0)
            if number <= self.steps:
                reply = says(f"Now thing {number}. " + "word " * 350, input=0, output=360)
                reply = says(reply.text, (f"c{number}", "note", {"n": number}), input=0, output=360)
        for event in reply.events():
            yield event


def note(n: int) -> str:
    """Write something down."""
    return "noted"


def agent(store: cc.Store, line: Endpoint, at: float | None = 0.75, run: str | None = None) -> cc.AgentExecutor:
    provider = cc.provider(SONNET, window=12_000, output=2_000)
    return cc.AgentExecutor(store, provider, tools=[note], endpoint=line, summarize_at=at, run=run, triggers=())


def count_summaries(store: cc.Store) -> int:
    row = store.read(lambda tx: tx.row("SELECT count(*) FROM main.overlay"))
    assert row is not None
    return row[0]


@pytest.fixture(scope="module")
def full() -> int:
    """The number of requests of a turn before the first summary, if none is written in the background."""

    async def run() -> int:
        line = Writer(40)
        with cc.open_store("memory:") as store:
            executor = agent(store, line, None)
            await played(executor, "demo", "write")
            await executor.close()
        return line.summaries[0]

    return asyncio.run(run())


async def test_a_summary_is_written_while_the_turn_goes_on_and_used_at_the_next_cut(store: cc.Store, full: int) -> None:
    """Neither its request nor its arrival changes the prefix; where the context is trimmed, the summary stands."""
    line = Writer(full + 2, lambda number: number >= full - 2)
    executor = agent(store, line)
    events = await played(executor, "demo", "write")
    await executor.close()

    assert len(line.summaries) == 1
    begins = [event for event in events if isinstance(event, StepStart) and event.why]
    assert [event.why for event in begins] == ["first request", "over budget"]
    assert line.summaries[0] < begins[1].step
    used = [SUMMARY.encode() in body for body in line.bodies]
    assert used == [number >= begins[1].step for number in range(1, len(used) + 1)]
    done = [event for event in events if isinstance(event, CompactionFinished)]
    assert [(event.fallback, event.before > event.after > 0) for event in done] == [("", True)]
    usage = store.turns("demo")[0].usage
    assert usage is not None
    assert usage.input == 7


async def test_a_turn_waits_for_the_summary_only_if_the_window_is_full(store: cc.Store, full: int) -> None:
    """No second summary is asked for while the first one is being written."""
    line = Writer(full + 2, lambda number: number >= full)
    executor = agent(store, line)
    await played(executor, "demo", "write")
    await executor.close()
    assert len(line.summaries) == 1
    assert SUMMARY.encode() in line.bodies[-1]


async def test_closing_the_executor_cancels_a_summary_and_stores_nothing(store: cc.Store, full: int) -> None:
    """A turn that ends does not wait for it, and no task is left."""
    line = Writer(full - 3, lambda _: False)
    executor = agent(store, line)
    await played(executor, "demo", "write")
    await line.asked.wait()
    await executor.close()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    assert count_summaries(store) == 0


async def test_a_summary_that_waits_is_used_when_people_ask_for_one(store: cc.Store, full: int) -> None:
    """And not before: the request after it was stored extends the one before it."""
    line = Writer(full - 2)
    executor = agent(store, line)
    await played(executor, "demo", "write")
    await executor.config.background.wait("demo")
    found = executor.compiler.compactions("demo")
    assert [each.waits for each in found] == [True]
    store.append("demo", cc.user("and now?"))
    assert executor.compiler.compile("demo", tools=[note], dry_run=True).manifest.why == ""

    asked = len(line.summaries)
    done = await executor.compact("demo")
    assert done is not None
    assert (done.upto, len(line.summaries)) == (found[0].upto, asked)
    assert b"<context-summary>" in executor.compiler.compile("demo", tools=[note], dry_run=True).body
    await executor.close()


@pytest.mark.parametrize("change", ["rewind", "reset", "redact"])
async def test_a_summary_that_waits_is_not_used_after_a_change(store: cc.Store, full: int, change: str) -> None:
    """It was written from messages that are no longer there."""
    executor = agent(store, Writer(full - 2))
    await played(executor, "demo", "write")
    await executor.config.background.wait("demo")
    upto = executor.compiler.compactions("demo")[0].upto
    getattr(store, change)("demo", *([] if change == "reset" else [upto]))
    store.append("demo", cc.user("and now? " + "word " * 3_000))
    compiled = executor.compiler.compile("demo", tools=[note], dry_run=True)
    assert SUMMARY.encode() not in compiled.body
    await executor.close()


@pytest.mark.parametrize("change", ["redact", "delete", "rewind"])
async def test_a_change_while_a_summary_is_written_leaves_nothing_of_it(
    store: cc.Store, full: int, change: str
) -> None:
    """The model has read what was redacted or deleted meanwhile: its answer is not stored, or not used."""
    line = Writer(full - 3, lambda _: False)
    executor = agent(store, line)
    await played(executor, "demo", "write")
    await line.asked.wait()
    getattr(store, change)("demo", *([] if change == "delete" else [3]))
    line.may_answer.set()
    await executor.config.background.wait("demo")
    if change == "rewind":
        store.append("demo", cc.user("and now? " + "word " * 3_000))
        body = executor.compiler.compile("demo", tools=[note], dry_run=True).body
        assert SUMMARY.encode() not in body
    else:
        assert count_summaries(store) == 0
    await executor.close()


async def test_no_summary_waits_behind_a_later_one(store: cc.Store, full: int) -> None:
    """Another process has summarized more in the meantime."""
    line = Writer(full - 3, lambda _: False)
    begins, other = agent(store, line), agent(store, Writer(0))
    await played(begins, "demo", "write")
    await line.asked.wait()
    store.append("demo", cc.user("and now?"))
    assert await other.compact("demo") is not None
    line.may_answer.set()
    assert not await begins.config.background.wait("demo")
    assert [each.waits for each in begins.compiler.compactions("demo")] == [False]
    for executor in (begins, other):
        await executor.close()


async def test_a_summary_that_ends_after_its_turn_is_counted_there(store: cc.Store, full: int) -> None:
    """Its usage and cost are in the record of the turn that asked for it, once."""
    line = Writer(full - 3, lambda _: False)
    executor = agent(store, line)
    await played(executor, "demo", "write")
    ended = store.turns("demo")[0]
    line.may_answer.set()
    await executor.config.background.wait("demo")
    turn = store.turns("demo")[0]
    await executor.close()
    assert ended.usage is not None
    assert turn.usage is not None
    assert (ended.usage.input, turn.usage.input, turn.usage.output - ended.usage.output) == (0, 7, 3)
    assert (turn.state, (turn.cost or 0) > (ended.cost or 0)) == ("finished", True)


async def test_a_summary_that_ends_in_the_next_turn_is_counted_where_it_was_asked_for(
    store: cc.Store, full: int
) -> None:
    """The next turn takes queued input, and runs under the same lease."""
    line = Writer(full - 3, lambda number: number == full - 1)  # the first request of the next turn
    executor = agent(store, line)
    await executor.follow_up("demo", "and now?")
    await played(executor, "demo", "write")
    await executor.config.background.wait("demo")
    await executor.close()
    usage = [turn.usage for turn in store.turns("demo")]
    assert [each.input for each in usage if each is not None] == [7, 0]


async def test_a_summary_that_ends_while_another_process_runs_its_turn_is_counted_there(
    store: cc.Store, full: int
) -> None:
    """The turn waited for approval, and was resumed by another executor before the summary was written."""
    provider, suspend = cc.provider(SONNET, window=12_000, output=2_000), cc.Suspend()
    line, tools = Writer(full, lambda _: False), [cc.tool(note, approval=True)]

    async def answer(_: JSONObject) -> Say:
        line.may_answer.set()
        await asks.config.background.wait("demo")
        return says("Done.", input=0, output=1)

    asks = cc.AgentExecutor(store, provider, tools=tools, endpoint=line, approve=suspend, triggers=())

    await played(agent(store, Writer(full - 3), None), "demo", "write")
    assert (await asks.start("demo", "go on").wait()).finish == "waiting"
    store.answer_approval(store.approvals("demo")[0].id, True)
    resumed = Scripted(answer)
    resumes = cc.AgentExecutor(
        store, provider, tools=tools, endpoint=resumed, approve=suspend, summarize_at=None, triggers=()
    )
    assert (await resumes.resume("demo").wait()).finish == "stop"
    turn = store.turns("demo")[-1]
    assert turn.usage is not None
    assert (turn.usage.input, turn.usage.output) == (7, 360 + 3 + 1)
    for executor in (asks, resumes):
        await executor.close()


def test_run_sync_waits_for_a_summary(full: int) -> None:
    """Its request is paid for, and the next call would ask for it again."""
    line = Writer(full - 3, lambda _: False)

    class Answers(Endpoint):
        """Writes the summary when the turn has ended."""

        async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
            if LIVE in call.body:
                async for event in writer.executor.watch("demo"):
                    if isinstance(event, TurnFinish):
                        line.may_answer.set()
                        break
            async for event in line.stream(call):
                yield event

    writer = cc.Agent(cc.provider(SONNET, window=12_000, output=2_000), tools=[note], endpoint=Answers(), triggers=[])
    assert writer.run_sync("write", conversation="demo").text == "Done."
    assert [each.waits for each in writer.executor.compiler.compactions("demo")] == [True]


async def test_the_event_of_a_summary_is_stored_with_the_first_request_that_uses_it(store: cc.Store, full: int) -> None:
    """One event, in the step whose request has the summary; it waits no longer then."""
    executor = agent(store, Writer(full + 2))
    await played(executor, "demo", "write")
    await executor.close()
    events = store.events("demo")
    at = [index for index, event in enumerate(events) if isinstance(event, CompactionFinished)]
    assert len(at) == 1
    following = events[at[0] + 1]
    assert isinstance(following, StepStart)
    assert following.why == "over budget"
    assert [each.waits for each in executor.compiler.compactions("demo")] == [False]


async def test_people_get_their_own_summary_and_undo_takes_back_what_waits(store: cc.Store, full: int) -> None:
    """With instructions a new summary is asked for. Undoing returns to the original messages, and none waits on."""
    line = Writer(full - 2)
    executor = agent(store, line)
    await played(executor, "demo", "write")
    await executor.config.background.wait("demo")
    asked = len(line.summaries)
    assert await executor.compact("demo", instructions="keep the names") is not None
    assert len(line.summaries) == asked + 1
    told = [event for event in store.events("demo") if isinstance(event, CompactionFinished)][-1]
    assert told.usage is not None
    assert (told.usage.input, told.usage.output, (told.cost or 0) > 0) == (7, 3, True)
    assert [each.waits for each in executor.compiler.compactions("demo")] == [False]
    await executor.close()

    waiting = agent(store, Writer(full - 2))
    await played(waiting, "third", "write")
    await waiting.config.background.wait("third")
    assert [each.waits for each in waiting.compiler.compactions("third")] == [True]
    assert waiting.undo_compaction("third") is not None
    assert waiting.compiler.compactions("third") == []
    await waiting.close()


async def test_a_failure_before_the_request_does_not_end_the_turn(store: cc.Store) -> None:
    """Not even one that nobody expects."""
    executor = agent(store, Writer(1))

    def steps() -> CompactionSteps:
        raise RuntimeError("not expected")
        yield

    asked = partial(summarize, executor.config)
    executor.config.background.start(executor.config, "demo", 0.8, steps, asked)
    assert not await executor.config.background.wait("demo")


async def test_a_request_is_sent_while_a_summary_is_prepared(store: cc.Store) -> None:
    """Only the storing of the reply waits for it: then there are calls without results."""
    executor, may_prepare = agent(store, Writer(1)), threading.Event()
    background = executor.config.background

    def steps() -> CompactionSteps:
        may_prepare.wait(60)
        return None
        yield

    store.append("demo", cc.user("hi"))
    background.start(executor.config, "demo", 0.8, steps, partial(summarize, executor.config))
    waits = asyncio.create_task(background.wait_until_prepared("demo"))
    await asyncio.sleep(0)
    assert not waits.done()
    may_prepare.set()
    await waits
    assert not await background.wait("demo")
    await executor.close()


async def test_one_summary_at_a_time_is_written_for_a_conversation(store: cc.Store) -> None:
    """Also if several executors of a process serve it; a failure is no error of the turn."""
    line = Writer(1)
    executor = agent(store, line)
    first, second = BackgroundSummaries(), BackgroundSummaries()
    started: list[int] = []

    def steps() -> CompactionSteps:
        started.append(1)
        yield SummarizerInput(messages=[cc.user("hi")], previous=None, max_tokens=100)
        raise RuntimeError("no summary")

    line.may_answer.clear()
    store.append("demo", cc.user("hi"))
    asked = partial(summarize, executor.config)
    first.start(executor.config, "demo", 0.8, steps, asked)
    await line.asked.wait()
    second.start(executor.config, "demo", 0.8, steps, asked)
    await second.wait("demo")
    line.may_answer.set()
    for each in (first, second):
        assert not await each.wait("demo")
    assert (len(started), len(line.summaries)) == (1, 1)
    first.start(executor.config, "demo", 0.99, steps, asked)  # asked for once until the context is trimmed
    second.start(executor.config, "demo", 0.5, steps, asked)
    second.start(executor.config, "demo", 0.82, steps, asked)
    await second.wait("demo")
    assert (len(started), len(line.summaries)) == (2, 2)
    await second.close()


async def test_a_summary_that_fails_in_the_background_is_asked_for_again_when_the_window_is_full(
    store: cc.Store, full: int
) -> None:
    """Once in the background, and nothing is stored of it; the turn goes on."""
    line = Writer(full + 2)
    line.failures = 2  # the request that reads the cache, and the separate one
    executor = agent(store, line)
    events = await played(executor, "demo", "write")
    await executor.close()
    done = [event.fallback for event in events if isinstance(event, CompactionFinished)]
    assert (done, len(line.summaries), count_summaries(store)) == ([""], 3, 1)


def test_the_mark_must_be_a_share_of_the_window(store: cc.Store) -> None:
    for wrong in (0, 1.5, "half", True):
        with pytest.raises(cc.errors.InvalidSetting, match="summarize_at must be a share"):
            agent(store, Writer(1), wrong)  # pyright: ignore[reportArgumentType]


@pytest.mark.thorough
def test_many_conversations_are_summed_up_at_once(tmp_path: Path, full: int) -> None:
    """64 turns in two executors, as in two processes: one summary, one event and all messages for each."""

    async def run(store: cc.Store, other: cc.Store) -> None:
        names = [f"demo{number}" for number in range(64)]
        lines = {name: Writer(full + 2, lambda number: number >= full - 2) for name in names}
        executors = [agent(each, Shared(lines)) for each in (store, other)]
        turns = [executors[at % 2].start(name, f"write {name}.") for at, name in enumerate(names)]
        results = await asyncio.gather(*[turn.wait() for turn in turns])
        for executor in executors:
            await executor.close()
        assert {result.finish for result in results} == {"stop"}
        for name in names:
            assert len(lines[name].summaries) == 1
            done = [event for event in store.events(name) if isinstance(event, CompactionFinished)]
            assert [event.fallback for event in done] == [""]
            assert [each.waits for each in executors[0].compiler.compactions(name)] == [False]
            assert len(store.load(name)) == 2 * (full + 2) + 2
            usage = store.turns(name)[0].usage
            assert usage is not None
            assert usage.input == 7
        assert count_summaries(store) == 64

    with cc.open_store(tmp_path / "chat.db") as store, cc.open_store(tmp_path / "chat.db") as other:
        asyncio.run(run(store, other))


class Shared(Endpoint):
    """One model for each conversation, which its first message names."""

    def __init__(self, lines: dict[str, Writer]) -> None:
        self.lines = lines

    def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        text = call.body.decode()
        return next(line for name, line in self.lines.items() if f"write {name}." in text).stream(call)


def test_two_processes_write_one_summary(tmp_path: Path, full: int) -> None:
    """The turn of one has ended, and its summary is being written: the turn of another does not ask for a second."""

    async def run(store: cc.Store, other: cc.Store) -> None:
        first, second = Writer(full - 5, lambda _: False), Writer(1)
        begins, goes_on = agent(store, first), agent(other, second)
        await played(begins, "demo", "write")
        await first.asked.wait()
        await played(goes_on, "demo", "go on")
        assert second.summaries == []
        first.may_answer.set()
        await begins.config.background.wait("demo")
        assert [each.waits for each in goes_on.compiler.compactions("demo")] == [True]
        for executor in (begins, goes_on):
            await executor.close()

    with cc.open_store(tmp_path / "chat.db") as store, cc.open_store(tmp_path / "chat.db") as other:
        asyncio.run(run(store, other))
