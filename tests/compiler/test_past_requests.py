"""Past requests: built again to the byte, told about, and forgotten where their content is. Guarantees 13.2, 2.8,
7.2.
"""

import pytest

import contextc as cc
from contextc.compiler.ledger import get_channel_cache
from tests.store.stored_text import find_secrets

READ = cc.Tool(name="read", description="Reads a file.", parameters={"type": "object", "properties": {}})
PROVIDERS = ("anthropic:claude-opus-5-5", "openai:gpt-6.1-terra", "openai-chat:gpt-4.1", "gemini:gemini-3-pro-preview")


def run(store: cc.Store, compiler: cc.MessageCompiler, steps: int) -> list[bytes]:
    """A conversation with tools, and dynamic state that changes; the bytes of each request as they went out."""
    sent: list[bytes] = []
    for number in range(steps):
        if number % 3 == 0:
            store.append("demo", cc.user(f"question {number} " + "word " * 60))
        compiled = compiler.compile(
            "demo",
            instructions=["You are careful. " * 200, cc.PromptFragment("state", f"{number // 2} done", "dynamic")],
            tools=[READ],
        )
        sent.append(compiled.body)
        call = cc.ToolCall(id=f"c{number}", name="read", arguments={"n": number})
        with compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant(f"step {number}", tool_calls=[call] if number % 3 != 2 else []))
        if number % 3 != 2:
            store.append("demo", cc.tool_result(call.id, "read", f"line {number} " * 40))
    return sent


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_past_request_is_built_again_to_the_byte(store: cc.Store, name: str) -> None:
    """Guarantee 13.2: across cuts, without caches, by another compiler."""
    provider = cc.provider(name, window=3_500, output=500)
    sent = run(store, cc.MessageCompiler(store, provider), 24)
    get_channel_cache(store).clear()
    again = cc.MessageCompiler(store, provider)
    assert [again.rebuild("demo", number) for number in range(1, 25)] == sent
    whys = [again.explain("demo", number).why for number in range(1, 25)]
    assert whys[0] == "first request"
    assert "over budget" in whys


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_forks_requests_are_built_again_though_they_stand_on_its_parents_rows(store: cc.Store, name: str) -> None:
    """Guarantees 13.2, 9.9a: its first request begins no epoch, and goes on where the parent was."""
    compiler = cc.MessageCompiler(store, cc.provider(name))
    run(store, compiler, 3)
    store.fork("demo", "other")
    sent: list[bytes] = []
    for text in ("and here?", "and then?"):
        store.append("other", cc.user(text))
        compiled = compiler.compile("other", instructions="You are careful. " * 200, tools=[READ])
        sent.append(compiled.body)
        with compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("yes"))
    get_channel_cache(store).clear()
    assert [compiler.rebuild("other", number) for number in (1, 2)] == sent
    manifest = compiler.explain("other", 2)
    assert (manifest.why, [fragment.id for fragment in manifest.fragments]) == ("", ["instructions"])
    assert [line.seq for line in manifest.lines if line.kind == "message"] == list(range(1, 10))


def test_the_account_of_a_past_request_is_read_again(store: cc.Store) -> None:
    """Guarantee 13.1: what is stored is what is new; the rest is derived."""
    compiler = cc.MessageCompiler(store, cc.provider("anthropic:claude-opus-5-5"))
    run(store, compiler, 4)
    last = compiler.explain("demo")
    assert (last.record.request, last.mode, last.epoch) == (4, "full", 1)
    assert [(line.seq, line.role) for line in last.lines if line.kind == "message"][:3] == [
        (1, "user"),
        (2, "assistant"),
        (3, "tool"),
    ]
    assert len(compiler.explain("demo", 2).lines) < len(last.lines)
    for wrong in (0, 5):
        with pytest.raises(cc.errors.InvalidInput, match="has requests 1 to 4"):
            compiler.explain("demo", wrong)
    with pytest.raises(cc.errors.InvalidInput, match="has no request for nobody"):
        compiler.explain("demo", name="nobody")


