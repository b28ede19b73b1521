"""Messages that other software deleted from the store: noticed by the next request, and never sent again.

On every store, for stateless providers and for sessions, with and without the rows in memory.
"""

import asyncio
import logging
from collections.abc import Callable

import pytest

import contextc as cc
from contextc._json import JSONObject, decode, encode
from contextc.compiler import Compiled
from contextc.compiler.ledger import get_channel_cache
from contextc.doctor import repair_conversations, scan_store
from contextc.store.message_log import SEQ_BITS
from tests.executor.scripted_provider import Scripted, says

LOST = "messages that were sent are missing from the conversation"
STATELESS, SESSION = "anthropic:claude-sonnet-4-5", "openai-session:gpt-6.1-terra"
PROVIDERS = [STATELESS, pytest.param(SESSION, id="session")]


def delete(store: cc.Store, *seqs: int, name: str = "demo") -> None:
    branch = store.conversation(name).branch
    for seq in seqs:
        store.write(lambda tx, seq=seq: tx.run("DELETE FROM main.message WHERE place = ?", branch << SEQ_BITS | seq))


def answer(compiler: cc.MessageCompiler, text: str, name: str = "demo") -> Compiled:
    compiled = compiler.compile(name)
    compiler.begin(compiled)
    compiler.commit(compiled, cc.assistant(text), session_id="s1" if compiler.provider.session_resumption else None)
    return compiled


def begun(store: cc.Store, provider: str) -> cc.MessageCompiler:
    """Three questions and their answers: u0 a0 u1 a1 u2 a2."""
    compiler = cc.MessageCompiler(store, provider)
    for number in range(3):
        store.append("demo", cc.user(f"u{number}"))
        answer(compiler, f"a{number}")
    return compiler


def texts(compiled: Compiled) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in compiled.messages]


KEPT = [("user", "u0"), ("assistant", "a0"), ("user", "u1"), ("assistant", "a1")]


def stay(compiler: cc.MessageCompiler) -> None:
    """The process goes on: its caches have the lost messages."""


def restart(compiler: cc.MessageCompiler) -> None:
    get_channel_cache(compiler.store).clear()


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("then", [stay, restart])
def test_after_the_last_messages_were_deleted_the_whole_rest_is_sent_anew(
    store: cc.Store, provider: str, then: Callable[[cc.MessageCompiler], None]
) -> None:
    """Guarantees 9.3, 9.5, 9.6. The new message has the number of a lost one, and must not be taken for it."""
    compiler = begun(store, provider)
    delete(store, 5, 6)
    then(compiler)
    assert store.append("demo", cc.user("NEW")).seq == 5
    compiled = answer(compiler, "a3")
    assert texts(compiled) == [*KEPT, ("user", "NEW")]
    assert (compiled.mode, compiled.session_id, compiled.manifest.why) == ("full", None, LOST)
    store.append("demo", cc.user("LATER"))
    later = answer(compiler, "a4")
    assert later.manifest.why == "", "once is enough"
    assert texts(later)[-1] == ("user", "LATER")
    assert list(scan_store(store)) == []


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("then", [stay, restart])
def test_a_log_that_grew_again_is_not_taken_for_the_old_one(
    store: cc.Store, provider: str, then: Callable[[cc.MessageCompiler], None]
) -> None:
    """Its length is that of the lost log, or more: only the ids differ."""
    compiler = begun(store, provider)
    delete(store, 5, 6)
    then(compiler)
    for message in (cc.user("NEW 5"), cc.assistant("NEW 6"), cc.user("NEW 7")):
        store.append("demo", message)
    compiled = compiler.compile("demo")
    assert texts(compiled) == [*KEPT, ("user", "NEW 5"), ("assistant", "NEW 6"), ("user", "NEW 7")]
    assert compiled.manifest.why == LOST
    assert compiled.is_new


