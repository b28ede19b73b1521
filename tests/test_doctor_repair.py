"""A repair does what the doctor announced and nothing else, on stores with known damage."""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import pytest

import contextc as cc
from contextc.doctor import Finding, RepairResult, repair_conversations, scan_store
from contextc.messages import ValidatedMessage, canonical_content, decode_message, encode_message
from contextc.store import message_log
from contextc.store.transaction_engine import Transaction

PROCESSES = multiprocessing.get_context("forkserver")
PNG = b"\x89PNG-bytes"


def call(name: str, tool: str = "f") -> cc.ToolCall:
    return cc.ToolCall(id=name, name=tool, arguments={})


def asks(*names: str, author: str | None = None) -> cc.Message:
    return cc.assistant(tool_calls=[call(name) for name in names], author=author)


def found(store: cc.Store, conversation: str | None = None) -> list[Finding]:
    return list(scan_store(store, conversation=conversation))


def codes(store: cc.Store) -> list[tuple[str, str]]:
    return [(finding.kind, finding.code) for finding in scan_store(store)]


def texts_of(store: cc.Store, name: str = "demo") -> list[str]:
    return [
        f"{each.role}: {each.text or '|'.join(result.text for result in each.tool_results)}"
        for each in store.load(name)
    ]


def rows(store: cc.Store) -> list[tuple[object, ...]]:
    """Every message of the store as it lies there: repair may add to these, and change none."""
    return store.read(lambda tx: tx.rows("SELECT place, id, time, redacted, body FROM main.message ORDER BY place"))


def change(store: cc.Store, seq: int, how: Callable[[bytes], bytes]) -> None:
    """Write another body behind the store's back."""

    def work(tx: Transaction) -> None:
        for where, body in tx.rows("SELECT place, body FROM main.message"):
            if where & message_log.SEQ_MASK == seq:
                tx.run("UPDATE main.message SET body = ? WHERE place = ?", how(bytes(body)), where)

    store.write(work)


def repair_all(store: cc.Store) -> list[RepairResult]:
    """Heal everything; then nothing is found any more, a second time does nothing, and no message was touched."""
    before = rows(store)
    repaired = repair_conversations(store, found(store))
    assert found(store) == []
    assert repair_conversations(store, found(store)) == []
    assert [row for row in rows(store) if row in before] == before
    assert all(each.outcome == "healed" for each in repaired)
    return repaired


def test_open_calls_get_results_at_the_end(store: cc.Store) -> None:
    """Guarantee 5.3, pydantic-ai#4728: a dangling call stored once must not stay forever."""
    store.extend("demo", [cc.user("hi"), asks("a", "b", author="coder"), cc.user("hello?")])
    assert codes(store) == [("note", "open-call"), ("note", "open-call")]
    (repaired,) = repair_all(store)
    assert (repaired.appended, repaired.branches) == (2, {})
    *_, one, two = store.load("demo")
    assert [(each.role, each.author) for each in (one, two)] == [("tool", "coder")] * 2
    assert [result.call_id for each in (one, two) for result in each.tool_results] == ["a", "b"]
    assert one.tool_results[0].is_error
    assert one.tool_results[0].text.startswith("Interrupted: this call has no result.")


def test_requests_stay_what_they_were_when_open_calls_are_answered(store: cc.Store) -> None:
    """What repair appends is what every request had to make up."""
    store.extend("demo", [cc.user("hi"), asks("a")])
    before = cc.AnthropicFormatter().format(store.load("demo"))
    repair_all(store)
    assert cc.AnthropicFormatter().format(store.load("demo")) == before


def test_a_result_without_a_call_becomes_text(store: cc.Store) -> None:
    """openai-agents-python#4827: the result was stored, the call never. No model saw it so far."""
    store.extend("demo", [cc.user("hi"), cc.tool_result("gone", "f", "forty-two"), cc.assistant("ok")])
    (finding,) = found(store)
    assert (finding.kind, finding.code, finding.where) == ("note", "stray-result", "message 2")
    branch = store.conversation("demo").branch
    assert finding.would == (
        "would start a branch after message 1 with the 2 messages after it, with it as a text that names its tool, "
        f"and switch to it; branch {branch} stays"
    )
    (repaired,) = repair_all(store)
    assert texts_of(store) == ["user: hi", "user: [a result of f, whose call is not here:]forty-two", "assistant: ok"]
    assert list(repaired.branches) == [branch]
    assert [each.text for each in store.load("demo", branch=branch)] == ["hi", "", "ok"], "the old one stays"