def test_what_was_left_out_on_another_branch_is_not_in_the_account_of_this_one(store: cc.Store) -> None:
    """Guarantee 13.1: after a switch the manifest describes the branch that was sent, and no other."""
    compiler = cc.MessageCompiler(store, cc.provider("anthropic:claude-opus-5-5"))
    store.append("demo", cc.user("here"))
    first = store.branches("demo")[0].number
    store.edit("demo", 1, cc.user("there"))
    store.append("demo", cc.assistant("half a", status="error", error="529"))
    for text in ("and?", "and so?"):
        compiled = compiler.compile("demo")
        with compiler.attempt(compiled) as attempt:
            attempt.commit(cc.assistant("yes"))
        store.switch("demo", first)
        store.append("demo", cc.user(text))
    assert [(line.shown, line.why) for line in compiler.explain("demo", 1).lines][-1] == (False, "it ended as error")
    assert [(line.seq, line.shown) for line in compiler.explain("demo", 2).lines] == [(1, True), (2, True)]


def test_what_is_redacted_goes_from_the_ledger_and_later_requests_report_it(store: cc.Store) -> None:
    """Guarantee 2.8: from blobs and ledgers too; its place stays."""
    compiler = cc.MessageCompiler(store, cc.provider("anthropic:claude-opus-5-5"))
    store.append("demo", cc.user("my password is swordfish"))
    compiled = compiler.compile("demo")
    with compiler.attempt(compiled) as attempt:
        attempt.commit(cc.assistant("I will forget it."))
    store.redact("demo", 1)
    rows = store.read(lambda tx: tx.rows("SELECT items, wire FROM main.shown"))
    assert not [row for row in rows if b"swordfish" in row[0] or b"swordfish" in row[1]]
    store.append("demo", cc.user("did you?"))
    later = compiler.compile("demo")
    assert later.manifest.why == "redacted"
    assert b"swordfish" not in later.body
    assert [message["role"] for message in later.params["messages"]] == ["user", "assistant", "user"]
    assert "[removed]" in str(later.manifest)
    with pytest.raises(cc.errors.InvalidInput, match="redacted since"):
        compiler.rebuild("demo", 1)


def test_a_deleted_conversation_leaves_no_ledger_and_its_fork_continues(store: cc.Store) -> None:
    """Guarantees 3.4, 9.9a: the fork shows everything again, and says why."""
    compiler = cc.MessageCompiler(store, cc.provider("anthropic:claude-opus-5-5"))
    run(store, compiler, 3)
    store.fork("demo", "other")
    store.append("other", cc.user("and here?"))
    forked = compiler.compile("other", tools=[READ])
    with compiler.attempt(forked) as attempt:
        attempt.commit(cc.assistant("yes"))
    store.delete("demo")
    get_channel_cache(store).clear()
    store.append("other", cc.user("still there?"))
    compiled = compiler.compile("other", tools=[READ])
    assert compiled.manifest.why == "the conversation it was forked from was deleted"
    assert compiled.params["messages"][0]["content"][0]["text"].startswith("question 0")
    assert not cc.lint(compiled.params, format="anthropic")
    store.delete("other")
    for table in ("channel", "shown", "manifest", "head", "overlay", "pin"):
        assert store.read(lambda tx, table=table: tx.rows(f"SELECT * FROM main.{table}")) == []


