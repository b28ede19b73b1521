"""Run one call of one tool, from arguments to result. Errors of the model or of the tool become results.

An async function runs on the event loop and is cancelled at its timeout. A synchronous function runs on a thread of its
own, which cannot be stopped. At its timeout the thread is abandoned and `context.cancelled` is set, so that the
function can stop itself. An abandoned thread does not block the next call.

The number of threads that run tools is limited for the whole process. A tool that is called from within another tool
(an agent used as a tool) is not counted, which avoids a deadlock.

The result can always be stored. Only a cancellation and a user's Ctrl-C are raised.
"""

import asyncio
import contextvars
import difflib
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._threads import Slots, limit_from_environment, run_soon
from contextc.errors import ContextcError, InvalidInput, InvalidMessage, described, is_interrupt
from contextc.messages import Message, ToolCall, ToolResult, admit
from contextc.toolbox.complaints import usage
from contextc.toolbox.context import ToolContext
from contextc.toolbox.parameters import Function, Parameters

log = logging.getLogger("contextc.toolbox")

GRACE = 0.5
LONGEST_ERROR = 4_000
LONGEST_RESULT = 10_000_000
MANY_NAMES = 40
LONGEST_NAME = 64
THREADS = Slots(limit_from_environment("CONTEXTC_TOOL_THREADS", 256))
_in_a_tool: contextvars.ContextVar[bool] = contextvars.ContextVar("contextc_in_a_tool", default=False)


class Outcome(Struct, frozen=True):
    """The value or the exception of a function call."""

    value: object = None
    error: BaseException | None = None


async def run_call(
    function: Function, parameters: Parameters, call: ToolCall, context: ToolContext, seconds: float | None
) -> ToolResult:
    """Convert the arguments, run the function for at most `seconds`, and return the result."""
    if call.malformed:
        return failed(call, f"{_not_json(call.raw or '')} {_expected(call, parameters)}")
    try:
        values = parameters.read(call.arguments)
    except InvalidInput as error:
        return failed(call, f"The tool was not run. {error} {_expected(call, parameters)}")
    outcome = await _ended(lambda: parameters.call(function, values, context), is_async(function), context, seconds)
    if outcome is None:
        log.debug("tool %s, call %s: stopped after %s s", call.name, call.id, seconds)
        return failed(
            call,
            f"{call.name} had not ended after {seconds:g} seconds and was stopped. Whatever it had done by then stays "
            "done. Ask for less at once, or try another way.",
        )
    if outcome.error is not None:
        log.debug("tool %s, call %s failed", call.name, call.id, exc_info=outcome.error)
        return failed(call, _words(outcome.error))
    return result_of(call, outcome.value)


def failed(call: ToolCall, words: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=words, is_error=True)


def unknown_tool(call: ToolCall, names: Iterable[str]) -> ToolResult:
    """Return the error result for a call of an unknown tool."""
    known = sorted(names)
    lowered = {name.lower(): name for name in known}
    alike = [lowered[each] for each in difflib.get_close_matches(call.name[:LONGEST_NAME].lower(), lowered, 3)]
    hint = f" Did you mean {' or '.join(alike)}?" if alike else ""
    some = ", ".join(known[:MANY_NAMES]) + (f" and {len(known) - MANY_NAMES} more" if len(known) > MANY_NAMES else "")
    return failed(
        call, f"There is no tool {call.name}.{hint} " + (f"There are: {some}." if known else "There are none.")
    )


def result_of(call: ToolCall, value: object) -> ToolResult:
    """Return the return value of a function as the result of this call."""
    try:
        if isinstance(value, ToolResult):
            result = replace(value, call_id=call.id, name=call.name)
        else:
            # ToolResult converts every other value to text; its field has the type after that conversion.
            result = ToolResult(call_id=call.id, name=call.name, content=cast(str, value))
        if not isinstance(result.content, str):
            admit(Message(role="tool", parts=(replace(result, call_id="any", name="any"),)))
    except Exception as error:  # a user's object may raise any exception when it is converted
        log.debug("tool %s, call %s: the return value cannot be stored", call.name, call.id, exc_info=error)
        why = error if isinstance(error, InvalidMessage) else described(error)
        return failed(call, f"{call.name} ran, but what it returned cannot be passed on: {why}")
    size = len(result.text)
    if size > LONGEST_RESULT:
        return failed(call, f"{call.name} ran, but returned {size:,} characters, which is too much. Ask for less.")
    return result


