"""Triggers between the steps of a turn: when they run, what is stored, and which agent sees it."""

import asyncio
import logging
from itertools import pairwise
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject, decode
from contextc.events import AnyEvent, SystemMessageCreated, TriggerFailed, TurnFinish, UserNoticeCreated
from contextc.messages import UserNotice
from contextc.triggers import FunctionTrigger, TriggerContext, trigger
from tests.executor.scripted_provider import SONNET, Say, Scripted, add, call, kinds, run_turn, says
from tests.full_disk_sqlite import full_disk


def steps(count: int, *, last: str = "Done.") -> Scripted:
    """A model that makes different calls, and then answers."""
    return Scripted(*[says(call(number, a=number, b=1)) for number in range(1, count + 1)], says(last))


def said(events: list[AnyEvent]) -> list[tuple[str, int]]:
    return [(event.trigger, event.step) for event in events if isinstance(event, SystemMessageCreated)]


def states(store: cc.Store) -> dict[str, JSONObject]:
    return {
        str(name): decode(bytes(body))
        for name, body in store.read(lambda tx: tx.rows("SELECT name, body FROM main.trigger_state"))
    }


def listener(heard: list[tuple[str, int]]) -> FunctionTrigger:
    @trigger("listener", at=("session_start", "before_step", "after_compaction"))
    def listen(moment: TriggerContext) -> None:
        heard.append((moment.when, moment.step))

    return listen


def test_triggers_are_asked_at_session_start_and_before_every_step(store: cc.Store) -> None:
    """Guarantee 11.3: the first step too; a turn shortly after another begins no session."""
    heard: list[tuple[str, int]] = []
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[listener(heard)], endpoint=steps(2))

    run_turn(executor)
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[listener(heard)], endpoint=steps(0))
    run_turn(executor, "again")

    assert heard == [("session_start", 1), *[("before_step", step) for step in (1, 2, 3, 1)]]


def test_open_todos_are_listed_at_session_start(store: cc.Store) -> None:
    """Guarantee 11.5: before the first request, which holds it."""
    store.add_todo("demo", "write the tests")
    provider = steps(1)
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=cc.default_triggers(), endpoint=provider)

    events = run_turn(executor)

    assert said(events) == [("todos_at_start", 0)]
    assert [body.count(b"this session begins with work left") for body in provider.bodies] == [1, 1]


@pytest.mark.parametrize(("gap", "sessions"), [(3600.0, 1), (599.0, 2)])
def test_a_session_begins_after_the_gap_that_is_set(
    store: cc.Store, monkeypatch: pytest.MonkeyPatch, gap: float, sessions: int
) -> None:
    """Turns that are ten minutes apart belong to one session, unless the gap is set to less."""
    clock = [1_000_000_000_000]
    monkeypatch.setattr("contextc.executor.turn_store.now_ms", lambda: clock[0])
    heard: list[tuple[str, int]] = []
    for _ in range(2):
        executor = cc.AgentExecutor(store, SONNET, triggers=[listener(heard)], endpoint=steps(0), session_gap=gap)
        run_turn(executor)
        clock[0] += 600_000

    assert [when for when, _ in heard].count("session_start") == sessions


@pytest.mark.parametrize("gap", [0, -1, True, "1h", float("inf")])
def test_an_invalid_session_gap_is_refused(store: cc.Store, gap: object) -> None:
    with pytest.raises(cc.errors.InvalidSetting, match="session_gap"):
        cc.AgentExecutor(store, SONNET, session_gap=gap, triggers=())  # pyright: ignore[reportArgumentType]