def test_a_result_that_was_left_out_can_be_fetched(store: cc.Store) -> None:
    """Guarantee 7.2: by the id in its stub."""
    compiler = cc.MessageCompiler(store, cc.provider("anthropic:claude-sonnet-4-5", window=4_000, output=500))
    store.append("demo", cc.user("read it"))
    call = cc.ToolCall(id="c1", name="read", arguments={})
    with compiler.attempt(compiler.compile("demo", tools=[READ])) as attempt:
        attempt.commit(cc.assistant(tool_calls=[call]))
    store.append("demo", cc.tool_result("c1", "read", "".join(f"line {number}\n" for number in range(3_000))))
    compiled = compiler.compile("demo", tools=[READ])
    shown = compiled.params["messages"][-1]["content"][0]["content"]
    assert 'Call fetch_result with id "r3" and offset' in shown
    assert [tool["name"] for tool in compiled.params["tools"]] == ["read", "fetch_result", "search_history"]

    def fetch(**arguments: object) -> str:
        return compiler.fetch("demo", cc.ToolCall(id="f", name="fetch_result", arguments=arguments))

    assert fetch(id="r3", offset=7, length=6) == "line 1\n[28,877 characters follow; read on with offset 13.]"
    assert fetch(id="r3", offset=28_880, length=100) == "line 2999\n"
    assert "nothing at offset" in fetch(id="r3", offset=90_000)
    assert (fetch(id="r1"), fetch(id="r2")) == ("read it", "read: ")
    for wrong in ("r9", "r1.2", "r3.2", "r3.0", "x", None, 3):
        assert "no result" in fetch(id=wrong) or "no id" in fetch(id=wrong)
    assert fetch(id="r3", offset="x", length=None).startswith("line 0")


def step(store: cc.Store, compiler: cc.MessageCompiler, text: str) -> None:
    store.append("demo", cc.user(text))
    compiled = compiler.compile("demo", instructions="You are a coder.")
    with compiler.attempt(compiled) as attempt:
        attempt.commit(cc.assistant("ok"))


@pytest.mark.parametrize("is_other", [False, True])
def test_requests_after_a_redacted_system_message_are_built_again(shared_address: str, is_other: bool) -> None:
    """Guarantee 13.2: what a compiler knows to be stored ends with a redaction, by this handle or by another one."""
    with cc.open_store(shared_address) as store, cc.open_store(shared_address) as other:
        compiler = cc.MessageCompiler(store, PROVIDERS[0])
        step(store, compiler, "one")
        store.reset("demo")
        secret = store.append("demo", cc.system("customer Quibble is angry"))
        step(store, compiler, "two")
        (other if is_other else store).redact("demo", secret.uid)
        step(store, compiler, "three")
        step(store, compiler, "four")
        assert [b"You are a coder." in compiler.rebuild("demo", number) for number in (1, 3, 4)] == [True] * 3
        with pytest.raises(cc.errors.InvalidInput, match="redacted since"):
            compiler.rebuild("demo", 2)
        assert find_secrets(store, {"text": "Quibble"}) == {}


def test_a_system_message_leaves_prompts_of_branches_that_were_left(store: cc.Store) -> None:
    """Guarantee 2.8: a prompt is searched for the text, whatever the conversation begins with now."""
    compiler = cc.MessageCompiler(store, PROVIDERS[0])
    secret = store.append("demo", cc.system("customer Quibble is angry"))
    step(store, compiler, "one")
    store.rewind("demo", 0)
    step(store, compiler, "two")
    store.redact("demo", secret)
    assert find_secrets(store, {"text": "Quibble"}) == {}
    step(store, compiler, "three")
    assert [len(compiler.rebuild("demo", number)) > 0 for number in (2, 3)] == [True, True]


def test_a_system_message_redacted_while_the_model_answers_is_not_stored(store: cc.Store) -> None:
    """Guarantee 2.8: its prompt was not stored yet, so nothing showed that it had changed."""
    compiler = cc.MessageCompiler(store, PROVIDERS[0])
    store.extend("demo", [cc.system("customer Quibble is angry"), cc.user("hi")])
    compiled = compiler.compile("demo")
    compiler.begin(compiled)
    store.redact("demo", 1)
    with pytest.raises(cc.errors.StaleCompile, match="redacted"):
        compiler.commit(compiled, cc.assistant("ok"))
    compiler.abort(compiled, "refused: customer Quibble is angry")
    assert find_secrets(store, {"text": "Quibble"}) == {}
