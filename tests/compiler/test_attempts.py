"""Attempts: begin before sending, then commit or abort; and recovery if neither happened."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import cast

import pytest

import contextc as cc
from contextc.compiler import Compiled, ledger
from contextc.compiler.ledger import get_channel_cache
from contextc.providers import Provider
from contextc.store.ledger_schema import Channel, ChannelState
from contextc.store.transaction_engine import Transaction
from tests.compiler.simulated_providers import ProviderDown, SessionProvider
from tests.full_disk_sqlite import full_disk

TABLES = ("message", "channel", "shown", "manifest", "head", "blob", "token_count", "calibration")


def stateless() -> Provider:
    return cc.provider("anthropic:claude-sonnet-4-5", window=20_000, output=1_000)


def stateful(*, reverts: bool) -> Provider:
    return cc.provider(
        "keeper:one", window=20_000, output=1_000, format="anthropic", session_resumption=True, reverts=reverts
    )


def everything(store: cc.Store) -> dict[str, list[tuple[object, ...]]]:
    """All that is stored about conversations and what was shown of them."""

    def work(tx: Transaction) -> dict[str, list[tuple[object, ...]]]:
        return {table: [tuple(row) for row in tx.rows(f"SELECT * FROM main.{table} ORDER BY 1")] for table in TABLES}

    return store.read(work)


def restarted(store: cc.Store, provider: Provider) -> cc.MessageCompiler:
    """What another process would have: nothing but the store."""
    get_channel_cache(store).clear()
    return cc.MessageCompiler(store, provider)


class Line:
    """A conversation with a provider that keeps sessions, after one exchange."""

    def __init__(self, store: cc.Store, *, reverts: bool) -> None:
        self.store, self.provider = store, stateful(reverts=reverts)
        self.compiler = cc.MessageCompiler(store, self.provider)
        self.end = SessionProvider(reverts=reverts)
        store.append("demo", cc.user("One."))
        self.goes_through(self.compiler.compile("demo"), "First.")
        store.append("demo", cc.user("Two."))

    def goes_through(self, compiled: Compiled, reply: str) -> None:
        self.compiler.begin(compiled)
        answer = self.end.send(compiled, [cc.assistant(reply)])
        self.compiler.commit(compiled, produced=answer.produced, session_id=answer.session_id, cursor=answer.cursor)
        self.end.acknowledge(answer)


def test_compile_stores_nothing(store: cc.Store) -> None:
    """Guarantee 9.7: not even a channel."""
    store.append("demo", cc.user("Hello."))
    before = everything(store)
    compiler = cc.MessageCompiler(store, stateless())
    assert compiler.compile("demo").body == compiler.compile("demo").body
    assert everything(store) == before


def test_begin_stores_the_attempt_before_anything_is_sent(store: cc.Store) -> None:
    """Guarantee 9.7: the next process sees that a request may have been sent."""
    compiler = cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("Hello."))
    compiler.begin(compiler.compile("demo"))
    [known] = cc.SessionManager(store).sessions("demo")
    assert (known.unanswered, known.error, known.requests) == (True, "", 0)


def test_commit_closes_the_attempt(store: cc.Store) -> None:
    """Guarantee 9.7: the reply is in the log, and nothing is on its way."""
    compiler = cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("Hello."))
    compiled = compiler.compile("demo")
    with compiler.attempt(compiled) as attempt:
        [stored] = attempt.commit(cc.assistant("Good day."), usage=cc.Usage(input=10, output=3))
    assert (stored.seq, stored.author, stored.text) == (2, "assistant", "Good day.")
    [known] = cc.SessionManager(store).sessions("demo")
    assert (known.unanswered, known.requests) == (False, 1)


def test_abort_moves_nothing(store: cc.Store) -> None:
    """Guarantee 9.7: the same request is compiled again, with the error noted."""
    compiler = cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("Hello."))
    compiled = compiler.compile("demo")
    compiler.begin(compiled)
    compiler.abort(compiled, ProviderDown("overloaded"))
    [known] = cc.SessionManager(store).sessions("demo")
    assert (known.error, known.requests) == ("ProviderDown: overloaded", 0)
    again = compiler.compile("demo")
    assert (again.body, again.is_new) == (compiled.body, True)


def test_block_that_fails_is_aborted(store: cc.Store) -> None:
    """Guarantee 9.7: and its own exception is the one that is seen."""
    compiler = cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("Hello."))
    with pytest.raises(ProviderDown), compiler.attempt(compiler.compile("demo")):
        raise ProviderDown("overloaded")
    assert cc.SessionManager(store).sessions("demo")[0].error == "ProviderDown: overloaded"


def test_block_that_ends_without_a_reply_is_aborted(store: cc.Store) -> None:
    """Guarantee 9.7."""
    compiler = cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("Hello."))
    with compiler.attempt(compiler.compile("demo")):
        pass
    assert cc.SessionManager(store).sessions("demo")[0].error == "the attempt ended without a reply"


def test_a_request_is_committed_once(store: cc.Store) -> None:
    """Guarantee 9.7: the second time nothing is stored."""
    compiler = cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("Hello."))
    compiled = compiler.compile("demo")
    compiler.commit(compiled, cc.assistant("Good day."))
    before = everything(store)
    with pytest.raises(cc.errors.StaleCompile):
        compiler.commit(compiled, cc.assistant("Good day."))
    assert everything(store) == before


def test_of_two_first_requests_one_is_committed(store: cc.Store) -> None:
    """Guarantee 9.7: also where the channel was not there when both were compiled."""
    compiler, other = cc.MessageCompiler(store, stateless()), cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("Hello."))
    first, second = compiler.compile("demo"), other.compile("demo")
    compiler.begin(first)
    other.begin(second)
    other.commit(second, cc.assistant("Second."))
    with pytest.raises(cc.errors.StaleCompile):
        compiler.commit(first, cc.assistant("First."))
    assert [message.text for message in store.load("demo")] == ["Hello.", "Second."]


def test_commit_with_a_lease_that_was_lost_is_refused(store: cc.Store) -> None:
    """Guarantees 3.2, 9.7: an outlived turn writes nothing."""
    compiler = cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("Hello."))
    lease = store.acquire("demo")
    compiled = compiler.compile("demo")
    compiler.begin(compiled, lease=lease)
    store.release(lease)
    newer = store.acquire("demo")
    before = everything(store)
    with pytest.raises(cc.errors.LeaseLost):
        compiler.commit(compiled, cc.assistant("Too late."), lease=lease)
    assert everything(store) == before
    [stored] = compiler.commit(compiled, cc.assistant("In time."), lease=newer)
    assert stored.seq == 2
    store.release(newer)


def test_begin_with_a_lease_that_was_lost_is_refused(store: cc.Store) -> None:
    """Guarantee 3.2: before a byte leaves."""
    compiler = cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("Hello."))
    lease = store.acquire("demo")
    store.release(lease)
    with pytest.raises(cc.errors.LeaseLost):
        compiler.begin(compiler.compile("demo"), lease=lease)
    assert cc.SessionManager(store).sessions("demo") == []


def test_dry_run_cannot_be_sent(store: cc.Store) -> None:
    """Guarantee 13.2: it only says what it would cost."""
    compiler = cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("Hello."))
    compiled = compiler.compile("demo", dry_run=True)
    with pytest.raises(cc.errors.InvalidInput, match="dry_run"):
        compiler.begin(compiled)
    with pytest.raises(cc.errors.InvalidInput, match="dry_run"):
        compiler.commit(compiled, cc.assistant("Good day."))


def test_crash_leaves_a_stateless_provider_with_the_same_request(store: cc.Store) -> None:
    """Guarantee 9.7: it keeps nothing, so what was sent before is sent again, once."""
    compiler = cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("Hello."))
    compiled = compiler.compile("demo")
    compiler.begin(compiled)
    again = restarted(store, stateless()).compile("demo")
    assert (again.mode, again.body) == ("full", compiled.body)


def crash(line: Line, ended: str) -> cc.Compiled:
    """A request is on its way as everything goes down, before or after it was kept or answered; then up again."""
    compiled = line.compiler.compile("demo")
    line.compiler.begin(compiled)
    if ended == "answered":
        line.end.send(compiled, [cc.assistant("Nobody hears this.")])
    else:
        with pytest.raises(ProviderDown):
            line.end.send(compiled, [], "before" if ended == "before" else "after")
    if ended == "aborted":
        line.compiler.abort(compiled, "it broke off")
    line.compiler = restarted(line.store, line.provider)
    return compiled


ENDED = ("before", "after", "answered", "aborted")


@pytest.mark.parametrize("ended", ENDED)
def test_crash_in_a_session_that_can_be_brought_back(store: cc.Store, ended: str) -> None:
    """Guarantee 9.8: before the next delta the session goes back to the cursor, whatever it had kept of the last."""
    line = Line(store, reverts=True)
    compiled = crash(line, ended)
    again = line.compiler.compile("demo")
    assert (again.mode, again.session_id, again.revert_to) == ("resume", "session1", "session1/1")
    assert again.params["messages"] == compiled.params["messages"]
    line.goes_through(again, "Second.")
    store.append("demo", cc.user("Three."))
    following = line.compiler.compile("demo")
    assert (following.mode, following.revert_to) == ("resume", None)
    line.goes_through(following, "Third.")


@pytest.mark.parametrize("ended", ENDED)
def test_crash_in_a_session_that_cannot_be_brought_back(store: cc.Store, ended: str) -> None:
    """Guarantee 9.8: if the state is unknown, a new session gets everything: once, not twice or never."""
    line = Line(store, reverts=False)
    crash(line, ended)
    again = line.compiler.compile("demo")
    assert (again.mode, again.session_id, again.revert_to) == ("full", None, None)
    assert again.manifest.why == "an earlier prompt may be in the session"
    assert [message["content"][0]["text"] for message in again.params["messages"]] == ["One.", "First.", "Two."]
    line.goes_through(again, "Second.")
    store.append("demo", cc.user("Three."))
    assert line.compiler.compile("demo").session_id == "session2"


def test_first_request_that_crashed_is_the_first_again(store: cc.Store) -> None:
    """Guarantee 9.8: no session is known yet, so there is none to bring back."""
    compiler = cc.MessageCompiler(store, stateful(reverts=False))
    store.append("demo", cc.user("Hello."))
    compiler.begin(compiler.compile("demo"))
    again = restarted(store, stateful(reverts=False)).compile("demo")
    assert (again.mode, again.session_id, again.manifest.why) == ("full", None, "first request")


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[cc.Store]:
    """A store whose file may not grow much: as a disk that is nearly full."""
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        yield store


def test_reply_that_cannot_be_stored_leaves_nothing(store: cc.Store) -> None:
    """Guarantees 9.7, 15.1: of several messages the last is refused by validation, and none is written."""
    compiler = cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("Hello."))
    compiled = compiler.compile("demo")
    compiler.begin(compiled)
    before = everything(store)
    with pytest.raises(cc.errors.InvalidMessage):
        compiler.commit(compiled, produced=[cc.assistant("Fine."), cc.user("   ")])
    assert everything(store) == before
    compiler.commit(compiled, cc.assistant("Good day."))
    assert [message.text for message in store.load("demo")] == ["Hello.", "Good day."]


def test_commit_is_one_transaction(narrow: cc.Store) -> None:
    """Guarantees 3.3, 9.7: the reply fits on the disk, what was shown does not; then neither is stored."""
    compiler = cc.MessageCompiler(narrow, stateless())
    narrow.append("demo", cc.user("Hello. " * 3_000))
    compiled = compiler.compile("demo")
    compiler.begin(compiled)
    before = everything(narrow)

    with full_disk(narrow, pages=2), pytest.raises(cc.errors.StoreFull):
        compiler.commit(compiled, cc.assistant("Good day."))
    assert everything(narrow) == before
    assert [message.role for message in narrow.load("demo")] == ["user"]
    again = compiler.compile("demo")
    assert again.body == compiled.body
    compiler.commit(compiled, cc.assistant("Good day."))
    assert [message.role for message in narrow.load("demo")] == ["user", "assistant"]


@pytest.mark.parametrize("first", ["a", "b"])
def test_two_requests_into_one_session_leave_it_in_doubt_whichever_is_stored(first: str) -> None:
    """Guarantee 9.8: without a lease two may begin; the one that is not stored may be in the session all the same."""
    store = cc.open_store("memory:")
    provider = cc.provider("anthropic:claude-sonnet-4-5", session_resumption=True)
    compilers = {name: cc.MessageCompiler(store, provider) for name in ("a", "b")}
    store.append("demo", cc.user("hi"))
    opening = compilers["a"].compile("demo")
    compilers["a"].begin(opening)
    compilers["a"].commit(opening, cc.assistant("hello"), session_id="s1")
    store.append("demo", cc.user("more"))
    both = {name: compiler.compile("demo") for name, compiler in compilers.items()}
    for name, compiled in both.items():
        compilers[name].begin(compiled)
    other = "b" if first == "a" else "a"
    compilers[first].commit(both[first], cc.assistant("yes"), session_id="s1")
    with pytest.raises(cc.errors.StaleCompile):
        compilers[other].commit(both[other], cc.assistant("no"), session_id="s1")
    compilers[other].abort(both[other])
    store.append("demo", cc.user("and?"))
    later = compilers["a"].compile("demo")
    assert (later.mode, later.manifest.why) == ("full", "an earlier prompt may be in the session")


@pytest.mark.parametrize("answered", [False, True])
def test_two_first_requests_at_once_never_leave_without_an_attempt(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """The second of two transactions that create the same channel finds the row of the first. It must store its attempt
    there, or raise if the first was answered already: only the attempt shows that a session may hold a request.
    """
    create = ledger.create_channel
    with cc.open_store(postgres_address) as store, cc.open_store(postgres_address) as elsewhere:
        store.append("demo", cc.user("Hello."))
        compiler, faster = cc.MessageCompiler(store, stateless()), cc.MessageCompiler(elsewhere, stateless())
        mine, other = compiler.compile("demo"), faster.compile("demo")

        def beaten(tx: Transaction, channel: Channel, state: ChannelState) -> int:
            monkeypatch.setattr(ledger, "create_channel", create)
            faster.begin(other)
            if answered:
                faster.commit(other, cc.assistant("Hi."))
            return create(tx, channel, state)

        monkeypatch.setattr(ledger, "create_channel", beaten)
        if answered:
            with pytest.raises(cc.errors.StaleCompile):
                compiler.begin(mine)
        else:
            compiler.begin(mine)
        stored = store.read(lambda tx: ledger.find_channel(tx, mine.channel))
        attempt = ledger.decode_attempt(stored.attempt) if stored else None
    if answered:
        assert attempt is None
    else:
        assert attempt is not None
        assert (attempt.token, attempt.doubtful) == (mine.token, True)


def test_two_requests_on_one_channel_at_once_know_of_each_other(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both may reach the session. An attempt that overwrites another one unseen leaves no trace of the first."""
    begin, others = ledger.save_attempt, list[Thread]()
    with cc.open_store(postgres_address) as store, cc.open_store(postgres_address) as elsewhere:
        store.append("demo", cc.user("Hello."))
        compiler, faster = cc.MessageCompiler(store, stateless()), cc.MessageCompiler(elsewhere, stateless())
        with compiler.attempt(compiler.compile("demo")) as attempt:
            attempt.commit(cc.assistant("Hi."))
        store.append("demo", cc.user("More."))
        mine, other = compiler.compile("demo"), faster.compile("demo")

        def nothing_more(tx: Transaction) -> None: ...

        def beaten(tx: Transaction, number: int, attempt: ledger.OpenAttempt) -> None:
            """Have the other one begin after this one has looked: it waits for this one, or is done before it."""
            monkeypatch.setattr(ledger, "save_attempt", begin)
            others.append(Thread(target=faster.begin, args=(other,), kwargs={"in_transaction": nothing_more}))
            others[0].start()
            while others[0].is_alive() and not elsewhere.read(waits):
                pass
            begin(tx, number, attempt)

        def waits(tx: Transaction) -> bool:
            return bool(tx.rows("SELECT 1 FROM pg_locks WHERE NOT granted"))

        monkeypatch.setattr(ledger, "save_attempt", beaten)
        compiler.begin(mine, in_transaction=nothing_more)
        others[0].join()
        stored = store.read(lambda tx: ledger.find_channel(tx, mine.channel))
        last = ledger.decode_attempt(stored.attempt) if stored else None
    assert last is not None
    assert last.doubtful


