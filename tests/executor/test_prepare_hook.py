"""`on_prepare_messages`: a callback changes a request between compiling and sending, and it is recorded."""

import asyncio

import pytest

import contextc as cc
from contextc._json import JSONObject, decode, encode
from contextc.errors import InvalidInput, ProviderFailed
from contextc.events import StepStart
from contextc.store.message_log import FIRST_UNANSWERED
from tests.executor.scripted_provider import SONNET, Scripted, add, call, fails, rebuilt, run_turn, says

REPLACED = "the request before it was replaced"


def masked(request: JSONObject) -> JSONObject:
    """The request without a secret."""
    return decode(encode(request).replace(b"hunter2", b"*******"))


def test_the_hook_gets_a_copy(store: cc.Store) -> None:
    """Guarantee 11.8: whatever it does to it, what is sent is what was compiled, unless it returns something."""
    seen: list[tuple[int, int]] = []

    def spoils(request: JSONObject, step: int) -> None:
        seen.append((step, len(request["messages"])))
        request["messages"].clear()
        request["system"] = "spoilt"

    provider = Scripted(says(call(1)), says("3"))
    executor = cc.AgentExecutor(
        store, SONNET, tools=[add], endpoint=provider, instructions="Add.", on_prepare_messages=spoils, triggers=()
    )

    run_turn(executor)

    assert seen == [(1, 1), (2, 3)]
    assert rebuilt(executor, "demo", 2) == provider.bodies
    assert not any(b"spoilt" in body for body in provider.bodies)
    assert executor.compiler.explain("demo", 2).epoch == executor.compiler.explain("demo", 1).epoch


@pytest.mark.parametrize("is_async", [False, True])
def test_a_replacement_is_sent_stored_whole_and_ends_the_epoch(store: cc.Store, is_async: bool) -> None:
    """Guarantee 11.8: the request after it begins an epoch, and says why."""

    def masks(request: JSONObject, step: int) -> JSONObject | None:
        return masked(request) if step == 2 else None

    async def masks_later(request: JSONObject, step: int) -> JSONObject | None:
        await asyncio.sleep(0)
        return masks(request, step)

    script = [says(f"Step {number}.", call(number, a=number, b=1)) for number in range(3)]
    provider = Scripted(*script, says("Done."))
    executor = cc.AgentExecutor(
        store,
        SONNET,
        tools=[add],
        endpoint=provider,
        on_prepare_messages=masks_later if is_async else masks,
        triggers=(),
    )

    events = run_turn(executor, "my password is hunter2")

    assert [b"hunter2" in body for body in provider.bodies] == [True, False, True, True]
    assert rebuilt(executor, "demo", 4) == provider.bodies
    manifests = [executor.compiler.explain("demo", number) for number in range(1, 5)]
    assert [manifest.epoch for manifest in manifests] == [1, 1, 2, 2]
    assert manifests[2].why == REPLACED
    assert [event.why for event in events if isinstance(event, StepStart)][2] == REPLACED
    for request in provider.requests:
        assert cc.lint(request, format="anthropic") == []


def test_a_hook_that_changes_every_request_is_followed_to_the_byte(store: cc.Store) -> None:
    """Guarantees 11.1, 11.8: each of them begins an epoch."""
    script = [says(call(number, a=number, b=1)) for number in range(4)]
    provider = Scripted(*script, says("Done."))
    executor = cc.AgentExecutor(
        store,
        SONNET,
        tools=[add],
        endpoint=provider,
        on_prepare_messages=lambda request, step: {**request, "metadata": {"user_id": f"step {step}"}},
        triggers=(),
    )

    run_turn(executor)

    assert rebuilt(executor, "demo", 5) == provider.bodies
    assert [request["metadata"]["user_id"] for request in provider.requests] == [f"step {step}" for step in range(1, 6)]
    assert [executor.compiler.explain("demo", number).epoch for number in range(1, 6)] == [1, 2, 3, 4, 5]