def test_a_repaired_message_names_its_original(store: cc.Store) -> None:
    """A copy is found by the id of its original: a client that resends its history adds nothing."""
    store.extend("demo", [cc.user("hi", uid="u1"), cc.tool_result("gone", "f", "x"), cc.user("and?", uid="u3")])
    second = store.load("demo")[1]
    repair_all(store)
    messages = store.load("demo")
    assert [each.uid for each in messages] == ["u1", f"{second.uid}~2", "u3~2"]
    assert messages[1].meta is not None
    assert messages[1].meta["contextc_healed"]["of"] == second.uid
    assert messages[1].meta["contextc_healed"]["because"] == ["stray-result"]
    assert store.sync("demo", [cc.user("hi", uid="u1"), cc.user("and?", uid="u3")]) == []
    assert messages[0].meta is None


def test_a_second_result_becomes_text_unless_it_has_the_same_content(store: cc.Store) -> None:
    """Guarantee 5.3: of two results for one id the first wins."""
    results = [cc.tool_result("a", "f", text) for text in ("one", "one", "two")]
    store.extend("demo", [cc.user("hi"), asks("a"), *results, cc.assistant("done")])
    assert codes(store) == [("note", "second-result")] * 2
    repair_all(store)
    assert texts_of(store) == [
        "user: hi",
        "assistant: ",
        "tool: one",
        "user: [another result of f:]two",
        "assistant: done",
    ]


def test_results_parted_from_their_calls_are_brought_to_them(store: cc.Store) -> None:
    """A reminder between a call and its result → 400 elsewhere. Here every request is valid, repaired or not."""
    both = cc.Message(role="tool", parts=tuple(part for name in "ba" for part in cc.tool_result(name, "f", name).parts))
    store.extend("demo", [cc.user("hi"), asks("a", "b"), cc.user("and hurry"), both, cc.assistant("done")])
    assert codes(store) == [("note", "parted-result")] * 2
    repair_all(store)
    assert texts_of(store) == ["user: hi", "assistant: ", "tool: b|a", "user: and hurry", "assistant: done"]
    assert cc.lint(cc.AnthropicFormatter().format(store.load("demo")), format="anthropic") == []


def test_an_id_used_twice_at_once_is_distinguished(store: cc.Store) -> None:
    """Ids that are used again once they were answered are as some providers give them, and no finding."""
    fine = [cc.user("hi"), asks("a"), cc.tool_result("a", "f", "1"), asks("a"), cc.tool_result("a", "f", "2")]
    store.extend("fine", fine)
    store.extend("demo", [cc.user("hi"), asks("a", "a"), cc.tool_result("a", "f", "1"), cc.tool_result("a", "f", "2")])
    assert [(each.conversation, each.code) for each in found(store)] == [("demo", "reused-id")]
    repair_all(store)
    _, calls, one, two = store.load("demo")
    assert [each.id for each in calls.tool_calls] == ["a", "a_2"]
    assert [result.call_id for each in (one, two) for result in each.tool_results] == ["a", "a_2"]


def test_agents_with_the_same_ids_are_not_taken_for_each_other(store: cc.Store) -> None:
    results = [cc.tool_result("c1", "f", name, author=name) for name in ("two", "one")]
    store.extend("demo", [cc.user("hi"), asks("c1", author="one"), asks("c1", author="two"), *results])
    assert found(store) == []


def test_blank_messages_are_left_out(store: cc.Store) -> None:
    """hermes-agent#69512. Validation refuses them, so one is written directly into the table; its id is correct."""
    store.extend("demo", [cc.user("hi"), cc.user("blank"), cc.user("and?")])
    blank = cc.user(" \n")

    def work(tx: Transaction) -> None:
        message_log.insert_messages(
            tx,
            "demo",
            message_log.load_tip(tx, "demo"),
            [message_log.prepare_entry(ValidatedMessage(blank, canonical_content(blank), {}))],
        )

    store.write(work)
    store.append("demo", cc.assistant("yes"))
    assert codes(store) == [("note", "blank-message")]
    repair_all(store)
    assert texts_of(store) == ["user: hi", "user: blank", "user: and?", "assistant: yes"]


