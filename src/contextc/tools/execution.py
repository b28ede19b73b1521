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
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._credential_mask import get_logger
from contextc._worker_threads import ConcurrencyLimit, read_thread_limit, submit
from contextc.errors import ContextcError, InvalidInput, InvalidMessage, describe_error, is_interrupt
from contextc.messages import Message, ToolCall, ToolResult, validate_message
from contextc.tools.context import ToolContext
from contextc.tools.parameters import Function, FunctionParameters, tool_signature

log = get_logger("contextc.tools")

GRACE_SECONDS = 0.5
MAX_ERROR_CHARACTERS = 4_000
MAX_RESULT_CHARACTERS = 10_000_000
MAX_LISTED_NAMES = 40
MAX_NAME_CHARACTERS = 64
TOOL_SLOTS = ConcurrencyLimit(read_thread_limit("CONTEXTC_TOOL_THREADS", 256))
_in_a_tool: contextvars.ContextVar[bool] = contextvars.ContextVar("contextc_in_a_tool", default=False)


class ExecutionOutcome(Struct, frozen=True):
    """The value or the exception of a function call."""

    value: object = None
    error: BaseException | None = None


async def run_call(
    function: Function, parameters: FunctionParameters, call: ToolCall, context: ToolContext, seconds: float | None
) -> ToolResult:
    """Convert the arguments, run the function for at most `seconds`, and return the result."""
    if call.malformed:
        return error_result(call, f"{_invalid_json_text(call.raw or '')} {_expected_text(call, parameters)}")
    try:
        values = parameters.read_arguments(call.arguments)
    except InvalidInput as error:
        return error_result(call, f"The tool was not run. {error} {_expected_text(call, parameters)}")
    outcome = await _run_with_timeout(
        lambda: parameters.call(function, values, context), is_async(function), context, seconds
    )
    if outcome is None:
        log.debug("tool %s, call %s: stopped after %s s", call.name, call.id, seconds)
        return error_result(
            call,
            f"{call.name} had not ended after {seconds:g} seconds and was stopped. Whatever it had done by then stays "
            "done. Ask for less at once, or try another way.",
        )
    if outcome.error is not None:
        log.debug("tool %s, call %s failed", call.name, call.id, exc_info=outcome.error)
        return error_result(call, _error_text(outcome.error))
    return as_tool_result(call, outcome.value)


def error_result(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=text, is_error=True)


def unknown_tool_result(call: ToolCall, names: Iterable[str]) -> ToolResult:
    """Return the error result for a call of an unknown tool."""
    known = sorted(names)
    lowered = {name.lower(): name for name in known}
    alike = [lowered[each] for each in difflib.get_close_matches(call.name[:MAX_NAME_CHARACTERS].lower(), lowered, 3)]
    hint = f" Did you mean {' or '.join(alike)}?" if alike else ""
    some = ", ".join(known[:MAX_LISTED_NAMES]) + (
        f" and {len(known) - MAX_LISTED_NAMES} more" if len(known) > MAX_LISTED_NAMES else ""
    )
    return error_result(
        call, f"There is no tool {call.name}.{hint} " + (f"There are: {some}." if known else "There are none.")
    )


def as_tool_result(call: ToolCall, value: object) -> ToolResult:
    """Return the return value of a function as the result of this call."""
    try:
        if isinstance(value, ToolResult):
            result = replace(value, call_id=call.id, name=call.name)
        else:
            # ToolResult converts every other value to text; its field has the type after that conversion.
            result = ToolResult(call_id=call.id, name=call.name, content=cast(str, value))
        if not isinstance(result.content, str):
            validate_message(Message(role="tool", parts=(replace(result, call_id="any", name="any"),)))
    except Exception as error:  # a user's object may raise any exception when it is converted
        log.debug("tool %s, call %s: the return value cannot be stored", call.name, call.id, exc_info=error)
        why = error if isinstance(error, InvalidMessage) else describe_error(error)
        return error_result(call, f"{call.name} ran, but what it returned cannot be passed on: {why}")
    size = len(result.text)
    if size > MAX_RESULT_CHARACTERS:
        return error_result(
            call, f"{call.name} ran, but returned {size:,} characters, which is too much. Ask for less."
        )
    return result


def is_async(function: Function) -> bool:
    inner = getattr(function, "func", function)  # of a functools.partial
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