def test_every_moment_has_todos_usage_limits_and_the_last_results(store: cc.Store) -> None:
    """A trigger that looks at the todos must not depend on the moment at which it is asked."""
    seen: list[TriggerContext] = []

    @trigger("look", at=("session_start", "before_step", "after_compaction", "mid_step"), kind="hint")
    def look(moment: TriggerContext) -> None:
        seen.append(moment)

    store.add_todo("demo", "write the tests")
    script = [*[says(call(number, a=number, b=1), input=0) for number in (1, 2)], says("Done.", input=0)]
    limits = cc.Limits(steps=9, cost=5.0)
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[look], endpoint=Scripted(*script), limits=limits)
    run_turn(executor)

    assert [(each.when, each.step) for each in seen] == [
        ("session_start", 1),
        ("before_step", 1),
        ("mid_step", 1),
        ("before_step", 2),
        ("mid_step", 2),
        ("before_step", 3),
    ]
    assert {(len(each.todos), each.step_limit, each.cost_limit) for each in seen} == {(1, 9, 5.0)}
    assert [(each.used > 0, each.used < each.available) for each in seen] == [(True, True)] * 6
    results = [[result.text for message in each.last for result in message.tool_results] for each in seen]
    assert results == [[], [], ["2"], ["2"], ["2", "3"], ["2", "3"]]


def test_an_unchanged_text_is_sent_once(store: cc.Store) -> None:
    """A plain function that returns one text at every step is one message, not one for every step."""

    @trigger("always")
    def always(moment: TriggerContext) -> str:
        return "Keep to the plan."

    provider = steps(4)
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[always], endpoint=provider)
    run_turn(executor)

    assert [body.count(b"Keep to the plan.") for body in provider.bodies] == [1] * 5


def test_triggers_are_asked_before_anything_is_cut(store: cc.Store) -> None:
    """Guarantee 11.3: the share they see is above 1, and the request is cut all the same."""
    shares: list[float] = []

    @trigger("share")
    def share(moment: TriggerContext) -> None:
        shares.append(moment.share)

    for number in range(40):
        store.append("demo", cc.user(f"question {number} " + "word " * 100))
        store.append("demo", cc.assistant("word " * 100))
    provider = steps(0)
    executor = cc.AgentExecutor(
        store,
        SONNET,
        triggers=[share],
        endpoint=provider,
        max_input_tokens=4_000,
        summarize=None,
        instructions="Short.",
    )

    run_turn(executor)

    assert shares[0] > 1.5
    assert len(provider.requests[0]["messages"]) < 60


def test_a_compaction_resets_the_levels(store: cc.Store) -> None:
    """Guarantees 11.3, 11.4: triggers are evaluated again, and a later rise is reported again."""
    heard: list[tuple[str, int]] = []

    def note(text: str) -> str:
        """Write something down."""
        return "noted"

    def asks(request: JSONObject) -> Say:
        done = sum(step.state == "finished" for step in store.steps("demo"))
        if done == 60:
            return says("Done.", input=0)
        return says(call(done, "note", text=f"{done}: " + "word " * 200), input=0, output=260)

    executor = cc.AgentExecutor(
        store,
        SONNET,
        tools=[note],
        triggers=[*cc.default_triggers(), listener(heard)],
        endpoint=Scripted(asks),
        max_input_tokens=6_000,
        summarize=lambda messages, previous: "They read on.",
    )

    events = run_turn(executor)

    compactions = kinds(events).count("compaction")
    assert compactions >= 2
    assert [when for when, _ in heard].count("after_compaction") == compactions
    warned = [event.text.partition(":")[0] for event in events if isinstance(event, SystemMessageCreated)]
    assert warned.count("Context warning") >= compactions
    assert not any(each == other for each, other in pairwise(warned))