def test_valid_data_is_not_reported(store: cc.Store) -> None:
    """Redaction, failure, a reset and an empty reply are all as they should be."""
    store.extend("redacted", [cc.user("hi"), asks("a"), cc.tool_result("a", "f", "x"), asks("b")])
    store.append("redacted", cc.tool_result("b", "f", "y"))
    store.redact("redacted", 2)
    store.redact("redacted", 5)
    store.extend("failed", [cc.user("hi"), cc.assistant(status="error", error="x"), cc.assistant(finish="stop")])
    store.extend("reset", [cc.user("hi"), cc.tool_result("a", "f", "x"), asks("b")])
    store.reset("reset")
    store.append("reset", cc.tool_result("b", "f", "late"))
    store.extend("left", [cc.user("hi"), asks("a")])
    store.rewind("left", 1)
    assert found(store) == []


DAMAGE: dict[str, Callable[[cc.Store], object]] = {
    "broken-link": lambda store: change(store, 5, lambda body: body.replace(b"m5", b"M5")),
    "unreadable": lambda store: change(store, 5, lambda _: b"{"),
    "gap": lambda store: store.write(lambda tx: tx.run("DELETE FROM main.message WHERE place % 4294967296 IN (5, 6)")),
    "missing-blob": lambda store: store.write(lambda tx: tx.run("DELETE FROM main.blob")),
    "changed-blob": lambda store: store.write(lambda tx: tx.run("UPDATE main.blob SET data = ?", b"other")),
}


@pytest.mark.parametrize("code", DAMAGE)
def test_damage_is_repaired_on_a_branch_of_its_own(store: cc.Store, code: str) -> None:
    """Guarantee 3.4: the old branch stays; the conversation can be read, sent and gone on with."""
    store.extend("demo", [cc.user(f"m{number}") for number in range(1, 8)])
    store.append("demo", cc.user(["look", cc.Media(mime_type="image/png", data=PNG)]))
    store.append("demo", cc.user("last"), key="k")
    store.pin("demo", 9)
    old = store.conversation("demo").branch
    DAMAGE[code](store)
    (finding,) = found(store)
    assert (finding.kind, finding.code, finding.branches) == ("fault", code, (old,))
    base = 7 if "blob" in code else 4
    (repaired,) = repair_all(store)
    new = store.conversation("demo").branch
    assert repaired.branches == {old: new}
    assert f"would start a branch after message {base} with the {9 - base} messages after it" in finding.would
    assert f"Branch {new}, started after message {base}," in repaired.text
    texts = [each.text for each in store.load("demo")]
    middle = {"broken-link": ["M5", "m6"], "unreadable": ["", "m6"], "gap": [""]}.get(code, ["m5", "m6"])
    bytes_lost = "[image: image/png, 10 bytes; its bytes are lost]" if "blob" in code else ""
    assert texts == ["m1", "m2", "m3", "m4", *middle, "m7", f"look{bytes_lost}", "last"]
    assert store.pinned("demo") == [len(texts)]
    assert store.append("demo", cc.user("last"), key="k").seq == len(texts), "a client that repeats itself adds nothing"
    store.append("demo", cc.user("on"))
    compiled = cc.MessageCompiler(store, cc.provider("anthropic:claude-opus-5-5")).compile(
        "demo", max_input_tokens=8_000
    )
    assert cc.lint(compiled.params, format="anthropic") == []
    store.fork("demo", "clean")
    assert found(store) == []


def test_a_lost_message_is_reported_as_lost(store: cc.Store) -> None:
    """Nothing is made up in its place: people see a line, models do not."""
    store.extend("demo", [cc.user("hi"), cc.assistant("hello"), cc.user("bye")])
    change(store, 2, lambda body: body[:-3])
    repair_all(store)
    line = store.load("demo")[1]
    assert (line.role, line.status, line.parts) == ("assistant", "error", ())
    assert line.error is not None
    assert line.error.startswith("It cannot be read: ")
    assert line.error.endswith("could not be read when the conversation was healed.")


def test_results_of_a_lost_call_are_put_right_with_it(store: cc.Store) -> None:
    """One branch for all that is wrong on a line."""
    store.extend("demo", [cc.user("hi"), asks("a"), cc.tool_result("a", "f", "x"), asks("b"), cc.user("on")])
    change(store, 2, lambda _: b"{")
    assert codes(store) == [("fault", "unreadable"), ("note", "stray-result"), ("note", "open-call")]
    (repaired,) = repair_all(store)
    assert (len(repaired.branches), repaired.appended) == (1, 1)
    assert texts_of(store)[2] == "user: [a result of f, whose call is not here:]x"


