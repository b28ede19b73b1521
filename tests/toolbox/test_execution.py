"""Execution of one tool call: arguments, result and errors."""

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, cast

import msgspec
import pytest
from hypothesis import given, strategies

import contextc as cc
from contextc._worker_threads import ConcurrencyLimit
from contextc.tools import execution, unknown_tool_result
from tests.movable_clock import HOUR, Advance, run_with_clock
from tests.toolbox.run_call import Point, answer, call_of, look


def json_objects() -> strategies.SearchStrategy[dict[str, object]]:
    """Arguments by the right and by wrong names, of every shape that JSON has."""
    text = strategies.text(strategies.characters(exclude_categories=()), max_size=8)
    plain: strategies.SearchStrategy[object] = strategies.one_of(
        strategies.none(), strategies.booleans(), strategies.integers(), strategies.floats(), text
    )
    names = strategies.sampled_from(["path", "limit", "kind", "at", "x", "y", "pth", ""])
    values = strategies.recursive(
        plain,
        lambda inner: strategies.one_of(
            strategies.lists(inner, max_size=3), strategies.dictionaries(names, inner, max_size=3)
        ),
        max_leaves=6,
    )
    return strategies.dictionaries(names, values)


USAGE = 'Expected: look(path: string, limit?: integer, kind?: "bytes" | "text", at?: {x: integer, y?: integer}).'


def test_arguments_become_values() -> None:
    assert answer(look, {"path": "a", "at": {"x": 1}}).content == "a 10 text Point(x=1, y=0)"


def test_a_number_that_came_as_text_is_a_number_and_null_is_left_out() -> None:
    assert answer(look, {"path": "a", "limit": "5", "kind": None}).content == "a 5 text None"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pth": "a"}, "There is no parameter `pth`. Did you mean `path`? The parameter `path` is missing."),
        ({"path": "a", "limit": "ten"}, '`limit`: Expected `int`, got `str`: "ten".'),
        ({"path": None}, "`path`: Expected `str`, got `null`: null."),
        ({"path": "a", "kind": "page"}, "`kind`: Invalid enum value 'page': \"page\"."),
        ({"path": "a", "at": {"x": 1, "z": 2}}, "There is no field `at.z`."),
        ({"path": "a", "at": {"y": 2}}, '`at`: Object missing required field `x`: {"y":2}.'),
        ('{"path": "a', "Its arguments are not JSON (Unterminated string starting at: line 1 column 10 (char 9))."),
        ("[1]", "Its arguments are not an object but list."),
        ('{"a":' * 150 + "1" + "}" * 150, "Its arguments are an object that is nested too deep."),
    ],
    ids=["unknown", "type", "null", "choice", "unknown inside", "missing inside", "cut off", "no object", "deep"],
)
def test_what_a_model_got_wrong_is_reported_to_it_exactly(arguments: str | dict[str, object], expected: str) -> None:
    """Guarantee 2.3: nothing crashes; the model reads the field, what came, and what was expected."""
    result = answer(look, arguments)
    assert result.is_error
    assert result.text.startswith("The tool was not run. ")
    assert expected in result.text
    assert result.text.endswith(USAGE)


def test_fields_that_no_class_has_are_found_inside_lists_too() -> None:
    def draw(points: list[Point]) -> str:
        return str(points)

    assert "There is no field `points[1].z`." in answer(draw, {"points": [{"x": 1}, {"x": 1, "z": 2}]}).text


def returned() -> list[tuple[object, str]]:
    return [
        ("words", "words"),
        (None, ""),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (Point(1), '{"x":1,"y":0}'),
        (3.5, "3.5"),
        ([cc.Text("a"), "b"], "ab"),
    ]


@pytest.mark.parametrize(("value", "text"), returned())
def test_what_a_function_returns_becomes_a_result(value: object, text: str) -> None:
    """Guarantee 2.2: None becomes the empty text, other values become JSON."""

    def give() -> object:
        return value

    assert (answer(give).text, answer(give).is_error) == (text, False)


def test_media_and_whole_results_pass_and_always_name_their_call() -> None:
    picture = cc.Media(mime_type="image/png", data=b"png")

    def show() -> object:
        return [picture]

    def refuse() -> object:
        return cc.ToolResult(call_id="other", name="other", content="no", is_error=True)

    assert answer(show).content == (picture,)
    assert answer(refuse) == cc.ToolResult(call_id="c1", name="refuse", content="no", is_error=True)


class Moody(list[int]):
    """A value that raises when it is looked at."""

    def __iter__(self) -> Iterator[int]:
        raise SystemError("not today")


@pytest.mark.parametrize(
    "value",
    [
        object(),
        b"bytes",
        float("nan"),
        [cc.Text("a"), 5],
        [cc.Text(cast(str, 5))],
        iter([]),
        10**5_000,
        {"of": [-(10**5_000)]},
        Moody([1]),
    ],
    ids=["object", "bytes", "nan", "mixed", "number", "iterator", "huge", "huge inside", "raises when read"],
)
def test_a_value_that_no_store_takes_is_an_error_result(value: object) -> None:
    def give() -> object:
        return value

    result = answer(give)
    assert result.is_error
    assert result.text.startswith("give ran, but what it returned cannot be passed on: ")
    cc.open_store("memory:").append("demo", cc.Message(role="tool", parts=(result,)))