def test_appends_of_this_process_leave_no_gap_after_a_deletion(store: cc.Store) -> None:
    """Guarantee 3.2. A handle knows the end of a conversation; it must not append after a message that is gone."""
    for number in range(4):
        store.append("demo", cc.user(f"u{number}"))
    delete(store, 4)
    assert store.append("demo", cc.user("NEW")).seq == 4
    assert [message.text for message in store.load("demo")] == ["u0", "u1", "u2", "NEW"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_reply_to_messages_that_were_deleted_meanwhile_is_refused(store: cc.Store, provider: str) -> None:
    """Guarantee 9.7. Appended, it would follow messages that it does not answer."""
    compiler = begun(store, provider)
    store.append("demo", cc.user("u3"))
    compiled = compiler.compile("demo")
    compiler.begin(compiled)
    delete(store, 6, 7)
    with pytest.raises(cc.errors.StaleCompile, match=LOST):
        compiler.commit(compiled, cc.assistant("a3"))
    assert [message.text for message in store.load("demo")] == ["u0", "a0", "u1", "a1", "u2"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_message_deleted_in_the_middle_is_not_sent_by_a_new_process(store: cc.Store, provider: str) -> None:
    """The end of the log is as it was, so every message of the epoch is looked up when its rows are read."""
    compiler = begun(store, provider)
    delete(store, 3)
    store.append("demo", cc.user("NEW"))
    restart(compiler)
    compiled = answer(compiler, "a3")
    assert "u1" not in [text for _, text in texts(compiled)]
    assert texts(compiled)[-1] == ("user", "NEW")
    assert compiled.manifest.why == LOST
    assert "1 of its messages are missing from the store" in compiled.record.remarks


def test_a_fork_does_not_send_what_its_parent_lost(store: cc.Store) -> None:
    """Guarantee 9.9a. A fork continues the ledger of its parent, and shares its messages."""
    compiler = begun(store, STATELESS)
    store.fork("demo", "fork")
    delete(store, 5, 6)
    store.append("fork", cc.user("NEW"))
    assert texts(compiler.compile("fork")) == [*KEPT, ("user", "NEW")]


def test_a_fork_is_not_given_new_messages_of_its_parent_for_lost_ones(store: cc.Store) -> None:
    """The parent lost the message that the fork begins after, and has another one in its place."""
    compiler = begun(store, STATELESS)
    store.fork("demo", "fork")
    store.append("fork", cc.user("u3"))
    answer(compiler, "a3", "fork")
    delete(store, 5, 6)
    for text in ("PARENT 5", "PARENT 6"):
        store.append("demo", cc.user(text))
    restart(compiler)
    with pytest.raises(cc.errors.StoreCorrupt, match=r"message 6 .* another message now.*contextc doctor"):
        compiler.compile("fork")


def test_a_summary_of_lost_messages_is_not_used(store: cc.Store) -> None:
    """It holds what was deleted, and would stand for new messages with the same numbers."""
    compiler = cc.MessageCompiler(store, cc.provider("x:m", window=4_000, output=500))
    for number in range(8):
        store.append("demo", cc.user(f"question {number} " + "word " * 100))
        answer(compiler, f"answer {number} " + "word " * 100)
    done = compiler.compact("demo", lambda messages, before: "SUMMARY")
    assert done is not None
    delete(store, *range(done.upto, 17))
    for number in range(done.upto, 18):
        store.append("demo", cc.user(f"new {number}"))
    compiled = compiler.compile("demo")
    assert "SUMMARY" not in str(compiled.params)
    assert f"new {done.upto}" in str(compiled.params)
    assert {each.code for each in scan_store(store)} == {"lost-sent-messages", "lost-summary"}
    repair_conversations(store, scan_store(store))
    assert list(scan_store(store)) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_doctor_reports_lost_messages_and_repairs_the_ledger(store: cc.Store, provider: str) -> None:
    """Guarantee 10.6. The chain itself is sound: only its ledger shows that it was longer."""
    compiler = begun(store, provider)
    delete(store, 5, 6)
    (finding,) = scan_store(store)
    assert (finding.code, finding.kind, finding.conversation) == ("lost-sent-messages", "fault", "demo")
    (done,) = repair_conversations(store, [finding])
    assert done.outcome == "healed"
    assert list(scan_store(store)) == []
    store.append("demo", cc.user("NEW"))
    compiled = compiler.compile("demo")
    assert texts(compiled) == [*KEPT, ("user", "NEW")]
    assert (compiled.manifest.why, compiled.session_id) == (LOST, None)


def test_a_channel_of_an_older_version_notices_a_shorter_log(store: cc.Store) -> None:
    """Its state has no id of the last message."""
    compiler = begun(store, STATELESS)
    [(state,)] = store.read(lambda tx: tx.rows("SELECT state FROM main.channel"))
    old: JSONObject = {name: value for name, value in decode(state).items() if name != "tip"}
    store.write(lambda tx: tx.run("UPDATE main.channel SET state = ?, version = version + 1", encode(old)))
    delete(store, 5, 6)
    assert compiler.compile("demo").manifest.why == LOST


def test_a_turn_after_lost_messages_calls_the_model(store: cc.Store, caplog: pytest.LogCaptureFixture) -> None:
    """A turn that ends without a request, and with the finish reason of an answer, hides that nothing was asked."""
    endpoint = Scripted(lambda request: says("fine"))
    executor = cc.AgentExecutor(store, STATELESS, endpoint=endpoint, triggers=())

    async def turns() -> None:
        for text in ("u0", "u1", "u2"):
            await executor.start("demo", text).wait()
        delete(store, 5, 6)
        for text in ("NEW 1", "NEW 2"):
            before = len(endpoint.bodies)
            await executor.start("demo", text).wait()
            assert len(endpoint.bodies) == before + 1
            last = endpoint.requests[-1]["messages"][-1]
            assert (last["role"], last["content"][0]["text"]) == ("user", text)
        assert b"u2" not in endpoint.bodies[-1]
        with caplog.at_level(logging.WARNING, "contextc.executor"):
            await executor.start("demo", cc.system("for another", audience="other")).wait()

    asyncio.run(turns())
    assert "has no request" in caplog.text


@pytest.mark.parametrize(
    ("column", "damaged"),
    [("state", b'{"requests":3,"rows":3,"session":{"id":"s1","cursor":2}}'), ("attempt", b"{}"), ("state", b"\xff")],
)
def test_doctor_repairs_a_channel_that_cannot_be_read(store: cc.Store, column: str, damaged: bytes) -> None:
    """Guarantee 10.6. The session is dropped, and the numbers of requests go on."""
    compiler = begun(store, SESSION)
    store.write(lambda tx: tx.run(f"UPDATE main.channel SET {column} = ?, version = version + 1", damaged))
    store.append("demo", cc.user("NEW"))
    with pytest.raises(cc.errors.StoreCorrupt, match="contextc doctor"):
        compiler.compile("demo")
    (finding,) = scan_store(store)
    assert (finding.code, finding.kind, finding.conversation) == ("unreadable-channel", "fault", "demo")
    (done,) = repair_conversations(store, [finding])
    assert done.outcome == "healed"
    assert list(scan_store(store)) == []
    compiled = answer(compiler, "a3")
    assert (compiled.mode, compiled.request) == ("full", 4)
    assert texts(compiled)[-1] == ("user", "NEW")
    assert len(compiled.messages) == 7


def test_doctor_repairs_a_channel_whose_rows_cannot_be_read(store: cc.Store) -> None:
    """They are written again, as new ones."""
    compiler = begun(store, STATELESS)
    store.write(lambda tx: tx.run("UPDATE main.shown SET items = ?", b"{}"))
    get_channel_cache(store).clear()
    store.append("demo", cc.user("NEW"))
    assert [each.code for each in scan_store(store)] == ["unreadable-channel"]
    repair_conversations(store, scan_store(store))
    assert list(scan_store(store)) == []
    assert len(answer(compiler, "a3").messages) == 7