def test_redacted_messages_stay_redacted_on_the_new_branch(store: cc.Store) -> None:
    """Guarantee 2.8."""
    store.extend("demo", [cc.user("hi"), cc.tool_result("x", "f", "1"), cc.user("secret"), cc.user("bye")])
    store.redact("demo", 3)
    repair_all(store)
    assert [each.redacted for each in store.load("demo")] == [False, False, True, False]
    assert store.read(lambda tx: tx.row("SELECT count(*) FROM main.message WHERE redacted = 1")) == (2,)


def test_what_was_repaired_stays_repaired_when_it_is_redacted(store: cc.Store) -> None:
    """Guarantee 2.8: the text is removed, but the note of the repair stays."""
    store.extend("demo", [cc.user("hi"), cc.user("secret", meta={"contextc_healed": "no", "mine": 1}), cc.user("bye")])
    change(store, 2, lambda body: body.replace(b"secret", b"SECRET"))
    repair_all(store)
    store.redact("demo", 2)
    assert found(store) == []
    assert store.load("demo")[1].parts == ()


def test_a_reset_stays_where_it_was(store: cc.Store) -> None:
    store.extend("demo", [cc.user("m1"), cc.user("m2"), cc.user("m3")])
    store.reset("demo")
    store.extend("demo", [cc.user("m4"), cc.user("m5")])
    change(store, 2, lambda body: body.replace(b"m2", b"M2"))
    repair_all(store)
    assert store.conversation("demo").context_start == 3
    assert [each.text for each in store.load("demo", after=3)] == ["m4", "m5"]


def test_every_conversation_on_the_damage_is_repaired_by_itself(store: cc.Store) -> None:
    """A fork shares the broken message; so does an older branch of the same conversation, which is not continued."""
    store.extend("demo", [cc.user(f"m{number}") for number in range(1, 8)])
    first = store.conversation("demo").branch
    store.fork("demo", "fork")
    store.append("fork", cc.user("of the fork"))
    store.edit("demo", 6, cc.user("edited"))
    second = store.conversation("demo").branch
    change(store, 3, lambda _: b"")
    lines = {finding.conversation: finding.branches for finding in found(store)}
    assert lines == {"demo": (first, second), "fork": (store.conversation("fork").branch,)}
    assert {each.conversation for each in found(store, "fork")} == {"fork"}
    assert len(repair_conversations(store, found(store, "fork"))) == 1
    assert [each.conversation for each in found(store)] == ["demo"]
    (repaired,) = repair_all(store)
    assert sorted(repaired.branches) == [first, second]
    assert [each.text for each in store.load("demo")] == ["m1", "m2", "", "m4", "m5", "edited"]
    assert [each.text for each in store.load("fork")][-1] == "of the fork"
    store.switch("demo", repaired.branches[first])
    assert [each.text for each in store.load("demo")] == ["m1", "m2", "", "m4", "m5", "m6", "m7"]
    store.switch("demo", first)
    assert [each.code for each in found(store)] == ["unreadable"], "who goes back to it is told again"


def test_a_branch_with_a_lost_base_is_restarted(store: cc.Store) -> None:
    store.extend("demo", [cc.user("m1"), cc.user("m2"), cc.user("m3")])
    store.fork("demo", "fork", at=2)
    store.fork("demo", "empty", at=1)
    store.append("fork", cc.user("mine"))
    store.write(lambda tx: tx.run("UPDATE main.branch SET base_id = ? WHERE parent IS NOT NULL", b"x"))
    assert {(each.conversation, each.code) for each in found(store)} >= {("fork", "lost-base"), ("empty", "lost-base")}
    repair_all(store)
    assert texts_of(store, "fork") == ["user: m1", "user: m2", "user: mine"]
    assert texts_of(store, "empty") == ["user: m1"]


def test_a_conversation_with_a_running_turn_is_left_alone(store: cc.Store) -> None:
    """Guarantee 3.6: another's live turn is never touched."""
    for name in ("busy", "idle"):
        store.extend(name, [cc.user("hi"), asks("a")])
    findings = found(store)
    with store.lease("busy", agent="coder"):
        outcomes = {each.conversation: each.outcome for each in repair_conversations(store, findings)}
        assert outcomes == {"busy": "left", "idle": "healed"}
        assert len(store.load("busy")) == 2
    (repaired,) = repair_conversations(store, found(store))
    assert (repaired.conversation, repaired.outcome) == ("busy", "healed")


def test_what_is_repaired_meanwhile_is_not_repaired_twice(store: cc.Store) -> None:
    store.extend("demo", [cc.user("hi"), cc.tool_result("x", "f", "1"), asks("a")])
    findings = found(store)
    assert [each.outcome for each in repair_conversations(store, findings)] == ["healed"]
    before = rows(store)
    assert [each.outcome for each in repair_conversations(store, findings)] == ["sound"]
    assert rows(store) == before