def test_the_hook_is_asked_again_where_a_call_is_made_again(store: cc.Store) -> None:
    """Guarantees 11.8, 11.11."""
    failing = fails("transient", "Overloaded")
    provider = Scripted(failing, says("There."))
    executor = cc.AgentExecutor(
        store, SONNET, endpoint=provider, on_prepare_messages=lambda request, step: masked(request), triggers=()
    )

    run_turn(executor, "my password is hunter2")

    assert [b"hunter2" in body for body in provider.bodies] == [False, False]
    assert rebuilt(executor, "demo", 1) == provider.bodies[1:]


def test_a_replacement_that_was_not_answered_can_be_opened_as_it_was_sent(store: cc.Store) -> None:
    """Also after a later request took its number."""
    provider = Scripted(fails("invalid", "No."), says("Yes."))
    executor = cc.AgentExecutor(
        store,
        SONNET,
        endpoint=provider,
        on_prepare_messages=lambda request, step: {**request, "metadata": {"user_id": str(len(provider.bodies))}},
        triggers=(),
    )

    with pytest.raises(ProviderFailed):
        run_turn(executor, "one")
    run_turn(executor, "two")

    failed, answered = provider.bodies
    assert executor.compiler.rebuild("demo", FIRST_UNANSWERED + 1) == failed
    assert executor.compiler.rebuild("demo", 1) == answered != failed


def test_a_hook_that_returns_nonsense_ends_the_turn(store: cc.Store) -> None:
    provider = Scripted(says("never"))
    executor = cc.AgentExecutor(
        store,
        SONNET,
        endpoint=provider,
        on_prepare_messages=lambda request, step: "no",  # pyright: ignore[reportArgumentType], triggers=()
    )

    with pytest.raises(InvalidInput, match="must return a dict or None, got str"):
        run_turn(executor)

    assert provider.bodies == []
    assert store.turns("demo")[0].state == "finished"


def test_redaction_takes_a_replacement_away(store: cc.Store) -> None:
    """Guarantees 11.8, 2.8: it may contain text of any message."""
    provider = Scripted(says("Hello."))
    executor = cc.AgentExecutor(
        store,
        SONNET,
        endpoint=provider,
        on_prepare_messages=lambda request, step: {**request, "metadata": {"user_id": "u"}},
        triggers=(),
    )
    run_turn(executor, "my password is hunter2")
    assert b"hunter2" in executor.compiler.rebuild("demo", 1)

    store.redact("demo", 1)

    with pytest.raises(InvalidInput, match="redacted"):
        executor.compiler.rebuild("demo", 1)
    left = store.read(lambda tx: tx.rows("SELECT body FROM main.replaced"))
    assert not any(b"hunter2" in bytes(body) for (body,) in left)


def answer_in_session(number: int) -> list[JSONObject]:
    """A reply in the Responses format, with an id of its own."""
    text: JSONObject = {"type": "output_text", "text": f"Answer {number}.", "annotations": []}
    item: JSONObject = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
    output = [{**item, "content": [text]}]
    return [
        {"type": "response.completed", "response": {"id": f"resp_{number}", "status": "completed", "output": output}}
    ]


def test_after_a_replacement_a_new_session_begins(store: cc.Store) -> None:
    """Guarantees 11.8, 9.6: what a session holds is not what the ledger says, so nothing is added to it."""
    line = Scripted(*[answer_in_session(number) for number in range(1, 5)])
    turns = 0

    def changes(request: JSONObject, step: int) -> JSONObject | None:
        return {**request, "metadata": {"changed": "yes"}} if turns == 2 else None

    executor = cc.AgentExecutor(store, "openai-session:gpt-5", endpoint=line, on_prepare_messages=changes, triggers=())
    for text in ("one", "two", "three", "four"):
        turns += 1
        run_turn(executor, text)

    assert [request.get("previous_response_id") for request in line.requests] == [None, "resp_1", None, "resp_3"]
    assert [len(request["input"]) for request in line.requests] == [1, 1, 5, 1]
    assert [executor.compiler.explain("demo", number).mode for number in range(1, 5)] == [
        "full",
        "resume",
        "full",
        "resume",
    ]
    assert executor.compiler.explain("demo", 3).why == REPLACED
    assert [decode(body) for body in rebuilt(executor, "demo", 4)] == line.requests