def loses_confirmation(store: cc.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every transaction of the store a second time after it was committed, as the store does if it cannot know."""
    write = store.write

    class Retried:
        is_retry = True

        def __init__(self, tx: Transaction) -> None:
            self._tx = tx

        def __getattr__(self, name: str) -> object:
            return getattr(self._tx, name)

    def write_twice(work: Callable[[Transaction], object], *, repeatable: bool = False) -> object:
        write(work, repeatable=repeatable)
        return write(lambda tx: work(cast(Transaction, Retried(tx))), repeatable=repeatable)

    monkeypatch.setattr(store, "write", write_twice)


@pytest.mark.parametrize("action", ["commit", "commit of a streamed reply", "abort"])
def test_a_transaction_whose_confirmation_is_lost_happens_once(
    store: cc.Store, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """The second try finds what the first stored, and the next request continues from there."""
    compiler = cc.MessageCompiler(store, stateless())
    store.append("demo", cc.user("One."))
    compiled = compiler.compile("demo")
    compiler.begin(compiled)
    reply = cc.assistant("First.")
    if action == "commit of a streamed reply":
        reply = store.append("demo", reply)
    with monkeypatch.context() as patch:
        loses_confirmation(store, patch)
        if action != "abort":
            stored = compiler.commit(compiled, produced=[reply])
            assert stored == store.load("demo")[1:]
        else:
            number = compiler.abort(compiled, "down")
            assert compiler.explain("demo", request=number).lines == compiled.manifest.lines
    assert len(store.load("demo")) == (1 if action == "abort" else 2)
    assert len(everything(store)["manifest"]) == 1
    store.append("demo", cc.user("Two."))
    following = compiler.compile("demo").request
    assert following == restarted(store, stateless()).compile("demo").request
