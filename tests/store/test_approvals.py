"""Approvals and requests to end a turn are rows: any process lists and answers them, and the first answer counts."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import contextc as cc
from contextc.errors import AlreadyAnswered, InvalidInput, UnknownApproval
from contextc.events import ApprovalAnswered, StepFinish
from contextc.executor.turn_store import GivenInput, TurnStore
from contextc.store import Approval, leases
from contextc.store.approvals import EXPIRED
from contextc.store.message_log import now_ms
from contextc.store.store import expire_approvals, leases_of
from contextc.store.transaction_engine import Transaction
from tests.compiler.test_attempts import loses_confirmation

CALL = cc.ToolCall(id="c1", name="pay", arguments={"amount": 5})


def ask(store: cc.Store, name: str = "demo", *, expires: int = 0, allow: bool = False) -> Approval:
    """Suspend a turn with one call that waits for approval."""
    turn = TurnStore(store, name, "assistant", store.acquire(name))
    turn.open(GivenInput([cc.user("Pay.")]), resume=False)
    reply = store.append(
        name,
        cc.Message(role="assistant", parts=(CALL,), author="assistant", turn=turn.turn.number, finish="tool_calls"),
    )
    turn.append_events(StepFinish(seq=reply.seq, uid=reply.uid), step=1)
    approval = Approval(
        id=f"id-{name}",
        agent="assistant",
        turn=turn.turn.number,
        step=1,
        seq=reply.seq,
        call=CALL.id,
        name=CALL.name,
        arguments=CALL.arguments,
        asked=now_ms(),
        expires=expires,
        default_allows=allow,
        default_reason="" if allow else "no answer",
    )
    assert turn.suspend([approval], [])
    return approval


def test_pending_approvals_are_listed_for_a_conversation_and_for_the_store(store: cc.Store) -> None:
    """Guarantee 18.1: also those of other processes, because they are rows."""
    for name in ("one", "two"):
        ask(store, name)
    assert [(each.conversation, each.name, each.arguments) for each in store.approvals()] == [
        ("one", "pay", {"amount": 5}),
        ("two", "pay", {"amount": 5}),
    ]
    assert [each.id for each in store.approvals("two")] == ["id-two"]
    store.answer_approval("id-one", True)
    assert [each.id for each in store.approvals()] == ["id-two"]
    assert store.answered_turns() == [("one", "assistant", 1)]
    store.delete("two")
    assert store.approvals() == []
    with pytest.raises(cc.errors.UnknownConversation):
        store.approvals("two")


def test_the_first_answer_counts_and_the_second_is_told_who_answered_when(store: cc.Store) -> None:
    """Guarantee 18.2."""
    ask(store)
    done = store.answer_approval("id-demo", False, reason="too much", who="ann")
    assert (done.state, done.reason, done.who) == ("denied", "too much", "ann")
    with pytest.raises(AlreadyAnswered, match=r"it was denied by ann at 20\d\d-") as refused:
        store.answer_approval("id-demo", True, who="bob")
    assert refused.value.answered == done.answered
    assert store.turn_approvals("demo", 1) == [done]
    (event,) = [each for each in store.events("demo") if isinstance(each, ApprovalAnswered)]
    assert (event.approval, event.id, event.allowed, event.text, event.who) == (
        "id-demo",
        "c1",
        False,
        "too much",
        "ann",
    )


def test_a_long_reason_whose_confirmation_is_lost_is_stored_once(
    store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 18.2. A reason is shortened when it is stored; the second try must know it again."""
    ask(store)
    with monkeypatch.context() as patch:
        loses_confirmation(store, patch)
        done = store.answer_approval("id-demo", False, reason="no " * 5_000, who="ann")
    assert (done.state, len(done.reason)) == ("denied", 10_000)


def test_of_answers_at_the_same_time_one_wins(store: cc.Store) -> None:
    """Guarantee 18.2."""
    ask(store)
    ready = threading.Barrier(8)

    def answer(number: int) -> str:
        ready.wait(60)
        try:
            return store.answer_approval("id-demo", number % 2 == 0, who=f"person {number}").who
        except AlreadyAnswered as late:
            return f"after {late.who}"

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(answer, range(8)))
    (winner,) = [each for each in found if not each.startswith("after")]
    assert sorted(found) == sorted([winner, *[f"after {winner}"] * 7])
    assert len([each for each in store.events("demo") if isinstance(each, ApprovalAnswered)]) == 1


@pytest.mark.parametrize("allow", [True, False])
def test_an_expired_approval_gets_its_default_answer_when_anyone_looks(store: cc.Store, allow: bool) -> None:
    """Guarantee 18.3."""
    ask(store, expires=now_ms() - 1, allow=allow)
    assert store.approvals("demo") == []
    (found,) = store.turn_approvals("demo", 1)
    assert (found.state, found.who) == ("allowed" if allow else "denied", EXPIRED)
    assert found.reason == ("" if allow else "no answer")
    assert expire_approvals(store) == []


def test_an_answer_after_the_time_out_is_refused(store: cc.Store) -> None:
    """Guarantee 18.3: the default answer counts from that moment on."""
    ask(store, expires=now_ms() - 1)
    with pytest.raises(AlreadyAnswered, match="it was denied by time-out"):
        store.answer_approval("id-demo", True)
    ask(store, "later", expires=now_ms() + 3_600_000)
    assert store.answer_approval("id-later", True).state == "allowed"