async def _run_with_timeout(
    work: Callable[[], object], on_loop: bool, context: ToolContext, seconds: float | None
) -> ExecutionOutcome | None:
    """Return the outcome of the work, None after a timeout."""
    loop = asyncio.get_running_loop()
    counted: AbstractAsyncContextManager[None] = nullcontext() if on_loop or _in_a_tool.get() else TOOL_SLOTS.hold()
    async with counted:  # the timeout starts when the tool does
        started = loop.time()
        waiting = loop.create_task(_run_on_loop(work)) if on_loop else _run_on_thread(work, context)
        outcome = await _wait_with_timeout(waiting, context, seconds)
    if outcome is not None and inspect.isawaitable(outcome.value):  # a plain function that returned a coroutine
        value = cast(Awaitable[object], outcome.value)
        left = None if seconds is None else max(0.0, seconds - (loop.time() - started))
        outcome = await _wait_with_timeout(loop.create_task(_run_on_loop(lambda: value)), context, left)
    return outcome


async def _wait_with_timeout(
    waiting: "asyncio.Future[ExecutionOutcome]", context: ToolContext, seconds: float | None
) -> ExecutionOutcome | None:
    try:
        await asyncio.wait({waiting}, timeout=seconds)
    except asyncio.CancelledError:
        await _stop(waiting, context)
        raise
    if waiting.done() and not waiting.cancelled():
        return waiting.result()
    if waiting.cancelled():
        return ExecutionOutcome(error=RuntimeError("the tool cancelled itself"))
    await _stop(waiting, context)
    return None


async def _stop(waiting: "asyncio.Future[ExecutionOutcome]", context: ToolContext) -> None:
    """Signal the cancellation, and wait `GRACE_SECONDS` seconds for cleanup. Abandon it if it still runs then."""
    context.cancelled.set()
    if isinstance(waiting, asyncio.Task):
        waiting.cancel()
    await asyncio.wait({waiting}, timeout=GRACE_SECONDS)


async def _run_on_loop(work: Callable[[], object]) -> ExecutionOutcome:
    try:
        return ExecutionOutcome(await cast(Awaitable[object], work()))
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        return ExecutionOutcome(error=error)


def _run_on_thread(work: Callable[[], object], context: ToolContext) -> "asyncio.Future[ExecutionOutcome]":
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[ExecutionOutcome] = loop.create_future()
    variables = contextvars.copy_context()
    variables.run(_in_a_tool.set, True)
    outcomes: list[ExecutionOutcome] = []

    def end() -> None:
        if not ended.done():
            ended.set_result(outcomes[0])

    def run() -> None:
        try:
            outcomes.append(ExecutionOutcome(variables.run(work)))
        except BaseException as error:
            outcomes.append(ExecutionOutcome(error=error))

    def deliver() -> None:
        try:
            loop.call_soon_threadsafe(end)
        except RuntimeError:
            log.debug("tool %s, call %s ended after its event loop", context.call.name, context.call.id)

    try:
        submit(run, deliver)
    except RuntimeError as error:
        ended.set_result(ExecutionOutcome(error=error))
    return ended


def _error_text(error: BaseException) -> str:
    """Return an exception as text for the model, with its type unless it is an error of contextc."""
    kind, separator, text = describe_error(error).partition(": ")
    if len(text) > MAX_ERROR_CHARACTERS:
        text = f"{text[:MAX_ERROR_CHARACTERS]}… [{len(text) - MAX_ERROR_CHARACTERS:,} characters more]"
    return text if isinstance(error, ContextcError) and text else f"{kind}{separator}{text}"


def _expected_text(call: ToolCall, parameters: FunctionParameters) -> str:
    return f"Expected: {tool_signature(call.name, parameters.schema)}."


def _invalid_json_text(written: str) -> str:
    """Return the reason why the arguments are not a JSON object, with the parser's error."""
    try:
        value: object = json.loads(written)
    except (ValueError, RecursionError) as error:
        return f"The tool was not run. Its arguments are not JSON ({error}). Write one JSON object, whole."
    kind = (
        "an object that is nested too deep" if isinstance(value, dict) else f"not an object but {type(value).__name__}"
    )
    return f"The tool was not run. Its arguments are {kind}. Write one JSON object, by the names of the parameters."