def is_async(function: Function) -> bool:
    inner = getattr(function, "func", function)  # of a functools.partial
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


async def _ended(
    work: Callable[[], object], on_loop: bool, context: ToolContext, seconds: float | None
) -> Outcome | None:
    """Return the outcome of the work, None after a timeout."""
    loop = asyncio.get_running_loop()
    counted: AbstractAsyncContextManager[None] = nullcontext() if on_loop or _in_a_tool.get() else THREADS.taken()
    async with counted:  # the timeout starts when the tool does
        started = loop.time()
        waiting = loop.create_task(_on_loop(work)) if on_loop else _in_thread(work, context)
        outcome = await _within(waiting, context, seconds)
    if outcome is not None and inspect.isawaitable(outcome.value):  # a plain function that returned a coroutine
        value = cast(Awaitable[object], outcome.value)
        left = None if seconds is None else max(0.0, seconds - (loop.time() - started))
        outcome = await _within(loop.create_task(_on_loop(lambda: value)), context, left)
    return outcome


async def _within(waiting: "asyncio.Future[Outcome]", context: ToolContext, seconds: float | None) -> Outcome | None:
    try:
        await asyncio.wait({waiting}, timeout=seconds)
    except asyncio.CancelledError:
        await _stop(waiting, context)
        raise
    if waiting.done() and not waiting.cancelled():
        return waiting.result()
    if waiting.cancelled():
        return Outcome(error=RuntimeError("the tool cancelled itself"))
    await _stop(waiting, context)
    return None


async def _stop(waiting: "asyncio.Future[Outcome]", context: ToolContext) -> None:
    """Signal the cancellation, and wait `GRACE` seconds for cleanup. Abandon it if it still runs then."""
    context.cancelled.set()
    if isinstance(waiting, asyncio.Task):
        waiting.cancel()
    await asyncio.wait({waiting}, timeout=GRACE)


async def _on_loop(work: Callable[[], object]) -> Outcome:
    try:
        return Outcome(await cast(Awaitable[object], work()))
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        return Outcome(error=error)


def _in_thread(work: Callable[[], object], context: ToolContext) -> "asyncio.Future[Outcome]":
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Outcome] = loop.create_future()
    variables = contextvars.copy_context()
    variables.run(_in_a_tool.set, True)
    outcomes: list[Outcome] = []

    def end() -> None:
        if not ended.done():
            ended.set_result(outcomes[0])

    def run() -> None:
        try:
            outcomes.append(Outcome(variables.run(work)))
        except BaseException as error:
            outcomes.append(Outcome(error=error))

    def deliver() -> None:
        try:
            loop.call_soon_threadsafe(end)
        except RuntimeError:
            log.debug("tool %s, call %s ended after its event loop", context.call.name, context.call.id)

    try:
        run_soon(run, deliver)
    except RuntimeError as error:
        ended.set_result(Outcome(error=error))
    return ended


def _words(error: BaseException) -> str:
    """Return an exception as text for the model, with its type unless it is an error of contextc."""
    kind, separator, said = described(error).partition(": ")
    if len(said) > LONGEST_ERROR:
        said = f"{said[:LONGEST_ERROR]}… [{len(said) - LONGEST_ERROR:,} characters more]"
    return said if isinstance(error, ContextcError) and said else f"{kind}{separator}{said}"


def _expected(call: ToolCall, parameters: Parameters) -> str:
    return f"Expected: {usage(call.name, parameters.schema)}."


def _not_json(written: str) -> str:
    """Return the reason why the arguments are not a JSON object, with the parser's error."""
    try:
        value: object = json.loads(written)
    except (ValueError, RecursionError) as error:
        return f"The tool was not run. Its arguments are not JSON ({error}). Write one JSON object, whole."
    kind = (
        "an object that is nested too deep" if isinstance(value, dict) else f"not an object but {type(value).__name__}"
    )
    return f"The tool was not run. Its arguments are {kind}. Write one JSON object, by the names of the parameters."