def test_a_failing_trigger_is_logged_and_stops_no_other(store: cc.Store, caplog: pytest.LogCaptureFixture) -> None:
    """Guarantees 11.3 and 13.3: a key in its error is neither logged nor stored."""

    @trigger("broken", priority=1)
    def broken(moment: TriggerContext) -> str:
        raise ValueError("no such thing as sk-proj-abcdefghijklmnop")

    @trigger("broken_hint", kind="hint", at="mid_step")
    def broken_hint(moment: TriggerContext) -> str:
        raise ValueError("no such hint")

    @trigger("sound", once=True)
    def sound(moment: TriggerContext) -> str:
        return "All is well."

    provider = steps(2)
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[broken, broken_hint, sound], endpoint=provider)

    with caplog.at_level(logging.WARNING, logger="contextc.executor"):
        events = run_turn(executor)

    assert said(events) == [("sound", 0)]
    assert isinstance(events[-1], TurnFinish)
    assert events[-1].finish == "stop"
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [
        "demo: trigger broken failed: It raised ValueError: no such thing as [key]",
        "demo: trigger broken_hint failed: It raised ValueError: no such hint",
    ]
    failed = [(event.step, event.trigger, event.error) for event in events if isinstance(event, TriggerFailed)]
    assert failed == [
        (1, "broken", "It raised ValueError: no such thing as [key]"),
        (1, "broken_hint", "It raised ValueError: no such hint"),
    ]


def test_a_trigger_of_ones_own_is_five_lines(store: cc.Store) -> None:
    """Guarantee 11.6: and what it says belongs to the step before which it was said."""

    @cc.trigger("third_step", once=True)
    def third_step(moment: TriggerContext) -> str | None:
        return "Two steps are made." if moment.step == 3 else None

    provider = steps(4)
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[third_step], endpoint=provider)

    events = run_turn(executor)

    assert said(events) == [("third_step", 3)]
    message = next(message for message in store.load("demo") if message.role == "system")
    assert (message.turn, message.step, message.audience, message.meta) == (
        1,
        3,
        "assistant",
        {"trigger": "third_step"},
    )
    assert [body.count(b"Two steps are made.") for body in provider.bodies] == [0, 0, 1, 1, 1]


def test_a_cooldown_in_steps_counts_steps(store: cc.Store) -> None:
    """Guarantee 11.4: also without a message, and across a restart."""

    @trigger("often", cooldown_steps=3)
    def often(moment: TriggerContext) -> str:
        return f"Before step {moment.step}."

    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[often], endpoint=steps(5))
    first = run_turn(executor)
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[often], endpoint=steps(3))
    second = run_turn(executor, "more")

    assert [text(event) for event in first if isinstance(event, SystemMessageCreated)] == [
        "Before step 1.",
        "Before step 4.",
    ]
    assert [text(event) for event in second if isinstance(event, SystemMessageCreated)] == [
        "Before step 1.",
        "Before step 4.",
    ]


def text(event: SystemMessageCreated) -> str:
    return event.text


def test_trigger_state_without_a_message_is_stored_with_the_step(store: cc.Store) -> None:
    """Guarantee 11.4."""

    @trigger("counter")
    def counts(moment: TriggerContext, state: JSONObject) -> tuple[None, JSONObject]:
        return None, {"asked": state.get("asked", 0) + 1}

    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[counts], endpoint=steps(3))
    run_turn(executor)
    assert states(store)["counter"]["state"] == {"asked": 4}

    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[counts], endpoint=steps(0))
    run_turn(executor, "again")
    assert states(store)["counter"]["state"] == {"asked": 5}


def test_trigger_messages_and_states_are_stored_together(tmp_path: Path) -> None:
    """Guarantee 11.4: if the message cannot be stored, the state is not either, and the trigger fires the next time."""

    @trigger("long", once=True)
    def long(moment: TriggerContext) -> str:
        return "Mind this: " + "word " * 20_000

    with cc.open_store(f"sqlite:///{tmp_path}/full.db") as store:
        store.append("demo", cc.user("hello"))
        provider = steps(0)
        executor = cc.AgentExecutor(store, SONNET, triggers=[long], endpoint=provider, lease_seconds=0.2)
        with full_disk(store, pages=12), pytest.raises(cc.errors.StoreFull):
            run_turn(executor, None)
        assert provider.bodies == []
        assert [message.role for message in store.load("demo")] == ["user"]
        assert states(store) == {}
        asyncio.run(waited(executor))
        assert [message.role for message in store.load("demo")] == ["user", "system", "assistant"]
        assert states(store)["long"]["said"]["moment"][:3] == ["demo", store.turns("demo")[-1].number, 1]


