"""Failures around a turn: they must not lock the conversation, lose text or leave redacted text behind."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import InvalidMessage, ProviderFailed
from contextc.events import AnyEvent, ToolProgress, ToolStart, TurnFinish
from contextc.executor.turn_store import CANCELLED_REASON, INTERRUPTED_RESULT
from contextc.messages import Media, Message, Text
from contextc.store.postgres import PostgresEngine, StoreConnection
from contextc.store.store import open_with
from contextc.store.transaction_engine import ConnectionLost, Result, Transaction
from contextc.tools import ToolContext, tool
from tests.executor.scripted_provider import SONNET, Say, Scripted, add, call, fails, kinds, run_turn, says, taken_over

SECRET = "xyzzy-4711"


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_error_with_invalid_text_is_stored_and_frees_the_conversation(store: cc.Store) -> None:
    """Guarantee 15.1: a file's name may hold what no encoding carries, and an error may quote it."""

    def prepare(request: JSONObject, step: int) -> None:
        raise ValueError("no such file: caf\udce9")

    broken = cc.AgentExecutor(store, SONNET, on_prepare_messages=prepare, endpoint=Scripted(), triggers=())
    with pytest.raises(ValueError, match="no such file"):
        run_turn(broken)
    assert [turn.error for turn in store.turns("demo")] == ["ValueError: no such file: caf\ufffd"]
    sound = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("well")), triggers=())
    assert kinds(run_turn(sound))[-1] == "turn-finish"


async def until_published(store: cc.Store) -> None:
    """Wait until the progress of a tool is an event: it is published now and then, and not after the tool's end."""
    while not any(isinstance(event, ToolProgress) for event in store.events("demo")):
        await asyncio.sleep(0.01)


def test_tool_progress_may_contain_invalid_text(store: cc.Store) -> None:
    """Guarantee 12.1: it is published with replacements."""

    async def read(context: ToolContext) -> str:
        """Read a file."""
        context.progress("caf\udce9")
        await until_published(store)
        return "empty"

    scripted = Scripted(says(call(1, "read")), says("done"))
    events = run_turn(cc.AgentExecutor(store, SONNET, tools=[read], endpoint=scripted, triggers=()))
    assert [event.text for event in events if isinstance(event, ToolProgress)] == ["caf\ufffd"]


def test_a_timeout_of_other_code_is_an_error(store: cc.Store) -> None:
    """Guarantee 11.2: only the turn's own limit of time ends it with `max_seconds`."""

    @tool(approval=True)
    def sign(name: str) -> str:
        """Sign something."""
        return name

    async def approve(*_: object) -> bool:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)
        return True

    scripted = Scripted(says(call(1, "sign", name="A")))
    executor = cc.AgentExecutor(store, SONNET, tools=[sign], approve=approve, endpoint=scripted, triggers=())
    with pytest.raises(TimeoutError):
        run_turn(executor)
    assert [turn.finish for turn in store.turns("demo")] == ["error"]


# ── the queue ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_input_that_was_sent_twice_under_one_name_does_not_lock_the_queue(store: cc.Store) -> None:
    """Guarantee 11.9: both are taken in, the second under another name."""

    async def turn() -> None:
        for kind in ("follow-up", "follow-up", "steer"):
            store.enqueue("demo", cc.user("again", uid="page-1"), kind=kind)
        await executor.start("demo", "hello").wait()

    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(lambda _: says("well")), triggers=())
    asyncio.run(turn())
    said = [message for message in store.load("demo") if message.role == "user"]
    assert [message.text for message in said] == ["again", "hello", "again", "again"]
    assert len({message.uid for message in said}) == 4
    assert store.queued("demo") == []


def test_a_picture_that_was_redacted_while_it_waited_does_not_lock_the_queue(store: cc.Store) -> None:
    """Guarantees 11.9, 2.8: the text is appended, with a note that the picture is gone."""
    picture = Media(mime_type="image/png", data=b"\x89PNG\r\n\x1a\n")
    (stored,) = store.append("demo", Message(role="user", parts=(picture,))).parts
    assert isinstance(stored, Media)
    again = Message(role="user", parts=(Text("This one. "), Media(mime_type="image/png", blob=stored.blob)))
    store.enqueue("demo", again)
    store.redact("demo", 1)
    with pytest.raises(InvalidMessage, match="no blob"):
        store.enqueue("demo", again)
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("Which one?")), triggers=())
    run_turn(executor, None)
    assert store.load("demo", after=1)[0].text == "This one. [image: it was removed from the record]"