def test_what_follows_an_answer_is_stored_with_it_or_not_at_all(store: cc.Store) -> None:
    """Guarantee 18.2: a job that continues the turn is submitted in the same transaction."""
    ask(store)

    def fail(tx: Transaction, done: Approval) -> None:
        assert done.state == "allowed"
        tx.run("DELETE FROM main.queue")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        store.answer_approval("id-demo", True, in_transaction=fail)
    assert [each.state for each in store.approvals()] == ["pending"]
    seen: list[str] = []
    store.answer_approval("id-demo", True, in_transaction=lambda tx, done: seen.append(done.conversation))
    assert seen == ["demo"]


def test_wrong_answers_are_refused(store: cc.Store) -> None:
    ask(store)
    with pytest.raises(UnknownApproval, match=r"No approval 'c1'"):
        store.answer_approval("c1", True)
    with pytest.raises(InvalidInput, match=r"must be True or False, got 'yes'\. To deny with a reason, pass False"):
        store.answer_approval("id-demo", "yes")  # pyright: ignore[reportArgumentType]
    assert [each.state for each in store.approvals()] == ["pending"]


def test_a_redacted_call_is_no_longer_quoted_by_its_approval(store: cc.Store) -> None:
    """Guarantee 3.4: an approval has the arguments of its call, until that message is redacted."""
    ask(store)
    store.answer_approval("id-demo", False, reason="5 is a secret")
    store.redact("demo", 2)
    (found,) = store.turn_approvals("demo", 1)
    assert (found.arguments, found.reason) == ({}, "")
    (event,) = [each for each in store.events("demo") if isinstance(each, ApprovalAnswered)]
    assert event.text == ""


# ── requests to end a turn ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_waiting_turn_ends_at_once_and_its_calls_are_not_run(store: cc.Store) -> None:
    """Guarantee 18.4: it has no process that could end it."""
    ask(store)
    done = store.cancel_turn("demo", who="ann")
    assert (done.turn, done.kind, done.who, done.taken > 0) == (1, "cancel", "ann", True)
    assert [(turn.state, turn.finish) for turn in store.turns("demo")] == [("finished", "cancelled")]
    assert [result.text for message in store.load("demo") for result in message.tool_results] == [
        "Not run: the turn ended before (it was cancelled)."
    ]
    with pytest.raises(AlreadyAnswered, match="its turn ended at"):
        store.answer_approval("id-demo", True)
    assert store.approvals() == []
    assert store.cancel_turn("demo").turn == 0, "there is nothing to cancel any more"


def test_a_request_reaches_the_process_that_runs_the_turn_with_its_next_write(store: cc.Store) -> None:
    """Guarantee 18.4: and with the renewal of its lease. `cancel` replaces `stop`, and not the other way round."""
    lease, seen = store.acquire("demo"), list[str]()
    turn = TurnStore(store, "demo", "assistant", lease)
    turn.open(GivenInput([cc.user("Hello.")]), resume=False)
    leases_of(store).on_end_request(lease, seen.append)
    assert store.stop_turn("demo", who="ann").turn == 1
    turn.append_events(cc.events.UserNoticeCreated(text="still here"))
    assert seen == ["stop"]
    store.cancel_turn("demo")
    store.stop_turn("demo")
    renewed = store.write(lambda tx: leases.renew_and_find_requests(tx, [lease]))
    assert (renewed.lost, renewed.requests) == ([], [(lease, "cancel")])
    leases_of(store).find_end_requests("demo")
    assert seen == ["stop", "cancel"]
    turn.close("cancelled")
    assert [(each.kind, each.who, each.taken > 0) for each in store.turn_requests("demo", 1)] == [
        ("stop", "ann", True),
        ("cancel", "", True),
        ("stop", "", True),
    ]


def test_a_request_does_not_reach_the_next_turn(store: cc.Store) -> None:
    turn = TurnStore(store, "demo", "assistant", store.acquire("demo"))
    turn.open(GivenInput([cc.user("Hello.")]), resume=False)
    store.cancel_turn("demo")
    turn.close("stop")
    lease, seen = store.acquire("demo"), list[str]()
    leases_of(store).on_end_request(lease, seen.append)
    following = TurnStore(store, "demo", "assistant", lease)
    following.open(GivenInput([cc.user("And?")]), resume=False)
    following.append_events(cc.events.UserNoticeCreated(text="here"))
    assert seen == []
    following.close("stop")


def test_a_turn_whose_process_is_gone_is_interrupted_and_not_cancelled(store: cc.Store) -> None:
    """Guarantee 3.6: nobody would read the request."""
    turn = TurnStore(store, "demo", "assistant", store.acquire("demo"))
    turn.open(GivenInput([cc.user("Hello.")]), resume=False)
    store.write(lambda tx: tx.run("UPDATE main.lease SET holder = 'elsewhere 7 1', expires = 0"))
    assert store.cancel_turn("demo").turn == 0
    assert [each.state for each in store.turns("demo")] == ["interrupted"]