async def waited(executor: cc.AgentExecutor) -> None:
    async for _ in executor.run("demo", None, wait=60):
        pass


def test_no_progress_is_corrected_and_then_ends_the_turn(store: cc.Store) -> None:
    """Guarantee 11.5: the same calls with the same results: twice a correction, four times the end."""
    provider = Scripted(lambda request: says(call(len(request["messages"]), a=1, b=1)))
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=cc.default_triggers(), endpoint=provider)

    events = run_turn(executor)

    assert isinstance(events[-1], TurnFinish)
    assert events[-1].finish == "no_progress"
    assert len(provider.bodies) == 4
    assert said(events) == [("no_progress", 3), ("no_progress", 5)]
    assert [body.count(b"No progress:") for body in provider.bodies] == [0, 0, 1, 1]
    assert store.turns("demo")[0].finish == "no_progress"


def test_hints_are_never_sent_to_a_model(store: cc.Store) -> None:
    """Guarantee 11.7: an event and a Hint part every ten calls; in no request; not repeated after a restart."""

    @trigger("fyi", kind="hint")
    def fyi(moment: TriggerContext) -> str | None:
        return "Tool calls go well." if moment.step == 2 else None

    provider = Scripted(
        *[says(*[call(f"{step}x{each}", a=step, b=each) for each in range(4)]) for step in range(6)] + [says("Done.")]
    )
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[*cc.default_triggers(), fyi], endpoint=provider)

    events = run_turn(executor)

    hints = [event for event in events if isinstance(event, UserNoticeCreated)]
    assert [(event.trigger, event.step) for event in hints] == [("fyi", 2), ("call_count", 3), ("call_count", 5)]
    assert [event.text.partition(" so far")[0] for event in hints] == [
        "Tool calls go well.",
        "Tool calls: 10",
        "Tool calls: 20",
    ]
    parts = [part for message in store.load("demo") for part in message.parts if isinstance(part, UserNotice)]
    assert [part.text for part in parts] == [event.text for event in hints[1:]]
    assert not any(b"Tool calls" in body for body in provider.bodies)
    assert said(events) == []
    assert states(store)["call_count"]["state"]["told"] == 20


def test_another_agent_does_not_hear_this_ones_warning(store: cc.Store) -> None:
    """Guarantee 8.4: a trigger message goes to the agent whose turn it is."""

    @trigger("private", once=True)
    def private(moment: TriggerContext) -> str:
        return f"Only {moment.agent} is told."

    mine, other = steps(1), steps(0)
    executor = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[private], endpoint=mine, name="planner")
    run_turn(executor)
    second = cc.AgentExecutor(store, SONNET, tools=[add], triggers=[private], endpoint=other, name="coder")
    run_turn(second, "and you?")

    assert [body.count(b"Only planner is told.") for body in (*mine.bodies, *other.bodies)] == [1, 1, 0]
    assert other.bodies[0].count(b"Only coder is told.") == 1


@pytest.mark.parametrize(("cuts", "finish", "requests"), [(1, "stop", 2), (2, "stop", 3), (5, "length", 3)])
def test_a_reply_that_was_cut_off_is_continued_twice(store: cc.Store, cuts: int, finish: str, requests: int) -> None:
    """Guarantee 11.5: truncated output is reported to the model, which continues; at most twice in a row."""
    script = [says(f"part {number}", finish="max_tokens") for number in range(cuts)]
    provider = Scripted(*script, says("the end"))
    executor = cc.AgentExecutor(store, SONNET, triggers=cc.default_triggers(), endpoint=provider)

    events = run_turn(executor)

    assert isinstance(events[-1], TurnFinish)
    assert events[-1].finish == finish
    assert len(provider.bodies) == requests
    assert [body.count(b"Output cut:") for body in provider.bodies] == list(range(requests))
    for request in provider.requests:
        assert cc.lint(request, format="anthropic") == []