def test_only_what_was_given_is_repaired(store: cc.Store) -> None:
    store.extend("demo", [cc.user("hi"), cc.tool_result("x", "f", "1"), asks("a")])
    branch = store.conversation("demo").branch
    repair_conversations(store, [each for each in found(store) if each.code == "open-call"])
    assert store.conversation("demo").branch == branch
    assert codes(store) == [("note", "stray-result")]


def repair_at_once(address: str, start: Barrier) -> None:
    with cc.open_store(address) as store:
        findings = found(store)
        start.wait(60)
        repair_conversations(store, findings)


def ruin(store: cc.Store, name: str, length: int) -> None:
    store.extend(name, [cc.user("hi"), cc.tool_result("x", "f", "stray"), asks("a")])
    store.extend(name, [cc.user(f"m{number}") for number in range(length)])


def test_two_repairs_at_once_repair_once(shared_address: str) -> None:
    """Guarantee 3.2."""
    with cc.open_store(shared_address) as store:
        for number in range(4):
            ruin(store, f"c{number}", 5)
    start = PROCESSES.Barrier(2)
    healers = [PROCESSES.Process(target=repair_at_once, args=(shared_address, start)) for _ in range(2)]
    for healer in healers:
        healer.start()
    for healer in healers:
        healer.join(120)
    assert [healer.exitcode for healer in healers] == [0, 0]
    with cc.open_store(shared_address) as store:
        assert found(store) == []
        for number in range(4):
            assert len(store.branches(f"c{number}")) == 2
            assert len(store.load(f"c{number}")) == 9


def repair_until_killed(address: str, pipe: Connection) -> None:
    with cc.open_store(address) as store:
        findings = found(store)
        pipe.send("go")
        repair_conversations(store, findings, lambda done, _: pipe.send(done))


def test_a_killed_repair_process_leaves_each_conversation_repaired_or_untouched(shared_address: str) -> None:
    """Guarantee 3.2, kill -9: eight conversations, and a kill at a later moment each time."""
    names = [f"c{number}" for number in range(8)]
    with cc.open_store(shared_address) as store:
        for name in names:
            ruin(store, name, 60)
    for pause in (0.0, 0.002, 0.005, 0.01, 0.02):
        ours, theirs = PROCESSES.Pipe(duplex=False)
        child = PROCESSES.Process(target=repair_until_killed, args=(shared_address, theirs))
        child.start()
        theirs.close()
        assert ours.poll(60)
        assert ours.recv() == "go"
        time.sleep(pause)
        child.kill()  # it may have ended
        child.join()
        ours.close()
        with cc.open_store(shared_address) as store:
            left = {finding.conversation for finding in found(store)}
            for name in names:
                assert len(store.branches(name)) == (1 if name in left else 2)
                assert len(store.load(name)) == (63 if name in left else 64)
            assert all(finding.kind == "note" for finding in found(store))
    with cc.open_store(shared_address) as store:
        repair_conversations(store, found(store))
        assert found(store) == []


def test_a_body_of_another_shape_is_damage_too(store: cc.Store) -> None:
    """What can be read, and says another place than it has."""
    store.extend("demo", [cc.user("m1"), cc.user("m2")])
    change(
        store, 2, lambda body: encode_message(cc.Message(role="user", parts=decode_message(body).parts, uid="x", seq=7))
    )
    assert codes(store) == [("fault", "broken-link")]
    repair_all(store)
    assert texts_of(store) == ["user: m1", "user: m2"]


def test_redacting_a_copy_redacts_its_original(store: cc.Store) -> None:
    """Guarantee 2.8: the text is removed from every copy; an edit under the same uid has other text, and stays."""
    store.extend(
        "demo", [cc.user("hi"), cc.tool_result("x", "f", "secret1"), cc.user("secret2"), cc.user("old", uid="u")]
    )
    repair_all(store)
    store.sync("demo", [cc.user("hi"), cc.user("edited", uid="u")])
    seqs = {each.text: each.seq for each in store.load("demo")}
    assert "edited" in seqs
    store.switch("demo", store.branches("demo")[1].number)
    for seq in (2, 3, 4):
        store.redact("demo", seq)
    bodies = b"".join(bytes(str(row).encode()) for row in rows(store))
    assert [text in bodies for text in (b"secret1", b"secret2", b"old", b"edited")] == [False, False, False, True]
    assert found(store) == []