def test_a_result_beyond_all_measure_is_an_error_result() -> None:
    def give() -> str:
        return "x" * 10_000_001

    assert answer(give).text == "give ran, but returned 10,000,001 characters, which is too much. Ask for less."


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such town"), "ValueError: no such town"),
        (KeyError(), "KeyError"),
        (cc.errors.InvalidInput("There is no such town."), "There is no such town."),
        (SystemExit(3), "SystemExit: 3"),
        (StopIteration("end"), "StopIteration: end"),
        (Mute(), "Mute"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("on_loop", [False, True])
def test_an_exception_is_reported_by_type_and_message(error: BaseException, text: str, on_loop: bool) -> None:
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    result = answer(fail_async if on_loop else fail)
    if on_loop and isinstance(error, StopIteration):
        text = "RuntimeError: coroutine raised StopIteration"
    assert (result.is_error, result.text) == (True, text)


def test_the_traceback_goes_to_the_log_and_not_to_the_model(caplog: pytest.LogCaptureFixture) -> None:
    """Guarantee 13.3: quiet by default; content only at DEBUG, and without what looks like a key."""

    def fail() -> None:
        raise ValueError("no such town for ghp_abcdefghijklmnopqrstuvwxyz0123456789")

    with caplog.at_level(logging.DEBUG, "contextc.tools"):
        assert "Traceback" not in answer(fail).text
    assert "Traceback" in caplog.text
    assert "ValueError: no such town for [key]" in caplog.text
    assert "ghp_abc" not in caplog.text
    assert {record.levelno for record in caplog.records if record.name == "contextc.tools"} == {logging.DEBUG}


def test_very_long_error_messages_are_cut() -> None:
    def fail() -> None:
        raise ValueError("x" * 100_000)

    assert len(answer(fail).text) < 5_000
    assert answer(fail).text.endswith("[96,000 characters more]")


def test_an_async_tool_is_cancelled_when_its_time_is_over() -> None:
    """Guarantee 11.2: wall time per tool."""
    cleaned: list[bool] = []

    async def slow(context: cc.ToolContext) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(context.cancelled.is_set())

    result = answer(slow, timeout=0.02)
    assert result.is_error
    assert result.text.startswith("slow had not ended after 0.02 seconds and was stopped.")
    assert cleaned == [True]


async def test_an_async_tool_that_will_not_be_cancelled_blocks_no_other_call() -> None:
    async def stubborn() -> None:
        for _ in range(100):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    result = await cc.tool(stubborn, timeout=0.02).run(call_of("stubborn"))
    assert result.is_error
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)


def test_a_plain_function_runs_in_a_thread_and_is_reported_that_the_result_is_not_awaited() -> None:
    stopped = threading.Event()

    def slow(context: cc.ToolContext) -> None:
        assert threading.current_thread() is not threading.main_thread()
        if context.cancelled.wait(60):
            stopped.set()

    assert "had not ended after 0.02 seconds" in answer(slow, timeout=0.02).text
    assert stopped.wait(60)


def test_abandoned_threads_do_not_block_others() -> None:
    release = threading.Event()

    def stuck() -> None:
        release.wait(60)

    async def run() -> list[cc.ToolResult]:
        tool = cc.tool(stuck, timeout=0.01)
        results = await asyncio.gather(*[tool.run(call_of("stuck")) for _ in range(60)])
        assert all(result.is_error for result in results)
        return [await cc.tool(look).run(call_of("look", {"path": "a"})) for _ in range(3)]

    try:
        assert [result.is_error for result in asyncio.run(run())] == [False] * 3
    finally:
        release.set()


def test_a_thread_that_ends_after_the_event_loop_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    release, ended = threading.Event(), threading.Event()

    def late() -> None:
        release.wait(60)
        ended.set()

    answer(late, timeout=0.01)
    release.set()
    assert ended.wait(60)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("on_loop", [False, True])
async def test_cancelling_a_call_passes_through_and_reaches_the_tool(on_loop: bool) -> None:
    """Guarantee 11.10: a cancelled turn stops its tools."""
    started, stopped = threading.Event(), threading.Event()

    def plain(context: cc.ToolContext) -> None:
        started.set()
        if context.cancelled.wait(60):
            stopped.set()

    async def on_the_loop() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    tool = cc.tool(on_the_loop if on_loop else plain, name="slow")
    task = asyncio.create_task(tool.run(call_of("slow")))
    while not started.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()


def test_an_async_tool_that_cancels_itself_is_an_error_result() -> None:
    async def leave() -> None:
        raise asyncio.CancelledError

    assert answer(leave).text == "RuntimeError: the tool cancelled itself"