# ── the conversation is changed meanwhile ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("length", [0, 3])
def test_a_turn_whose_opening_was_rewound_away_ends_properly(store: cc.Store, length: int) -> None:
    """Guarantees 3.5, 11.10: and every call on the new line is answered."""
    for number in range(4):
        store.extend("demo", [cc.user(f"question {number}"), cc.assistant("answer", author="assistant")])

    def rewinding(_: JSONObject) -> Say:
        store.rewind("demo", length)
        return says(call(1))

    executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=Scripted(rewinding), triggers=())
    with pytest.raises(cc.ContextcError, match="edited or rewound"):
        run_turn(executor)
    assert [(turn.state, turn.finish) for turn in store.turns("demo")] == [("finished", "error")]
    *_, said, result = store.load("demo")
    assert [each.call_id for each in result.tool_results] == [each.id for each in said.tool_calls]


def test_a_turn_whose_opening_was_rewound_away_is_not_resumed(store: cc.Store) -> None:
    """Guarantee 3.6: there is nothing to go on with; what waits is answered in a turn of its own."""
    store.append("demo", cc.user("first"))

    async def turn(endpoint: Scripted, *, resumes: bool) -> cc.TurnResult:
        executor = cc.AgentExecutor(store, SONNET, tools=[add], endpoint=endpoint, triggers=())
        handle = executor.resume("demo") if resumes else executor.start("demo", "second")
        return await handle.wait()

    def dying(_: JSONObject) -> Say:
        taken_over(store)
        return says("too late")

    assert asyncio.run(turn(Scripted(says(call(1)), dying), resumes=False)).finish == "error"
    store.rewind("demo", 1)
    result = asyncio.run(turn(Scripted(says("well")), resumes=True))
    assert (result.turn, result.finish) == (2, "stop")
    assert [message.text for message in store.load("demo")] == ["first", "well"]


def test_the_result_of_one_agent_does_not_answer_the_call_of_another(store: cc.Store) -> None:
    """Guarantee 11.10: not every vendor gives calls names of their own, so two agents may use the same at once."""

    async def forever(a: int, b: int) -> int:
        """Add two numbers, slowly."""
        await asyncio.sleep(60)
        return a + b

    async def both() -> None:
        waiting = Scripted(says(call(1, "forever", a=1, b=2)))
        slow = cc.AgentExecutor(store, SONNET, name="slow", tools=[forever], endpoint=waiting, triggers=())
        scripted = Scripted(says(call(1)), says("done"))
        quick = cc.AgentExecutor(store, SONNET, name="quick", tools=[add], endpoint=scripted, triggers=())
        turn = slow.start("demo", "Take your time.")
        async for event in turn.events():
            if isinstance(event, ToolStart):
                break
        await quick.start("demo", "Hurry!").wait()
        turn.cancel()
        await turn.wait()

    asyncio.run(both())
    answered = [(said.author, said.tool_results[0].text) for said in store.load("demo") if said.tool_results]
    assert answered == [("quick", "3"), ("slow", INTERRUPTED_RESULT.format(why=CANCELLED_REASON))]


# ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_redaction_removes_text_from_events_about_calls_and_errors(tmp_path: Path) -> None:
    """Guarantees 2.8, 12.1: arguments that were shown for approval, progress, and errors that quote what was sent."""

    @tool(approval=True)
    async def remove(name: str, context: ToolContext) -> str:
        """Remove something."""
        context.progress(f"removing {name}")
        await until_published(store)
        return f"removed {name}"

    def refused(_: JSONObject) -> Exception:
        return fails("invalid", f"messages.0: {SECRET} is not allowed")

    path = tmp_path / "turns.db"
    with cc.open_store(f"sqlite:///{path}") as store:
        removing = says(f"I remove {SECRET}.", call(1, "remove", name=SECRET), pause=0.02)
        passing = fails("transient", f"no {SECRET} now")
        scripted = Scripted(passing, removing, says("Done."), refused)
        executor = cc.AgentExecutor(
            store, SONNET, tools=[remove], approve=lambda call, tool: True, endpoint=scripted, triggers=()
        )
        run_turn(executor, f"Remove {SECRET}!")
        with pytest.raises(ProviderFailed):
            run_turn(executor, f"And {SECRET} too!")
        before = store.events("demo")
        for message in store.load("demo"):
            store.redact("demo", message.seq)
        assert kinds(store.events("demo")) == kinds(before)
        assert [turn.error for turn in store.turns("demo")] == ["", ""]
    assert SECRET.encode() not in path.read_bytes()


