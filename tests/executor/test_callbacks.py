"""User callbacks in a turn: whatever they raise or return, the turn ends and releases its conversation."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import ProviderFailed
from contextc.events import CompactionFinished
from contextc.store.store import leases_of
from tests.executor.scripted_provider import SONNET, Say, Scripted, add, call, kinds, run_turn, says


class Stop(BaseException):
    """An exception that `except Exception` does not catch, as some test runners and task libraries have."""


def raises(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


def raises_async(error: BaseException) -> Callable[..., Any]:
    async def fail(*_: object) -> Any:
        raise error

    return fail


def gives(value: object) -> Callable[..., Any]:
    def give(*_: object) -> Any:
        return value

    return give


def is_free(store: cc.Store) -> bool:
    """Whether another turn can begin at once, and nothing is renewed for one that is over."""
    assert not leases_of(store)._renewals  # pyright: ignore[reportPrivateUsage]
    assert store.turns("demo")[-1].state == "finished"
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("well")), triggers=())
    return kinds(run_turn(executor, "and now?"))[-1] == "turn-finish"


NO_EXCEPTIONS = (Stop("no"), SystemExit(3), GeneratorExit(), KeyboardInterrupt())


ON_THREAD = [(error, False) for error in NO_EXCEPTIONS]
ON_LOOP = [(error, True) for error in NO_EXCEPTIONS if not isinstance(error, KeyboardInterrupt)]  # that is Ctrl-C there


@pytest.mark.parametrize(("error", "on_loop"), [*ON_THREAD, *ON_LOOP], ids=repr)
def test_a_tool_that_raises_a_base_exception_is_an_error_result(
    store: cc.Store, error: BaseException, on_loop: bool
) -> None:
    """The model reads what happened, and the turn goes on. Else the task of the turn would die and keep its lease."""
    tool = cc.tool(cc.Tool(name="fail"), (raises_async if on_loop else raises)(error))
    script = [says(call(1, "fail")), says("I see")]
    executor = cc.AgentExecutor(store, SONNET, tools=[tool], endpoint=Scripted(*script), triggers=())

    run_turn(executor)

    result = next(part for message in store.load("demo") for part in message.tool_results)
    assert (result.is_error, result.text.partition(":")[0]) == (True, type(error).__name__)
    assert is_free(store)


OPTIONS: dict[str, Callable[[BaseException], dict[str, Any]]] = {
    "approve": lambda error: {"approve": raises(error)},
    "approve, async": lambda error: {"approve": raises_async(error)},
    "on_prepare_messages": lambda error: {"on_prepare_messages": raises(error)},
    "should_continue": lambda error: {"should_continue": raises(error)},
    "fragment": lambda error: {"instructions": [cc.PromptFragment("f", raises(error))]},
    "endpoint": lambda error: {"endpoint": Scripted(error)},
}


@pytest.mark.parametrize("where", OPTIONS)
def test_a_base_exception_ends_the_turn_with_an_error_and_frees_the_conversation(store: cc.Store, where: str) -> None:
    """The end of the turn is written, its lease is given back, and the event loop goes on for all other turns."""
    options: dict[str, Any] = {
        "endpoint": Scripted(says(call(1)), says("never")),
        **OPTIONS[where](Stop("no")),
    }
    executor = cc.AgentExecutor(store, SONNET, tools=[cc.tool(add, approval=True)], triggers=(), **options)

    async def main() -> cc.TurnResult:
        return await executor.start("demo", "go").wait()

    result = asyncio.run(main())

    assert (result.finish, isinstance(result.error, Exception)) == ("error", True)
    assert "Stop" in store.turns("demo")[-1].error
    assert is_free(store)


@pytest.mark.parametrize("where", ["on_prepare_messages", "should_continue", "endpoint"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_what_ends_the_process_ends_it_after_the_turn_is_closed(
    store: cc.Store, where: str, error: BaseException
) -> None:
    """A user's Ctrl-C still stops the program, and leaves no conversation locked."""
    options: dict[str, Any] = {
        "endpoint": Scripted(says(call(1)), says("never")),
        **OPTIONS[where](error),
    }
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=(), **options)

    with pytest.raises(type(error)):
        run_turn(executor)

    assert is_free(store)