def test_the_limit_of_the_caller_counts_where_the_tool_has_none() -> None:
    async def slow() -> None:
        await asyncio.sleep(60)

    async def run(own: float | None, given: float) -> str:
        return (await cc.tool(slow, timeout=own).run(call_of("slow"), timeout=given)).text

    assert "after 0.01 seconds" in asyncio.run(run(None, 0.01))
    assert "after 0.01 seconds" in asyncio.run(run(0.01, 60))


def test_a_tool_sees_the_caller_and_its_context_variables() -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
    lines: list[str] = []

    def who(context: cc.ToolContext, /, path: str) -> str:
        context.progress("looking")
        return f"{context.conversation} {context.agent} {context.call.id} {context.step} {path} {request.get()}"

    async def run() -> str:
        request.set("r7")
        context = cc.ToolContext(conversation="demo", agent="coder", step=2, progress=lines.append)
        return (await cc.tool(who).run(call_of("who", {"path": "a"}), context)).text

    assert asyncio.run(run()) == "demo coder c1 2 a r7"
    assert lines == ["looking"]


def test_a_plain_function_that_returns_a_coroutine_is_awaited_within_the_same_limit() -> None:
    async def work(title: str) -> str:
        await asyncio.sleep(60 if title == "slow" else 0)
        return title

    def begin(title: str) -> object:
        return work(title)

    assert answer(begin, {"title": "Emma"}).text == "Emma"
    assert "had not ended" in answer(begin, {"title": "slow"}, timeout=0.02).text


def test_a_call_of_an_unknown_tool_gets_the_list_of_tools() -> None:
    result = unknown_tool_result(call_of("Read_Files"), ["read_file", "list_files", "todos"])
    assert result.is_error
    assert result.text == (
        "There is no tool Read_Files. Did you mean read_file or list_files? There are: list_files, read_file, todos."
    )
    assert unknown_tool_result(call_of("x"), []).text == "There is no tool x. There are none."


def test_values_of_foreign_types_are_converted() -> None:
    def take(path: Path, pair: tuple[int, str], wide: Point | None, any_of: object) -> str:
        return repr((path, pair, wide, any_of))

    given = {"path": "a/b", "pair": [1, "b"], "wide": None, "any_of": {"x": 1}}
    assert answer(take, given).text == "(PosixPath('a/b'), (1, 'b'), None, {'x': 1})"
    assert "`path`: Expected `Path`, got `int`: 5." in answer(take, given | {"path": 5}).text


def test_limits_in_a_hint_are_kept() -> None:
    def take(count: Annotated[int, msgspec.Meta(ge=1)]) -> str:
        return str(count)

    assert answer(take, {"count": 1}).text == "1"
    assert "`count`: Expected `int` >= 1: 0." in answer(take, {"count": 0}).text


@given(arguments=json_objects())
def test_no_arguments_raise(arguments: dict[str, object]) -> None:
    """Guarantee 2.3: what a model wrote is answered, and never crashes anything."""
    result = answer(look, arguments)
    assert result.is_error or result.text.startswith(f"{arguments['path']} ")
    assert (result.call_id, result.name) == ("c1", "look")


def test_a_tool_that_runs_another_does_not_wait_for_its_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent may be a tool: with every thread taken by such tools, the tools inside them must still run."""
    monkeypatch.setattr(execution, "TOOL_SLOTS", ConcurrencyLimit(1))

    def inner() -> str:
        return "from inside"

    def outer() -> str:
        return answer(inner).text

    async def both() -> list[cc.ToolResult]:
        made = cc.tool(outer)
        async with asyncio.timeout(60):
            return await asyncio.gather(*[made.run(call_of("outer")) for _ in range(3)])

    assert [result.text for result in asyncio.run(both())] == ["from inside"] * 3


def test_the_time_of_a_tool_does_not_run_while_it_waits_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that was never started must not be reported as stopped, with what it had done."""
    monkeypatch.setattr(execution, "TOOL_SLOTS", slots := ConcurrencyLimit(1))
    slots.acquire(lambda: None)

    def work() -> str:
        return "done"

    async def main(advance: Advance) -> cc.ToolResult:
        task = asyncio.ensure_future(cc.tool(work, timeout=HOUR).run(call_of("work")))
        for number in range(20):
            await asyncio.sleep(0)
            if number == 10:  # the task waits for a thread by now
                advance(2 * HOUR)
        assert not task.done()
        slots.release()
        return await task

    assert run_with_clock(main).text == "done"


def test_the_time_of_a_tool_runs_from_its_start() -> None:
    """Guarantee 11.2: its limit ends the call also where nothing else happens."""
    started, over = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        over.wait(60)

    async def main(advance: Advance) -> cc.ToolResult:
        task = asyncio.ensure_future(cc.tool(work, timeout=HOUR).run(call_of("work")))
        while not started.is_set():
            await asyncio.sleep(0.001)
        advance(HOUR)
        return await task

    try:
        assert run_with_clock(main).text.startswith("work had not ended after 3600 seconds")
    finally:
        over.set()