# ── sessions, lost answers ────────────────────────────────────────────────────────────────────────────────────────────


def _answer(number: int, text: str) -> list[JSONObject]:
    said: JSONObject = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    response: JSONObject = {"id": f"resp_{number}", "output": [said], "status": "completed"}
    return [{"type": "response.completed", "response": response}]


def test_a_session_that_the_provider_has_lost_is_replaced(store: cc.Store) -> None:
    """Guarantees 9.5, 9.6: the whole context, in a new session, in the same step."""

    lost = ProviderFailed("openai", "session", "not found", status=400, code="previous_response_not_found")
    raw = Scripted(_answer(1, "one"), lost, _answer(3, "two"), _answer(4, "three"))
    executor = cc.AgentExecutor(store, "openai-session:gpt-5", endpoint=raw, triggers=())
    for text in ("first", "second", "third"):
        run_turn(executor, text)
    sent = [(request.get("previous_response_id"), len(request["input"])) for request in raw.requests]
    assert sent == [(None, 1), ("resp_1", 1), (None, 3), ("resp_3", 1)]


class Losing(PostgresEngine):
    """Commits the beginning of a request, and loses the answer."""

    lost = 0

    def _run(
        self,
        connection: StoreConnection,
        work: Callable[[Transaction], Result],
        *,
        writing: bool,
        again: bool,
    ) -> Result:
        result = super()._run(connection, work, writing=writing, again=again)
        if writing and ".begin." in work.__qualname__ and not again:
            self.lost += 1
            connection.close()
            raise ConnectionLost(during_commit=True)
        return result


def test_a_step_whose_beginning_was_stored_without_an_answer_is_there_once(postgres_address: str) -> None:
    """Guarantee 3.3: the connection breaks after the server has committed; the transaction is run again."""
    losing = Losing(postgres_address)
    store = open_with(losing)
    scripted = Scripted(says(call(1)), says("done"))
    events: list[AnyEvent] = run_turn(cc.AgentExecutor(store, SONNET, tools=[add], endpoint=scripted, triggers=()))
    assert losing.lost == 2
    assert kinds(events).count("step-start") == kinds(store.events("demo")).count("step-start") == 2
    assert [(step.index, step.state) for step in store.steps("demo")] == [(1, "finished"), (2, "finished")]
    store.close()


@pytest.mark.parametrize("change", ["rewound", "edited"])
def test_a_turn_whose_opening_is_gone_ends(store: cc.Store, change: str) -> None:
    """Guarantee 3.4: after a rewind or an edit, the turn does not continue."""
    store.append("demo", cc.user("first"))
    store.append("demo", cc.assistant("yes?"))

    def meddle() -> str:
        """Change the conversation while its turn runs."""
        if change == "rewound":
            store.rewind("demo", 1)
        else:
            store.edit("demo", 3, cc.user("something else"))
        return "done"

    provider = Scripted(says(call(1, "meddle")), says("never"))
    executor = cc.AgentExecutor(store, SONNET, tools=[meddle], endpoint=provider, triggers=())

    events = run_turn(executor, "second")

    assert isinstance(events[-1], TurnFinish)
    assert events[-1].finish == "superseded"
    assert len(provider.bodies) == 1


def test_an_edit_before_the_turn_does_not_end_it_if_the_opening_stays(store: cc.Store) -> None:
    """A fork or a clear leaves the turn's own messages where they are."""
    provider = Scripted(says(call(1, "fork")), says("Done."))

    def fork() -> str:
        """Fork the conversation while its turn runs."""
        store.fork("demo", "other")
        return "forked"

    executor = cc.AgentExecutor(store, SONNET, tools=[fork], endpoint=provider, triggers=())

    run_turn(executor, "go")

    assert store.load("demo")[-1].text == "Done."