def test_a_trigger_that_raises_a_base_exception_stops_nothing(store: cc.Store) -> None:
    """A failing trigger is logged, whatever it raises."""

    class Odd(cc.Trigger, frozen=True):
        def check(self, moment: cc.TriggerContext, state: JSONObject) -> Any:
            raise Stop("no")

    executor = cc.AgentExecutor(store, SONNET, triggers=[Odd(name="odd")], endpoint=Scripted(says("well")))

    assert kinds(run_turn(executor))[-1] == "turn-finish"
    assert store.turns("demo")[-1].finish == "stop"


@pytest.mark.parametrize("value", ["\ud83d", 10**5_000, object()], ids=["surrogate", "huge", "object"])
def test_a_request_that_is_not_json_is_refused_with_its_cause(store: cc.Store, value: object) -> None:
    """The error names the callback that returned it, and is one of ours."""
    executor = cc.AgentExecutor(
        store, SONNET, endpoint=Scripted(), on_prepare_messages=gives({"messages": value}), triggers=()
    )

    with pytest.raises(
        cc.errors.InvalidInput, match="on_prepare_messages: the returned request cannot be encoded as JSON: "
    ):
        run_turn(executor)
    assert is_free(store)


def test_the_lease_of_a_turn_without_an_event_loop_is_not_renewed(store: cc.Store) -> None:
    """The lease of a turn ends at its time when the task is thrown away: else its conversation is locked forever."""
    begun = asyncio.Event()

    async def hang(_: JSONObject) -> Say:
        begun.set()
        await asyncio.Event().wait()
        return says("never")

    loop = asyncio.new_event_loop()
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(hang), triggers=())

    async def main() -> Any:
        turn = executor.start("demo", "go")
        await begun.wait()
        return turn

    turn = loop.run_until_complete(main())
    assert len(leases_of(store)._renewals) == 1  # pyright: ignore[reportPrivateUsage]
    with suppress(RuntimeError):  # the generators inside cannot be closed without a loop
        turn._task.get_coro().close()
    assert not leases_of(store)._renewals  # pyright: ignore[reportPrivateUsage]
    turn._task._log_destroy_pending = False
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


# ── summaries ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def compacted(store: cc.Store, summarize: Any) -> CompactionFinished:
    """A turn in a long conversation, and what its compaction came to."""
    history = [each for _ in range(6) for each in (cc.user("hello world " * 60), cc.assistant("fine thanks " * 60))]
    store.extend("demo", history)
    executor = cc.AgentExecutor(
        store,
        SONNET,
        summarize=summarize,
        endpoint=Scripted(says("well", input=0)),
        max_input_tokens=1_500,
        triggers=(),
    )
    events = run_turn(executor, "now?")
    assert store.turns("demo")[-1].finish == "stop"
    return next(event for event in events if isinstance(event, CompactionFinished))


def test_a_summary_with_invalid_text_is_stored_with_replacements(store: cc.Store) -> None:
    """A model may cut an emoji in two: its half is replaced, and the rest of the summary is kept."""

    def summarize(messages: Sequence[cc.Message], previous: str | None) -> str:
        return "they greeted \ud83d each other"

    assert compacted(store, summarize).fallback == ""
    assert is_free(store)


async def _awaits_what_was_cancelled(*_: object) -> str:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner
    return ""


@pytest.mark.parametrize(
    ("summarize", "why"),
    [
        (raises(Stop("no")), "the summarizer failed: RuntimeError: the code that ran raised Stop: no"),
        (raises_async(Stop("no")), "the summarizer failed: RuntimeError: the code that ran raised Stop: no"),
        (raises(SystemExit(3)), "the summarizer failed: RuntimeError: the code that ran raised SystemExit: 3"),
        (raises(ValueError("caf\udce9")), "the summarizer failed: ValueError: caf\ufffd"),
        (raises(ProviderFailed("x", "quota", "none left")), "the summarizer failed: ProviderFailed"),
        (_awaits_what_was_cancelled, "the summarizer failed: RuntimeError: the code that ran raised CancelledError"),
        (gives(None), "the summarizer returned nothing"),
        (gives(5), "the summarizer returned nothing"),
    ],
    ids=["Stop", "Stop, async", "SystemExit", "surrogate", "ours", "cancels itself", "None", "int"],
)
def test_a_summarizer_that_fails_in_any_way_is_replaced_by_a_digest(store: cc.Store, summarize: Any, why: str) -> None:
    """The turn goes on with a plain digest, and the event says why there is no summary."""
    assert compacted(store, summarize).fallback.startswith(why)
    assert is_free(store)
